//! Pictures of a grid: for a terminal ([`text`]) and for a page ([`svg`]).
//!
//! Comes in: a grid. Goes out: text. Here is what both pictures share: the summary, the places where tiles live, numbers and texts of others for people. Pure: reads no value of
//! any tile. Never here: colours of a terminal, files, the size of the window.

mod summary;
mod svg;
mod text;
mod visible;

use std::collections::HashMap;

use crate::grid::{PartitionGrid, Tile};
use crate::location::{Locality, Location};

pub use summary::{html, summary};
pub use svg::{escaped, svg};
pub use text::text;
#[cfg(feature = "cli")]
pub(crate) use visible::steers;
pub use visible::{bounded, visible, visible_lines};

/// `336,776 rows x 19 columns`.
fn shape_line(grid: &PartitionGrid) -> String {
    let rows = counted(grid.num_rows(), "row");
    format!("{rows} x {}", counted(grid.num_columns() as u64, "column"))
}

/// Shape and tiling in one line, and how many tiles are lost, if any are.
fn head_line(grid: &PartitionGrid) -> String {
    let lost = lost_line(grid).map_or_else(String::new, |line| format!(", {line}"));
    format!("{} in {}{lost}", shape_line(grid), tiling_line(grid))
}

/// `12 x 1 tiles, 48.3 MB`, and how much of it is in shared memory.
fn tiling_line(grid: &PartitionGrid) -> String {
    let (down, across) = (grid.rows().num_intervals(), grid.columns().num_intervals());
    let noun = if grid.tiles().len() == 1 {
        "tile"
    } else {
        "tiles"
    };
    let size = bytes(grid.memory_bytes());
    let is_shared = |tile: &&Tile| {
        let data = tile.data();
        data.home() == Locality::Shared && !data.is_lost()
    };
    let place = match grid.tiles().iter().filter(is_shared).count() {
        0 => String::new(),
        all if all == grid.tiles().len() => " in shared memory".to_owned(),
        some => format!(", {} in shared memory", counted(some as u64, "tile")),
    };
    format!(
        "{} x {} {noun}, {size}{place}",
        thousands(down as u64),
        thousands(across as u64)
    )
}

/// `6 of 12 tiles lost`, if nobody has some of them any more.
fn lost_line(grid: &PartitionGrid) -> Option<String> {
    let all = counted(grid.tiles().len() as u64, "tile");
    match num_lost(grid.tiles().iter()) {
        0 => None,
        some => Some(format!("{} of {all} lost", thousands(some))),
    }
}

/// How many of some tiles nobody has any more.
fn num_lost<'a>(tiles: impl Iterator<Item = &'a Tile>) -> u64 {
    tiles.map(|tile| u64::from(tile.data().is_lost())).sum()
}

/// What is said of so many tiles after the location where they are, or were.
fn lost_words(num_lost: u64, num_tiles: u64) -> String {
    match num_lost {
        0 => String::new(),
        all if all == num_tiles => ", lost".to_owned(),
        some => format!(", {} lost", thousands(some)),
    }
}

/// A location, and the tiles that are there.
struct Place {
    location: Location,
    num_tiles: u64,
    /// Those of them that nobody has any more.
    num_lost: u64,
}

/// Where the tiles of a grid are.
struct Places {
    /// Each location, in the order in which they first occur.
    places: Vec<Place>,
    numbers: HashMap<Location, usize>,
    /// Tiles that no process has in memory.
    num_nowhere: u64,
}

impl Places {
    fn of(grid: &PartitionGrid) -> Self {
        let mut places = Self {
            places: Vec::new(),
            numbers: HashMap::new(),
            num_nowhere: 0,
        };
        for tile in grid.tiles() {
            places.count(tile);
        }
        places
    }

    fn count(&mut self, tile: &Tile) {
        let locations = tile.locations();
        self.num_nowhere += u64::from(locations.is_empty());
        let num_lost = u64::from(tile.data().is_lost());
        for location in locations {
            let next = self.places.len();
            let number = *self.numbers.entry(location.clone()).or_insert(next);
            match self.places.get_mut(number) {
                Some(place) => {
                    place.num_tiles += 1;
                    place.num_lost += num_lost;
                }
                None => self.places.push(Place {
                    location,
                    num_tiles: 1,
                    num_lost,
                }),
            }
        }
    }

    /// The number of the first location of a tile; `None` for a tile that no process has in memory.
    fn number_of(&self, tile: &Tile) -> Option<usize> {
        self.numbers.get(tile.locations().first()?).copied()
    }

    /// One line for each location, `192.0.2.7 pid 4711: 12 tiles`, without the tiles that are nowhere.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.places.iter().map(|place| {
            let tiles = counted(place.num_tiles, "tile");
            let lost = lost_words(place.num_lost, place.num_tiles);
            format!("{}: {tiles}{lost}", place.location)
        })
    }

    /// The line for tiles that no process has in memory, if there are any.
    fn nowhere_line(&self) -> Option<String> {
        let line = || format!("not in memory: {}", counted(self.num_nowhere, "tile"));
        (self.num_nowhere > 0).then(line)
    }
}

/// `1 row`, `28,064 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count))
}

/// A number with commas between groups of three digits.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in decimal units with one digit after the point: `48.3 MB`; below 1 kB as it is: `17 B`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 6] = [
        ("EB", 1_000_000_000_000_000_000),
        ("PB", 1_000_000_000_000_000),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
    ];
    // From 999.95 of the smaller unit on, one digit after the point would read 1000.0.
    let fits = |size: u64| count >= size - size / 20_000 && count >= 1_000;
    match UNITS.into_iter().find(|(_, size)| fits(*size)) {
        Some((unit, size)) => format!("{:.1} {unit}", count as f64 / size as f64),
        None => format!("{count} B"),
    }
}

/// Whether every character of a name takes one column of a terminal.
fn name_is_plain(name: &str) -> bool {
    let wide_or_hidden = |character: char| {
        character.is_control()
            || character >= '\u{1100}'
            || ('\u{300}'..'\u{370}').contains(&character)
    };
    !name.chars().any(wide_or_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_between_groups_of_three() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (336_776, "336,776"),
        ];
        for (number, expected) in cases {
            assert_eq!(thousands(number), expected);
        }
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_are_in_the_greatest_decimal_unit_that_keeps_a_digit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (48_300_000, "48.3 MB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn one_of_a_thing_has_no_plural() {
        assert_eq!(
            (counted(1, "row"), counted(0, "row")),
            ("1 row".into(), "0 rows".into())
        );
    }
}

//! A grid drawn with box characters.
//!
//! Comes in: a grid and a width in characters. Goes out: lines without a line end after the last. Never here: more than [`MAX_ROW_BANDS`] row bands or than
//! the width holds; what is left out is counted in words.

use super::{Places, bytes, counted, head_line, name_is_plain, thousands};
use crate::grid::{PartitionGrid, Tile};

/// How many row bands, and how many locations, are shown at most.
const MAX_ROW_BANDS: usize = 16;
/// Narrower and wider wishes are rounded to these widths.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=500;
/// More column bands than this never fit the greatest width.
const MAX_COLUMN_BANDS: usize = 80;
/// What the column of dots in place of column bands takes: a border, two blanks, the dots.
const GAP_WIDTH: usize = 4;

/// The grid as lines: a summary, the tiles with their rows and bytes, and where they are. The tiles take at most `width` characters (which counts as 40 when it
/// is less and as 500 when it is more), unless a single one needs more; the summary and the locations are never cut.
#[must_use]
pub fn text(grid: &PartitionGrid, width: usize) -> String {
    let places = Places::of(grid);
    let drawing = Drawing::new(grid, &places, width.clamp(*WIDTHS.start(), *WIDTHS.end()));
    let mut lines = vec![head_line(grid)];
    lines.push(drawing.header());
    lines.push(drawing.border(['┌', '┬', '┐']));
    let last = drawing.rows.len().saturating_sub(1);
    for (place, part) in drawing.rows.iter().enumerate() {
        match part {
            Part::Band(row_band) => lines.push(drawing.band(*row_band)),
            Part::Gap(count) => lines.push(drawing.gap(*count)),
        }
        let next_is_band = matches!(drawing.rows.get(place + 1), Some(Part::Band(_)));
        if place < last && next_is_band && matches!(part, Part::Band(_)) {
            lines.push(drawing.border(['├', '┼', '┤']));
        }
    }
    lines.push(drawing.border(['└', '┴', '┘']));
    lines.extend(drawing.columns.iter().filter_map(|part| match part {
        Part::Band(_) => None,
        Part::Gap(count) => Some(format!("… {} left out", counted(*count, "column band"))),
    }));
    lines.extend(place_lines(&places));
    lines.join("\n")
}

/// What stands at one place along an axis of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Band(usize),
    /// So many bands are left out here.
    Gap(u64),
}

/// All bands, or `room` of them, half at either end, around a gap.
fn parts(num_bands: usize, room: usize) -> Vec<Part> {
    if num_bands <= room {
        return (0..num_bands).map(Part::Band).collect();
    }
    let head = room.div_ceil(2);
    let tail = num_bands - (room - head);
    let gap = Part::Gap((tail - head) as u64);
    let bands = (0..head).map(Part::Band);
    bands
        .chain([gap])
        .chain((tail..num_bands).map(Part::Band))
        .collect()
}

struct Drawing<'a> {
    grid: &'a PartitionGrid,
    places: &'a Places,
    rows: Vec<Part>,
    columns: Vec<Part>,
    /// Characters of the first row numbers left of the tiles.
    gutter_width: usize,
    /// Characters within a tile, the same for all.
    cell_width: usize,
}

impl<'a> Drawing<'a> {
    fn new(grid: &'a PartitionGrid, places: &'a Places, width: usize) -> Self {
        let rows = parts(grid.rows().num_intervals(), MAX_ROW_BANDS);
        let starts = rows
            .iter()
            .map(|part| start_of(grid, *part).chars().count());
        let mut drawing = Self {
            grid,
            places,
            gutter_width: starts.max().unwrap_or(0),
            rows,
            columns: parts(grid.columns().num_intervals(), MAX_COLUMN_BANDS),
            cell_width: 0,
        };
        drawing.cell_width = drawing.narrowest_cell();
        drawing.fit(width);
        drawing
    }

    /// The width that the numbers of the greatest tile need.
    fn narrowest_cell(&self) -> usize {
        let of_band = |column_band: usize| {
            let count = counted(self.num_columns(column_band), "column")
                .chars()
                .count();
            let cells = bands(&self.rows).map(|row_band| self.cell(row_band, column_band));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .max(count)
        };
        bands(&self.columns).map(of_band).max().unwrap_or(0)
    }

    /// Leaves out column bands until the rest fits, then widens the cells for column names that can be shown.
    fn fit(&mut self, width: usize) {
        let num_bands = self.grid.columns().num_intervals();
        let space = width.saturating_sub(self.gutter_width + 2);
        let cell = self.cell_width + 3;
        if num_bands > space / cell {
            let room = space.saturating_sub(GAP_WIDTH) / cell;
            self.columns = parts(num_bands, room.max(1));
        }
        let gaps = self
            .columns
            .iter()
            .filter(|part| matches!(part, Part::Gap(_)))
            .count();
        let num_shown = self.columns.len() - gaps;
        let most = (space.saturating_sub(gaps * GAP_WIDTH) / num_shown.max(1)).saturating_sub(3);
        let names = bands(&self.columns).filter_map(|column_band| self.names(column_band));
        let lengths = names
            .map(|text| text.chars().count())
            .filter(|length| *length <= most);
        self.cell_width = lengths.max().unwrap_or(0).max(self.cell_width);
    }

    fn header(&self) -> String {
        let cells = self.columns.iter().map(|part| match part {
            Part::Gap(_) => "…".to_owned(),
            Part::Band(column_band) => {
                let fits = |names: &String| names.chars().count() <= self.cell_width;
                let names = self.names(*column_band).filter(fits);
                let count = || counted(self.num_columns(*column_band), "column");
                self.padded(&names.unwrap_or_else(count))
            }
        });
        let cells: Vec<String> = cells.collect();
        let line = format!("{}   {}", " ".repeat(self.gutter_width), cells.join("   "));
        line.trim_end().to_owned()
    }

    fn border(&self, [left, cross, right]: [char; 3]) -> String {
        let cells = self.columns.iter().map(|part| match part {
            Part::Gap(_) => "─".repeat(GAP_WIDTH - 1),
            Part::Band(_) => "─".repeat(self.cell_width + 2),
        });
        let cells = cells.collect::<Vec<_>>().join(&cross.to_string());
        format!("{} {left}{cells}{right}", " ".repeat(self.gutter_width))
    }

    fn band(&self, row_band: usize) -> String {
        let cells = self.columns.iter().map(|part| match part {
            Part::Gap(_) => "…".to_owned(),
            Part::Band(column_band) => self.padded(&self.cell(row_band, *column_band)),
        });
        let cells: Vec<String> = cells.collect();
        let start = start_of(self.grid, Part::Band(row_band));
        let gutter_width = self.gutter_width;
        format!("{start:>gutter_width$} │ {} │", cells.join(" │ "))
    }

    fn gap(&self, num_bands: u64) -> String {
        let gutter = " ".repeat(self.gutter_width);
        format!("{gutter} ⋮ {} left out", counted(num_bands, "row band"))
    }

    fn padded(&self, cell: &str) -> String {
        let cell_width = self.cell_width;
        format!("{cell:<cell_width$}")
    }

    /// `28,064 rows, 4.0 MB`, with the number of the location when there are several, and whether nobody has the tile any more.
    fn cell(&self, row_band: usize, column_band: usize) -> String {
        let tiles: &[Tile] = self.grid.row_band(row_band);
        let Some(tile) = tiles.get(column_band) else {
            return String::new();
        };
        let (rows, size) = (
            counted(tile.num_rows(), "row"),
            bytes(tile.data().memory_bytes()),
        );
        let lost = if tile.data().is_lost() { ", lost" } else { "" };
        match self.places.number_of(tile) {
            Some(number) if self.places.places.len() > 1 => {
                format!("{rows}, {size}{lost} [{}]", number + 1)
            }
            _ => format!("{rows}, {size}{lost}"),
        }
    }

    fn num_columns(&self, column_band: usize) -> u64 {
        let columns = self.grid.columns().interval(column_band);
        columns.map_or(0, |columns| columns.end - columns.start)
    }

    /// The names of a column band side by side, unless they surely do not fit or would shift the borders.
    fn names(&self, column_band: usize) -> Option<String> {
        let columns = self.grid.columns().interval(column_band)?;
        let start = usize::try_from(columns.start).ok()?;
        let stop = usize::try_from(columns.end).ok()?;
        let fields = self.grid.schema().fields().get(start..stop)?;
        if fields.is_empty() || fields.len() > *WIDTHS.end() {
            return None;
        }
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        names
            .iter()
            .all(|name| name_is_plain(name))
            .then(|| names.join(", "))
    }
}

fn bands(parts: &[Part]) -> impl Iterator<Item = usize> + '_ {
    parts.iter().filter_map(|part| match part {
        Part::Band(band) => Some(*band),
        Part::Gap(_) => None,
    })
}

/// The first row of a row band.
fn start_of(grid: &PartitionGrid, part: Part) -> String {
    match part {
        Part::Band(band) => grid
            .rows()
            .interval(band)
            .map_or_else(String::new, |rows| thousands(rows.start)),
        Part::Gap(_) => String::new(),
    }
}

fn place_lines(places: &Places) -> Vec<String> {
    let several = places.places.len() > 1;
    let number = |(place, line)| {
        if several {
            format!("[{}] {line}", place + 1)
        } else {
            line
        }
    };
    let mut lines: Vec<String> = places
        .lines()
        .enumerate()
        .map(number)
        .take(MAX_ROW_BANDS)
        .collect();
    let left_out = places.places.len().saturating_sub(MAX_ROW_BANDS);
    if left_out > 0 {
        lines.push(format!(
            "… {} left out",
            counted(left_out as u64, "location")
        ));
    }
    lines.extend(places.nowhere_line());
    lines
}

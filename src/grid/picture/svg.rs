//! A grid drawn as a small SVG, for a notebook or a page.
//!
//! Comes in: a grid. Goes out: one `<svg>` element with a rectangle for each tile, or for each block of neighbouring tiles where there are too many. It needs
//! nothing from elsewhere, runs nothing, and takes the text colour of the page. Never here: names that were not escaped.

use std::ops::Range;

use super::{Places, bytes, counted, lost_line, lost_words, num_lost, shape_line, tiling_line};
use crate::grid::{Axis, PartitionGrid, Tile};

/// Width of the picture, in pixels.
const WIDTH: u32 = 240;
/// Least and greatest height of the rectangles together, in pixels.
const HEIGHTS: [u32; 2] = [72, 240];
/// How many rectangles are drawn at most.
const MAX_BLOCKS: usize = 400;
/// How many rectangles are drawn at most side by side or one below the other, so that each has `LEAST_SIDE`.
const MAX_BLOCKS_ALONG: usize = 80;
/// The least width and height of a rectangle, in pixels.
const LEAST_SIDE: f64 = 3.0;
/// How many locations the legend names.
const MAX_LEGEND: usize = COLOURS.len();
/// Height of a line of text, in pixels.
const LINE: u32 = 14;
/// Characters of a line of text that surely fit the width.
const MAX_CHARACTERS: usize = 38;

/// The colours of Okabe and Ito, which people with any kind of colour vision tell apart, without the yellow that white pages swallow.
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];
/// For further locations, blocks of tiles of several locations, and tiles that are in no memory.
const OTHER: &str = "#999999";

/// The grid as an inline SVG, 240 pixels wide. The area of a rectangle grows with rows x columns, its colour is the tile's first location, and it tells more when
/// pointed at. Grids of more than 400 tiles, or of more than 80 along one axis, are drawn in blocks of neighbouring tiles, and say so.
#[must_use]
pub fn svg(grid: &PartitionGrid) -> String {
    let places = Places::of(grid);
    let [down, across] = blocks(grid.rows().num_intervals(), grid.columns().num_intervals());
    let (row_blocks, column_blocks) = (cut(grid.rows(), down), cut(grid.columns(), across));
    let height = u32::try_from(down).unwrap_or(u32::MAX).saturating_mul(24);
    let height = height.clamp(HEIGHTS[0], HEIGHTS[1]);
    let mut rectangles = String::new();
    let columns: Vec<Side> = sides(&column_blocks, WIDTH);
    for (rows, vertical) in row_blocks.iter().zip(sides(&row_blocks, height)) {
        for (columns, horizontal) in column_blocks.iter().zip(&columns) {
            let block = Block::new(grid, &places, [rows, columns]);
            rectangles.push_str(&block.rectangle(*horizontal, vertical));
        }
    }
    let merged = down * across < grid.tiles().len();
    let note = merged.then(|| format!("drawn as {down} x {across} blocks of neighbouring tiles"));
    let captions: Vec<String> = [shape_line(grid), tiling_line(grid)]
        .into_iter()
        .chain(lost_line(grid))
        .chain(note)
        .collect();
    framed(&captions, &rectangles, height, &legend(&places))
}

/// How many blocks are drawn down and across.
fn blocks(down: usize, across: usize) -> [usize; 2] {
    let (down, across) = (
        down.clamp(1, MAX_BLOCKS_ALONG),
        across.clamp(1, MAX_BLOCKS_ALONG),
    );
    if down.saturating_mul(across) <= MAX_BLOCKS {
        return [down, across];
    }
    let square = MAX_BLOCKS.isqrt();
    if across <= square {
        return [MAX_BLOCKS / across, across];
    }
    let down = down.min(square);
    [down, across.min(MAX_BLOCKS / down)]
}

/// Neighbouring intervals of an axis that are drawn as one.
struct Run {
    intervals: Range<usize>,
    /// Rows or columns in them.
    extent: u64,
}

/// The intervals of an axis in `num_runs` runs of nearly the same number.
fn cut(axis: &Axis, num_runs: usize) -> Vec<Run> {
    let num_intervals = axis.num_intervals();
    let run = |number: usize| {
        // Positions in the picture, not of rows: the product stays small, as num_runs does.
        let at = |number: usize| number.saturating_mul(num_intervals) / num_runs;
        let intervals = at(number)..at(number + 1);
        let cut = |at: usize| axis.cuts().get(at).copied().unwrap_or(0);
        Run {
            extent: cut(intervals.end) - cut(intervals.start),
            intervals,
        }
    };
    (0..num_runs).map(run).collect()
}

/// Start and length in pixels.
#[derive(Clone, Copy)]
struct Side {
    start: f64,
    length: f64,
}

/// Shares `pixels` out: the least side to each, the rest in proportion to the extents (evenly when all are empty).
fn sides(runs: &[Run], pixels: u32) -> Vec<Side> {
    let total: f64 = runs.iter().map(|run| run.extent as f64).sum();
    let count = runs.len() as f64;
    let rest = (f64::from(pixels) - count * LEAST_SIDE).max(0.0);
    let mut start = 0.0;
    let mut side = |run: &Run| {
        let share = if total > 0.0 {
            run.extent as f64 / total
        } else {
            1.0 / count
        };
        let length = LEAST_SIDE + rest * share;
        start += length;
        Side {
            start: start - length,
            length,
        }
    };
    runs.iter().map(&mut side).collect()
}

/// Tiles that are drawn as one rectangle.
struct Block<'a> {
    grid: &'a PartitionGrid,
    places: &'a Places,
    rows: &'a Run,
    columns: &'a Run,
    tiles: Vec<&'a Tile>,
}

impl<'a> Block<'a> {
    fn new(grid: &'a PartitionGrid, places: &'a Places, [rows, columns]: [&'a Run; 2]) -> Self {
        let bands = rows
            .intervals
            .clone()
            .map(|row_band| grid.row_band(row_band));
        let tiles = bands.filter_map(|tiles| tiles.get(columns.intervals.clone()));
        Self {
            tiles: tiles.flatten().collect(),
            grid,
            places,
            rows,
            columns,
        }
    }

    fn rectangle(&self, horizontal: Side, vertical: Side) -> String {
        format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}</title></rect>\n",
            horizontal.start,
            vertical.start,
            horizontal.length,
            vertical.length,
            self.place().map_or(OTHER, colour),
            escaped(&self.title())
        )
    }

    /// The number of the one location in which all tiles are.
    fn place(&self) -> Option<usize> {
        let mut numbers = self.tiles.iter().map(|tile| self.places.number_of(tile));
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    }

    /// What the rectangle tells when it is pointed at.
    fn title(&self) -> String {
        let size = self
            .tiles
            .iter()
            .map(|tile| tile.data().memory_bytes())
            .sum();
        let at = |intervals: &Range<usize>| match intervals.len() {
            1 => intervals.start.to_string(),
            _ => format!("{}..{}", intervals.start, intervals.end),
        };
        let (row_bands, column_bands) = (&self.rows.intervals, &self.columns.intervals);
        let what = if self.tiles.len() == 1 {
            "tile"
        } else {
            "tiles"
        };
        let place = self
            .place()
            .and_then(|number| self.places.places.get(number));
        let place = match place {
            Some(place) => place.location.to_string(),
            None if self.tiles.iter().all(|tile| tile.locations().is_empty()) => {
                "not in memory".to_owned()
            }
            None => "several locations".to_owned(),
        };
        let lost = num_lost(self.tiles.iter().copied());
        let lost = lost_words(lost, self.tiles.len() as u64);
        format!(
            "{what} ({}, {}): {}, {}{}, {}, {place}{lost}",
            at(row_bands),
            at(column_bands),
            counted(self.rows.extent, "row"),
            counted(self.columns.extent, "column"),
            self.names(),
            bytes(size)
        )
    }

    /// The names of the columns in parentheses, when they are few.
    fn names(&self) -> String {
        const MAX_NAMES: usize = 4;
        let cuts = self.grid.columns().cuts();
        let cut = |at: usize| cuts.get(at).and_then(|cut| usize::try_from(*cut).ok());
        let (start, stop) = (
            cut(self.columns.intervals.start),
            cut(self.columns.intervals.end),
        );
        let fields = start
            .zip(stop)
            .and_then(|(start, stop)| self.grid.schema().fields().get(start..stop));
        match fields {
            Some(fields) if (1..=MAX_NAMES).contains(&fields.len()) => {
                let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
                format!(" ({})", names.join(", "))
            }
            _ => String::new(),
        }
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS.get(number).copied().unwrap_or(OTHER)
}

/// Colours and texts of the lines below the rectangles.
fn legend(places: &Places) -> Vec<(&'static str, String)> {
    let lines = places.lines().enumerate().take(MAX_LEGEND);
    let mut legend: Vec<(&str, String)> =
        lines.map(|(number, line)| (colour(number), line)).collect();
    let left_out = places.places.len().saturating_sub(MAX_LEGEND);
    if left_out > 0 {
        legend.push((OTHER, counted(left_out as u64, "further location")));
    }
    legend.extend(places.nowhere_line().map(|line| (OTHER, line)));
    legend
}

fn framed(captions: &[String], rectangles: &str, height: u32, legend: &[(&str, String)]) -> String {
    let lines = |count: usize| LINE * u32::try_from(count).unwrap_or(0);
    let top = lines(captions.len()) + 4;
    let below = top + height + 4;
    let total = below + lines(legend.len());
    let mut text = String::new();
    for (place, caption) in captions.iter().enumerate() {
        text.push_str(&line_of_text(0, lines(place + 1) - 3, caption));
    }
    for (place, (colour, line)) in legend.iter().enumerate() {
        let bottom = below + lines(place + 1) - 3;
        let y = bottom - 8;
        text.push_str(&format!(
            "<rect x=\"0\" y=\"{y}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>\n"
        ));
        text.push_str(&line_of_text(12, bottom, line));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{WIDTH}\" height=\"{total}\" viewBox=\"0 0 {WIDTH} {total}\">\n\
         <title>{}</title>\n\
         <g font-family=\"sans-serif\" font-size=\"11\" fill=\"currentColor\">\n{text}</g>\n\
         <g transform=\"translate(0 {top})\" stroke=\"#808080\" stroke-width=\"0.5\">\n{rectangles}</g>\n\
         </svg>",
        escaped(&captions.join(", "))
    )
}

fn line_of_text(x: u32, y: u32, line: &str) -> String {
    let mut shown: String = line.chars().take(MAX_CHARACTERS).collect();
    if shown.len() < line.len() {
        shown.pop();
        shown.push('…');
    }
    format!("<text x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(&shown))
}

/// Text as XML writes it; characters that XML cannot hold become U+FFFD.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            '\t' | '\n' | '\r' => result.push(' '),
            hidden if hidden.is_control() || matches!(hidden, '\u{fffe}' | '\u{ffff}') => {
                result.push('\u{fffd}');
            }
            plain => result.push(plain),
        }
    }
    result
}

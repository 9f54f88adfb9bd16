//! A plan drawn: who sends how much to whom.
//!
//! Comes in: a plan. Goes out: one `<svg>` element, or a table for a terminal, with a row for each source rank and a column for each destination rank; where there are too many, for each bin of
//! neighbouring ranks. Bins are cut along the dimensions of the process grids, so that the counts of all are products too, and no transfer is looked at. Never here: names from elsewhere.

use std::ops::Range;

use crate::distarray::map::Map;
use crate::distarray::redistribute::links::Links;
use crate::distarray::redistribute::plan::Plan;
use crate::grid::picture::{counted, thousands};

/// How many rows and columns the picture has at most.
const MAX_DRAWN: usize = 40;
/// How many rows and columns the table has at most.
const MAX_LISTED: usize = 12;
/// Width of the picture, in pixels, unless its text is wider.
const WIDTH: usize = 240;
/// Greatest side of a cell, in pixels.
const MAX_SIDE: usize = 24;
/// Width of a letter, in pixels, at most on average.
const LETTER: usize = 7;
/// Height of a line of text, in pixels.
const LINE: usize = 14;
/// Of the colours of Okabe and Ito, which people with any kind of colour vision tell apart: elements that go to another rank, and those that stay.
const COLOURS: [&str; 2] = ["#0072b2", "#e69f00"];

impl Plan {
    /// The plan as an inline SVG, 240 pixels wide, or as wide as its text: rows send, columns receive, and the more elements, the darker the cell. A cell tells its number when pointed at. More than 40 ranks on a
    /// side are drawn in bins of neighbouring ranks, and the picture says so.
    #[must_use]
    pub fn plot(&self) -> String {
        let matrix = Matrix::new(self, MAX_DRAWN);
        let side = (WIDTH / matrix.rows.len().max(matrix.columns.len()).max(1)).clamp(1, MAX_SIDE);
        let mut captions = vec![ranks_line(self), self.moved_line()];
        captions.extend(matrix.bins_line());
        let legend = ["sent to another rank", "copied on the same rank"];
        let top = LINE * captions.len() + 4;
        let below = top + side * matrix.rows.len() + 4;
        let total = below + LINE * legend.len();
        let letters = captions.iter().map(|line| line.chars().count()).max();
        let width = WIDTH.max(letters.unwrap_or(0) * LETTER);
        let mut text = String::new();
        for (place, caption) in captions.iter().enumerate() {
            text.push_str(&line_of_text(0, LINE * (place + 1) - 3, caption));
        }
        for (place, (colour, line)) in COLOURS.iter().zip(legend).enumerate() {
            let bottom = below + LINE * (place + 1) - 3;
            text.push_str(&format!(
                "<rect x=\"0\" y=\"{}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>\n",
                bottom - 8
            ));
            text.push_str(&line_of_text(12, bottom, line));
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\">\n\
             <title>{}</title>\n\
             <g font-family=\"sans-serif\" font-size=\"11\" fill=\"currentColor\">\n{text}</g>\n\
             <g transform=\"translate(0 {top})\" stroke=\"#808080\" stroke-width=\"0.5\">\n{}</g>\n\
             </svg>",
            captions.join(", "),
            matrix.cells(side)
        )
    }

    /// The plan as lines, without a line end after the last: rows send, columns receive, a dot where nothing goes. More than 12 ranks on a side are listed in bins of neighbouring ranks,
    /// first to last.
    #[must_use]
    pub fn table(&self) -> String {
        let matrix = Matrix::new(self, MAX_LISTED);
        let labels = |bins: &[Range<usize>]| bins.iter().map(label).collect::<Vec<String>>();
        let mut rows = vec![vec!["from \\ to".to_owned()]];
        if let Some(header) = rows.first_mut() {
            header.extend(labels(&matrix.columns));
        }
        for (label, counts) in labels(&matrix.rows).into_iter().zip(&matrix.counts) {
            let shown = counts.iter().map(|count| match count {
                0 => "·".to_owned(),
                count => thousands(*count),
            });
            rows.push([label].into_iter().chain(shown).collect());
        }
        let num_columns = matrix.columns.len() + 1;
        let width = |column: usize| {
            let texts = rows.iter().filter_map(|row| row.get(column));
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..num_columns).map(width).collect();
        let mut lines = vec![format!("{}, {}", ranks_line(self), self.moved_line())];
        lines.extend(rows.iter().map(|row| {
            let cells = row.iter().zip(&widths);
            let cells: Vec<String> = cells
                .map(|(text, width)| format!("{text:>width$}"))
                .collect();
            cells.join("  ")
        }));
        lines.join("\n")
    }

    /// `27 of 45 elements in 5 messages`.
    fn moved_line(&self) -> String {
        format!(
            "{} of {} in {}",
            thousands(self.elements_moved()),
            counted(self.num_elements(), "element"),
            counted(self.messages(), "message")
        )
    }
}

/// `4 ranks to 6 ranks`.
fn ranks_line(plan: &Plan) -> String {
    format!(
        "{} to {}",
        counted(plan.from().num_ranks() as u64, "rank"),
        counted(plan.to().num_ranks() as u64, "rank")
    )
}

/// Counts of elements between bins of neighbouring ranks.
struct Matrix {
    rows: Vec<Range<usize>>,
    columns: Vec<Range<usize>>,
    counts: Vec<Vec<u64>>,
}

impl Matrix {
    fn new(plan: &Plan, limit: usize) -> Self {
        let (rows, columns) = (
            bins(plan.from().maps(), limit),
            bins(plan.to().maps(), limit),
        );
        let dimensions = plan.dimensions().iter().zip(rows.iter().zip(&columns));
        let one = || std::iter::once(0..1).collect();
        let start = Self {
            rows: one(),
            columns: one(),
            counts: vec![vec![1]],
        };
        dimensions.fold(start, |matrix, (dimension, (rows, columns))| {
            let counts = binned(&dimension.links, rows, columns);
            matrix.times(rows, columns, &counts)
        })
    }

    /// The matrix with one more dimension, which varies fastest.
    fn times(&self, rows: &[Range<usize>], columns: &[Range<usize>], counts: &[Vec<u64>]) -> Self {
        let row = |before: &Vec<u64>, more: &Vec<u64>| {
            let all = before
                .iter()
                .flat_map(|before| more.iter().map(move |count| before.saturating_mul(*count)));
            all.collect()
        };
        let all = self
            .counts
            .iter()
            .flat_map(|before| counts.iter().map(move |more| row(before, more)));
        Self {
            counts: all.collect(),
            rows: nested(&self.rows, rows),
            columns: nested(&self.columns, columns),
        }
    }

    /// What the picture says where bins stand for several ranks.
    fn bins_line(&self) -> Option<String> {
        let merged = self
            .rows
            .iter()
            .chain(&self.columns)
            .any(|ranks| ranks.len() > 1);
        let (down, across) = (self.rows.len(), self.columns.len());
        merged.then(|| format!("drawn as {down} x {across} bins of ranks"))
    }

    fn cells(&self, side: usize) -> String {
        let greatest = self
            .counts
            .iter()
            .flatten()
            .max()
            .copied()
            .unwrap_or(0)
            .max(1);
        let mut text = String::new();
        for (down, (from, counts)) in self.rows.iter().zip(&self.counts).enumerate() {
            for (across, (to, count)) in self.columns.iter().zip(counts).enumerate() {
                let stays = from == to && from.len() == 1;
                let [sent, copied] = COLOURS;
                let opacity = match count {
                    0 => 0.0,
                    count => 0.15 + 0.85 * *count as f64 / greatest as f64,
                };
                text.push_str(&format!(
                    "<rect x=\"{}\" y=\"{}\" width=\"{side}\" height=\"{side}\" fill=\"{}\" fill-opacity=\"{opacity:.2}\"><title>{} to {}: {}</title></rect>\n",
                    across * side,
                    down * side,
                    if stays { copied } else { sent },
                    label(from),
                    label(to),
                    counted(*count, "element")
                ));
            }
        }
        text
    }
}

/// Bins of grid ranks of each dimension, at most `limit` altogether. Dimensions are cut to single ranks from the first on, as long as that lasts; one more is cut coarsely, and those behind
/// it not at all. So every bin of the product holds neighbouring ranks.
fn bins(maps: &[Map], limit: usize) -> Vec<Vec<Range<usize>>> {
    let mut left = limit;
    let cut = |map: &Map| {
        let num_ranks = map.num_ranks();
        let count = num_ranks.min(left).max(1);
        left /= count;
        let at = |number: usize| {
            let place = number as u128 * num_ranks as u128 / count as u128;
            usize::try_from(place).unwrap_or(num_ranks)
        };
        (0..count)
            .map(|number| at(number)..at(number + 1))
            .collect()
    };
    maps.iter().map(cut).collect()
}

/// The bins of a product: of the ranks before, times those of one more dimension.
fn nested(before: &[Range<usize>], more: &[Range<usize>]) -> Vec<Range<usize>> {
    let num_ranks = more.last().map_or(1, |last| last.end);
    let pair = |outer: &Range<usize>, inner: &Range<usize>| {
        let last = outer.end.saturating_sub(1);
        outer.start * num_ranks + inner.start..last * num_ranks + inner.end
    };
    let pairs = before
        .iter()
        .flat_map(|outer| more.iter().map(move |inner| pair(outer, inner)));
    pairs.collect()
}

/// Elements between bins of one dimension.
fn binned(links: &Links, rows: &[Range<usize>], columns: &[Range<usize>]) -> Vec<Vec<u64>> {
    let mut counts = vec![vec![0_u64; columns.len()]; rows.len()];
    let bin = |bins: &[Range<usize>], rank: usize| bins.partition_point(|bin| bin.end <= rank);
    for (from, to, len) in links.pairs() {
        let row = counts.get_mut(bin(rows, from));
        if let Some(count) = row.and_then(|row| row.get_mut(bin(columns, to))) {
            *count += len;
        }
    }
    counts
}

/// `3`, or `3..9` for several ranks, the last left out.
fn label(ranks: &Range<usize>) -> String {
    match ranks.len() {
        1 => ranks.start.to_string(),
        _ => format!("{}..{}", ranks.start, ranks.end),
    }
}

fn line_of_text(x: usize, y: usize, line: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\">{line}</text>\n")
}

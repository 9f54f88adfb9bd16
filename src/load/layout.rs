//! Footers and the wanted tile size -> cut points and read tasks.
//!
//! Comes in: rows and bytes of every row group. Goes out: one task for each row band, in the order of the files. Pure. A tile never spans files; cuts fall on row groups
//! unless one is much larger than a tile. Never here: IO.

use std::ops::Range;

#[cfg(feature = "distributed")]
use arrow::datatypes::DataType;

use super::bands::Band;
use super::filter::Filter;
use super::footer::Footer;
use super::options::LoadOptions;
use super::progress::Counters;
use super::schema::{Columns, Origin};
use super::sizes::{self, Sizes};
use super::source::SourceFile;
use crate::error::Result;

/// The most rows of a tile when nothing is asked for.
const DEFAULT_TILE_ROWS: u64 = 1 << 20;

/// The most bytes of a tile when nothing is asked for.
const DEFAULT_TILE_BYTES: u64 = 128 << 20;

/// A memory limit holds at least so many tiles of the default size.
const OPEN_TILES: u64 = 16;

/// Smaller tiles are not worth their overhead.
const LEAST_TILE_BYTES: u64 = 64 << 10;

/// What one row band is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadTask {
    /// Number of the file.
    pub(super) file: usize,
    pub(super) row_groups: Range<usize>,
    /// Rows to skip in the first row group.
    pub(super) skip_rows: u64,
    pub(super) num_rows: u64,
}

/// Everything that a load reads, and what it makes of it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) files: Vec<SourceFile>,
    /// One for each file.
    pub(super) footers: Vec<Footer>,
    /// In the order of the grid.
    pub(super) columns: Columns,
    pub(super) bands: Vec<Band>,
    /// One for each row band; none when no file has a row.
    pub(super) tasks: Vec<ReadTask>,
    /// Which rows are wanted, if not all.
    pub(super) filter: Option<Filter>,
    /// The type that texts are read as, if not those of the files; for those who read it elsewhere.
    #[cfg(feature = "distributed")]
    pub(super) text: Option<DataType>,
}

impl Plan {
    /// Counts what there is to do.
    pub(super) fn announce(&self, counters: &Counters) {
        let width = self.columns.schema.fields().len();
        counters
            .total_tiles
            .add((self.tasks.len() * self.bands.len()) as u64);
        for task in &self.tasks {
            counters.total_rows.add(task.num_rows);
            for column in 0..width {
                counters
                    .total_bytes
                    .add(self.sizes(task, column).file_bytes);
            }
        }
    }

    /// Which top-level column of a file a column is read from, if it is.
    pub(super) fn root_in(&self, footer: &Footer, column: usize) -> Option<usize> {
        if matches!(self.columns.origins.get(column)?, Origin::Folder(_)) {
            return None;
        }
        let field = self.columns.schema.fields().get(column)?;
        footer.schema().index_of(field.name()).ok()
    }

    /// The decoded bytes of a column of a task, as far as the footer tells; and those in the file.
    pub(super) fn sizes(&self, task: &ReadTask, column: usize) -> Sizes {
        let Some(footer) = self.footers.get(task.file) else {
            return Sizes::default();
        };
        let field = self.columns.schema.fields().get(column);
        let whole = match self.root_in(footer, column) {
            Some(root) => sizes::of_column(footer, task.row_groups.clone(), root),
            None => Sizes::default(),
        };
        let held: u64 = footer
            .row_groups
            .get(task.row_groups.clone())
            .into_iter()
            .flatten()
            .sum();
        let part = |bytes: u64| scaled(bytes, task.num_rows, held);
        let fixed = field.and_then(|field| field.data_type().primitive_width());
        let decoded = match fixed {
            Some(width) => task.num_rows.saturating_mul(width as u64 + 1),
            None => part(whole.decoded_bytes).saturating_add(task.num_rows.saturating_mul(8)),
        };
        Sizes {
            decoded_bytes: decoded,
            file_bytes: part(whole.file_bytes),
        }
    }
}

fn scaled(bytes: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(part);
    let scaled = scaled.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Which row groups of each file can hold wanted rows.
pub(super) fn kept(
    footers: &[Footer],
    columns: &Columns,
    filter: Option<&Filter>,
) -> Result<Vec<Vec<bool>>> {
    let of_file = |(number, footer): (usize, &Footer)| {
        let everything = vec![true; footer.row_groups.len()];
        let folder = |column: usize| {
            let field = columns.schema.fields().get(column)?;
            let hive = columns.origins.get(column)?.folder(field.name(), footer)?;
            hive.values.get(number).cloned()
        };
        filter.map_or(Ok(everything), |filter| filter.kept(footer, folder))
    };
    footers.iter().enumerate().map(of_file).collect()
}

/// One task for each row band. None when no file has a row. Row groups that are not kept are left out.
pub(super) fn tasks(
    footers: &[Footer],
    columns: &Columns,
    kept: &[Vec<bool>],
    options: &LoadOptions,
) -> Vec<ReadTask> {
    let tile_rows = options
        .tile_rows()
        .unwrap_or_else(|| default_tile_rows(footers, columns, options));
    let files = footers.iter().zip(kept).enumerate();
    files
        .flat_map(|(file, (footer, kept))| {
            let runs = runs(kept).into_iter();
            runs.flat_map(move |run| {
                let rows = footer.row_groups.get(run.clone()).unwrap_or_default();
                let mut tasks = cut(file, rows, tile_rows);
                for task in &mut tasks {
                    let groups = &task.row_groups;
                    task.row_groups = groups.start + run.start..groups.end + run.start;
                }
                tasks
            })
        })
        .collect()
}

/// The runs of row groups that are kept.
fn runs(kept: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (group, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        match runs.last_mut() {
            Some(run) if run.end == group => run.end += 1,
            _ => runs.push(group..group + 1),
        }
    }
    runs
}

/// As many rows as fit the default size, by the uncompressed size of the wanted columns. Under a small memory limit tiles are smaller: several are open at once.
fn default_tile_rows(footers: &[Footer], columns: &Columns, options: &LoadOptions) -> u64 {
    let names = columns.read_names();
    let bytes = footers.iter().flat_map(|footer| {
        let fields = footer.schema().fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| names.contains(field.name().as_str()));
        wanted.map(|(root, _)| sizes::of_column(footer, 0..footer.row_groups.len(), root))
    });
    let bytes = bytes
        .map(|sizes| sizes.decoded_bytes)
        .fold(0, u64::saturating_add);
    let rows: u64 = footers.iter().flat_map(|footer| &footer.row_groups).sum();
    fitting_rows(rows, bytes, options)
}

/// How large tiles are by default under a memory limit. Each spilled tile is a mapping of its own, of which a process may have some ten thousand.
pub(super) fn tile_bytes_under(memory_limit_bytes: u64) -> u64 {
    (memory_limit_bytes / OPEN_TILES).clamp(LEAST_TILE_BYTES, DEFAULT_TILE_BYTES)
}

/// As many rows as fit the default size of a tile, if `rows` rows take `bytes`.
pub(super) fn fitting_rows(rows: u64, bytes: u64, options: &LoadOptions) -> u64 {
    let tile_bytes = options.tile_bytes();
    let tile_bytes = tile_bytes.unwrap_or_else(|| tile_bytes_under(options.memory_limit_bytes()));
    let fitting = tile_bytes.saturating_mul(rows).checked_div(bytes);
    fitting
        .unwrap_or(DEFAULT_TILE_ROWS)
        .clamp(1, DEFAULT_TILE_ROWS)
}

/// The tiles of one file, given the rows of its row groups.
fn cut(file: usize, row_groups: &[u64], tile_rows: u64) -> Vec<ReadTask> {
    let mut tasks = Vec::new();
    let mut open = ReadTask {
        file,
        row_groups: 0..0,
        skip_rows: 0,
        num_rows: 0,
    };
    for (number, rows) in row_groups.iter().copied().enumerate() {
        let large = rows > tile_rows + tile_rows / 2;
        if open.num_rows > 0 && (large || !fits(open.num_rows, rows, tile_rows)) {
            tasks.push(open.clone());
            open.num_rows = 0;
        }
        if large {
            tasks.extend(pieces(file, number, rows, tile_rows));
            continue;
        }
        if open.num_rows == 0 {
            open.row_groups = number..number;
        }
        open.row_groups.end = number + 1;
        open.num_rows += rows;
    }
    if open.num_rows > 0 {
        tasks.push(open);
    }
    tasks
}

/// Whether a tile with one more row group is nearer to the wanted size than without, and not more than half above it.
fn fits(rows: u64, more: u64, tile_rows: u64) -> bool {
    let with = rows + more;
    with <= tile_rows + tile_rows / 2 && with.abs_diff(tile_rows) <= rows.abs_diff(tile_rows)
}

/// A large row group in equal pieces.
fn pieces(file: usize, row_group: usize, rows: u64, tile_rows: u64) -> Vec<ReadTask> {
    let count = rows.div_ceil(tile_rows);
    let (short, longer) = (rows / count, rows % count);
    let mut skip_rows = 0;
    let piece = |number: u64| {
        let num_rows = short + u64::from(number < longer);
        let task = ReadTask {
            file,
            row_groups: row_group..row_group + 1,
            skip_rows,
            num_rows,
        };
        skip_rows += num_rows;
        task
    };
    (0..count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tiles_hold_every_row_once_in_order(
            row_groups in prop::collection::vec(0_u64..5_000, 0..20),
            tile_rows in 1_u64..8_000,
        ) {
            let mut rows_read = Vec::new();
            for task in cut(3, &row_groups, tile_rows) {
                prop_assert_eq!(task.file, 3);
                prop_assert!(task.num_rows > 0);
                prop_assert!(task.num_rows <= tile_rows + tile_rows / 2);
                let before: u64 = row_groups[..task.row_groups.start].iter().sum();
                let held: u64 = row_groups[task.row_groups.clone()].iter().sum();
                prop_assert!(task.skip_rows + task.num_rows <= held);
                rows_read.push(before + task.skip_rows..before + task.skip_rows + task.num_rows);
            }
            let mut next = 0;
            for range in rows_read {
                prop_assert_eq!(range.start, next);
                next = range.end;
            }
            prop_assert_eq!(next, row_groups.iter().sum::<u64>());
        }
    }

    #[test]
    fn row_groups_are_gathered_while_that_brings_the_size_nearer() {
        let rows = |tile_rows| -> Vec<u64> {
            cut(0, &[100, 100, 100, 100, 50], tile_rows)
                .iter()
                .map(|task| task.num_rows)
                .collect()
        };
        assert_eq!(rows(100), [100, 100, 100, 100, 50]);
        assert_eq!(rows(220), [200, 200, 50]);
        assert_eq!(rows(1_000), [450]);
        assert_eq!(
            rows(40),
            [34, 33, 33, 34, 33, 33, 34, 33, 33, 34, 33, 33, 50]
        );
    }
}

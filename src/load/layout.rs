//! Footers and the wanted tile size -> cut points and read tasks.
//!
//! Comes in: rows and bytes of every row group. Goes out: one task for each tile, in the order of the files. Pure. A tile never spans files; cuts fall on row groups
//! unless one is much larger than a tile. Never here: IO.

use std::ops::Range;

use super::footer::Footer;
use super::schema::Columns;

/// The most rows of a tile when nothing is asked for.
const DEFAULT_TILE_ROWS: u64 = 1 << 20;

/// The most bytes of a tile when nothing is asked for.
const DEFAULT_TILE_BYTES: u64 = 128 << 20;

/// What one tile is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadTask {
    /// Number of the file.
    pub(super) file: usize,
    pub(super) row_groups: Range<usize>,
    /// Rows to skip in the first row group.
    pub(super) skip_rows: u64,
    pub(super) num_rows: u64,
}

/// One task for each tile. None when no file has a row.
pub(super) fn plan(footers: &[Footer], columns: &Columns, tile_rows: Option<u64>) -> Vec<ReadTask> {
    let tile_rows = tile_rows.unwrap_or_else(|| default_tile_rows(footers, columns));
    let rows: Vec<&[u64]> = footers
        .iter()
        .map(|footer| footer.row_groups.as_slice())
        .collect();
    let files = rows.into_iter().enumerate();
    files
        .flat_map(|(file, row_groups)| cut(file, row_groups, tile_rows))
        .collect()
}

/// As many rows as fit the default size, by the uncompressed size of the wanted columns.
fn default_tile_rows(footers: &[Footer], columns: &Columns) -> u64 {
    let names = columns.read_names();
    let groups = || {
        footers
            .iter()
            .flat_map(|footer| footer.parquet().row_groups())
    };
    let chunks = groups().flat_map(|group| group.columns());
    let wanted = chunks.filter(|chunk| {
        let root = chunk.column_path().parts().first();
        root.is_some_and(|root| names.contains(root.as_str()))
    });
    let bytes: u64 = wanted
        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0))
        .fold(0, u64::saturating_add);
    let rows: u64 = footers.iter().flat_map(|footer| &footer.row_groups).sum();
    let fitting = DEFAULT_TILE_BYTES.saturating_mul(rows).checked_div(bytes);
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

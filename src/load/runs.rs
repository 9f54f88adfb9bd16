//! The wanted order of rows: a sorted run of each row band, and all runs merged.
//!
//! Comes in: the wish, batches. Goes out: for each partition the places of its rows, in order. Keys are compared in Arrow's row format; most comparisons end with its first bytes, which are
//! kept as numbers beside the rows. Never here: moving rows.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::row::{Row, RowConverter, Rows, SortField};
use twox_hash::XxHash64;

use super::floats::canonical;
use crate::error::{Error, Result};
use crate::grid::{PartitionGrid, RowOrder};

/// Bytes of the number of a row and its key's first bytes.
const ROW_BYTES: u64 = 20;

/// Bytes of the same and the row's partition while they are sorted.
const SORTING_BYTES: u64 = 32;

/// Bytes that a key of a type without a fixed width is taken for.
const WIDE_KEY_BYTES: u64 = 32;

/// How many bytes of a key are kept as a number.
const PREFIX_BYTES: usize = size_of::<u128>();

/// Where a row lies: row band, row of it.
pub(super) type RowPlace = (u32, u32);

/// Row band, its run, the rows of one partition in that.
type RunPart<'a> = (usize, &'a Run, Range<usize>);

/// The wanted order, over column numbers.
#[derive(Clone)]
pub(super) struct Wish {
    sort: Vec<(usize, SortOptions)>,
    partition: Vec<usize>,
    num_partitions: usize,
}

/// The rows of one row band in the wanted order.
pub(super) struct Run {
    /// Sorted by partition, then by key, then as they came.
    order: Vec<u32>,
    /// The first bytes of the key of each row, in the same order; none when rows are not sorted.
    prefixes: Vec<u128>,
    /// The partitions that have rows, and where these are in `order`.
    parts: Vec<(u32, Range<usize>)>,
    /// The keys, by number of the row, unless their first bytes are all of them.
    keys: Option<Rows>,
}

impl Wish {
    pub(super) fn try_new(
        grid: &PartitionGrid,
        order: &RowOrder,
        num_partitions: u64,
    ) -> Result<Self> {
        let sorted = order.sorted_by.iter().map(|column| {
            let options = SortOptions::new(column.descending, false);
            Ok((grid.column_index(&column.name)?, options))
        });
        let partition = order.partitioned_by.iter();
        let partition: Result<Vec<usize>> = partition.map(|name| grid.column_index(name)).collect();
        let wish = Self {
            sort: sorted.collect::<Result<_>>()?,
            partition: partition?,
            num_partitions: match order.partitioned_by.is_empty() {
                true => 1,
                false => usize::try_from(num_partitions).unwrap_or(usize::MAX),
            },
        };
        for column in wish
            .sort
            .iter()
            .map(|(column, _)| column)
            .chain(&wish.partition)
        {
            let field = grid.schema().field(*column);
            if !RowConverter::supports_fields(&[SortField::new(field.data_type().clone())]) {
                let text = format!(
                    "rows cannot be ordered by a column of {}",
                    field.data_type()
                );
                return Err(Error::unsupported(text).with_column(field.name()));
            }
        }
        Ok(wish)
    }

    /// About how many bytes of one row are kept until the runs are merged.
    fn key_bytes(&self, grid: &PartitionGrid) -> u64 {
        let columns = self
            .sort
            .iter()
            .map(|(column, _)| column)
            .chain(&self.partition);
        let width = |column: &usize| {
            let width = grid.schema().field(*column).data_type().primitive_width();
            width.map_or(WIDE_KEY_BYTES, |width| width as u64 + 1)
        };
        ROW_BYTES + columns.map(width).sum::<u64>()
    }

    /// The bytes that sorting takes, so many row bands at once, until the runs are merged.
    pub(super) fn sorting_bytes(&self, grid: &PartitionGrid, concurrency: usize) -> u64 {
        let lengths = grid.rows().intervals().map(|rows| rows.end - rows.start);
        let at_once = lengths
            .max()
            .unwrap_or(0)
            .saturating_mul(concurrency as u64);
        let kept = grid.num_rows().saturating_mul(self.key_bytes(grid));
        kept.saturating_add(at_once.min(grid.num_rows()).saturating_mul(SORTING_BYTES))
    }

    pub(super) fn is_partitioned(&self) -> bool {
        !self.partition.is_empty()
    }

    pub(super) fn num_partitions(&self) -> usize {
        self.num_partitions
    }

    /// Whether the first bytes of a key are all of it, in every row.
    fn is_short(&self, batch: &RecordBatch) -> bool {
        let width = |(column, _): &(usize, SortOptions)| {
            // A byte before each value says whether it is null.
            Some(batch.column(*column).data_type().primitive_width()? + 1)
        };
        let width: Option<usize> = self.sort.iter().map(width).sum();
        width.is_some_and(|width| width <= PREFIX_BYTES)
    }

    /// The keys by which rows are sorted; they compare alike in every process.
    #[cfg(feature = "distributed")]
    pub(super) fn sort_keys(&self, batch: &RecordBatch) -> Result<Rows> {
        keys(batch, &self.sort)
    }

    /// The partition of each row.
    pub(super) fn partitions(&self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let columns: Vec<(usize, SortOptions)> = self
            .partition
            .iter()
            .map(|column| (*column, SortOptions::default()))
            .collect();
        let number = |row: Row<'_>| {
            let hash = XxHash64::oneshot(0, row.data());
            u32::try_from(hash % self.num_partitions as u64).unwrap_or(0)
        };
        Ok(keys(batch, &columns)?.iter().map(number).collect())
    }
}

impl Run {
    pub(super) fn try_new(wish: &Wish, batch: &RecordBatch) -> Result<Self> {
        let num_rows = u32::try_from(batch.num_rows());
        let num_rows = num_rows.map_err(|_| Error::internal("a tile of more than 2^32 rows"))?;
        let keys = match wish.sort.as_slice() {
            [] => None,
            sort => Some(keys(batch, sort)?),
        };
        let partitions = match wish.is_partitioned() {
            true => wish.partitions(batch)?,
            false => vec![0; batch.num_rows()],
        };
        let mut prefixes = keys.iter().flat_map(Rows::iter).map(prefix);
        let rows = (0..num_rows).zip(partitions);
        let mut rows: Vec<(u32, u32, u128)> = rows
            .map(|(row, partition)| (partition, row, prefixes.next().unwrap_or(0)))
            .collect();
        drop(prefixes);
        let keys = keys.filter(|_| !wish.is_short(batch));
        let key = |row: u32| keys.as_ref().map(|keys| keys.row(row as usize));
        rows.sort_unstable_by(
            |(partition, row, prefix), (other, other_row, other_prefix)| {
                let by_prefix = (partition, prefix).cmp(&(other, other_prefix));
                by_prefix
                    .then_with(|| key(*row).cmp(&key(*other_row)))
                    .then_with(|| row.cmp(other_row))
            },
        );
        let mut parts: Vec<(u32, Range<usize>)> = Vec::new();
        for (at, (partition, ..)) in rows.iter().enumerate() {
            match parts.last_mut() {
                Some((last, rows)) if last == partition => rows.end = at + 1,
                _ => parts.push((*partition, at..at + 1)),
            }
        }
        let is_sorted = !wish.sort.is_empty();
        let sorted = rows.iter().filter(|_| is_sorted);
        Ok(Self {
            prefixes: sorted.map(|(.., prefix)| *prefix).collect(),
            order: rows.iter().map(|(_, row, _)| *row).collect(),
            parts,
            keys,
        })
    }
}

/// The first bytes of a key as a number that compares as they do. No key is the beginning of another, so that zeroes at the end of a shorter one change nothing.
fn prefix(row: Row<'_>) -> u128 {
    let mut bytes = [0; PREFIX_BYTES];
    for (into, from) in bytes.iter_mut().zip(row.data()) {
        *into = *from;
    }
    u128::from_be_bytes(bytes)
}

fn keys(batch: &RecordBatch, columns: &[(usize, SortOptions)]) -> Result<Rows> {
    let fields = columns.iter().map(|(column, options)| {
        let data_type = batch.column(*column).data_type().clone();
        SortField::new_with_options(data_type, *options)
    });
    let converter = RowConverter::new(fields.collect())?;
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .map(|(column, _)| canonical(batch.column(*column)))
        .collect();
    Ok(converter.convert_columns(&arrays)?)
}

/// The rows of each partition, in order: by key, rows with equal keys as they came.
pub(super) fn merged(runs: &[Run], num_partitions: usize) -> Vec<Vec<RowPlace>> {
    let mut by_partition: BTreeMap<u32, Vec<RunPart<'_>>> = BTreeMap::new();
    for (band, run) in runs.iter().enumerate() {
        for (partition, rows) in &run.parts {
            let parts = by_partition.entry(*partition).or_default();
            parts.push((band, run, rows.clone()));
        }
    }
    let numbers = (0..num_partitions).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    numbers
        .map(|number| merge(&by_partition.remove(&number).unwrap_or_default()))
        .collect()
}

fn merge(parts: &[RunPart<'_>]) -> Vec<RowPlace> {
    let place = |band: usize, row: u32| (u32::try_from(band).unwrap_or(u32::MAX), row);
    let mut places = Vec::with_capacity(parts.iter().map(|(.., rows)| rows.len()).sum());
    let is_sorted = parts.iter().all(|(_, run, _)| !run.prefixes.is_empty());
    if parts.len() < 2 || !is_sorted {
        for (band, run, rows) in parts {
            let rows = run.order.get(rows.clone()).unwrap_or_default();
            places.extend(rows.iter().map(|row| place(*band, *row)));
        }
        return places;
    }
    // The least row of each run that has some left: key, row band, part, where it is in the order, the row.
    let head = |part: usize, at: usize| {
        let (band, run, rows) = parts.get(part)?;
        let at = Some(at).filter(|at| *at < rows.end)?;
        let (row, prefix) = (*run.order.get(at)?, *run.prefixes.get(at)?);
        let key = run.keys.as_ref().map(|keys| keys.row(row as usize));
        Some(Reverse((prefix, key, *band, part, at, row)))
    };
    let starts = parts.iter().enumerate();
    let mut heads: BinaryHeap<_> = starts
        .filter_map(|(part, (.., rows))| head(part, rows.start))
        .collect();
    while let Some(mut least) = heads.peek_mut() {
        let Reverse((.., band, part, at, row)) = &*least;
        places.push(place(*band, *row));
        match head(*part, at + 1) {
            Some(next) => *least = next,
            None => drop(PeekMut::pop(least)),
        }
    }
    places
}

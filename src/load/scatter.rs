//! A grid -> the same rows in another order, by several processes: rows are scattered over groups, each of which is then arranged for itself.
//!
//! Comes in: the grid of a load, its options; row bands with the numbers that they have in it. Goes out: what all must know; keys of some rows, by which the groups of sorted rows are cut; the rows of each group, and
//! in the end its row bands in order. What comes out is what `arrange.rs` makes, with other cuts where rows are sorted. Never here: other processes, files.

use std::ops::Range;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::row::Rows;
use prost::Message;

use super::arrange::{even, gather, owned};
use super::layout::fitting_rows;
use super::options::LoadOptions;
use super::runs::{RowPlace, Run, Wish, merged};
use crate::error::{Error, Result};
use crate::grid::{PartitionGrid, RowOrder, SortColumn};

/// How many row bands a group has, about: so many must fit the memory of a process together.
const GROUP_ROW_BANDS: u64 = 4;

/// How many groups each process has at least, where there are rows enough.
const GROUPS_EACH: u64 = 4;

/// From how many keys a group is cut.
const KEYS_OF_GROUP: u64 = 64;

/// The most groups, and the most partitions: each process makes lists of them.
const MOST_GROUPS: u64 = 1 << 22;

/// How the rows of a grid are to lie, for all who work at it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Arrangement {
    #[prost(message, repeated, tag = "1")]
    sorted_by: Vec<SortedBy>,
    #[prost(string, repeated, tag = "2")]
    partitioned_by: Vec<String>,
    /// Row bands of all groups together, where rows are partitioned.
    #[prost(uint64, tag = "3")]
    num_partitions: u64,
    /// Rows of a row band, about, where they are not.
    #[prost(uint64, tag = "4")]
    tile_rows: u64,
    #[prost(uint64, tag = "5")]
    num_groups: u64,
    /// The first row of each group but the first, where rows are sorted and not partitioned.
    #[prost(message, repeated, tag = "6")]
    cuts: Vec<Cut>,
}

/// A column by which rows are sorted.
#[derive(Clone, PartialEq, Eq, Message)]
struct SortedBy {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    is_descending: bool,
}

/// A place in the order of all rows: a key in Arrow's row format, and where the row came from, since many may have one key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub(crate) struct Cut {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(uint64, tag = "2")]
    row_band: u64,
    #[prost(uint64, tag = "3")]
    row: u64,
}

impl Arrangement {
    /// What the options want of the rows of `grid`, for so many processes; `None` if they want no order.
    ///
    /// # Errors
    /// `InvalidArgument` for options that make no sense, `NotFound` for unknown columns, `Unsupported` for columns that cannot be ordered.
    pub(crate) fn of(
        grid: &PartitionGrid,
        options: &LoadOptions,
        num_processes: usize,
    ) -> Result<Option<Self>> {
        options.check()?;
        let order = options.order();
        if order == &RowOrder::default() {
            return Ok(None);
        }
        let tile_rows = options
            .tile_rows()
            .unwrap_or_else(|| fitting_rows(grid.num_rows(), grid.memory_bytes(), options));
        let num_bands = grid.num_rows().div_ceil(tile_rows).max(1);
        let num_partitions = options.num_partitions().unwrap_or(num_bands);
        let num_bands = match order.partitioned_by.is_empty() {
            true => num_bands,
            false => num_partitions,
        };
        let for_all = GROUPS_EACH.saturating_mul(num_processes as u64);
        let num_groups = num_bands.div_ceil(GROUP_ROW_BANDS).max(for_all);
        let sorted_by = order.sorted_by.iter().map(|column| SortedBy {
            name: column.name.clone(),
            is_descending: column.descending,
        });
        let wanted = Self {
            sorted_by: sorted_by.collect(),
            partitioned_by: order.partitioned_by.clone(),
            num_partitions,
            tile_rows,
            num_groups: num_groups.min(num_bands),
            cuts: Vec::new(),
        };
        wanted.check()?;
        wanted.wish(grid)?;
        Ok(Some(wanted))
    }

    /// Sees that a process can do as it says, whoever says it.
    ///
    /// # Errors
    /// `Unsupported` for more groups or partitions than a process has lists for, `InvalidData` for rows that belong to none.
    pub(crate) fn check(&self) -> Result<()> {
        let is_partitioned = !self.partitioned_by.is_empty();
        let num_partitions = if is_partitioned {
            self.num_partitions
        } else {
            1
        };
        if num_partitions == 0 {
            return Err(Error::invalid_data(
                "rows cannot be dealt out to no partition",
            ));
        }
        let most = num_partitions.max(self.num_groups);
        if most > MOST_GROUPS {
            let text = format!(
                "rows can be dealt out to {MOST_GROUPS} groups or partitions at most, got {most}"
            );
            return Err(Error::unsupported(text)
                .with_hint("load with more tile_rows, or fewer num_partitions"));
        }
        Ok(())
    }

    /// The order that the rows have in the end.
    pub(crate) fn order(&self) -> RowOrder {
        let sorted = self.sorted_by.iter().map(|column| SortColumn {
            name: column.name.clone(),
            descending: column.is_descending,
        });
        RowOrder {
            sorted_by: sorted.collect(),
            partitioned_by: self.partitioned_by.clone(),
        }
    }

    pub(crate) fn num_groups(&self) -> usize {
        usize::try_from(self.num_groups).unwrap_or(usize::MAX)
    }

    /// The names of the columns by which rows are sorted, if keys of some rows are needed to cut groups.
    pub(crate) fn cut_by(&self) -> Vec<&str> {
        match self.partitioned_by.is_empty() && self.num_groups > 1 {
            true => self.sorted_by.iter().map(|by| by.name.as_str()).collect(),
            false => Vec::new(),
        }
    }

    /// Keys of so many rows of each of `num_row_bands` row bands are enough.
    pub(crate) fn keys_each(&self, num_row_bands: usize) -> u64 {
        let all = self.num_groups.saturating_mul(KEYS_OF_GROUP);
        all.div_ceil((num_row_bands as u64).max(1)).max(1)
    }

    /// The same, cut where these keys of rows from everywhere say.
    pub(crate) fn with_keys(mut self, mut keys: Vec<Cut>) -> Self {
        keys.sort_unstable();
        let inner = even(keys.len() as u64, self.num_groups).into_iter();
        let ends = inner.scan(0, |end, length| {
            *end += length;
            usize::try_from(*end).ok()
        });
        self.cuts = ends.filter_map(|end| keys.get(end).cloned()).collect();
        self.cuts.dedup();
        self
    }

    fn wish(&self, grid: &PartitionGrid) -> Result<Wish> {
        Wish::try_new(grid, &self.order(), self.num_partitions)
    }

    /// Keys of some rows of a row band, of which the batch has at least the columns of `cut_by`.
    ///
    /// # Errors
    /// `NotFound` for a batch without them.
    pub(crate) fn keys(&self, batch: &RecordBatch, row_band: u64, most: u64) -> Result<Vec<Cut>> {
        let rows = self.sort_keys(batch)?;
        let lengths = even(
            rows.num_rows() as u64,
            most.min(rows.num_rows() as u64).max(1),
        );
        let firsts = lengths.iter().scan(0, |end, length| {
            let first = *end;
            *end += length;
            Some(first)
        });
        let keys = firsts.filter(|first| *first < rows.num_rows() as u64);
        let keys = keys.map(|row| Cut {
            key: rows.row(usize::try_from(row).unwrap_or(0)).data().to_vec(),
            row_band,
            row,
        });
        Ok(keys.collect())
    }

    fn sort_keys(&self, batch: &RecordBatch) -> Result<Rows> {
        let only = Self {
            partitioned_by: Vec::new(),
            ..self.clone()
        };
        only.wish(&grid_of(batch)?)?.sort_keys(batch)
    }

    /// The rows of a row band, each group that has any.
    ///
    /// # Errors
    /// As Arrow says.
    pub(crate) fn scattered(
        &self,
        batch: &RecordBatch,
        row_band: u64,
    ) -> Result<Vec<(usize, RecordBatch)>> {
        let mut of_groups: Vec<Vec<u32>> = vec![Vec::new(); self.num_groups()];
        for (row, group) in (0..).zip(self.groups(batch, row_band)?) {
            if let Some(rows) = of_groups.get_mut(group) {
                rows.push(row);
            }
        }
        let of_groups = of_groups.into_iter().enumerate();
        let of_groups = of_groups.filter(|(_, rows)| !rows.is_empty());
        let batches = of_groups.map(|(group, rows)| {
            let taken = take_record_batch(batch, &UInt32Array::from(rows))?;
            let columns = taken.columns().iter().cloned().map(owned).collect();
            Ok((group, RecordBatch::try_new(taken.schema(), columns)?))
        });
        batches.collect()
    }

    /// The group of each row.
    fn groups(&self, batch: &RecordBatch, row_band: u64) -> Result<Vec<usize>> {
        if !self.partitioned_by.is_empty() {
            let partitions = self.wish(&grid_of(batch)?)?.partitions(batch)?;
            let group = |partition: u32| {
                let group = u64::from(partition) * self.num_groups / self.num_partitions.max(1);
                usize::try_from(group).unwrap_or(usize::MAX)
            };
            return Ok(partitions.into_iter().map(group).collect());
        }
        if self.cuts.is_empty() {
            return Ok(vec![0; batch.num_rows()]);
        }
        let keys = self.sort_keys(batch)?;
        let group = |(row, key): (u64, arrow::row::Row<'_>)| {
            let own = (key.data(), row_band, row);
            let is_before = |cut: &Cut| (cut.key.as_slice(), cut.row_band, cut.row) <= own;
            self.cuts.partition_point(is_before)
        };
        Ok((0..).zip(keys.iter()).map(group).collect())
    }

    /// The partitions of a group.
    fn partitions_of(&self, group: usize) -> Range<usize> {
        let first = |group: u64| {
            let all = group.saturating_mul(self.num_partitions);
            usize::try_from(all.div_ceil(self.num_groups.max(1))).unwrap_or(usize::MAX)
        };
        let group = group as u64;
        first(group)..first(group.saturating_add(1))
    }

    /// The row bands of a group, in order, of its pieces: what was scattered to it, in the order of the row bands that it came from.
    ///
    /// # Errors
    /// As Arrow says; whatever stands in the way of opening the pieces.
    pub(crate) fn arranged(
        &self,
        pieces: &PartitionGrid,
        group: usize,
    ) -> Result<Vec<RecordBatch>> {
        let wish = self.wish(pieces)?;
        let runs = (0..pieces.rows().num_intervals())
            .map(|band| Run::try_new(&wish, &pieces.open_row_band(band)?));
        let runs: Vec<Run> = runs.collect::<Result<_>>()?;
        let places = merged(&runs, wish.num_partitions());
        let lengths = match wish.is_partitioned() {
            true => {
                let of_group = places.get(self.partitions_of(group));
                let of_group =
                    of_group.ok_or_else(|| Error::invalid_data("a group past the last"))?;
                of_group.iter().map(|places| places.len() as u64).collect()
            }
            false => {
                let rows = pieces.num_rows();
                even(rows, rows.div_ceil(self.tile_rows.max(1)))
            }
        };
        let places: Vec<RowPlace> = places.into_iter().flatten().collect();
        let mut end = 0;
        let bands = lengths.into_iter().map(|length| {
            let first = end;
            end += length;
            let columns = gather(pieces, &places, &(first..end))?;
            let column_band = columns.into_iter().next();
            column_band.ok_or_else(|| Error::internal("a piece without columns"))
        });
        bands.collect()
    }
}

fn grid_of(batch: &RecordBatch) -> Result<PartitionGrid> {
    PartitionGrid::try_from_batches(batch.schema(), std::slice::from_ref(batch))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::compute::concat_batches;

    use super::*;

    fn rows(num_rows: i64) -> RecordBatch {
        let keys = (0..num_rows).map(|row| (row % 11 != 0).then_some(row * 7919 % 50));
        let keys: ArrayRef = Arc::new(keys.collect::<Int64Array>());
        let texts = (0..num_rows).map(|row| (row % 5 != 0).then(|| format!("row {}", row % 17)));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let numbers: ArrayRef = Arc::new((0..num_rows).collect::<Int64Array>());
        RecordBatch::try_from_iter([("k", keys), ("s", texts), ("n", numbers)]).unwrap()
    }

    fn by(name: &str) -> SortColumn {
        SortColumn {
            name: name.to_owned(),
            descending: false,
        }
    }

    /// All rows as several processes arrange them, in row bands of the source with so many rows each.
    fn arranged(all: &RecordBatch, options: &LoadOptions, each: usize) -> Vec<RecordBatch> {
        let starts = (0..all.num_rows()).step_by(each);
        let bands = starts.map(|first| all.slice(first, each.min(all.num_rows() - first)));
        let bands: Vec<RecordBatch> = bands.collect();
        let grid = PartitionGrid::try_from_batches(all.schema(), &bands).unwrap();
        let mut wanted = Arrangement::of(&grid, options, 3).unwrap().unwrap();
        if !wanted.cut_by().is_empty() {
            let most = wanted.keys_each(bands.len());
            let keys = (0..).zip(&bands);
            let keys = keys.flat_map(|(band, batch)| wanted.keys(batch, band, most).unwrap());
            let keys = keys.collect();
            wanted = wanted.with_keys(keys);
        }
        let mut pieces = vec![Vec::new(); wanted.num_groups()];
        for (band, batch) in (0..).zip(&bands) {
            for (group, piece) in wanted.scattered(batch, band).unwrap() {
                pieces[group].push(piece);
            }
        }
        let groups = pieces.iter().enumerate();
        let groups = groups.flat_map(|(group, pieces)| {
            let pieces = PartitionGrid::try_from_batches(all.schema(), pieces).unwrap();
            wanted.arranged(&pieces, group).unwrap()
        });
        groups.collect()
    }

    /// The numbers of the rows, as one process sorts them.
    fn sorted(all: &RecordBatch, options: &LoadOptions) -> Vec<RecordBatch> {
        let grid = grid_of(all).unwrap();
        let wanted = Arrangement::of(&grid, options, 1).unwrap().unwrap();
        let alone = Arrangement {
            num_groups: 1,
            ..wanted
        };
        alone.arranged(&grid, 0).unwrap()
    }

    #[test]
    fn groups_one_below_the_other_are_all_rows_sorted_and_equal_keys_stay_in_order() {
        let all = rows(3000);
        for names in [vec!["k"], vec!["s", "k"]] {
            for descending in [false, true] {
                let mut columns: Vec<SortColumn> = names.iter().copied().map(by).collect();
                columns[0].descending = descending;
                let options = LoadOptions::default().with_tile_rows(100);
                let options = options.with_sort_by(columns);
                let found = arranged(&all, &options, 250);
                assert!(found.len() >= 12);
                let schema = all.schema();
                let whole = concat_batches(&schema, &found).unwrap();
                let expected = concat_batches(&schema, &sorted(&all, &options)).unwrap();
                assert_eq!(whole, expected);
            }
        }
    }

    #[test]
    fn groups_of_partitions_are_the_row_bands_of_one_process() {
        let all = rows(3000);
        let options = LoadOptions::default().with_partition_by(vec!["k".to_owned()]);
        let options = options.with_sort_by(vec![by("s")]);
        for num_partitions in [1, 7, 64, 200] {
            let options = options.clone().with_num_partitions(num_partitions);
            assert_eq!(arranged(&all, &options, 700), sorted(&all, &options));
        }
    }

    #[test]
    fn numbers_that_no_process_has_lists_for_are_refused() {
        let of = |num_groups, num_partitions| Arrangement {
            partitioned_by: vec!["k".to_owned()],
            num_groups,
            num_partitions,
            ..Arrangement::default()
        };
        of(MOST_GROUPS, MOST_GROUPS).check().unwrap();
        for (num_groups, num_partitions) in [(u64::MAX, 1), (1, 1 << 40), (1, 0)] {
            assert!(of(num_groups, num_partitions).check().is_err());
        }
        let pieces = grid_of(&rows(10)).unwrap();
        for group in [1, usize::MAX] {
            let error = of(1, 7).arranged(&pieces, group).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn rows_of_one_key_go_to_several_groups() {
        let same: ArrayRef = Arc::new(Int64Array::from(vec![1; 3000]));
        let numbers: ArrayRef = Arc::new((0..3000).collect::<Int64Array>());
        let all = RecordBatch::try_from_iter([("k", same), ("n", numbers)]).unwrap();
        let options = LoadOptions::default().with_tile_rows(100);
        let options = options.with_sort_by(vec![by("k")]);
        let found = arranged(&all, &options, 250);
        assert!(found.iter().all(|band| band.num_rows() <= 100));
        assert_eq!(concat_batches(&all.schema(), &found).unwrap(), all);
    }
}

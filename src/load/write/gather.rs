//! Rows of folders, as many of each together as there is room for: a file for each folder in each million rows would be thousands of small ones.
//!
//! Comes in: rows as a query gives them. Goes out: the rows of one folder, for one file; those of each folder in their order. Never here: what is in a folder (`split.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::{Stream, TryStreamExt, stream};

use super::encode::ROW_GROUP_ROWS;
use super::{Rows, part_name, split};
use crate::error::Result;
use crate::grid::slice_bytes;
use crate::load::error::{blocking, contained_writer};

/// So many bytes are gathered before each folder gets a file.
const GATHERED_BYTES: u64 = 256 << 20;

/// The rows of each folder in the order of the values; `at_once` runs are split at a time.
pub(super) fn by_folder(
    runs: impl Stream<Item = Result<Rows>>,
    keys: Vec<String>,
    at_once: usize,
) -> impl Stream<Item = Result<Rows>> {
    let split = runs.map_ok(move |run| {
        let keys = keys.clone();
        blocking(move || contained_writer(&run.name, || Run::of(&run, &keys)))
    });
    let split = Box::pin(split.try_buffered(at_once));
    let ready = (split, Gathered::default(), VecDeque::new());
    stream::try_unfold(
        ready,
        move |(mut split, mut gathered, mut ready)| async move {
            while ready.is_empty() {
                match split.try_next().await? {
                    Some(run) => ready.extend(gathered.add(run)),
                    None if gathered.folders.is_empty() => return Ok(None),
                    None => ready.extend(gathered.take()),
                }
            }
            let next = ready.pop_front();
            Ok(next.map(|rows| (rows, (split, gathered, ready))))
        },
    )
}

/// Rows that came together, by their folders.
struct Run {
    folders: Vec<(String, RecordBatch)>,
    bytes: u64,
}

impl Run {
    fn of(rows: &Rows, keys: &[String]) -> Result<Self> {
        let batch = concat_batches(&rows.schema, &rows.batches)?;
        Ok(Self {
            bytes: slice_bytes(&batch),
            folders: split::split(&batch, keys)?,
        })
    }
}

#[derive(Default)]
struct Gathered {
    folders: BTreeMap<String, Vec<RecordBatch>>,
    /// Of all runs since folders were emptied the last time: the rows of one folder keep those of the others.
    bytes: u64,
    num_taken: usize,
}

impl Gathered {
    /// Adds rows, and gives those that are enough for files.
    fn add(&mut self, run: Run) -> Vec<Rows> {
        self.bytes += run.bytes;
        let mut full = Vec::new();
        for (folder, rows) in run.folders {
            let batches = self.folders.entry(folder.clone()).or_default();
            batches.push(rows);
            let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            if num_rows >= ROW_GROUP_ROWS {
                let batches = std::mem::take(batches);
                self.folders.remove(&folder);
                full.extend(self.rows(&folder, batches));
            }
        }
        if !full.is_empty() {
            self.num_taken += 1;
        }
        if self.bytes >= GATHERED_BYTES {
            full.extend(self.take());
        }
        full
    }

    /// The rows of all folders.
    fn take(&mut self) -> Vec<Rows> {
        let folders = std::mem::take(&mut self.folders);
        let rows = folders.into_iter();
        let rows = rows.filter_map(|(folder, batches)| self.rows(&folder, batches));
        let rows = rows.collect();
        self.bytes = 0;
        self.num_taken += 1;
        rows
    }

    fn rows(&self, folder: &str, batches: Vec<RecordBatch>) -> Option<Rows> {
        let schema = batches.first()?.schema();
        Some(Rows {
            name: format!("{folder}/{}", part_name(self.num_taken)),
            schema: Arc::clone(&schema),
            batches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use futures::FutureExt;

    fn run(values: &[(i64, i64)], times: usize) -> Rows {
        let rows = || values.iter().cycle().take(values.len() * times);
        let column = |numbers: Vec<i64>| Arc::new(Int64Array::from(numbers)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([
            ("k", column(rows().map(|row| row.0).collect())),
            ("n", column(rows().map(|row| row.1).collect())),
        ]);
        let batch = batch.unwrap();
        Rows {
            name: "run".to_owned(),
            schema: batch.schema(),
            batches: vec![batch],
        }
    }

    /// Names and numbers of rows of what is written.
    fn written(runs: Vec<Rows>) -> Vec<(String, usize)> {
        let runs = stream::iter(runs.into_iter().map(Ok));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let rows = by_folder(runs, vec!["k".to_owned()], 2).try_collect::<Vec<_>>();
        let rows = runtime.block_on(rows.boxed()).unwrap();
        let rows = rows.into_iter().map(|rows| {
            let count = rows.batches.iter().map(RecordBatch::num_rows).sum();
            (rows.name, count)
        });
        rows.collect()
    }

    #[test]
    fn runs_of_the_same_folders_share_files() {
        let runs = vec![
            run(&[(2, 0), (1, 1)], 1),
            run(&[(1, 2)], 3),
            run(&[(3, 3)], 1),
        ];
        assert_eq!(
            written(runs),
            [
                ("k=1/part-00000.parquet".to_owned(), 4),
                ("k=2/part-00000.parquet".to_owned(), 1),
                ("k=3/part-00000.parquet".to_owned(), 1),
            ]
        );
    }

    #[test]
    fn a_folder_of_many_rows_has_files_of_as_many_as_others() {
        let runs = vec![
            run(&[(1, 0)], ROW_GROUP_ROWS / 2),
            run(&[(1, 0), (2, 0)], ROW_GROUP_ROWS / 2),
            run(&[(1, 0)], 5),
        ];
        assert_eq!(
            written(runs),
            [
                ("k=1/part-00000.parquet".to_owned(), ROW_GROUP_ROWS),
                ("k=1/part-00001.parquet".to_owned(), 5),
                ("k=2/part-00001.parquet".to_owned(), ROW_GROUP_ROWS / 2),
            ]
        );
    }
}

//! How nearest rows are found.
//!
//! Comes in: the batches of both sides, in the order of their keys and of what is compared. Goes out: the rows of the left side with those of the right. Both are read once; of the right one so many batches are kept as rows of one batch of the left one are found in, and no more than [`MOST_KEPT`]: what was found before goes out first. Never
//! here: the plan node.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::NullBuffer;
use arrow::datatypes::Schema;
use arrow::row::{Row, RowConverter, Rows};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::columns::{Columns, nulls_of};
use super::joined::{Found, Joined};
use super::{Nearest, Pair};

/// How many batches of the right side are kept at a time.
const MOST_KEPT: usize = 16;

/// Makes keys of the rows of one side that compare as bytes.
struct Keys {
    columns: Columns,
    /// Of all columns.
    all: RowConverter,
    /// Of those that are equal.
    equal: RowConverter,
}

impl Keys {
    fn try_new(schema: &Schema, nearest: &Nearest, side: fn(&Pair) -> usize) -> Result<Self> {
        let columns = Columns::of(schema, nearest, side);
        let fields = columns.fields();
        let equal = fields.iter().take(nearest.equal.len()).cloned();
        Ok(Self {
            columns,
            equal: RowConverter::new(equal.collect())?,
            all: RowConverter::new(fields)?,
        })
    }

    fn of(&self, batch: RecordBatch) -> Result<Side> {
        let columns = self.columns.values(&batch)?;
        let equal = columns.get(..columns.len() - 1).unwrap_or_default();
        Ok(Side {
            // Without columns there are no rows in it.
            equal: match equal.is_empty() {
                true => None,
                false => Some(self.equal.convert_columns(equal)?),
            },
            all: self.all.convert_columns(&columns)?,
            nulls: nulls_of(&columns),
            batch,
        })
    }
}

/// A batch of one side, with its keys.
struct Side {
    batch: RecordBatch,
    equal: Option<Rows>,
    all: Rows,
    /// Rows with a key that is null.
    nulls: Option<NullBuffer>,
}

/// A batch of the left input.
struct LeftRows {
    side: Side,
    /// The first row that has not gone out.
    first: usize,
    /// For each row from there on whose nearest is known, in which of the kept batches it is, and where; the first is of nulls.
    found: Vec<Found>,
}

/// The rows of both sides, side by side.
pub(super) struct Merge {
    left: SendableRecordBatchStream,
    /// `None` after its end.
    right: Option<SendableRecordBatchStream>,
    of_left: Keys,
    of_right: Keys,
    joined: Arc<Joined>,
    nearest: Nearest,
    rows: Option<LeftRows>,
    /// Batches of the right input that rows are found in; the last is the one that is read.
    kept: Vec<Side>,
    /// The first row in the last of them that was not reached.
    next: usize,
    /// The last row that was reached.
    nearest_row: Option<(usize, usize)>,
}

impl Merge {
    pub(super) fn try_new(
        left: SendableRecordBatchStream,
        right: SendableRecordBatchStream,
        nearest: Nearest,
        joined: Arc<Joined>,
    ) -> Result<Self> {
        Ok(Self {
            of_left: Keys::try_new(&left.schema(), &nearest, super::left)?,
            of_right: Keys::try_new(&right.schema(), &nearest, super::right)?,
            left,
            right: Some(right),
            joined,
            nearest,
            rows: None,
            kept: Vec::new(),
            next: 0,
            nearest_row: None,
        })
    }

    /// The next rows; `None` after the last.
    pub(super) async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.nearest_row.is_none() && self.kept.is_empty() {
            // First what the right side is made of: some of it is in memory, unsorted.
            self.read().await?;
        }
        loop {
            let Some(mut rows) = self.rows.take() else {
                let Some(batch) = self.left.next().await.transpose()? else {
                    return Ok(None);
                };
                self.rows = Some(LeftRows {
                    side: self.of_left.of(batch)?,
                    first: 0,
                    found: Vec::new(),
                });
                continue;
            };
            let is_done = self.find(&mut rows).await?;
            let found = self.joined(&mut rows)?;
            self.forget();
            if !is_done {
                self.rows = Some(rows);
            }
            if found.num_rows() > 0 {
                return Ok(Some(found));
            }
        }
    }

    /// Finds what is nearest to the rows of a batch, until too many batches of the right input are kept for them. Whether that is so for all.
    async fn find(&mut self, rows: &mut LeftRows) -> Result<bool> {
        for row in rows.first + rows.found.len()..rows.side.batch.num_rows() {
            if rows
                .side
                .nulls
                .as_ref()
                .is_some_and(|nulls| nulls.is_null(row))
            {
                rows.found.push((0, 0));
                continue;
            }
            loop {
                if let Some(reading) = self.kept.last() {
                    let bound = rows.side.all.row(row);
                    let reached = reached(&reading.all, self.next, |candidate| {
                        match self.nearest.is_other {
                            true => candidate < bound,
                            false => candidate <= bound,
                        }
                    });
                    if reached > self.next {
                        self.nearest_row = Some((self.kept.len() - 1, reached - 1));
                        self.next = reached;
                    }
                    if reached < reading.batch.num_rows() {
                        break;
                    }
                }
                if self.kept.len() >= MOST_KEPT {
                    if !rows.found.is_empty() {
                        return Ok(false);
                    }
                    self.forget();
                }
                if !self.read().await? {
                    break;
                }
            }
            rows.found.push(self.of_same_keys(&rows.side, row));
        }
        Ok(true)
    }

    /// The last row that was reached, if its keys are equal.
    fn of_same_keys(&self, side: &Side, row: usize) -> Found {
        let found = self.nearest_row.filter(|(batch, place)| {
            let kept = self.kept.get(*batch).and_then(|kept| kept.equal.as_ref());
            match (kept, &side.equal) {
                (Some(kept), Some(own)) => kept.row(*place) == own.row(row),
                _ => true,
            }
        });
        found.map_or((0, 0), |(batch, place)| (batch + 1, place))
    }

    /// Reads on in the right input, if there is more.
    async fn read(&mut self) -> Result<bool> {
        let Some(right) = &mut self.right else {
            return Ok(false);
        };
        let Some(batch) = right.next().await.transpose()? else {
            self.right = None;
            return Ok(false);
        };
        let batch = self.of_right.columns.without_nulls(batch)?;
        self.kept.push(self.of_right.of(batch)?);
        self.next = 0;
        Ok(true)
    }

    /// Forgets the batches that no row is found in, but for that of the last one and the one that is read.
    fn forget(&mut self) {
        let reading = self.kept.pop();
        let near = match self.nearest_row {
            Some((batch, _)) if batch < self.kept.len() => Some(self.kept.swap_remove(batch)),
            _ => None,
        };
        self.kept.clear();
        self.kept.extend(near);
        self.kept.extend(reading);
        if let Some((batch, _)) = &mut self.nearest_row {
            // It is the first of those that are left: the one that is read, or the one before it.
            *batch = 0;
        }
    }

    /// The rows whose nearest ones are known.
    fn joined(&self, rows: &mut LeftRows) -> Result<RecordBatch> {
        let found = std::mem::take(&mut rows.found);
        let left = rows.side.batch.slice(rows.first, found.len());
        rows.first += found.len();
        let kept: Vec<&RecordBatch> = self.kept.iter().map(|kept| &kept.batch).collect();
        self.joined.beside(&left, found, &kept)
    }
}

/// The first row from one on that is not reached yet, where those that are come first: in steps that grow, so that near ones cost little.
fn reached<'a>(rows: &'a Rows, first: usize, is_reached: impl Fn(Row<'a>) -> bool) -> usize {
    let count = rows.num_rows();
    let (mut low, mut step) = (first, 1);
    while low < count && is_reached(rows.row((low + step - 1).min(count - 1))) {
        low = (low + step).min(count);
        step *= 2;
    }
    let mut high = (low + step - 1).min(count);
    while low < high {
        let middle = low + (high - low) / 2;
        match is_reached(rows.row(middle)) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

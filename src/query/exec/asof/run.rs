//! Which way nearest rows are found, in one partition.
//!
//! Comes in: both inputs. Goes out: their rows, side by side. The right input is read to its end into an index; where there is no room for it, both inputs are sorted, with files if need be, and read side by side. Never here: how rows are found.

use std::sync::{Arc, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::builder::Builder;
use super::index::Index;
use super::joined::Joined;
use super::merge::Merge;
use super::shared::{Right, SharedRight};
use super::{Nearest, Pair, Partition, column};
use crate::query::exec::outside::sorted_outside;

/// One partition.
pub(super) struct Run {
    way: Way,
    nearest: Nearest,
    joined: Arc<Joined>,
    partition: Partition,
}

enum Way {
    /// Nothing was read yet.
    Begin {
        left: SendableRecordBatchStream,
        right: SendableRecordBatchStream,
    },
    /// The right input is read for all partitions at once.
    BeginSpread {
        left: Arc<dyn ExecutionPlan>,
        right: SharedRight,
    },
    ByIndex(Box<ByIndex>),
    BySorts(Box<Merge>),
    End,
}

/// The left input goes by an index of the right one.
struct ByIndex {
    left: SendableRecordBatchStream,
    index: Index,
}

impl Run {
    pub(super) fn new(
        left: SendableRecordBatchStream,
        right: SendableRecordBatchStream,
        nearest: Nearest,
        joined: Arc<Joined>,
        partition: Partition,
    ) -> Self {
        Self {
            way: Way::Begin { left, right },
            nearest,
            joined,
            partition,
        }
    }

    /// One of several, beside the right input that all have.
    pub(super) fn spread(
        left: Arc<dyn ExecutionPlan>,
        right: SharedRight,
        nearest: Nearest,
        joined: Arc<Joined>,
        partition: Partition,
    ) -> Self {
        Self {
            way: Way::BeginSpread { left, right },
            nearest,
            joined,
            partition,
        }
    }

    /// The next rows; `None` after the last.
    pub(super) async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match &mut self.way {
                Way::Begin { .. } | Way::BeginSpread { .. } => self.begin().await?,
                Way::ByIndex(way) => {
                    let Some(batch) = way.left.next().await.transpose()? else {
                        self.way = Way::End;
                        continue;
                    };
                    let found = way.index.find(&batch)?;
                    let rows = self.joined.beside_rows(&batch, found, way.index.chunks())?;
                    if rows.num_rows() > 0 {
                        return Ok(Some(rows));
                    }
                }
                Way::BySorts(merge) => return merge.next_batch().await,
                Way::End => return Ok(None),
            }
        }
    }

    async fn begin(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.way, Way::End) {
            Way::Begin { left, right } => self.read(left, right).await,
            Way::BeginSpread { left, right } => self.wait(left, right).await,
            _ => Ok(()),
        }
    }

    /// Reads the right input.
    async fn read(
        &mut self,
        left: SendableRecordBatchStream,
        mut right: SendableRecordBatchStream,
    ) -> Result<()> {
        let partition = &self.partition;
        let mut builder = partition.builder(&self.nearest, right.schema())?;
        while let Some(batch) = right.next().await.transpose()? {
            if !builder.push(batch)? {
                return self.by_sorts(left, builder, vec![right]);
            }
        }
        match builder.finish(&left.schema(), &self.nearest)? {
            Err(builder) => self.by_sorts(left, builder, vec![right]),
            Ok(index) => {
                self.partition.count(index.num_rows(), index.size());
                self.by_index(left, index);
                Ok(())
            }
        }
    }

    /// Waits until the right input was read.
    async fn wait(&mut self, left: Arc<dyn ExecutionPlan>, right: SharedRight) -> Result<()> {
        let context = Arc::clone(&self.partition.context);
        match right.read().await?.as_ref() {
            Right::Index(kept) => {
                let left = left.execute(self.partition.number, context)?;
                self.by_index(left, Index::over(kept)?);
                Ok(())
            }
            Right::NoRoom(rows) => {
                let rows = rows.lock().unwrap_or_else(PoisonError::into_inner).take();
                // Who comes first does the work of all.
                let Some((builder, rest)) = rows else {
                    return Ok(());
                };
                let left = CoalescePartitionsExec::new(left).execute(0, context)?;
                self.by_sorts(left, builder, rest)
            }
        }
    }

    fn by_index(&mut self, left: SendableRecordBatchStream, index: Index) {
        // Nobody has a nearest row.
        let is_over = index.num_rows() == 0 && !self.joined.keeps_left();
        self.way = match is_over {
            true => Way::End,
            false => Way::ByIndex(Box::new(ByIndex { left, index })),
        };
    }

    /// Sorts both inputs, and what was read of the right one.
    fn by_sorts(
        &mut self,
        left: SendableRecordBatchStream,
        read: Builder,
        rest: Vec<SendableRecordBatchStream>,
    ) -> Result<()> {
        let schema = read.schema();
        // They stay counted until the sort has them.
        let (read, reservation) = read.into_batches();
        let bytes = reservation.size() / read.len().max(1);
        let read = stream::iter(read).map(move |batch| {
            reservation.shrink(bytes.min(reservation.size()));
            Ok(batch)
        });
        let right = RecordBatchStreamAdapter::new(schema, read.chain(stream::select_all(rest)));
        let left = self.sorted(left, super::left)?;
        let right = self.sorted(Box::pin(right), super::right)?;
        let joined = Arc::clone(&self.joined);
        let merge = Merge::try_new(left, right, self.nearest.clone(), joined)?;
        self.way = Way::BySorts(Box::new(merge));
        Ok(())
    }

    fn sorted(
        &self,
        rows: SendableRecordBatchStream,
        side: fn(&Pair) -> usize,
    ) -> Result<SendableRecordBatchStream> {
        let schema = rows.schema();
        let columns = self.nearest.columns(side).into_iter();
        let keys = columns.map(|(place, options)| PhysicalSortExpr {
            expr: column(&schema, place),
            options,
        });
        let Some(order) = LexOrdering::new(keys) else {
            return internal_err!("a nearest join compares nothing");
        };
        let context = Arc::clone(&self.partition.context);
        sorted_outside(rows, order, context, &self.partition.metrics)
    }
}

//! The right side of a nearest join, which is read once for all partitions of the left one.
//!
//! Comes in: the partitions of both. Goes out: the right side, for each partition of the left one: what it is looked up in, or its rows where there is no room for that. Never here: how one partition of it is read (`part.rs`), and which joins have it so (`spread.rs`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, try_join_all};

use super::builder::Builder;
use super::index::Kept;
use super::part::{Counted, Part, part};
use super::{AsofJoinExec, Nearest, Partition};

/// The right input, once it was read.
pub(super) enum Right {
    Index(Arc<Kept>),
    /// What was read, and the rest of each partition; nothing once somebody has taken it.
    NoRoom(Box<NoRoom>),
}

/// A builder with the rows that it has no room for, and the rest of each partition.
type NoRoom = Mutex<Option<(Builder, Vec<SendableRecordBatchStream>)>>;

type Read = BoxFuture<'static, Result<Arc<Right>, Arc<DataFusionError>>>;

/// Reads the right input for all partitions. Once all have it, they alone keep what was read.
#[derive(Default)]
pub(super) struct Once(Mutex<Option<Handed>>);

/// What is read, or will be, and how many partitions do not have it yet.
struct Handed {
    read: Shared<Read>,
    others: usize,
}

impl fmt::Debug for Once {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Once")
    }
}

/// The right input, as one partition has it.
pub(super) struct SharedRight {
    read: Shared<Read>,
}

impl SharedRight {
    pub(super) async fn read(self) -> Result<Arc<Right>> {
        self.read.await.map_err(DataFusionError::Shared)
    }
}

impl Once {
    /// What is read for others, or will be.
    pub(super) fn right(&self, join: &AsofJoinExec, partition: Partition) -> Result<SharedRight> {
        let mut once = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handed) = once.as_mut() {
            let read = handed.read.clone();
            handed.others -= 1;
            if handed.others == 0 {
                *once = None;
            }
            return Ok(SharedRight { read });
        }
        let parts = 0..join.right.output_partitioning().partition_count();
        let parts = parts.map(|number| join.right.execute(number, Arc::clone(&partition.context)));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        let builder = partition.builder(&join.nearest, join.right.schema())?;
        let (nearest, left) = (join.nearest.clone(), join.left.schema());
        let num_left = join.left.output_partitioning().partition_count();
        let read = async move {
            let right = read(parts, builder, (&nearest, &left, num_left), &partition).await;
            right.map(Arc::new).map_err(Arc::new)
        };
        let read = read.boxed().shared();
        let others = num_left.saturating_sub(1);
        *once = (others > 0).then(|| Handed {
            read: read.clone(),
            others,
        });
        Ok(SharedRight { read })
    }
}

/// Reads all partitions at the same time.
async fn read(
    parts: Vec<SendableRecordBatchStream>,
    builder: Builder,
    (nearest, left, num_left): (&Nearest, &SchemaRef, usize),
    partition: &Partition,
) -> Result<Right> {
    let looking = builder.looking().clone();
    let counted = Arc::new(Mutex::new(Counted::new(builder)));
    let tasks = parts.into_iter().map(|rows| {
        let read = part(rows, looking.clone(), Arc::clone(&counted));
        joined(SpawnedTask::spawn(read)).boxed()
    });
    let tasks: Vec<_> = tasks.collect();
    let parts = try_join_all(tasks).await?;
    let Some(counted) = Arc::into_inner(counted) else {
        return internal_err!("a part of a nearest join goes on");
    };
    let counted = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut batches, mut known, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        batches.extend(part.batches);
        known.extend(part.known);
        rest.extend(part.rest);
    }
    let no_room = |builder, rest| Right::NoRoom(Box::new(Mutex::new(Some((builder, rest)))));
    if !counted.has_room {
        return Ok(no_room(counted.builder.of_rows(batches), rest));
    }
    let left = (left.as_ref(), nearest, num_left);
    let kept = counted
        .builder
        .finish_for_all((batches, known), left, &counted.counter)
        .await?;
    Ok(match kept {
        Ok(kept) => {
            partition.count(kept.num_rows(), kept.size());
            Right::Index(kept)
        }
        Err(builder) => no_room(builder, rest),
    })
}

async fn joined(task: SpawnedTask<Result<Part>>) -> Result<Part> {
    match task.join().await {
        Ok(read) => read,
        Err(error) => internal_err!("a part of a nearest join ended: {error}"),
    }
}

//! Small portions for operators that make much of little.
//!
//! Comes in: a plan. Goes out: the same plan, in which UNNEST, windows of lists and projections of long values get their input in batches of which they will not make more than a part of the memory limit, and an error
//! before one row, or all rows of an operator that keeps them, would not fit. They allocate beside the memory pool, whole batches at once; a machine that has no room for it ends the process.
//! Never here: how much an operator makes (`growth.rs`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use super::between::{Between, Place, Room, put_under};
use super::growth::{Growth, Meter};
use crate::error::{Error, ErrorKind};
use crate::query::running::bounds::size;

/// An operator makes at most this part of the memory limit of one batch, and at most so many bytes: several of what it makes wait for a client that does not read.
const PART: u64 = 16;
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// What an operator may make of one batch, within a limit.
pub(super) fn most_of_a_batch(limit_bytes: u64) -> u64 {
    (limit_bytes / PART).min(MOST_BYTES)
}

/// The plan with small portions under operators that grow, and, where operators may change places, without exchanges right above windows of lists: they deal out batches to threads, and would keep what comes out of the window for those that are busy.
pub(in crate::query) fn portioned(
    plan: Arc<dyn ExecutionPlan>,
    place: Place,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if place == Place::Above
            && let Some(window) = dealt_out(&node)
        {
            return Ok(Transformed::yes(window));
        }
        let Some((growth, keeps)) = Growth::of(node.as_ref()) else {
            return Ok(Transformed::no(node));
        };
        let portioned = put_under(Arc::clone(&node), InPortions { growth, keeps }, place)?;
        Ok(portioned.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// What is under an exchange that only deals out batches, if that is a window of lists, or something that hands on its rows one by one.
fn dealt_out(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let exchange = node.downcast_ref::<RepartitionExec>()?;
    if !matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_)) {
        return None;
    }
    let mut below = exchange.input();
    loop {
        if let Some((Growth::Windows(_), _)) = Growth::of(below.as_ref()) {
            return Some(Arc::clone(exchange.input()));
        }
        below = if let Some(filter) = below.downcast_ref::<FilterExec>() {
            filter.input()
        } else {
            below.downcast_ref::<ProjectionExec>()?.input()
        };
    }
}

/// Cuts batches.
#[derive(Debug)]
struct InPortions {
    growth: Growth,
    /// Whether the operator above keeps all that it makes.
    keeps: bool,
}

impl Between for InPortions {
    const NAME: &'static str = "PortionExec";

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        room: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let mut portions = Portions {
            meter: Meter::new(self.growth.clone()),
            name: self.growth.name(),
            keeps: self.keeps,
            limit: room.limit_bytes as u64,
            kept: 0,
        };
        let cut = batches.map(move |batch| {
            let portions = portions.of(&batch?)?;
            Ok::<_, DataFusionError>(stream::iter(portions.into_iter().map(Ok)))
        });
        // Much is made of each portion: between them others have their turn, and a query that is cancelled or over its time ends.
        let paused = cut.try_flatten().then(|portion| async {
            tokio::task::yield_now().await;
            portion
        });
        paused.boxed()
    }
}

/// One partition of the input.
struct Portions {
    meter: Meter,
    name: String,
    keeps: bool,
    limit: u64,
    /// What the operator has made so far, if it keeps that.
    kept: u64,
}

impl Portions {
    /// A batch in portions.
    fn of(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let bytes = self.meter.bytes(batch)?;
        if self.keeps {
            let all = bytes
                .iter()
                .fold(0_u64, |sum, row| sum.saturating_add(*row));
            self.kept = self.kept.saturating_add(all);
            self.check(self.kept, "")?;
            return Ok(vec![batch.clone()]);
        }
        let most = most_of_a_batch(self.limit);
        let mut portions = Vec::new();
        let (mut start, mut made) = (0, 0_u64);
        for (row, bytes) in bytes.iter().enumerate() {
            self.check(*bytes, " for one row")?;
            if made.saturating_add(*bytes) > most && row > start {
                portions.push(batch.slice(start, row - start));
                (start, made) = (row, 0);
            }
            made = made.saturating_add(*bytes);
        }
        portions.push(batch.slice(start, batch.num_rows() - start));
        Ok(portions)
    }

    fn check(&self, bytes: u64, of: &str) -> Result<()> {
        if bytes <= self.limit {
            return Ok(());
        }
        let shown = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
        let text = format!(
            "{} would need about {}{of}, the memory limit is {}",
            self.name,
            shown(bytes),
            shown(self.limit)
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).into())
    }
}

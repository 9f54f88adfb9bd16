//! Few rows at a time for operators with functions whose values are large.
//!
//! Comes in: a plan. Goes out: the same plan, in which operators that call such functions (`functions/growing.rs`) get as many rows at once as they made a part of the memory limit of before, at first a few. What a
//! function makes stays within the limit by itself; here it is what several make of one batch, and how long the batch of an answer is that others keep.
//! Never here: what is known before it is made (`portion.rs`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use super::between::{Between, Place, Room, put_under};
use super::portion::most_of_a_batch;
use crate::query::functions::growing::{grows, made_bytes};

/// The first rows: a thousand such values are larger than a machine where each is a gigabyte.
const FIRST: usize = 4;

/// There are so many times more rows the next time, at most.
const MORE: usize = 8;

/// The plan with a pace under each operator that calls functions whose values are large.
pub(in crate::query) fn paced(
    plan: Arc<dyn ExecutionPlan>,
    place: Place,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if node.children().len() != 1 || !calls_growing(&node)? {
            return Ok(Transformed::no(node));
        }
        let paced = put_under(Arc::clone(&node), Paced, place)?;
        Ok(paced.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

fn calls_growing(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut calls = false;
    node.apply_expressions(&mut |expression| {
        calls |= grows(expression);
        Ok(match calls {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(calls)
}

/// Cuts batches.
#[derive(Debug)]
struct Paced;

impl Between for Paced {
    const NAME: &'static str = "PaceExec";

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        room: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let pace = Pace {
            most: most_of_a_batch((room.limit_bytes / room.num_partitions) as u64),
            num_rows: FIRST,
            last: None,
        };
        let steps = stream::unfold(
            (batches, None, pace),
            async |(mut batches, rest, mut pace)| {
                let rest = match rest {
                    Some(rest) => Ok(rest),
                    None => batches.next().await?,
                };
                Some(match rest {
                    Ok(rest) => {
                        let (step, rest) = pace.step(rest);
                        (Ok(step), (batches, rest, pace))
                    }
                    Err(error) => (Err(error), (batches, None, pace)),
                })
            },
        );
        steps.boxed()
    }
}

/// How many rows are handed on at once.
struct Pace {
    /// What may be made of them, in bytes.
    most: u64,
    num_rows: usize,
    /// How many were handed on last, and what had been made until then.
    last: Option<(usize, u64)>,
}

impl Pace {
    /// The next rows of a batch, and those after them.
    fn step(&mut self, batch: RecordBatch) -> (RecordBatch, Option<RecordBatch>) {
        let made = made_bytes();
        if let Some((num_rows, before)) = self.last {
            let of_each = made.saturating_sub(before) / num_rows.max(1) as u64;
            let fit = self.most.checked_div(of_each).unwrap_or(u64::MAX).max(1);
            let more = self.num_rows.saturating_mul(MORE);
            self.num_rows = usize::try_from(fit).unwrap_or(usize::MAX).min(more);
        }
        let num_rows = self.num_rows.min(batch.num_rows());
        self.last = Some((num_rows, made));
        if num_rows == batch.num_rows() {
            return (batch, None);
        }
        let rest = batch.slice(num_rows, batch.num_rows() - num_rows);
        (batch.slice(0, num_rows), Some(rest))
    }
}

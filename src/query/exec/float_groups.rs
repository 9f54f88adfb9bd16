//! Groups by floats, whole.
//!
//! Comes in: a plan, before joins and TopK are connected with scans. Goes out: the same plan, in which their conditions end above each GROUP BY of a float: it takes -0.0 for 0.0, those
//! conditions do not, and would cut rows of a group away. Never here: groups by other types, whose rows are equal for both.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use futures::StreamExt;
use futures::stream::BoxStream;

#[cfg(feature = "distributed")]
use super::between::BetweenExec;
use super::between::{Between, Room, put_under};

/// The plan in which no condition goes below such a GROUP BY.
pub(in crate::query) fn undivided(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let groups_floats = match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) if aggregate.mode().input_mode() == AggregateInputMode::Raw => {
                let schema = aggregate.input_schema();
                let mut keys = aggregate.group_expr().expr().iter();
                keys.any(|(key, _)| key.data_type(&schema).is_ok_and(|kind| kind.is_floating()))
            }
            _ => false,
        };
        if !groups_floats {
            return Ok(Transformed::no(node));
        }
        let undivided = put_under(Arc::clone(&node), WholeGroups)?;
        Ok(undivided.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// The plan without what ended conditions there, once they are connected with scans.
#[cfg(feature = "distributed")]
pub(in crate::query) fn connected(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| match node.is::<BetweenExec<WholeGroups>>() {
        false => Ok(Transformed::no(node)),
        true => {
            let input = node.children().first().map(|input| Arc::clone(input));
            Ok(input.map_or_else(|| Transformed::no(node), Transformed::yes))
        }
    })
    .data()
}

/// Hands batches on as they are.
#[derive(Debug)]
struct WholeGroups;

impl Between for WholeGroups {
    const NAME: &'static str = "WholeGroupsExec";

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        _: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        batches.boxed()
    }
}

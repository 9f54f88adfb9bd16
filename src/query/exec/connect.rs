//! Joins and TopK connected with the scans below them.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which scans know what joins and TopK above them learn, and skip what cannot match. Conditions end above each GROUP BY of
//! a float: it takes -0.0 for 0.0, those conditions do not, and would cut rows of a group away. Never here: conditions of the statement; who made a condition tests its rows again, so that
//! nobody in between has to.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::filter::FilterExec;
use futures::StreamExt;
use futures::stream::BoxStream;

#[cfg(feature = "distributed")]
use super::between::BetweenExec;
use super::between::{Between, Place, Room, put_under};
use super::twins::TwinsApart;

/// The plan, connected.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn connected(
    plan: Arc<dyn ExecutionPlan>,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let pushdown = TwinsApart(Arc::new(FilterPushdown::new_post_optimization()));
    let plan = pushdown.optimize(undivided(plan)?, options)?;
    untested(plan)
}

/// The plan without tests of what joins and TopK learn. The engine puts one under each sort whose scan does not promise to be exact: the join above tests the rows once more, a test of the
/// engine takes -0.0 and 0.0 for different keys where its join does not, and in a plan of several processes it would move the places by which operators are counted.
fn untested(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let learnt = node.downcast_ref::<FilterExec>().is_some_and(|filter| {
            let mut terms = split_conjunction(filter.predicate()).into_iter();
            filter.projection().is_none()
                && terms.all(|term| DynamicFilterTracking::classify(term).contains_dynamic_filter())
        });
        match node.children().first() {
            Some(input) if learnt => Ok(Transformed::yes(Arc::clone(input))),
            _ => Ok(Transformed::no(node)),
        }
    })
    .data()
}

/// The plan in which no condition goes below such a GROUP BY.
fn undivided(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let groups_floats = match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) => {
                let schema = match aggregate.mode().input_mode() {
                    AggregateInputMode::Raw => aggregate.input_schema(),
                    AggregateInputMode::Partial => aggregate.input().schema(),
                };
                let mut keys = aggregate.group_expr().expr().iter();
                keys.any(|(key, _)| key.data_type(&schema).is_ok_and(|kind| kind.is_floating()))
            }
            None => false,
        };
        if !groups_floats {
            return Ok(Transformed::no(node));
        }
        let undivided = put_under(Arc::clone(&node), WholeGroups, Place::Above)?;
        Ok(undivided.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// The plan without what ended conditions there, once they are connected with scans.
#[cfg(feature = "distributed")]
pub(in crate::query) fn divided(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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

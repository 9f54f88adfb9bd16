//! Groups in one step, where no two shares have rows of one group.
//!
//! Comes in: a physical plan. Goes out: the same plan, in which GROUP BY over the columns that a grid is partitioned by neither prepares groups nor deals them out by hash: row bands go to
//! shares as they are. The engine cannot be told so itself: it would take the grid's hash for its own, and join what does not belong together. Never here: sorted grids, whose order the engine
//! knows (`sorted.rs`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};

use crate::query::exec::scan::GridScanExec;

/// Operators that take partitions as they come, whatever rows are in them.
const TAKING_ANY: [&str; 3] = [
    "CoalescePartitionsExec",
    "RepartitionExec",
    "SortPreservingMergeExec",
];

/// Operators that treat each partition for itself, so that it is for those above to care which rows are in it.
const PASSING_ON: [&str; 5] = [
    "CooperativeExec",
    "FilterExec",
    "LocalLimitExec",
    "ProjectionExec",
    "SortExec",
];

/// Takes the first step of a GROUP BY, and the dealing out by hash, away where row bands have no groups in common.
#[derive(Debug)]
pub(in crate::query) struct OneStep;

impl PhysicalOptimizerRule for OneStep {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewritten(plan, true, options.execution.target_partitions)
    }

    fn name(&self) -> &'static str {
        "one_step"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `is_free`: nobody above relies on which rows are in which partition.
fn rewritten(
    plan: Arc<dyn ExecutionPlan>,
    is_free: bool,
    num_shares: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if is_free && let Some(plan) = in_one_step(&plan, num_shares)? {
        return Ok(plan);
    }
    let is_first_step = |aggregate: &AggregateExec| *aggregate.mode() == AggregateMode::Partial;
    let below = TAKING_ANY.contains(&plan.name())
        || plan
            .downcast_ref::<AggregateExec>()
            .is_some_and(is_first_step)
        || is_free && PASSING_ON.contains(&plan.name());
    let children = plan.children().into_iter();
    let children = children.map(|child| rewritten(Arc::clone(child), below, num_shares));
    let children = children.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(plan, children)
}

fn in_one_step(
    plan: &Arc<dyn ExecutionPlan>,
    num_shares: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let last = plan.downcast_ref::<AggregateExec>();
    let Some(last) = last.filter(|last| *last.mode() == AggregateMode::FinalPartitioned) else {
        return Ok(None);
    };
    let dealt = last.input().downcast_ref::<RepartitionExec>();
    let first = dealt.and_then(|dealt| dealt.input().downcast_ref::<AggregateExec>());
    let Some(first) = first.filter(|first| *first.mode() == AggregateMode::Partial) else {
        return Ok(None);
    };
    let groups = first.group_expr();
    if !groups.is_single() || plan.output_ordering().is_some() {
        return Ok(None);
    }
    let keys = groups.expr().iter();
    let keys = keys.filter_map(|(key, _)| Some(key.downcast_ref::<Column>()?.index()));
    let Some(input) = dealt_by_bands(first.input(), &keys.collect::<Vec<_>>(), num_shares)? else {
        return Ok(None);
    };
    let whole = AggregateExec::try_new(
        AggregateMode::SinglePartitioned,
        groups.clone(),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        input,
        first.input_schema(),
    )?;
    let whole = whole.with_limit_options(last.limit_options());
    Ok((whole.schema() == last.schema()).then(|| Arc::new(whole) as _))
}

/// The input with whole row bands in its partitions, if rows with equal values in columns `keys` of it are in one row band.
fn dealt_by_bands(
    input: &Arc<dyn ExecutionPlan>,
    keys: &[usize],
    num_shares: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = input.downcast_ref::<GridScanExec>() {
        let dealt = scan.in_whole_bands(keys, num_shares);
        return Ok(dealt.map(|scan| Arc::new(scan) as _));
    }
    let (below, keys) = if let Some(projection) = input.downcast_ref::<ProjectionExec>() {
        let origin = |key: &usize| {
            let part = projection.expr().get(*key)?;
            Some(part.expr.downcast_ref::<Column>()?.index())
        };
        (projection.input(), keys.iter().filter_map(origin).collect())
    } else if let Some(pausing) = input.downcast_ref::<CooperativeExec>() {
        (pausing.input(), keys.to_vec())
    } else {
        return Ok(None);
    };
    let Some(below) = dealt_by_bands(below, &keys, num_shares)? else {
        return Ok(None);
    };
    let input = Arc::clone(input);
    replace_children_if_necessary(input, vec![below]).map(Some)
}

//! ROLLUP and CUBE from the groups of all keys.
//!
//! Comes in: a physical plan. Goes out: the same plan, in which the first step of GROUP BY with several sets of keys makes the groups of all keys alone, and those of fewer keys come of these: the engine
//! would look each row up once for each set. Only where the groups of all keys are wanted themselves, so that no more are kept than before. Never here: what an aggregate keeps.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};

use crate::query::exec::expand::ExpandExec;

/// Makes groups of fewer keys from those of all.
#[derive(Debug)]
pub(in crate::query) struct RollUp;

impl PhysicalOptimizerRule for RollUp {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let rolled_up = match node.downcast_ref::<AggregateExec>() {
                Some(aggregate) if goes(aggregate) => rolled_up(aggregate)?,
                _ => None,
            };
            Ok(rolled_up.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "roll_up"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether the aggregate has several sets of keys, one of which is that of all.
fn goes(aggregate: &AggregateExec) -> bool {
    let keys = aggregate.group_expr();
    let has_all = |sets: &[Vec<bool>]| sets.iter().any(|set| !set.contains(&true));
    keys.has_grouping_set()
        && keys.groups().len() > 1
        && has_all(keys.groups())
        && aggregate.limit_options().is_none()
}

fn rolled_up(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let first = match aggregate.mode() {
        AggregateMode::Partial => aggregate.clone(),
        AggregateMode::Single => first_step(aggregate)?,
        _ => return Ok(None),
    };
    let keys = first.group_expr();
    let all = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(keys.expr().to_vec()),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        Arc::clone(first.input()),
        first.input_schema(),
    )?;
    let expanded = ExpandExec::try_new(Arc::new(all), &first)?;
    if *aggregate.mode() == AggregateMode::Partial {
        return Ok(Some(Arc::new(expanded)));
    }
    let last = AggregateExec::try_new(
        AggregateMode::Final,
        keys.as_final(),
        first.aggr_expr().to_vec(),
        first.filter_expr().to_vec(),
        Arc::new(expanded),
        first.input_schema(),
    )?;
    let is_same = last.schema() == aggregate.schema();
    Ok(is_same.then(|| Arc::new(last) as _))
}

/// The aggregate as a first step.
pub(super) fn first_step(aggregate: &AggregateExec) -> Result<AggregateExec> {
    AggregateExec::try_new(
        AggregateMode::Partial,
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )
}

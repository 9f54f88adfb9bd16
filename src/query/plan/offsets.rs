//! ORDER BY with OFFSET, and without LIMIT, in a subquery. Which rows are left depends on the order; the engine takes the order of rows for needed only where it is said how many come, and else drops the sort, or puts
//! another one below.
//!
//! Comes in: a physical plan before its sorts are settled; a plan that is settled. Goes out: the first with a LIMIT that no rows reach; the second without it. Never here: limits of users.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

/// More rows than there can be; the engine adds such numbers up, and takes offsets from them.
const ALL: usize = usize::MAX / 4;

/// What is left of them is no fewer.
const LEAST: usize = ALL / 2;

/// Says of each OFFSET without LIMIT that all rows come.
#[derive(Debug)]
pub(in crate::query) struct Offsets;

/// Takes that back, so that nobody looks for so many first rows.
#[derive(Debug)]
pub(in crate::query) struct AllRows;

impl PhysicalOptimizerRule for Offsets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let limit = node.downcast_ref::<GlobalLimitExec>();
            let changed = match limit.filter(|limit| limit.fetch().is_none()) {
                Some(limit) => below_projections(limit.input(), limit.skip())?,
                None => None,
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "offsets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows without the first ones, counted right above the sort; `None` where there is none.
fn below_projections(
    input: &Arc<dyn ExecutionPlan>,
    skip: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = input.downcast_ref::<ProjectionExec>() {
        let Some(below) = below_projections(projection.input(), skip)? else {
            return Ok(None);
        };
        return replace_children_if_necessary(Arc::clone(input), vec![below]).map(Some);
    }
    let Some(sort) = input.downcast_ref::<SortExec>() else {
        return Ok(None);
    };
    let sorted = Arc::new(sort.with_fetch(Some(ALL)));
    Ok(Some(Arc::new(GlobalLimitExec::new(
        sorted,
        skip,
        Some(ALL),
    ))))
}

impl PhysicalOptimizerRule for AllRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if node.fetch().is_none_or(|fetch| fetch < LEAST) {
                return Ok(Transformed::no(node));
            }
            let all = if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
                let input = Arc::clone(limit.input());
                match limit.skip() {
                    0 => Some(input),
                    skip => Some(Arc::new(GlobalLimitExec::new(input, skip, None)) as _),
                }
            } else if let Some(limit) = node.downcast_ref::<LocalLimitExec>() {
                Some(Arc::clone(limit.input()))
            } else {
                node.with_fetch(None)
            };
            Ok(all.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "all_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

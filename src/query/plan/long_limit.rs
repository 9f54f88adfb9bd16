//! First rows that come of a whole sort.
//!
//! Comes in: a physical plan. Goes out: the same plan, in which a sort that gives so many of the first rows that it is cheaper to sort all of them does so. The engine keeps first rows in a heap, whose price is that of each row that
//! comes into it. So does a sort by nested values: what such a heap tells the others drops rows by another order, in which nulls within values always come first. Never here: which rows are the first.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// How many rows are sorted in the time in which one comes into the heap.
const ROWS_SORTED: f64 = 8.0;

/// So few rows are no work.
const SMALL: usize = 4096;

/// So many first rows are many, of a number that nobody knows.
const MANY: usize = 100_000;

/// Sorts all rows where many are wanted, or where the keys are nested.
#[derive(Debug)]
pub(in crate::query) struct LongLimits;

impl PhysicalOptimizerRule for LongLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| Ok(sorted_whole(node))).data()
    }

    fn name(&self) -> &'static str {
        "long_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn sorted_whole(node: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let found = node
        .downcast_ref::<SortExec>()
        .and_then(|sort| Some((sort, sort.fetch()?)))
        .filter(|(sort, fetch)| has_nested(sort) || are_many(*fetch, sort.input()));
    let Some((sort, fetch)) = found else {
        return Transformed::no(node);
    };
    let all: Arc<dyn ExecutionPlan> = Arc::new(sort.with_fetch(None));
    Transformed::yes(match all.output_partitioning().partition_count() {
        1 => Arc::new(GlobalLimitExec::new(all, 0, Some(fetch))),
        _ => Arc::new(LocalLimitExec::new(all, fetch)),
    })
}

/// Whether rows are sorted by lists, structs or maps.
fn has_nested(sort: &SortExec) -> bool {
    let schema = sort.input().schema();
    let mut keys = sort.expr().iter();
    keys.any(|key| {
        let data_type = key.expr.data_type(&schema);
        data_type.is_ok_and(|data_type| data_type.is_nested())
    })
}

/// Whether so many of the rows of an input are many.
fn are_many(fetch: usize, input: &Arc<dyn ExecutionPlan>) -> bool {
    let known = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new());
    let rows = known
        .ok()
        .and_then(|known| known.num_rows.get_value().copied());
    let Some(rows) = rows else {
        return fetch >= MANY;
    };
    let (first, rows) = (fetch as f64, rows as f64);
    // Of rows in any order, these come into a heap of the first ones.
    let into_heap = first * (1.0 + (rows / first).max(1.0).ln());
    into_heap * ROWS_SORTED > rows && fetch > SMALL
}

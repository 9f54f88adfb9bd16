//! How many rows a batch of a query may have.
//!
//! Comes in: a plan, the memory limit. Goes out: the usual number, or fewer where values are long that are written out for each row: a join repeats a list for every row that meets it, `repeat` makes a text of each. They allocate
//! a whole batch at once, beside the memory pool; a machine that has no room for it ends the process. Never here: operators that make much of one row (`portion.rs`).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::growth::{COLLECTING, Growth, Window, wide_or_said};
use super::scan::GridScanExec;
use crate::error::Result;

/// A batch of the longest rows takes at most this part of the memory limit.
const PART: u64 = 16;

/// Groups that an aggregate makes when nobody can tell how many.
const USUAL_GROUPS: u64 = 64;

/// Operators that may give a row of their input more than once.
const REPEATING: [&str; 3] = ["JoinExec", "WindowAggExec", "ScalarSubqueryExec"];

/// The rows of a batch: `usual`, or fewer.
pub(in crate::query) fn batch_rows(
    plan: &Arc<dyn ExecutionPlan>,
    usual: usize,
    limit_bytes: usize,
) -> usize {
    let mut found = Found::default();
    found.look(plan);
    // What is made is as long in each row wherever rows are put together.
    let longest = match repeats(plan) {
        true => found.longest.max(found.made),
        false => found.made,
    };
    let most_bytes = limit_bytes as u64 / PART;
    if longest.saturating_mul(usual as u64) <= most_bytes {
        return usual;
    }
    let rows = most_bytes / longest.max(1);
    usize::try_from(rows).map_or(usual, |rows| rows.clamp(1, usual))
}

/// The plan with filters that hand on batches of so many rows: they know since they were planned how many they put together.
///
/// # Errors
/// `Internal` when a filter cannot be made again.
pub(in crate::query) fn in_batches(
    plan: Arc<dyn ExecutionPlan>,
    rows: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let smaller = plan.transform_up(|node| match node.downcast_ref::<FilterExec>() {
        Some(filter) => {
            let filter = filter.with_batch_size(rows)?;
            Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>))
        }
        None => Ok(Transformed::no(node)),
    });
    Ok(smaller.data()?)
}

fn repeats(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let repeats_itself = REPEATING.iter().any(|name| plan.name().ends_with(name));
    repeats_itself || plan.children().into_iter().any(repeats)
}

#[derive(Default)]
struct Found {
    /// Bytes of the longest value that is there or gathered.
    longest: u64,
    /// Bytes of the longest value that is written out for each row.
    made: u64,
}

impl Found {
    fn look(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        for child in plan.children() {
            self.look(child);
        }
        let longest = if let Some(scan) = plan.downcast_ref::<GridScanExec>() {
            scan.longest()
        } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let parts = projection
                .expr()
                .iter()
                .map(|part| wide_or_said(&part.expr));
            self.made = parts.fold(self.made, u64::max);
            0
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            collected(aggregate)
        } else if let Some((Growth::Windows(windows), _)) = Growth::of(plan.as_ref()) {
            match windows.iter().any(Window::gathers_all) {
                true => scanned(plan),
                false => 0,
            }
        } else {
            0
        };
        self.longest = self.longest.max(longest);
    }
}

/// Bytes of the tiles of all scans of a plan.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    match plan.downcast_ref::<GridScanExec>() {
        Some(scan) => scan.tile_bytes(),
        None => plan.children().into_iter().map(scanned).sum(),
    }
}

/// About how many bytes of its input an aggregate gathers in one value.
fn collected(aggregate: &AggregateExec) -> u64 {
    let mut functions = aggregate.aggr_expr().iter();
    if !functions.any(|function| COLLECTING.contains(&function.fun().name())) {
        return 0;
    }
    let input_bytes = scanned(aggregate.input());
    if aggregate.group_expr().is_empty() {
        return input_bytes;
    }
    let known = StatisticsContext::new().compute(aggregate, &StatisticsArgs::new());
    let groups = known
        .ok()
        .and_then(|known| known.num_rows.get_value().copied());
    input_bytes / groups.map_or(USUAL_GROUPS, |groups| groups.max(1) as u64)
}

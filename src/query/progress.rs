//! How far a query is.
//!
//! Comes in: a plan that runs, with its counters. Goes out: rows that its scans of grids gave, of those that they may give. Never here: bars.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::StatisticsArgs;

/// The name of the scan of a grid.
const SCAN: &str = "GridScanExec";

/// How far a run of a query is: a picture of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryProgress {
    /// Rows that the scans of grids gave.
    pub num_rows: u64,
    /// Rows that they may give, after pruning. A query may need fewer of them, for instance with LIMIT.
    pub total_rows: u64,
    /// How many scans of grids the plan has.
    pub num_scans: usize,
}

/// The rows that the scans of a plan may give, and how many scans it has.
pub(super) fn totals(plan: &Arc<dyn ExecutionPlan>) -> (u64, usize) {
    let mut totals = (0, 0);
    visit(plan, &mut |scan| {
        let statistics = scan.statistics_from_inputs(&[], &StatisticsArgs::new());
        let rows = statistics
            .ok()
            .and_then(|statistics| statistics.num_rows.get_value().copied());
        totals.0 += rows.map_or(0, |rows| rows as u64);
        totals.1 += 1;
    });
    totals
}

/// The rows that the scans of a plan gave so far.
pub(super) fn rows_so_far(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let mut rows = 0;
    visit(plan, &mut |scan| {
        let counted = scan.metrics().and_then(|metrics| metrics.output_rows());
        rows += counted.map_or(0, |rows| rows as u64);
    });
    rows
}

fn visit(plan: &Arc<dyn ExecutionPlan>, see: &mut impl FnMut(&dyn ExecutionPlan)) {
    if plan.name() == SCAN {
        see(plan.as_ref());
    }
    for child in plan.children() {
        visit(child, see);
    }
}

//! How far a query is.
//!
//! Comes in: a plan that runs. Goes out: rows and tiles that its scans of grids are done with, of those that they keep. Never here: bars.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::query::exec::scan::GridScanExec;

/// How far a run of a query is: a picture of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryProgress {
    /// Rows that the scans of grids are done with: read, or left unread since nobody needs them.
    pub num_rows: u64,
    /// Rows of the tiles that they keep. A query may need fewer of them, for instance with LIMIT.
    pub total_rows: u64,
    /// Tiles that they are done with.
    pub num_tiles: u64,
    /// Tiles that they keep.
    pub total_tiles: u64,
    /// How many scans of grids the plan has.
    pub num_scans: usize,
}

impl QueryProgress {
    /// How much of the rows of its scans it is done with, from 0 to 1; `None` for a query that scans no rows.
    #[must_use]
    pub fn fraction(&self) -> Option<f64> {
        let share = self.num_rows as f64 / self.total_rows as f64;
        (self.total_rows > 0).then_some(share.min(1.0))
    }
}

/// How far a plan is.
pub(super) fn progress(plan: &Arc<dyn ExecutionPlan>) -> QueryProgress {
    let mut sum = QueryProgress::default();
    each_scan(plan, &mut |scan| {
        let one = scan.so_far();
        sum.num_rows += one.num_rows;
        sum.total_rows += one.total_rows;
        sum.num_tiles += one.num_tiles;
        sum.total_tiles += one.total_tiles;
        sum.num_scans += one.num_scans;
    });
    sum
}

/// Goes through the scans of grids of a plan.
pub(super) fn each_scan(plan: &Arc<dyn ExecutionPlan>, see: &mut impl FnMut(&GridScanExec)) {
    if let Some(scan) = plan.downcast_ref::<GridScanExec>() {
        see(scan);
    }
    for child in plan.children() {
        each_scan(child, see);
    }
}

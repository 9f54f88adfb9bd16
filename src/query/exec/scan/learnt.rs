//! What a scan learns while it runs.
//!
//! Comes in: a scan with the dynamic filters of operators above it. Goes out: the scan that waits for some of them; once its run is over, what is left of it to look at. Never here: testing rows (`sieve.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;

use super::GridScanExec;
use super::show::joined;

impl GridScanExec {
    /// The scan that waits for the dynamic filters with these numbers.
    #[must_use]
    pub(in crate::query::exec) fn awaiting(&self, filters: &HashSet<u64>) -> Self {
        let mut scan = self.clone();
        let is_awaited = |filter: &&Arc<dyn PhysicalExpr>| {
            filter
                .expression_id()
                .is_some_and(|id| filters.contains(&id))
        };
        scan.awaited = self
            .dynamic
            .iter()
            .filter(is_awaited)
            .map(Arc::clone)
            .collect();
        scan
    }

    /// Waits until the joins above have read their other side.
    pub(in crate::query::exec) async fn wait_for_joins(&self) {
        for filter in &self.awaited {
            if let Some(filter) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() {
                filter.wait_complete().await;
            }
        }
    }

    /// The scan to look at once its run is over; `None` for one that can stay as it is. A dynamic filter holds what a join had read to test rows with.
    pub(in crate::query::exec) fn ran(&self) -> Option<Self> {
        if self.dynamic.is_empty() {
            return None;
        }
        let mut scan = self.clone();
        scan.learnt = Some(joined(&self.dynamic));
        scan.dynamic.clear();
        scan.awaited.clear();
        Some(scan)
    }
}

//! What the scans of a statement counted.
//!
//! Comes in: a plan in stages that runs, or ran. Goes out: the numbers of its scans, each with the process that counted it. Never here: counting (`query/exec/scan/count.rs`), bringing numbers from other members (the engine).

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{Label, Metric, MetricValue, MetricsSet};
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};

use crate::query::{GridScanExec, PROCESS};

/// The numbers of all scans of a plan.
pub(in crate::cluster) fn counted(plan: &Arc<dyn ExecutionPlan>) -> MetricsSet {
    let mut all = MetricsSet::new();
    gather(plan, true, &mut all);
    all
}

/// Adds the numbers of scans. Those of the last stage, which this process runs, do not say whose they are.
fn gather(plan: &Arc<dyn ExecutionPlan>, is_last: bool, all: &mut MetricsSet) {
    let metrics = plan.metrics().unwrap_or_default();
    let is_own = is_last && is_scan(plan);
    for metric in metrics.iter() {
        if metric.labels().iter().any(|label| label.name() == PROCESS) {
            all.push(Arc::clone(metric));
        } else if is_own && matches!(metric.value(), MetricValue::Count { .. }) {
            let own = Label::new(PROCESS, std::process::id().to_string());
            let value = metric.value().clone();
            all.push(Arc::new(Metric::new_with_labels(value, None, vec![own])));
        }
    }
    let is_last = is_last && !plan.is_network_boundary();
    for child in plan.children() {
        gather(child, is_last, all);
    }
}

fn is_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let leaf = plan.downcast_ref::<DistributedLeafExec>();
    plan.is::<GridScanExec>() || leaf.is_some_and(|leaf| leaf.original().is::<GridScanExec>())
}

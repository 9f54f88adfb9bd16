//! Row limits that the engine writes down cut to 32 bits.
//!
//! Comes in: a plan in stages. Goes out: nothing, or an error for a part that would arrive with another limit than it has. Never here: limits of scans, which are ours.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion_distributed::NetworkBoundaryExt;

use crate::error::{Error, ErrorKind};

/// Looks over the parts that are sent.
///
/// # Errors
/// `Unsupported` for LIMIT and OFFSET of 2^32 rows and more.
pub(in crate::cluster) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    below(plan, false)
}

/// What is below and at a node, which is written down or is not.
fn below(plan: &Arc<dyn ExecutionPlan>, is_sent: bool) -> Result<()> {
    let skipped = plan.downcast_ref::<GlobalLimitExec>();
    let skipped = skipped.map(GlobalLimitExec::skip);
    let most = [plan.fetch(), skipped].into_iter().flatten().max();
    if let Some(rows) = most.filter(|rows| is_sent && u32::try_from(*rows).is_err()) {
        let text = format!(
            "LIMIT and OFFSET of statements that run in several processes may have up to {} rows, got {rows}",
            u32::MAX
        );
        let error = Error::new(ErrorKind::Unsupported, text);
        return Err(error.with_hint("leave LIMIT out for all rows").into());
    }
    let is_sent = is_sent || plan.is_network_boundary();
    plan.children()
        .into_iter()
        .try_for_each(|child| below(child, is_sent))
}

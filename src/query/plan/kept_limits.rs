//! Limits of sorts that turn out to be needless.
//!
//! Comes in: a physical plan, and the rule of the engine that takes away sorts of rows that are in order. Goes out: what the rule makes of it, with a limit where a sort with one has gone without a trace: where the rule finds the order further below, it forgets how many rows were wanted. Never here: which sorts are needless.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// Has the rule keep limits.
#[derive(Debug)]
pub(in crate::query) struct KeptLimits(
    pub(in crate::query) Arc<dyn PhysicalOptimizerRule + Send + Sync>,
);

impl PhysicalOptimizerRule for KeptLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_limits = plan.exists(|node| Ok(limit_of(node).is_some()))?;
        if !has_limits {
            return self.0.optimize(plan, config);
        }
        let told = plan.transform_up(|node| match limit_of(&node) {
            Some(limit) => {
                let limited = GlobalLimitExec::new(node, 0, Some(limit));
                Ok(Transformed::yes(Arc::new(limited) as _))
            }
            None => Ok(Transformed::no(node)),
        });
        let settled = self.0.optimize(told.data()?, config)?;
        // Where the limit is still there, it need not be said twice.
        let once = settled.transform_up(|node| {
            let limit = node.downcast_ref::<GlobalLimitExec>();
            let kept = limit.filter(|limit| limit.skip() == 0 && is_kept(limit));
            Ok(match kept {
                Some(limit) => Transformed::yes(Arc::clone(limit.input())),
                None => Transformed::no(node),
            })
        });
        once.data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// How many rows a sort of all gives.
fn limit_of(node: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let sort = node.downcast_ref::<SortExec>()?;
    sort.fetch().filter(|_| !sort.preserve_partitioning())
}

/// Whether what is below a limit gives no more rows than it.
fn is_kept(limit: &GlobalLimitExec) -> bool {
    let below = limit.input();
    let is_one = below.output_partitioning().partition_count() == 1;
    let fetch = below.fetch().filter(|_| is_one);
    fetch
        .zip(limit.fetch())
        .is_some_and(|(below, all)| below <= all)
}

//! What operators ask of their inputs, looked at once more.
//!
//! Comes in: a physical plan that is done but for what scans are told while it runs. Goes out: the same; if an operator is not given the order or the partitions that it asks for, the plan in which it is. The engine
//! settles both once, by what it knows then, and its later rules know less (of a constant of one side of a join), or it takes a sort away for which all rows had met in one place, and does not deal them out instead.
//! Never here: what is asked for.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::ExecutionPlan;

use super::constants::without_those_of_joins;

/// Has the engine's rule for what operators ask for settle plans anew that it left unsettled. The order of the rows of a plan as a whole stays.
#[derive(Debug)]
pub(in crate::query) struct Required(
    pub(in crate::query) Arc<dyn PhysicalOptimizerRule + Send + Sync>,
);

impl PhysicalOptimizerRule for Required {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let check = SanityCheckPlan::new();
        if check.optimize(Arc::clone(&plan), config).is_ok() {
            return Ok(plan);
        }
        let plan = without_those_of_joins(plan, config)?;
        let settled = OutputRequirements::new_add_mode().optimize(plan, config)?;
        let settled = self.0.optimize(settled, config)?;
        OutputRequirements::new_remove_mode().optimize(settled, config)
    }

    fn name(&self) -> &'static str {
        "required"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

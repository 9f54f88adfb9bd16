//! Puts arithmetic of decimals into 64 bits, that of whole numbers under the eyes of `checked`, and what can fail under those of the conditions beside it.
//!
//! Comes in: a physical plan. Goes out: the same plan, whose projections, filters and aggregates work out sums, differences and products of decimals with `exec::narrow`, and whose whole
//! numbers never wrap around. Never here: the arithmetic.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::meaning::checked::checked_late;
use crate::query::exec::expressions::with_expressions;
use crate::query::exec::guarded::guarded;
use crate::query::exec::narrow::Narrow;

/// The arithmetic of projections, filters and arguments of aggregates.
#[derive(Debug)]
pub(in crate::query) struct Arithmetic;

impl PhysicalOptimizerRule for Arithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let node = with_expressions(node, &narrowed)?;
            node.transform_data(|node| with_expressions(node, &|part, _| guarded(Arc::clone(part))))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The expression with every largest part that is arithmetic of decimals in 64 bits, and whole numbers that look for overflow.
fn narrowed(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Arc::clone(expression).transform_down(|part| match Narrow::of(&part, schema) {
        Some(narrow) => Ok(Transformed::new(
            Arc::new(narrow) as _,
            true,
            TreeNodeRecursion::Jump,
        )),
        None => Ok(match checked_late(&part, schema) {
            Some(checked) => Transformed::yes(checked),
            None => Transformed::no(part),
        }),
    })
}

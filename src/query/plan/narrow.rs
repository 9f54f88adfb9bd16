//! Puts arithmetic of decimals into 64 bits.
//!
//! Comes in: a physical plan. Goes out: the same plan, whose projections and aggregates work out sums, differences and products of decimals with `exec::narrow`.
//! Never here: the arithmetic.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::query::exec::narrow::Narrow;

/// Narrows the arithmetic of projections and of arguments of aggregates.
#[derive(Debug)]
pub(in crate::query) struct NarrowDecimals;

impl PhysicalOptimizerRule for NarrowDecimals {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let narrowed = plan.transform_up(|node| {
            if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                return projected(projection).map(|found| or(found, node));
            }
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                return aggregated(aggregate).map(|found| or(found, node));
            }
            Ok(Transformed::no(node))
        });
        narrowed.data()
    }

    fn name(&self) -> &'static str {
        "narrow_decimals"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn or(
    found: Option<Arc<dyn ExecutionPlan>>,
    node: Arc<dyn ExecutionPlan>,
) -> Transformed<Arc<dyn ExecutionPlan>> {
    found.map_or_else(|| Transformed::no(node), Transformed::yes)
}

fn projected(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut is_changed = false;
    let mut narrow = |part: &ProjectionExpr| -> Result<ProjectionExpr> {
        let found = narrowed(&part.expr, &schema)?;
        is_changed |= found.transformed;
        Ok(ProjectionExpr::new(found.data, part.alias.clone()))
    };
    let parts: Result<Vec<ProjectionExpr>> = projection.expr().iter().map(&mut narrow).collect();
    let parts = parts?;
    if !is_changed {
        return Ok(None);
    }
    let input = Arc::clone(projection.input());
    Ok(Some(Arc::new(ProjectionExec::try_new(parts, input)?)))
}

fn aggregated(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // Those that gather what others have worked out have no arithmetic left.
    if aggregate.mode().input_mode() != AggregateInputMode::Raw {
        return Ok(None);
    }
    let schema = aggregate.input().schema();
    let mut is_changed = false;
    let mut narrow = |function: &Arc<AggregateFunctionExpr>| -> Result<Arc<AggregateFunctionExpr>> {
        let arguments = function.expressions();
        let found: Result<Vec<_>> = arguments
            .iter()
            .map(|part| narrowed(part, &schema))
            .collect();
        let found = found?;
        if !function.order_bys().is_empty() || !found.iter().any(|part| part.transformed) {
            return Ok(Arc::clone(function));
        }
        let arguments = found.into_iter().map(|part| part.data).collect();
        let Some(function) = function.with_new_expressions(arguments, Vec::new()) else {
            return Ok(Arc::clone(function));
        };
        is_changed = true;
        Ok(Arc::new(function))
    };
    let functions: Result<Vec<_>> = aggregate.aggr_expr().iter().map(&mut narrow).collect();
    let functions = functions?;
    Ok(is_changed.then(|| Arc::new(aggregate.with_new_aggr_exprs(functions)) as _))
}

/// The expression with every largest part that is arithmetic of decimals in 64 bits.
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
        None => Ok(Transformed::no(part)),
    })
}

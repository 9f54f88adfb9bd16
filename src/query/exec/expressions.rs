//! Puts other expressions into the operators of a plan.
//!
//! Comes in: a node of a plan, and what is done to an expression over the columns below it. Goes out: the node with the changed expressions, for projections, filters and arguments of
//! aggregates; other nodes stay. Never here: what is changed, and why.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

/// What is done to an expression.
pub(crate) type Change<'a> =
    dyn Fn(&Arc<dyn PhysicalExpr>, &Schema) -> Result<Transformed<Arc<dyn PhysicalExpr>>> + 'a;

/// The node with other expressions.
pub(crate) fn with_expressions(
    node: Arc<dyn ExecutionPlan>,
    change: &Change<'_>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let changed = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        projected(projection, change)?
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        aggregated(aggregate, change)?
    } else if let Some(filter) = node.downcast_ref::<FilterExec>() {
        filtered(filter, change)?
    } else {
        None
    };
    Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
}

fn projected(
    projection: &ProjectionExec,
    change: &Change<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut is_changed = false;
    let mut part = |part: &ProjectionExpr| -> Result<ProjectionExpr> {
        let found = change(&part.expr, &schema)?;
        is_changed |= found.transformed;
        Ok(ProjectionExpr::new(found.data, part.alias.clone()))
    };
    let parts: Result<Vec<ProjectionExpr>> = projection.expr().iter().map(&mut part).collect();
    let parts = parts?;
    if !is_changed {
        return Ok(None);
    }
    let input = Arc::clone(projection.input());
    Ok(Some(Arc::new(ProjectionExec::try_new(parts, input)?)))
}

fn filtered(filter: &FilterExec, change: &Change<'_>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let found = change(filter.predicate(), &filter.input().schema())?;
    if !found.transformed {
        return Ok(None);
    }
    let filter = FilterExecBuilder::from(filter).with_predicate(found.data);
    Ok(Some(Arc::new(filter.build()?)))
}

fn aggregated(
    aggregate: &AggregateExec,
    change: &Change<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // Those that gather what others have worked out have no expressions of rows left.
    if aggregate.mode().input_mode() != AggregateInputMode::Raw {
        return Ok(None);
    }
    let schema = aggregate.input().schema();
    let mut is_changed = false;
    let mut each = |function: &Arc<AggregateFunctionExpr>| -> Result<Arc<AggregateFunctionExpr>> {
        let arguments = function.expressions();
        let found: Result<Vec<_>> = arguments.iter().map(|part| change(part, &schema)).collect();
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
    let functions: Result<Vec<_>> = aggregate.aggr_expr().iter().map(&mut each).collect();
    let functions = functions?;
    Ok(is_changed.then(|| Arc::new(aggregate.with_new_aggr_exprs(functions)) as _))
}

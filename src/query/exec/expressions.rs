//! Puts other expressions into the operators of a plan.
//!
//! Comes in: a node of a plan, and what is done to an expression over the columns below it. Goes out: the node with the changed expressions, for projections, filters, conditions of joins, arguments and conditions of
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
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
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
    } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let filter = joined(join.filter(), change)?;
        let with = |filter| join.builder().with_filter(Some(filter)).build_exec();
        filter.map(with).transpose()?
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        match joined(join.filter(), change)? {
            Some(filter) => Some(nested(join, filter)?),
            None => None,
        }
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

/// The changed condition of a join.
fn joined(filter: Option<&JoinFilter>, change: &Change<'_>) -> Result<Option<JoinFilter>> {
    let Some(filter) = filter else {
        return Ok(None);
    };
    let found = change(filter.expression(), filter.schema())?;
    Ok(found.transformed.then(|| {
        let places = filter.column_indices().to_vec();
        JoinFilter::new(found.data, places, Arc::clone(filter.schema()))
    }))
}

/// The join with another condition.
pub(super) fn nested(
    join: &NestedLoopJoinExec,
    filter: JoinFilter,
) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = (Arc::clone(join.left()), Arc::clone(join.right()));
    let join = NestedLoopJoinExecBuilder::new(inputs.0, inputs.1, *join.join_type())
        .with_projection_ref(join.projection().clone())
        .with_filter(Some(filter))
        .build()?;
    Ok(Arc::new(join))
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
    if let Some(filters) = with_filters(aggregate, change)? {
        return with_conditions(aggregate, functions, filters);
    }
    Ok(is_changed.then(|| Arc::new(aggregate.with_new_aggr_exprs(functions)) as _))
}

/// The condition of each aggregate (FILTER), where it has one.
type Conditions = Vec<Option<Arc<dyn PhysicalExpr>>>;

/// The conditions, if one of them changed.
fn with_filters(aggregate: &AggregateExec, change: &Change<'_>) -> Result<Option<Conditions>> {
    let schema = aggregate.input().schema();
    let mut is_changed = false;
    let mut each = |filter: &Option<Arc<dyn PhysicalExpr>>| -> Result<_> {
        let Some(filter) = filter else {
            return Ok(None);
        };
        let found = change(filter, &schema)?;
        is_changed |= found.transformed;
        Ok(Some(found.data))
    };
    let filters: Result<Vec<_>> = aggregate.filter_expr().iter().map(&mut each).collect();
    let filters = filters?;
    Ok(is_changed.then_some(filters))
}

fn with_conditions(
    aggregate: &AggregateExec,
    functions: Vec<Arc<AggregateFunctionExpr>>,
    filters: Conditions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let changed = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        functions,
        filters,
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    let changed = changed.with_limit_options(aggregate.limit_options());
    // What is above counts on the names.
    let is_same = changed.schema() == aggregate.schema();
    Ok(is_same.then(|| Arc::new(changed) as _))
}

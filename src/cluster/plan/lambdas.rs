//! Functions with lambdas, as they are sent.
//!
//! Comes in: a plan in stages. Goes out: the same with the engine's functions in place of ours (`query/plan/meaning/lambdas/`) in what is written down: members are sent names of functions, and no lambdas of ours. What scans compare is put right where they are written (`codec/`). Never here: how the two differ.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion_distributed::DistributedLeafExec;

use super::sent::each_sent;
use crate::error::Error;
use crate::query::{GridScanExec, has_lambda, with_expressions, with_lambdas};

/// The plan that can be written down; what runs where the statement was asked stays as it is.
///
/// # Errors
/// `Unsupported` for lambdas in operators of which nothing else is known.
pub(in crate::cluster) fn written_out(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    each_sent(plan, &|node| match has_lambdas(&node)? {
        true => of_node(node),
        false => Ok(node),
    })
}

fn has_lambdas(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if node.is::<GridScanExec>() || node.is::<DistributedLeafExec>() {
        return Ok(false);
    }
    let mut has = false;
    node.apply_expressions(&mut |expression| {
        has |= has_lambda(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(has)
}

fn of_node(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let node = if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        aggregated(aggregate)?
    } else if let Some(sort) = node.downcast_ref::<SortExec>() {
        sorted(sort)?
    } else if let Some(joined) = joined(&node)? {
        joined
    } else {
        with_expressions(node, &with_lambdas)?.data
    };
    match has_lambdas(&node)? {
        false => Ok(node),
        true => {
            let text = format!("a lambda in {} is not supported in a cluster", node.name());
            let hint = "make its value in the SELECT of a query in FROM, and take that column";
            Err(Error::unsupported(text).with_hint(hint).into())
        }
    }
}

/// A join with its condition.
fn joined(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = condition(filter)?;
        let join = join.builder().with_filter(Some(filter)).build()?;
        return Ok(Some(Arc::new(join)));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = condition(filter)?;
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter));
        return Ok(Some(Arc::new(join.build()?)));
    }
    Ok(None)
}

fn condition(filter: &JoinFilter) -> Result<JoinFilter> {
    let schema = Arc::clone(filter.schema());
    let changed = with_lambdas(filter.expression(), &schema)?;
    let places = filter.column_indices().to_vec();
    Ok(JoinFilter::new(changed.data, places, schema))
}

fn put_in(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(with_lambdas(expression, schema)?.data)
}

fn sorted(sort: &SortExec) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = sort.input().schema();
    let keys = sort.expr().iter().map(|key| {
        let expr = put_in(&key.expr, &schema)?;
        Ok(PhysicalSortExpr::new(expr, key.options))
    });
    let Some(keys) = LexOrdering::new(keys.collect::<Result<Vec<_>>>()?) else {
        return Ok(Arc::new(sort.clone()));
    };
    let changed = SortExec::new(keys, Arc::clone(sort.input()));
    let changed = changed.with_preserve_partitioning(sort.preserve_partitioning());
    Ok(Arc::new(changed.with_fetch(sort.fetch())))
}

fn aggregated(aggregate: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = aggregate.input_schema();
    // Those that gather what others have worked out have columns for keys, but say of what the values were.
    let is_raw = aggregate.mode().input_mode() == AggregateInputMode::Raw;
    let keys = aggregate.group_expr();
    let each = keys.expr().iter().map(|(key, name)| {
        let key = match is_raw {
            true => put_in(key, &schema)?,
            false => Arc::clone(key),
        };
        Ok((key, name.clone()))
    });
    let keys = PhysicalGroupBy::new(
        each.collect::<Result<_>>()?,
        keys.null_expr().to_vec(),
        keys.groups().to_vec(),
        keys.has_grouping_set(),
    );
    let functions = aggregate.aggr_expr().iter();
    let functions = functions.map(|function| of_function(function, &schema));
    let filters = aggregate.filter_expr().iter().map(|filter| {
        let filter = filter.as_ref().map(|filter| put_in(filter, &schema));
        filter.transpose()
    });
    let changed = AggregateExec::try_new(
        *aggregate.mode(),
        keys,
        functions.collect::<Result<_>>()?,
        filters.collect::<Result<_>>()?,
        Arc::clone(aggregate.input()),
        Arc::clone(&schema),
    )?;
    Ok(Arc::new(
        changed.with_limit_options(aggregate.limit_options()),
    ))
}

fn of_function(
    function: &Arc<AggregateFunctionExpr>,
    schema: &Schema,
) -> Result<Arc<AggregateFunctionExpr>> {
    let each = |parts: Vec<Arc<dyn PhysicalExpr>>| {
        let parts = parts.iter().map(|part| put_in(part, schema));
        parts.collect::<Result<Vec<_>>>()
    };
    let parts = function.all_expressions();
    let (arguments, orders) = (each(parts.args)?, each(parts.order_by_exprs)?);
    let changed = function.with_new_expressions(arguments, orders);
    Ok(changed.map_or_else(|| Arc::clone(function), Arc::new))
}

//! How many rows a part of a query gives, and how many values its columns have.
//!
//! Comes in: a logical plan over grids. Goes out: estimates, from the samples and statistics of the grids, and rules of thumb for all that they cannot tell.
//! Never here: decisions.

use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{Column, JoinType};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, TableScan};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::query::plan::repeated::RepeatedTable;
use crate::query::table::GridTable;

/// The share of rows that a condition leaves when nobody can tell.
const USUAL_SHARE: f64 = 0.2;

/// About how many rows the plan gives; `None` when nobody can tell.
pub(in crate::query) fn rows_of(plan: &LogicalPlan) -> Option<f64> {
    match plan {
        LogicalPlan::TableScan(scan) => rows_of_scan(scan),
        LogicalPlan::Filter(filter) => Some(rows_of(&filter.input)? * USUAL_SHARE),
        LogicalPlan::Projection(projection) => rows_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => rows_of(&alias.input),
        LogicalPlan::Sort(sort) => rows_of(&sort.input),
        LogicalPlan::Aggregate(aggregate) => {
            let rows = rows_of(&aggregate.input)?;
            let groups = aggregate.group_expr.iter().map(|group| match group {
                Expr::Column(column) => distinct_of(&aggregate.input, column).unwrap_or(rows),
                _ => rows,
            });
            Some(groups.product::<f64>().min(rows))
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (rows_of(&join.left)?, rows_of(&join.right)?);
            Some(match join.join_type {
                JoinType::Inner => matching(join, left, right),
                JoinType::Left => left,
                JoinType::Right => right,
                JoinType::Full => left + right,
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left / 2.0,
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right / 2.0,
            })
        }
        _ => None,
    }
}

/// About how many pairs of rows match, if the values of keys are spread evenly.
fn matching(join: &Join, left: f64, right: f64) -> f64 {
    let values = join.on.iter().filter_map(|pair| match pair {
        (Expr::Column(one), Expr::Column(other)) => {
            let (one, other) = (
                distinct_of(&join.left, one)?,
                distinct_of(&join.right, other)?,
            );
            Some(one.max(other).max(1.0))
        }
        _ => None,
    });
    match values.reduce(f64::max) {
        Some(values) => (left * right / values).max(1.0),
        None => left.max(right),
    }
}

/// About how many values a column of the plan has; `None` when nobody can tell.
pub(in crate::query) fn distinct_of(plan: &LogicalPlan, column: &Column) -> Option<f64> {
    let name = &column.name;
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok()?;
            if let Some(table) = provider.downcast_ref::<RepeatedTable>() {
                return table.distinct(name);
            }
            let facts = provider.downcast_ref::<GridTable>()?.facts();
            facts.distinct(facts.grid().schema().index_of(name).ok()?)
        }
        LogicalPlan::Filter(filter) => distinct_of(&filter.input, column),
        LogicalPlan::Sort(sort) => distinct_of(&sort.input, column),
        LogicalPlan::SubqueryAlias(alias) => {
            distinct_of(&alias.input, &Column::new_unqualified(name))
        }
        LogicalPlan::Join(join) => match join.left.schema().has_column(column) {
            true => distinct_of(&join.left, column),
            false if join.right.schema().has_column(column) => distinct_of(&join.right, column),
            false => None,
        },
        LogicalPlan::Projection(projection) => {
            let place = projection.schema.maybe_index_of_column(column)?;
            match projection.expr.get(place)? {
                Expr::Column(inner) => distinct_of(&projection.input, inner),
                _ => None,
            }
        }
        _ => None,
    }
}

fn rows_of_scan(scan: &TableScan) -> Option<f64> {
    let provider = source_as_provider(&scan.source).ok()?;
    if let Some(table) = provider.downcast_ref::<RepeatedTable>() {
        return table.rows();
    }
    let facts = provider.downcast_ref::<GridTable>()?.facts();
    let grid = facts.grid();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let rows = grid.num_rows() as f64;
    let schema = datafusion::common::DFSchema::try_from_qualified_schema(
        scan.table_name.clone(),
        facts.schema(),
    );
    let (schema, properties) = (schema.ok()?, ExecutionProps::new());
    let context = PhysicalPlanningContext::default();
    let filters = scan.filters.iter();
    let filters =
        filters.map(|filter| create_physical_expr(filter, &schema, &properties, &context).ok());
    let filters: Vec<Arc<dyn PhysicalExpr>> = filters.collect::<Option<_>>()?;
    let mut columns: Vec<usize> = filters
        .iter()
        .flat_map(collect_columns)
        .map(|column| column.index())
        .collect();
    columns.sort_unstable();
    columns.dedup();
    let read = facts.schema().project(&columns).ok()?;
    let filters = filters.into_iter();
    let filters = filters.map(|filter| reassign_expr_columns(filter, &read).ok());
    let filters: Vec<Arc<dyn PhysicalExpr>> = filters.collect::<Option<_>>()?;
    let passing = facts.passing(&columns, &filters).unwrap_or(USUAL_SHARE);
    Some((rows * passing).max(1.0))
}

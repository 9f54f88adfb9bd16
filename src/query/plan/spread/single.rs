//! Subqueries in place of a value, where they become joins.
//!
//! Comes in: a logical plan for several processes, in which the engine makes a join of each such subquery. Goes out: the same plan, whose subqueries give one row: if there were more, the statement fails, which a
//! join would not. Never here: one process, where the engine runs them beside the plan and counts their rows itself; subqueries that look at the rows outside.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, internal_err};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Subquery, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::query::plan::only::Only;

/// Gives subqueries one row.
#[derive(Debug)]
pub(in crate::query) struct SingleValues;

impl OptimizerRule for SingleValues {
    fn name(&self) -> &'static str {
        "single_values"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.map_expressions(|expression| {
            expression.transform_down(|part| match part {
                Expr::ScalarSubquery(subquery) if may_have_more(&subquery) => {
                    Ok(Transformed::yes(Expr::ScalarSubquery(single(subquery)?)))
                }
                part => Ok(Transformed::no(part)),
            })
        })
    }
}

fn may_have_more(subquery: &Subquery) -> bool {
    let most = subquery.subquery.max_rows();
    subquery.outer_ref_columns.is_empty() && most.is_none_or(|most| most > 1)
}

/// The subquery as an aggregate of all its rows: null without a row, as before.
fn single(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let Some(value) = plan.schema().columns().into_iter().next() else {
        return internal_err!("a subquery in place of a value without a column");
    };
    let (relation, name) = (value.relation.clone(), value.name.clone());
    let first = first_value(Expr::Column(value), Vec::new()).alias("first");
    let rows = count(lit(1_i64)).alias("rows");
    let only = ScalarUDF::from(Only::new()).call(vec![
        Expr::Column(Column::from_name("first")),
        Expr::Column(Column::from_name("rows")),
    ]);
    let plan = LogicalPlanBuilder::from(plan)
        .aggregate(Vec::<Expr>::new(), [first, rows])?
        .project([only.alias_qualified(relation, name)])?
        .build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}

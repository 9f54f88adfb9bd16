//! The types of columns from outside. The SQL planner writes into each subquery which types the columns around it have, and what gives these columns other types leaves that as it was.
//!
//! Comes in: a logical plan whose columns may have other types than its subqueries say. Goes out: the same plan, whose subqueries say what is so. Never here: which types columns get, and why.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::query::plan::apply::has_subqueries;
use crate::query::plan::apply::reach::{around, is_lateral, subquery_of};

/// The plan, in which columns from outside have the types that they have there.
pub(super) fn settled(plan: LogicalPlan) -> Result<LogicalPlan> {
    match has_subqueries(&plan)? {
        true => settled_in(plan, &[]),
        false => Ok(plan),
    }
}

/// As [`settled`], of a subquery; `outside` is what is around it, the nearest last.
fn settled_in(plan: LogicalPlan, outside: &[&DFSchema]) -> Result<LogicalPlan> {
    let done = plan.transform_up(|node| {
        let node = beside_its_left(node, outside)?;
        let own = merge_schema(&node.inputs());
        let nearer: Vec<&DFSchema> = outside.iter().copied().chain([&own]).collect();
        let names = NamePreserver::new(&node);
        let changed = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|part| match part {
                Expr::OuterReferenceColumn(..) => Ok(as_it_is(part, outside)),
                part if subquery_of(&part).is_some() => {
                    let part = around(part, |plan| settled_in(plan, &nearer))?;
                    Ok(Transformed::yes(part))
                }
                part => Ok(Transformed::no(part)),
            })?;
            Ok(match changed.transformed {
                true => changed.update_data(|expression| name.restore(expression)),
                false => changed,
            })
        })?;
        let mut node = changed.data;
        if let LogicalPlan::Subquery(subquery) = &mut node {
            subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        }
        Ok(Transformed::yes(node.recompute_schema()?))
    })?;
    Ok(done.data)
}

/// The right of a join has its left around it where it names columns of that.
fn beside_its_left(node: LogicalPlan, outside: &[&DFSchema]) -> Result<LogicalPlan> {
    let LogicalPlan::Join(mut join) = node else {
        return Ok(node);
    };
    if is_lateral(&join)? {
        let left = Arc::clone(join.left.schema());
        let nearer: Vec<&DFSchema> = outside.iter().copied().chain([&*left]).collect();
        let right = settled_in(LogicalPlan::clone(&join.right), &nearer)?;
        join.right = Arc::new(right);
    }
    Ok(LogicalPlan::Join(join))
}

/// A column from outside, as the nearest that has it says.
fn as_it_is(part: Expr, outside: &[&DFSchema]) -> Transformed<Expr> {
    let Expr::OuterReferenceColumn(known, column) = part else {
        return Transformed::no(part);
    };
    let found = |column: &Column| {
        let mut nearest = outside.iter().rev();
        nearest.find_map(|schema| schema.qualified_field_from_column(column).ok())
    };
    let field = match found(&column) {
        Some((_, field)) if field.data_type() != known.data_type() => Arc::clone(field),
        _ => return Transformed::no(Expr::OuterReferenceColumn(known, column)),
    };
    Transformed::yes(Expr::OuterReferenceColumn(field, column))
}

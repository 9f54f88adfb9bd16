//! Values of lambdas as columns of their own.
//!
//! Comes in: a plan whose functions with lambdas are ours. Goes out: the same with these below groups, orders and windows, in projections: what other processes are sent knows them there, and in conditions, and each is worked out once. Never here: the functions.

use std::cell::Cell;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::function::WithLambda;

/// What the names of the columns begin with.
const NAME: &str = "__lambda";

/// Moves the calls into projections.
pub(super) fn in_projections(plan: LogicalPlan) -> Result<LogicalPlan> {
    let count = Cell::new(0);
    let moved = plan.transform_up_with_subqueries(|node| {
        let is_wider = match &node {
            LogicalPlan::Aggregate(_) => false,
            LogicalPlan::Sort(_) | LogicalPlan::Window(_) => true,
            _ => return Ok(Transformed::no(node)),
        };
        below(node, is_wider, &count)
    });
    moved.data()
}

fn is_ours(part: &Expr) -> bool {
    match part {
        Expr::ScalarFunction(call) => call.func.inner().is::<WithLambda>(),
        _ => false,
    }
}

/// The calls in some expressions, each once.
fn calls(expressions: &[Expr]) -> Result<Vec<Expr>> {
    let mut calls = Vec::new();
    for expression in expressions {
        expression.apply(|part| {
            if !is_ours(part) {
                return Ok(TreeNodeRecursion::Continue);
            }
            if !calls.contains(part) {
                calls.push(part.clone());
            }
            Ok(TreeNodeRecursion::Jump)
        })?;
    }
    Ok(calls)
}

/// A node over a projection with its calls. `is_wider` says that it has all columns of what is below it.
fn below(
    node: LogicalPlan,
    is_wider: bool,
    count: &Cell<usize>,
) -> Result<Transformed<LogicalPlan>> {
    let calls = calls(&node.expressions())?;
    let input = match node.inputs().as_slice() {
        [input] if !calls.is_empty() => LogicalPlan::clone(input),
        _ => return Ok(Transformed::no(node)),
    };
    let names: Vec<String> = calls.iter().map(|_| next(count)).collect();
    let before = node.schema().columns();
    let own = input.schema().columns().into_iter().map(Expr::Column);
    let made = calls.iter().zip(&names);
    let made = made.map(|(call, name)| call.clone().alias(name));
    let projection = LogicalPlanBuilder::from(input)
        .project(own.chain(made))?
        .build()?;
    let kept = NamePreserver::new(&node);
    let expressions = node.expressions().into_iter().map(|expression| {
        let name = kept.save(&expression);
        let changed = expression.transform_down(|part| {
            let place = calls.iter().position(|call| *call == part);
            Ok(match place.and_then(|place| names.get(place)) {
                Some(name) => {
                    let column = Expr::Column(Column::from_name(name));
                    Transformed::new(column, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(part),
            })
        });
        Ok(name.restore(changed.data()?))
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let changed = node.with_new_exprs(expressions, vec![projection])?;
    if !is_wider {
        return Ok(Transformed::yes(changed));
    }
    let columns = before.into_iter().map(Expr::Column);
    let changed = LogicalPlanBuilder::from(changed).project(columns)?;
    Ok(Transformed::yes(changed.build()?))
}

fn next(count: &Cell<usize>) -> String {
    count.set(count.get() + 1);
    format!("{NAME}_{}", count.get())
}

//! Values of lambdas in windows as columns of their own.
//!
//! Comes in: a plan whose functions with lambdas are ours. Goes out: the same with arguments and keys of windows that have such in projections below: rows are dealt out to other processes by keys, which are sent no functions of ours. Never here: the functions.

use std::cell::Cell;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::function::WithLambda;

/// What the names of the columns begin with.
const NAME: &str = "__lambda";

/// Moves what has such calls into projections.
pub(super) fn in_projections(plan: LogicalPlan) -> Result<LogicalPlan> {
    let count = Cell::new(0);
    let moved = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(_) => below(node, &count),
        node => Ok(Transformed::no(node)),
    });
    moved.data()
}

pub(super) fn is_ours(part: &Expr) -> bool {
    match part {
        Expr::ScalarFunction(call) => call.func.inner().is::<WithLambda>(),
        _ => false,
    }
}

/// Windows over a projection with what has such calls, whole: what is not taken of a CASE is not worked out.
fn below(node: LogicalPlan, count: &Cell<usize>) -> Result<Transformed<LogicalPlan>> {
    let mut made: Vec<(Expr, String)> = Vec::new();
    let mut column = |part: &mut Expr| -> Result<()> {
        if !part.exists(|part| Ok(is_ours(part)))? {
            return Ok(());
        }
        let known = made.iter().find(|(known, _)| known == part);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                count.set(count.get() + 1);
                let name = format!("{NAME}_{}", count.get());
                made.push((part.clone(), name.clone()));
                name
            }
        };
        *part = Expr::Column(Column::from_name(name));
        Ok(())
    };
    let kept = NamePreserver::new(&node);
    let expressions = node.expressions().into_iter().map(|expression| {
        let name = kept.save(&expression);
        let changed = expression.transform_down(|part| match part {
            Expr::WindowFunction(mut window) => {
                let params = &mut window.params;
                params.args.iter_mut().try_for_each(&mut column)?;
                params.partition_by.iter_mut().try_for_each(&mut column)?;
                let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                keys.into_iter().try_for_each(&mut column)?;
                Ok(Transformed::yes(Expr::WindowFunction(window)))
            }
            part => Ok(Transformed::no(part)),
        });
        Ok(name.restore(changed.data()?))
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let input = match node.inputs().as_slice() {
        [input] if !made.is_empty() => LogicalPlan::clone(input),
        _ => return Ok(Transformed::no(node)),
    };
    let before = node.schema().columns().into_iter().map(Expr::Column);
    let own = input.schema().columns().into_iter().map(Expr::Column);
    let made = made.into_iter().map(|(part, name)| part.alias(name));
    let projection = LogicalPlanBuilder::from(input)
        .project(own.chain(made))?
        .build()?;
    let changed = node.with_new_exprs(expressions, vec![projection])?;
    let changed = LogicalPlanBuilder::from(changed).project(before)?;
    Ok(Transformed::yes(changed.build()?))
}

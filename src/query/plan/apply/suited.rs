//! Subqueries that the engine makes joins of by itself.
//!
//! Comes in: a node of a plan and an expression of it. Goes out: which of the subqueries in it are left to the engine: those whose conditions on columns from outside stand in one WHERE, right over rows that do
//! not depend on them, and where a null is no other answer than false. Never here: what becomes of the others.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Subquery};

use super::reach::{has_subquery, outside, subquery_of};

/// Whether the engine gives the right answer for one subquery in an expression of the node.
pub(super) fn is_suited(node: &LogicalPlan, expression: &Expr, part: &Expr) -> Result<bool> {
    let Some(subquery) = subquery_of(part) else {
        return Ok(true);
    };
    let is_correlated = !outside(&subquery.subquery)?.is_empty();
    match (node, part) {
        (LogicalPlan::Filter(filter), Expr::Exists(_)) => {
            Ok(!is_correlated || stands_in_where(part, &filter.predicate)?)
        }
        (LogicalPlan::Filter(filter), Expr::InSubquery(found)) => {
            // A value that is the same for all rows becomes a condition on the members, which then has no null among them.
            let is_same = found.expr.column_refs().is_empty();
            let mut matters = found.negated && (is_correlated || is_same);
            let mut is_alone = false;
            for condition in split_conjunction(&filter.predicate) {
                matters |= unknown_matters(condition, part, true, is_correlated);
                is_alone |= condition == part;
            }
            // Within a condition, members that are no plain columns become two columns of one name.
            let members = &found.subquery.subquery;
            let is_plain = is_alone || matches!(**members, LogicalPlan::Projection(_));
            let is_suited = is_plain && !(matters && may_be_null(found, &filter.input));
            Ok(is_suited && (!is_correlated || stands_in_where(part, &filter.predicate)?))
        }
        (LogicalPlan::Filter(_) | LogicalPlan::Projection(_), Expr::ScalarSubquery(found)) => {
            Ok(!is_correlated || is_grouped(&found.subquery)? && has_own_names(found, &[]))
        }
        (LogicalPlan::Join(join), _) => Ok(!is_correlated && join.join_type == JoinType::Inner),
        (LogicalPlan::Values(_), _) => Ok(false),
        (_, Expr::ScalarSubquery(_)) => Ok(!is_correlated),
        _ => Ok(!has_subquery(expression)),
    }
}

/// Whether the engine makes a join of what stands on the right of one.
pub(super) fn is_suited_beside(right: &LogicalPlan) -> Result<bool> {
    let alias = match right {
        LogicalPlan::SubqueryAlias(alias) => &alias.input,
        _ => return Ok(false),
    };
    let LogicalPlan::Subquery(subquery) = alias.as_ref() else {
        return Ok(false);
    };
    let plan = &subquery.subquery;
    let is_plain = has_own_names(subquery, &[]) && is_without_subqueries(plan)?;
    let is_joined = |conditions: Vec<Expr>| conditions.iter().all(is_equality);
    Ok(is_plain && (is_grouped(plan)? || filtered(plan, true)?.is_some_and(is_joined)))
}

fn is_without_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let has_some = plan.exists(|node| {
        let mut found = false;
        node.apply_expressions(|expression| {
            found |= has_subquery(expression);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    })?;
    Ok(!has_some)
}

/// Whether conditions on columns from outside stand in the WHERE of a subquery, which is a condition itself.
fn stands_in_where(part: &Expr, predicate: &Expr) -> Result<bool> {
    let Some(subquery) = subquery_of(part) else {
        return Ok(false);
    };
    let members = match part {
        Expr::InSubquery(found) => found.subquery.subquery.expressions(),
        _ => Vec::new(),
    };
    let is_condition = has_subquery(predicate);
    let is_plain = has_own_names(subquery, &members);
    Ok(is_condition && is_plain && filtered(&subquery.subquery, false)?.is_some())
}

/// Whether the columns that are compared with those from outside have a name each, that no other column of the answer has: the engine takes two of one name for one.
fn has_own_names(subquery: &Subquery, members: &[Expr]) -> bool {
    let mut columns: BTreeSet<Column> = BTreeSet::new();
    for member in members {
        columns.extend(member.column_refs().into_iter().cloned());
    }
    let seen = subquery.subquery.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                if condition.contains_outer() {
                    columns.extend(condition.column_refs().into_iter().cloned());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let mut names = BTreeSet::new();
    let are_own = columns
        .iter()
        .all(|column| names.insert(column.name.as_str()));
    // Beside the columns of the answer, too: they all become columns of one table.
    let answer = subquery.subquery.schema().columns();
    let mut answer = answer.iter();
    let are_apart =
        answer.all(|column| columns.contains(column) || !names.contains(column.name.as_str()));
    seen.is_ok() && are_own && are_apart
}

/// An aggregate of all rows for which some columns are equal to others from outside.
fn is_grouped(plan: &LogicalPlan) -> Result<bool> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(_) if is_of_inside(plan)? => match plan.inputs().first() {
                Some(input) => input,
                None => return Ok(false),
            },
            LogicalPlan::Aggregate(aggregate) => {
                let is_plain = aggregate.group_expr.is_empty() && is_of_inside(plan)?;
                let below = filtered(&aggregate.input, true)?;
                return Ok(
                    is_plain && below.is_some_and(|conditions| conditions.iter().all(is_equality))
                );
            }
            _ => return Ok(false),
        };
    }
}

/// The conditions on columns from outside, where they stand in one WHERE and nothing below it names any. Above it there is no name for the rows, which would hide the columns that are compared. `at_once` says that the rows themselves count, so that nothing above may drop some.
fn filtered(plan: &LogicalPlan, at_once: bool) -> Result<Option<Vec<Expr>>> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) if is_of_inside(plan)? => &projection.input,
            LogicalPlan::Sort(sort) if !at_once && sort.fetch.is_none() && is_of_inside(plan)? => {
                &sort.input
            }
            // A condition of HAVING is not pulled out of its groups.
            LogicalPlan::Filter(filter)
                if matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_)) =>
            {
                return Ok(None);
            }
            LogicalPlan::Filter(filter) => {
                let parts = split_conjunction(&filter.predicate).into_iter();
                let (outer, inner): (Vec<&Expr>, Vec<&Expr>) =
                    parts.partition(|part| part.contains_outer());
                let is_plain = !outer.iter().any(|part| has_subquery(part))
                    && inner
                        .iter()
                        .all(|part| names_no_outer(part).unwrap_or(false))
                    && outside(&filter.input)?.is_empty();
                return Ok(is_plain.then(|| outer.into_iter().cloned().collect()));
            }
            _ => return Ok(None),
        };
    }
}

/// Whether the subqueries of a condition name nothing from further out than the rows around them. It cannot be told from here whose a name is, so that none may be named.
fn names_no_outer(condition: &Expr) -> Result<bool> {
    let mut is_known = true;
    condition.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            is_known &= outside(&subquery.subquery)?.is_empty();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_known)
}

/// Whether no expression of a node names a column from outside, or has a subquery.
fn is_of_inside(node: &LogicalPlan) -> Result<bool> {
    let mut is_of_inside = true;
    node.apply_expressions(|expression| {
        is_of_inside &= !expression.contains_outer() && !has_subquery(expression);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_of_inside)
}

/// Whether a condition says that a column is equal to one from outside.
fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(pair) = condition else {
        return false;
    };
    let is_outer = |side: &Expr| side.contains_outer() && side.column_refs().is_empty();
    let is_own = |side: &Expr| match side {
        Expr::Column(_) => true,
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(_)),
        _ => false,
    };
    pair.op == Operator::Eq
        && (is_outer(&pair.left) && is_own(&pair.right)
            || is_own(&pair.left) && is_outer(&pair.right))
}

/// Whether a membership is false or unknown makes a difference to a condition. `wanted` says that the rows are kept for which it is true. A membership that stands alone is a join that knows nulls, unless it is
/// correlated.
fn unknown_matters(condition: &Expr, part: &Expr, wanted: bool, is_correlated: bool) -> bool {
    let alone = match condition {
        Expr::Not(inner) => inner.as_ref(),
        other => other,
    };
    if alone == part && wanted && !is_correlated {
        return false;
    }
    match condition {
        found @ Expr::InSubquery(membership) => found == part && (membership.negated || !wanted),
        Expr::BinaryExpr(pair) if pair.op.is_logic_operator() => {
            let mut sides = [&pair.left, &pair.right].into_iter();
            sides.any(|side| matters_within(side, part, wanted))
        }
        other => matters_within(other, part, wanted),
    }
}

fn matters_within(condition: &Expr, part: &Expr, wanted: bool) -> bool {
    match condition {
        found @ Expr::InSubquery(membership) => found == part && (membership.negated || !wanted),
        Expr::BinaryExpr(pair) if pair.op.is_logic_operator() => {
            matters_within(&pair.left, part, wanted) || matters_within(&pair.right, part, wanted)
        }
        Expr::Alias(alias) => matters_within(&alias.expr, part, wanted),
        other => {
            let mut matters = false;
            let seen = other.apply_children(|child| {
                matters |= matters_within(child, part, false);
                Ok(TreeNodeRecursion::Continue)
            });
            matters || seen.is_err()
        }
    }
}

/// Whether a membership may be unknown.
pub(super) fn may_be_null(found: &InSubquery, input: &LogicalPlan) -> bool {
    let members = found.subquery.subquery.schema();
    found.expr.nullable(input.schema().as_ref()).unwrap_or(true)
        || members.fields().iter().any(|field| field.is_nullable())
}

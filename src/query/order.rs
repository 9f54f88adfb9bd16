//! ORDER BY of what SELECT has already: `SELECT x + 1 FROM t ORDER BY x + 1`.
//!
//! Comes in: a query. Goes out: the same, with the number of the item in place of what is written twice. Once items have names, the engine does not find what they are made of, with DISTINCT, GROUP BY ALL and UNION. Never
//! here: names, which mean columns of the answer as it is.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Value, visit_expressions,
};

use super::using::folded;
use super::written::{text_of, without_parentheses};

/// Puts numbers of items in place of what they are.
pub(super) fn as_numbers(query: &mut Query) {
    let (Some(order), Some(select)) = (&mut query.order_by, first(&query.body)) else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut order.kind else {
        return;
    };
    let is_one = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if !select.projection.iter().all(is_one) {
        return;
    }
    for key in keys {
        if !is_worked_out(&key.expr) || names_any(&key.expr, &select.projection) {
            continue;
        }
        let text = text_of(&key.expr);
        let place = select.projection.iter().position(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                text_of(expr) == text
            }
            _ => false,
        });
        if let Some(place) = place {
            key.expr = Expr::value(Value::Number((place + 1).to_string(), false));
        }
    }
}

/// The SELECT that names the columns.
fn first(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first(left),
        _ => None,
    }
}

/// Whether a value is more than a column or what is written.
fn is_worked_out(value: &Expr) -> bool {
    !matches!(
        without_parentheses(value),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

/// Whether a value names what ORDER BY would take for one of these items instead.
fn names_any(value: &Expr, items: &[SelectItem]) -> bool {
    let is_item = |name: &Ident| {
        items.iter().any(|item| {
            matches!(item, SelectItem::ExprWithAlias { alias, .. } if folded(alias) == folded(name))
        })
    };
    let named = visit_expressions(value, |part| match part {
        Expr::Identifier(name) if is_item(name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    named.is_break()
}

//! Queries whose columns have names from outside: `WITH r (a, b) AS (SELECT 0, 0)`, `(SELECT 0, 0) AS v (a, b)`.
//!
//! Comes in: such a query and how many names it has. Goes out: the same, in which of the items of one name all but the first have a name of ours: the engine names the columns only after it refused two of one name.
//! Never here: queries of which not every column is named, those with `*`.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    visit_expressions_mut,
};

use super::using::folded;

/// With what the names begin.
const ITEM: &str = "__item";

/// Gives them names, counting on.
pub(super) fn tell_apart(query: &mut Query, alias: &TableAlias, named: &mut usize) {
    tell_apart_in(query, alias.columns.len(), named);
}

fn tell_apart_in(query: &mut Query, columns: usize, named: &mut usize) {
    let ordered = ordered(query.order_by.as_ref());
    tell_apart_of(&mut query.body, columns, &ordered, named);
}

fn tell_apart_of(
    body: &mut SetExpr,
    columns: usize,
    ordered: &BTreeSet<String>,
    named: &mut usize,
) {
    match body {
        SetExpr::Select(select) if select.projection.len() == columns => {
            for place in repeated(select, ordered) {
                let Some(item) = select.projection.get_mut(place) else {
                    continue;
                };
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                {
                    *named += 1;
                    *item = SelectItem::ExprWithAlias {
                        expr: expr.clone(),
                        alias: Ident::with_quote('"', format!("{ITEM}_{named}")),
                    };
                }
            }
        }
        SetExpr::Query(query) => tell_apart_in(query, columns, named),
        SetExpr::SetOperation { left, right, .. } => {
            tell_apart_of(left, columns, ordered, named);
            tell_apart_of(right, columns, ordered, named);
        }
        _ => {}
    }
}

/// The names by which rows are ordered.
fn ordered(order: Option<&OrderBy>) -> BTreeSet<String> {
    let Some(OrderByKind::Expressions(expressions)) = order.map(|order| &order.kind) else {
        return BTreeSet::new();
    };
    let names = expressions.iter().filter_map(|by| match &by.expr {
        Expr::Identifier(name) => Some(folded(name)),
        _ => None,
    });
    names.collect()
}

/// The places of items that are called as one before them; none if there is `*`, or if ORDER BY could mean the one or the other.
fn repeated(select: &Select, ordered: &BTreeSet<String>) -> Vec<usize> {
    let mut first: HashMap<String, &Expr> = HashMap::new();
    let mut places = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let (Some(label), Some(value)) = (label(item), value(item)) else {
            return Vec::new();
        };
        match first.get(&label) {
            None => {
                first.insert(label, value);
            }
            Some(other) if ordered.contains(&label) && *other != value => return Vec::new(),
            Some(_) => places.push(place),
        }
    }
    places
}

fn value(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// What the engine calls an item, as far as it tells items apart: casts are not part of that.
fn label(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(folded),
        SelectItem::UnnamedExpr(expr) => {
            let mut expr = expr.clone();
            let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
                while let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = part {
                    *part = (**inner).clone();
                }
                ControlFlow::Continue(())
            });
            Some(expr.to_string().to_lowercase())
        }
        _ => None,
    }
}

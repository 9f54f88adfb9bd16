//! ORDER BY of what SELECT has already: `SELECT x + 1 FROM t ORDER BY x + 1`, `ORDER BY ALL`, `SELECT DISTINCT ON (a, b) … ORDER BY b, a`.
//!
//! Comes in: a query. Goes out: the same, with the number of the item in place of what is written twice, the numbers of all in place of ALL, and the keys of DISTINCT ON in the order of ORDER BY. Once items have names, the engine does not find what they are made of, with DISTINCT, GROUP BY ALL and UNION. Never
//! here: names, which mean columns of the answer as it is.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
};

use super::written::{text_of, without_parentheses};

/// Puts numbers of items in place of what they are.
pub(super) fn as_numbers(query: &mut Query) {
    let (Some(order), Some(select)) = (&mut query.order_by, first(&query.body)) else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut order.kind else {
        return;
    };
    // A column that is a key already orders nothing more, and the engine fails with it beside DISTINCT ON.
    let mut seen = HashSet::new();
    keys.retain(|key| is_worked_out(&key.expr) || seen.insert(text_of(&key.expr)));
    let is_one = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    if !select.projection.iter().all(is_one) {
        return;
    }
    if let [key] = keys.as_slice()
        && is_all(&key.expr)
    {
        let number = |place| OrderByExpr {
            expr: number(place),
            ..key.clone()
        };
        *keys = (0..select.projection.len()).map(number).collect();
        return;
    }
    // Each is written once, however many keys there are.
    let mut places: Option<HashMap<String, usize>> = None;
    for key in keys {
        if !is_worked_out(&key.expr) {
            continue;
        }
        let places = places.get_or_insert_with(|| places_of(&select.projection));
        if let Some(place) = places.get(&text_of(&key.expr)) {
            key.expr = number(*place);
        }
    }
}

/// Puts the keys of DISTINCT ON, of which the order means nothing, in that of the keys of ORDER BY: the engine asks for it.
pub(super) fn keys_as_ordered(query: &mut Query) {
    let (Some(order), SetExpr::Select(select)) = (&query.order_by, query.body.as_mut()) else {
        return;
    };
    let (OrderByKind::Expressions(order), Some(Distinct::On(keys))) =
        (&order.kind, &mut select.distinct)
    else {
        return;
    };
    let order = order.iter().take(keys.len());
    let places: HashMap<String, usize> = order
        .enumerate()
        .map(|(place, by)| (text_of(&by.expr), place))
        .collect();
    let place = |key: &Expr| places.get(&text_of(key));
    if keys.iter().all(|key| place(key).is_some()) {
        keys.sort_by_cached_key(|key| place(key).copied());
    }
}

/// The word ALL, which the parser takes for a name.
fn is_all(key: &Expr) -> bool {
    matches!(key, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all"))
}

/// The number of an item.
fn number(place: usize) -> Expr {
    Expr::value(Value::Number((place + 1).to_string(), false))
}

/// The places of items by what they are; the first of several alike.
fn places_of(items: &[SelectItem]) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && is_worked_out(expr)
        {
            places.entry(text_of(expr)).or_insert(place);
        }
    }
    places
}

/// The SELECT that names the columns.
fn first(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first(left),
        SetExpr::Query(query) => first(&query.body),
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

//! Queries whose columns have names from outside: `WITH r (a, b) AS (SELECT 0, 0)`, `(SELECT 0, 0) AS v (a, b)`.
//!
//! Comes in: such a query and how many names it has, or a UNION, whose later parts are named by the first. Goes out: the same, in which of the items of one name all but the first have a name of ours: the engine names the columns only after it refused two of one name.
//! Where something else, such as ORDER BY, could mean the one or the other by that name, the items keep theirs, and the engine refuses them. Never here: queries of which not every column is named, those with `*`.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, SetQuantifier, TableAlias, Visit,
    visit_expressions, visit_expressions_mut,
};

use super::using::folded;

/// With what the names begin.
const ITEM: &str = "__item";

/// Names by which something else than the items themselves may mean them.
type Meant = BTreeSet<String>;

/// Gives them names, counting on.
pub(super) fn tell_apart(query: &mut Query, alias: &TableAlias, named: &mut usize) {
    tell_apart_in(query, Some(alias.columns.len()), Meant::new(), named);
}

/// Gives names to those of the later parts of UNION and the like, whose columns are called as those of the first.
pub(super) fn tell_parts_apart(body: &mut SetExpr, named: &mut usize) {
    if let SetExpr::SetOperation {
        left,
        right,
        set_quantifier,
        ..
    } = body
        && !is_by_name(*set_quantifier)
    {
        tell_parts_apart(left, named);
        tell_apart_of(right, None, Meant::new(), named);
    }
}

fn is_by_name(quantifier: SetQuantifier) -> bool {
    matches!(
        quantifier,
        SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName
    )
}

/// Of a query with so many columns, or any.
fn tell_apart_in(query: &mut Query, columns: Option<usize>, mut meant: Meant, named: &mut usize) {
    add(&query.order_by, &mut meant);
    tell_apart_of(&mut query.body, columns, meant, named);
}

fn tell_apart_of(body: &mut SetExpr, columns: Option<usize>, meant: Meant, named: &mut usize) {
    match body {
        SetExpr::Select(select)
            if columns.is_none_or(|columns| select.projection.len() == columns) =>
        {
            for place in repeated(select, meant) {
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
        SetExpr::Query(query) => tell_apart_in(query, columns, meant, named),
        // The columns of both are called as those of the first.
        SetExpr::SetOperation {
            left,
            right,
            set_quantifier,
            ..
        } if !is_by_name(*set_quantifier) => {
            tell_apart_of(left, columns, meant, named);
            tell_apart_of(right, columns, Meant::new(), named);
        }
        _ => {}
    }
}

/// Adds the names without a table that stand somewhere.
fn add(somewhere: &impl Visit, meant: &mut Meant) {
    let _: ControlFlow<()> = visit_expressions(somewhere, |expr| {
        if let Expr::Identifier(name) = expr {
            meant.insert(folded(name));
        }
        ControlFlow::Continue(())
    });
}

/// The places of items that are called as one before them; none if there is `*`, or if something could mean the one or the other.
fn repeated(select: &Select, mut meant: Meant) -> Vec<usize> {
    add(&select.distinct, &mut meant);
    add(&select.group_by, &mut meant);
    add(&select.having, &mut meant);
    add(&select.qualify, &mut meant);
    let mut first: HashMap<String, Expr> = HashMap::new();
    let mut places = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let (Some(label), Some(value)) = (label(item), value(item, select)) else {
            return Vec::new();
        };
        match first.get(&label) {
            None => {
                first.insert(label, value);
            }
            Some(other) if meant.contains(&label) && *other != value => return Vec::new(),
            Some(_) => places.push(place),
        }
    }
    places
}

/// What an item is worth, written in one way: names as they count, without parentheses, and without the table where there is one alone.
fn value(item: &SelectItem, select: &Select) -> Option<Expr> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    let is_of_one = matches!(select.from.as_slice(), [table] if table.joins.is_empty());
    let as_it_counts = |name: &Ident| Ident::with_quote('"', folded(name));
    let mut expr = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
        while let Expr::Nested(inner) = part {
            *part = (**inner).clone();
        }
        match part {
            Expr::Identifier(name) => *name = as_it_counts(name),
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [_, name] if is_of_one => *part = Expr::Identifier(as_it_counts(name)),
                _ => names.iter_mut().for_each(|name| *name = as_it_counts(name)),
            },
            _ => {}
        }
        ControlFlow::Continue(())
    });
    Some(expr)
}

/// What the engine calls an item, as far as it tells items apart: casts are not part of that.
fn label(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Nested(inner)) => {
            label(&SelectItem::UnnamedExpr(Expr::clone(inner)))
        }
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

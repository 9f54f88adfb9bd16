//! Queries whose columns have names from outside: `WITH r (a, b) AS (SELECT 0, 0)`, `(SELECT 0, 0) AS v (a, b)`.
//!
//! Comes in: such a query and how many names it has. Goes out: the same, in which of the items of one name all but the first have a name of ours: the engine names the columns only after it refused two of one name.
//! Never here: queries of which not every column is named, those with `*`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, TableAlias, visit_expressions_mut,
};

use super::using::folded;

/// With what the names begin.
const ITEM: &str = "__item";

/// Gives them names, counting on.
pub(super) fn tell_apart(query: &mut Query, alias: &TableAlias, named: &mut usize) {
    tell_apart_in(&mut query.body, alias.columns.len(), named);
}

fn tell_apart_in(body: &mut SetExpr, columns: usize, named: &mut usize) {
    match body {
        SetExpr::Select(select) if select.projection.len() == columns => {
            let is_one = |item: &SelectItem| label(item).is_some();
            if !select.projection.iter().all(is_one) {
                return;
            }
            let mut seen = HashSet::new();
            for item in &mut select.projection {
                if label(item).is_none_or(|label| seen.insert(label)) {
                    continue;
                }
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
        SetExpr::Query(query) => tell_apart_in(&mut query.body, columns, named),
        SetExpr::SetOperation { left, right, .. } => {
            tell_apart_in(left, columns, named);
            tell_apart_in(right, columns, named);
        }
        _ => {}
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

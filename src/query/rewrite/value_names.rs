//! Subqueries in place of values that are called as they are written: `1 + (SELECT max(x) FROM t)`.
//!
//! Comes in: a SELECT, or the ORDER BY of a query. Goes out: the same, in which no two such subqueries have one name: the engine knows an expression by its name, would take `max(x)` for a subquery that is called so, and
//! knows two subqueries of one name for one. Never here: conditions of rows, where nobody asks for names; subqueries of which the text does not say what they have.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableAliasColumnDef, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::written::text_of_query;

/// The table that gives a subquery's column a name.
const NAMED: &str = "SELECT * FROM (SELECT 1) AS \"__named\" (place)";

/// Names those of the items, of what rows are grouped by, and within aggregates and windows.
pub(super) fn name_in_select(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            name_in(expr, Where::Anywhere);
        }
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        keys.iter_mut()
            .for_each(|key| name_in(key, Where::Anywhere));
    }
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        keys.iter_mut()
            .for_each(|key| name_in(key, Where::Anywhere));
    }
    for condition in [&mut select.having, &mut select.qualify]
        .into_iter()
        .flatten()
    {
        name_in(condition, Where::InCalls);
    }
}

/// Names those that rows are sorted by.
pub(super) fn name_in_order(query: &mut Query) {
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        for key in keys {
            name_in(&mut key.expr, Where::Anywhere);
        }
    }
}

/// Which subqueries of an expression get a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Anywhere,
    /// Those within calls of functions.
    InCalls,
}

fn name_in(expr: &mut Expr, place: Where) {
    let mut naming = Naming {
        place,
        queries: 0,
        calls: 0,
    };
    let visited = expr.visit(&mut naming);
    debug_assert!(visited.is_continue());
}

struct Naming {
    place: Where,
    /// How many subqueries are open: those within them are named with theirs.
    queries: usize,
    /// How many calls are open.
    calls: usize,
}

impl VisitorMut for Naming {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let is_here = self.queries == 0 && (self.place == Where::Anywhere || self.calls > 0);
        match expr {
            Expr::Function(_) => self.calls += 1,
            Expr::Subquery(query) if is_here => name(query),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(_) = expr {
            self.calls -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// The one item of a query, where the text says that there is one.
fn column_of(body: &SetExpr) -> Option<&SelectItem> {
    match body {
        SetExpr::Select(select) => match select.projection.as_slice() {
            [item @ (SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })] => Some(item),
            _ => None,
        },
        SetExpr::Query(query) => column_of(&query.body),
        SetExpr::SetOperation { left, .. } => column_of(left),
        _ => None,
    }
}

/// Calls the column of a subquery as all of it is written.
fn name(query: &mut Query) {
    if column_of(&query.body).is_none() {
        return;
    }
    let name = Ident::with_quote('"', text_of_query(query));
    let is_sorted = query.order_by.is_some();
    if let SetExpr::Select(select) = query.body.as_mut()
        && !is_sorted
        && select.distinct.is_none()
        && let [item @ SelectItem::UnnamedExpr(_)] = select.projection.as_mut_slice()
    {
        if let SelectItem::UnnamedExpr(expr) = item {
            let expr = expr.clone();
            *item = SelectItem::ExprWithAlias { expr, alias: name };
        }
        return;
    }
    // Something else in it may mean the column by the name that it has.
    let read = Parser::new(&GenericDialect {}).try_with_sql(NAMED);
    let Ok(mut named) = read.and_then(|mut parser| parser.parse_query()) else {
        return;
    };
    let SetExpr::Select(select) = named.body.as_mut() else {
        return;
    };
    let from = select.from.first_mut().map(|from| &mut from.relation);
    if let Some(TableFactor::Derived {
        subquery,
        alias: Some(alias),
        ..
    }) = from
    {
        std::mem::swap(subquery.as_mut(), query);
        let data_type = None;
        alias.columns = vec![TableAliasColumnDef { name, data_type }];
        *query = *named;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> String {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
        let mut query = parser.parse_query().unwrap();
        name_in_order(&mut query);
        let SetExpr::Select(select) = query.body.as_mut() else {
            panic!("{text} is no SELECT");
        };
        name_in_select(select);
        query.to_string()
    }

    #[test]
    fn subqueries_are_called_as_they_are_written() {
        for (text, expected) in [
            (
                "SELECT (SELECT max(x) FROM t), 1 + (SELECT max(x) AS m FROM t)",
                "SELECT (SELECT max(x) AS \"(SELECT max(x) FROM t)\" FROM t), 1 + (SELECT * FROM (SELECT max(x) AS m FROM t) AS \"__named\" (\"(SELECT max(x) AS m FROM t)\"))",
            ),
            (
                "SELECT (SELECT t.x FROM t) FROM u ORDER BY (SELECT 1 FROM t)",
                "SELECT (SELECT t.x AS \"(SELECT t.x FROM t)\" FROM t) FROM u ORDER BY (SELECT 1 AS \"(SELECT 1 FROM t)\" FROM t)",
            ),
            (
                "SELECT sum(x) FROM t GROUP BY y + (SELECT 1) HAVING sum(x) > (SELECT 2) AND sum(x + (SELECT 3)) > 4",
                "SELECT sum(x) FROM t GROUP BY y + (SELECT 1 AS \"(SELECT 1)\") HAVING sum(x) > (SELECT 2) AND sum(x + (SELECT 3 AS \"(SELECT 3)\")) > 4",
            ),
            (
                "SELECT x IN (SELECT 1), EXISTS (SELECT (SELECT 1)), (VALUES(1)) FROM t WHERE x = (SELECT 2)",
                "SELECT x IN (SELECT 1), EXISTS (SELECT (SELECT 1)), (VALUES(1)) FROM t WHERE x = (SELECT 2)",
            ),
            (
                "SELECT 1 + (SELECT x FROM t ORDER BY x LIMIT 1) FROM t",
                "SELECT 1 + (SELECT * FROM (SELECT x FROM t ORDER BY x LIMIT 1) AS \"__named\" (\"(SELECT x FROM t ORDER BY x LIMIT 1)\")) FROM t",
            ),
        ] {
            assert_eq!(named(text), expected);
        }
    }
}

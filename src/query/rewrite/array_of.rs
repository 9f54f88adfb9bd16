//! Lists of the rows of a query: `ARRAY(SELECT x FROM t ORDER BY y)`.
//!
//! Comes in: a part of a SELECT. Goes out: the same with `coalesce((SELECT array_agg(x ORDER BY y) FROM (…)), [])` in their place. Never here: lists of values (`[a, b]`), and queries within these queries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableFactor, Value, VisitMut, VisitorMut,
};

use super::row_in::parsed;
use super::using::same;
use crate::error::{Error, ErrorKind, Result};

/// What a row is called, and the values by which rows are sorted.
const ROW: &str = "__row";

/// Puts queries in place of such lists.
///
/// # Errors
/// `Query` for a query of several columns and an order by the number of one that there is not, `Unsupported` for an order of a set operation or of distinct rows by something that is not in them.
pub(super) fn as_queries(part: &mut impl VisitMut) -> Result<()> {
    let mut lists = Lists { queries: 0 };
    match part.visit(&mut lists) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Lists {
    /// How many queries are open.
    queries: usize,
}

impl VisitorMut for Lists {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.queries == 0
            && let Expr::Function(Function { name, args, .. }) = expr
            && let [part] = name.0.as_slice()
            && part
                .as_ident()
                .is_some_and(|name| name.value.eq_ignore_ascii_case("array"))
            && let FunctionArguments::Subquery(query) = args
        {
            match list_of(query) {
                Ok(list) => *expr = list,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The list of the rows of a query, as a value.
fn list_of(query: &Query) -> Result<Expr> {
    let mut rows = unwrapped(query).clone();
    let query = &rows.clone();
    let order = match &query.order_by {
        None => Vec::new(),
        Some(order) => match &order.kind {
            OrderByKind::Expressions(keys) => keys.clone(),
            OrderByKind::All(options) => vec![OrderByExpr {
                expr: number("1"),
                options: *options,
                with_fill: None,
            }],
        },
    };
    if rows.limit_clause.is_none() && rows.fetch.is_none() {
        rows.order_by = None;
    }
    let mut columns = vec![Ident::with_quote('"', ROW)];
    let order = ordered(&mut rows, order, &mut columns)?;
    let order: Vec<String> = order.iter().map(ToString::to_string).collect();
    let by = match order.is_empty() {
        true => String::new(),
        false => format!(" ORDER BY {}", order.join(", ")),
    };
    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
    // Outside: a query that is a value by itself would be rows to ANY.
    let mut list = parsed(&format!(
        "coalesce((SELECT array_agg(\"{ROW}\"{by}) FROM (SELECT 1) AS \"__rows\" ({})), make_array())",
        columns.join(", ")
    ))?;
    let visited: ControlFlow<()> = VisitMut::visit(&mut list, &mut Rows(Some(rows)));
    debug_assert!(visited.is_continue());
    Ok(list)
}

/// The query in parentheses around which there is nothing else.
fn unwrapped(query: &Query) -> &Query {
    match query.body.as_ref() {
        SetExpr::Query(inner)
            if query.with.is_none()
                && query.order_by.is_none()
                && query.limit_clause.is_none()
                && query.fetch.is_none() =>
        {
            unwrapped(inner)
        }
        _ => query,
    }
}

/// Puts the rows where the list is made of.
struct Rows(Option<Query>);

impl VisitorMut for Rows {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor
            && let Some(rows) = self.0.take()
        {
            **subquery = rows;
        }
        ControlFlow::Continue(())
    }
}

/// The order of the rows by columns of theirs, which get what else they are sorted by.
fn ordered(
    rows: &mut Query,
    order: Vec<OrderByExpr>,
    columns: &mut Vec<Ident>,
) -> Result<Vec<OrderByExpr>> {
    let select = match rows.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    };
    let own = match &select {
        Some(select) => own_of(select)?,
        None => None,
    };
    let mut items = match select {
        Some(select) if own.is_some() && select.distinct.is_none() => Some(&mut select.projection),
        _ => None,
    };
    let mut done = Vec::new();
    for key in order {
        check_number(&key.expr)?;
        let column = match (is_row(&key.expr, own.as_ref()), &mut items) {
            (true, _) => Ident::with_quote('"', ROW),
            (false, Some(items)) => {
                let name = Ident::with_quote('"', format!("{ROW}_{}", columns.len()));
                columns.push(name.clone());
                items.push(SelectItem::ExprWithAlias {
                    expr: key.expr.clone(),
                    alias: name.clone(),
                });
                name
            }
            (false, None) => {
                return Err(Error::unsupported(format!(
                    "rows of ARRAY that are distinct, or of a set operation, are sorted by their column, got ORDER BY {key}"
                ))
                .with_hint("write ORDER BY 1"));
            }
        };
        done.push(OrderByExpr {
            expr: Expr::Identifier(column),
            ..key
        });
    }
    Ok(done)
}

/// What a row is worked out as, and called; `None` where that is `*`.
type Own = (Expr, Option<Ident>);

/// That of a SELECT.
///
/// # Errors
/// `Query` for several.
fn own_of(select: &Select) -> Result<Option<Own>> {
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(own)] => Ok(Some((own.clone(), None))),
        [SelectItem::ExprWithAlias { expr, alias }] => {
            Ok(Some((expr.clone(), Some(alias.clone()))))
        }
        [SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)] => Ok(None),
        several => {
            let text = format!(
                "a query in ARRAY must have one column, got {}",
                several.len()
            );
            Err(Error::new(ErrorKind::Query, text)
                .with_hint("a struct holds several: ARRAY(SELECT {'a': a, 'b': b} FROM t)"))
        }
    }
}

/// A number in ORDER BY is that of a column, of which there is one.
fn check_number(key: &Expr) -> Result<()> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) if number != "1" => {
                let text = format!("rows of ARRAY have one column, got ORDER BY {number}");
                Err(Error::new(ErrorKind::Query, text).with_hint("write ORDER BY 1"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether rows are sorted by themselves.
fn is_row(key: &Expr, own: Option<&Own>) -> bool {
    match (key, own) {
        (Expr::Identifier(name), _) if is_all(name) => true,
        (Expr::Value(value), _) => {
            matches!(&value.value, Value::Number(number, _) if number == "1")
        }
        (Expr::Identifier(name), Some((own, alias))) => match alias {
            Some(alias) => same(alias, name) || key == own,
            None => is_column(own, name),
        },
        (Expr::Identifier(_), None) => true,
        (other, Some((own, _))) => other == own,
        _ => false,
    }
}

/// `ORDER BY ALL`.
fn is_all(name: &Ident) -> bool {
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all")
}

fn is_column(own: &Expr, name: &Ident) -> bool {
    match own {
        Expr::Identifier(own) => same(own, name),
        Expr::CompoundIdentifier(names) => names.last().is_some_and(|own| same(own, name)),
        _ => false,
    }
}

fn number(digits: &str) -> Expr {
    Expr::value(Value::Number(digits.to_owned(), false))
}

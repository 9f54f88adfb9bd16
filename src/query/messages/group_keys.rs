//! Keys of GROUP BY that are no values of rows: `SELECT a, sum(b) FROM t GROUP BY 1, 2`. The engine says of them that names stand twice, or that a subquery is misplaced.
//!
//! Comes in: a statement. Goes out: what is said of the first such key. Never here: what columns tables have, so that of a name alone nothing is certain.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Query, Select, SelectItem, Value, Visit, Visitor,
};

use super::words::{NAME_A_WINDOW, WINDOW_STANDS};
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::using::folded;

/// Refuses keys that are made of several rows.
///
/// # Errors
/// `Query` for an aggregate, `Unsupported` for a window function.
pub(in crate::query) fn check(statement: &Statement, state: &SessionState) -> Result<()> {
    first(statement, state, by_number).map_or(Ok(()), Err)
}

/// Whether a value is made of several rows.
pub(in crate::query) fn is_of_several_rows(value: &Expr, state: &SessionState) -> bool {
    value.visit(&mut Calls { state, queries: 0 }).is_break()
}

/// What is wrong with a key that is called like an item of SELECT, if it is not a column of that name: that goes first.
pub(in crate::query) fn slip_of_name(statement: &Statement, state: &SessionState) -> Option<Error> {
    first(statement, state, by_name)
}

/// The item of SELECT that a key may mean.
type Means = for<'a> fn(&Expr, &'a [SelectItem]) -> Option<&'a SelectItem>;

/// What is said of the first key that is made of several rows, itself or what it means.
fn first(statement: &Statement, state: &SessionState, means: Means) -> Option<Error> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return first(&explain.statement, state, means),
        _ => return None,
    };
    match inner.visit(&mut Selects { state, means }) {
        ControlFlow::Continue(()) => None,
        ControlFlow::Break(error) => Some(*error),
    }
}

/// Looks at each SELECT.
struct Selects<'a> {
    state: &'a SessionState,
    means: Means,
}

impl Visitor for Selects<'_> {
    type Break = Box<Error>;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Box<Error>> {
        let GroupByExpr::Expressions(keys, _) = &select.group_by else {
            return ControlFlow::Continue(());
        };
        for key in keys.iter().flat_map(parts) {
            let mut calls = Calls {
                state: self.state,
                queries: 0,
            };
            let meant = match (self.means)(key, &select.projection) {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
                    expr
                }
                _ => key,
            };
            meant.visit(&mut calls)?;
        }
        ControlFlow::Continue(())
    }
}

/// The keys that a key of GROUP BY consists of.
fn parts(key: &Expr) -> Vec<&Expr> {
    match key {
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
            sets.iter().flatten().collect()
        }
        Expr::Tuple(keys) => keys.iter().collect(),
        key => vec![key],
    }
}

/// The item with the number that a key is. Behind a `*` nobody knows which one has it.
fn by_number<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a SelectItem> {
    let Expr::Value(value) = key else {
        return None;
    };
    let Value::Number(number, _) = &value.value else {
        return None;
    };
    let number: usize = number.to_string().parse().ok()?;
    let before = items.get(..number)?;
    let is_one = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    before.last().filter(|_| before.iter().all(is_one))
}

/// The item that is called as a key.
fn by_name<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a SelectItem> {
    let Expr::Identifier(name) = key else {
        return None;
    };
    items.iter().find(|item| {
        matches!(item, SelectItem::ExprWithAlias { alias, .. } if folded(alias) == folded(name))
    })
}

/// Looks for calls that are made of several rows, but not in subqueries.
struct Calls<'a> {
    state: &'a SessionState,
    /// How many subqueries are open.
    queries: usize,
}

impl Calls<'_> {
    fn of_rows(&self, call: &Function) -> Option<Error> {
        if call.over.is_some() {
            return Some(Error::unsupported(WINDOW_STANDS).with_hint(NAME_A_WINDOW));
        }
        let name = folded(call.name.0.last()?.as_ident()?);
        if self.state.scalar_functions().contains_key(&name) {
            return None;
        }
        self.state.aggregate_functions().get(&name)?;
        let text = format!(
            "a key of GROUP BY is a value of each row, and {call} is one of all rows of a group"
        );
        let error = Error::new(ErrorKind::Query, text);
        Some(error.with_hint("leave it out of GROUP BY, or give it a name in a subquery: SELECT … FROM (SELECT …, count(*) AS n … GROUP BY …) GROUP BY n"))
    }
}

impl Visitor for Calls<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Box<Error>> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Box<Error>> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Box<Error>> {
        let found = match expr {
            Expr::Function(call) if self.queries == 0 => self.of_rows(call),
            _ => None,
        };
        match found {
            None => ControlFlow::Continue(()),
            Some(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

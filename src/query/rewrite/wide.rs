//! `SELECT * FROM t` of a table with very many columns. The engine compares the name of each column of a SELECT with those of all before it, which takes seconds for some thousands.
//!
//! Comes in: a statement, or the plan of one. Goes out: the statement with one column in place of `*`, and its plan with all of them again; nothing for other statements. Never here: joins, groups, views, columns beside `*`.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, OrderByKind, Query, SelectItem, SetExpr, Statement as SqlStatement,
    TableFactor, Value,
};

use super::using::folded;
use super::written::without_parentheses;
use crate::query::names::{Known, Table};

/// From so many columns on the time is noticed.
const MANY: usize = 256;

/// What the one column is called.
const ALL: &str = "__all_columns";

/// The statement with one column in place of all, where it is one for this.
pub(super) fn with_one(statement: &Statement, known: &Known) -> Option<Statement> {
    let Statement::Statement(inner) = statement else {
        return None;
    };
    let SqlStatement::Query(query) = inner.as_ref() else {
        return None;
    };
    if !is_of_all(query, known) {
        return None;
    }
    let mut query = query.clone();
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::ExprWithAlias {
            expr: SqlExpr::value(Value::Boolean(true)),
            alias: Ident::with_quote('"', ALL),
        }];
    }
    let query = SqlStatement::Query(query);
    Some(Statement::Statement(Box::new(query)))
}

/// Whether a query is of all columns of one table that has many, with nothing but a condition, an order and a limit.
fn is_of_all(query: &Query, known: &Known) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let [table] = select.from.as_slice() else {
        return false;
    };
    let TableFactor::Table { name, .. } = &table.relation else {
        return false;
    };
    let found = name.0.last().and_then(|name| name.as_ident());
    let columns = match found.and_then(|name| known.table(&folded(name))) {
        Some((_, Table::Grid(table))) => table.grid().num_columns(),
        _ => 0,
    };
    if columns < MANY {
        return false;
    }
    // A text has all clauses that there are, also those that nobody here knows of.
    let clause = |word: &str, what: Option<String>| {
        what.map_or_else(String::new, |what| format!(" {word} {what}"))
    };
    let condition = select.selection.as_ref().map(ToString::to_string);
    let plain = format!("SELECT * FROM {name}{}", clause("WHERE", condition));
    let order = query.order_by.as_ref().map(ToString::to_string);
    let limit = query.limit_clause.as_ref().map(ToString::to_string);
    let whole = format!(
        "{plain}{}{}",
        order.map_or_else(String::new, |order| format!(" {order}")),
        limit.unwrap_or_default()
    );
    // A number is that of a column.
    let is_column = |key: &SqlExpr| match without_parentheses(key) {
        SqlExpr::Identifier(name) => folded(name) != ALL,
        SqlExpr::CompoundIdentifier(_) => true,
        _ => false,
    };
    let is_ordered_by_columns = query
        .order_by
        .as_ref()
        .is_none_or(|order| match &order.kind {
            OrderByKind::Expressions(keys) => keys.iter().all(|key| is_column(&key.expr)),
            OrderByKind::All(_) => false,
        });
    is_ordered_by_columns && query.to_string() == whole
}

/// The plan with all columns in place of the one; `None` where it is of a form that nobody here knows.
pub(super) fn with_all(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = projection.input.as_ref();
            let is_one = projection
                .expr
                .iter()
                .any(|expr| matches!(expr, Expr::Alias(alias) if alias.name == ALL));
            if is_one {
                let columns = input.schema().iter().map(Column::from).map(Expr::from);
                let all = Projection::try_new(columns.collect(), Arc::clone(&projection.input))?;
                return Ok(Some(LogicalPlan::Projection(all)));
            }
            // It takes away what the rows were ordered by.
            with_all(input)
        }
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            let [input] = plan.inputs()[..] else {
                return Ok(None);
            };
            let Some(input) = with_all(input)? else {
                return Ok(None);
            };
            let with = plan.with_new_exprs(plan.expressions(), vec![input])?;
            Ok(Some(with))
        }
        _ => Ok(None),
    }
}

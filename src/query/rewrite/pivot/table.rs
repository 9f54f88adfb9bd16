//! Tables of FROM that are turned: `FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))`, `FROM t UNPIVOT (x FOR k IN (a, b))`.
//!
//! Comes in: a table of FROM. Goes out: for PIVOT `(SELECT * EXCLUDE (x, k), sum(x) FILTER (WHERE k IS NOT DISTINCT FROM 'a') AS a, … FROM t GROUP BY ALL)`, for UNPIVOT
//! `(SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS k, unnest([a, b]) AS x FROM t)`, without the nulls. Never here: statements (`statement.rs`).

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, PivotValueSource, Query, Select, SetExpr, TableAlias, TableFactor, TableWithJoins,
};

use super::items::{On, Pivot};
use super::rows::Rows;
use super::statement;
use crate::error::{Error, Result};
use crate::query::rewrite::row_in::parsed;

/// Puts a query in place of a table that is turned.
///
/// # Errors
/// `Unsupported` where the text does not say the columns; `Query` for what is no aggregate, and for values of another number than the columns.
pub(super) fn as_query(factor: &mut TableFactor, state: &SessionState) -> Result<()> {
    let done = match factor {
        TableFactor::Pivot {
            table,
            aggregate_functions,
            value_column,
            value_source,
            default_on_null,
            alias,
        } => {
            as_query(table, state)?;
            let PivotValueSource::List(values) = value_source else {
                let text = "PIVOT of all values that there are is not supported here";
                return Err(Error::unsupported(text).with_hint("write them: FOR k IN ('a', 'b')"));
            };
            let on = [On {
                columns: std::mem::take(value_column),
                values: std::mem::take(values),
            }];
            let pivot = Pivot {
                aggregates: aggregate_functions,
                on: &on,
                otherwise: default_on_null.as_ref(),
                state,
            };
            let mut query = query_of("(SELECT 1 FROM t)")?;
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.from = vec![alone(table.as_ref().clone())];
                statement::put(select, &pivot)?;
            }
            derived(query, alias.take())
        }
        TableFactor::Unpivot {
            table,
            value,
            name,
            columns,
            null_inclusion,
            alias,
        } => {
            as_query(table, state)?;
            let rows = Rows::of_table(value, name, columns, null_inclusion.as_ref())?;
            let mut query = query_of(&rows.text())?;
            put_from(&mut query.body, vec![alone(table.as_ref().clone())]);
            derived(query, alias.take())
        }
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => return in_joins(table_with_joins, state),
        _ => return Ok(()),
    };
    *factor = done;
    Ok(())
}

/// The same of a table and all that is joined with it.
///
/// # Errors
/// As [`as_query`].
pub(in crate::query::rewrite) fn in_joins(
    table: &mut TableWithJoins,
    state: &SessionState,
) -> Result<()> {
    as_query(&mut table.relation, state)?;
    let mut joins = table.joins.iter_mut();
    joins.try_for_each(|join| as_query(&mut join.relation, state))
}

/// A query by its text, in brackets.
pub(in crate::query::rewrite) fn query_of(text: &str) -> Result<Query> {
    match parsed(text)? {
        Expr::Subquery(query) => Ok(*query),
        _ => Err(Error::internal(format!("`{text}` is no query"))),
    }
}

/// A table that nothing is joined with.
pub(in crate::query::rewrite) fn alone(relation: TableFactor) -> TableWithJoins {
    TableWithJoins {
        relation,
        joins: Vec::new(),
    }
}

/// A query as a table.
fn derived(query: Query, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias,
        sample: None,
    }
}

/// Puts tables into the innermost of queries that stand in one another.
pub(in crate::query::rewrite) fn put_from(body: &mut SetExpr, tables: Vec<TableWithJoins>) {
    if let SetExpr::Select(select) = body
        && let Some(inner) = innermost(select)
    {
        inner.from = tables;
    }
}

/// The innermost SELECT, by the first tables of FROM.
pub(super) fn innermost(select: &mut Select) -> Option<&mut Select> {
    let first = select.from.first().map(|from| &from.relation);
    if !matches!(first, Some(TableFactor::Derived { .. })) {
        return Some(select);
    }
    match select.from.first_mut().map(|from| &mut from.relation) {
        Some(TableFactor::Derived { subquery, .. }) => match subquery.body.as_mut() {
            SetExpr::Select(select) => innermost(select),
            _ => None,
        },
        _ => None,
    }
}

//! Tables of FROM that are turned: `FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))`, `FROM t UNPIVOT (x FOR k IN (a, b))`.
//!
//! Comes in: a table of FROM. Goes out: for PIVOT `(SELECT * EXCLUDE (x, k), sum(x) FILTER (WHERE k IS NOT DISTINCT FROM 'a') AS a, … FROM t GROUP BY ALL)`, for UNPIVOT
//! `(SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS k, unnest([a, b]) AS x FROM t)`, without the nulls. Never here: statements (`statement.rs`).

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, PivotValueSource, Query, SetExpr, TableAlias, TableFactor, TableWithJoins,
};

use super::items::{On, Pivot, exclude};
use super::rows::Rows;
use crate::error::{Error, Result};
use crate::query::rewrite::row_in::parsed;

/// Puts a query in place of a table that is turned.
///
/// # Errors
/// `Unsupported` where the text does not say the columns; `Query` for what is no aggregate, and for values of another number than the columns.
fn as_query(factor: &mut TableFactor, state: &SessionState) -> Result<()> {
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
            let text = format!(
                "(SELECT *{} FROM __turned GROUP BY ALL)",
                exclude(&pivot.used())
            );
            let mut query = query_of(&text)?;
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.projection.extend(pivot.items()?);
            }
            derived(query, table, alias.take())
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
            derived(query_of(&rows.text())?, table, alias.take())
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
pub(super) fn query_of(text: &str) -> Result<Query> {
    match parsed(text)? {
        Expr::Subquery(query) => Ok(*query),
        _ => Err(Error::internal(format!("`{text}` is no query"))),
    }
}

/// A query as a table, over this one.
fn derived(mut query: Query, table: &TableFactor, alias: Option<TableAlias>) -> TableFactor {
    let from = TableWithJoins {
        relation: table.clone(),
        joins: Vec::new(),
    };
    put_from(&mut query.body, vec![from]);
    TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias,
        sample: None,
    }
}

/// Puts tables into the innermost of the queries that stand in one another.
pub(super) fn put_from(body: &mut SetExpr, tables: Vec<TableWithJoins>) {
    let SetExpr::Select(select) = body else {
        return;
    };
    match select.from.first_mut() {
        Some(TableWithJoins {
            relation: TableFactor::Derived { subquery, .. },
            ..
        }) => put_from(&mut subquery.body, tables),
        _ => select.from = tables,
    }
}

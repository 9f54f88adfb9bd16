//! Rows that become columns, and columns that become rows: `FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))`, `FROM t UNPIVOT (x FOR k IN (a, b))`.
//!
//! Comes in: a table of FROM. Goes out: for PIVOT `(SELECT * EXCLUDE (x, k), sum(x) FILTER (WHERE k IS NOT DISTINCT FROM 'a') AS a, … FROM t GROUP BY ALL)`, for UNPIVOT
//! `(SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS k, unnest([a, b]) AS x FROM t)`, without the nulls. Never here: PIVOT whose columns only the rows say.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Ident, NullInclusion, PivotValueSource, SetExpr, TableAlias, TableFactor,
    TableWithJoins, Value, visit_expressions,
};

use super::row_in::parsed;
use super::using::folded;
use super::written::text_of;
use crate::error::{Error, ErrorKind, Result};
use crate::query::messages::group_keys::is_of_several_rows;

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
            let items = Pivot {
                aggregates: aggregate_functions,
                columns: value_column,
                otherwise: default_on_null.as_ref(),
                state,
            };
            query_of(&items.text(value_source)?, table, alias.take())?
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
            let text = unpivot(value, name, columns, null_inclusion.as_ref())?;
            query_of(&text, table, alias.take())?
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
pub(super) fn in_joins(table: &mut TableWithJoins, state: &SessionState) -> Result<()> {
    as_query(&mut table.relation, state)?;
    let mut joins = table.joins.iter_mut();
    joins.try_for_each(|join| as_query(&mut join.relation, state))
}

/// A query by its text, in which the table stands for the only one that is called `__turned`.
fn query_of(text: &str, table: &TableFactor, alias: Option<TableAlias>) -> Result<TableFactor> {
    let Expr::Subquery(mut query) = parsed(text)? else {
        return Err(Error::internal(format!("`{text}` is no query")));
    };
    put(&mut query.body, table);
    Ok(TableFactor::Derived {
        lateral: false,
        subquery: query,
        alias,
        sample: None,
    })
}

fn put(body: &mut SetExpr, table: &TableFactor) {
    let SetExpr::Select(select) = body else {
        return;
    };
    for from in &mut select.from {
        match &mut from.relation {
            TableFactor::Derived { subquery, .. } => put(&mut subquery.body, table),
            relation => *relation = table.clone(),
        }
    }
}

/// What is worked out of the rows, for which columns.
struct Pivot<'a> {
    aggregates: &'a [ExprWithAlias],
    columns: &'a [Expr],
    otherwise: Option<&'a Expr>,
    state: &'a SessionState,
}

impl Pivot<'_> {
    fn text(&self, source: &PivotValueSource) -> Result<String> {
        let PivotValueSource::List(values) = source else {
            let text = "PIVOT of all values that there are is not supported";
            return Err(Error::unsupported(text).with_hint("write them: FOR k IN ('a', 'b')"));
        };
        let mut used = Vec::new();
        for part in self
            .aggregates
            .iter()
            .map(|part| &part.expr)
            .chain(self.columns)
        {
            names_in(part, &mut used);
        }
        let mut items = Vec::new();
        for value in values {
            let (condition, name) = self.of_value(value)?;
            for aggregate in self.aggregates {
                items.push(self.item(aggregate, &condition, &name)?);
            }
        }
        let used: Vec<String> = used.iter().map(quoted).collect();
        Ok(format!(
            "(SELECT * EXCLUDE ({}), {} FROM __turned GROUP BY ALL)",
            used.join(", "),
            items.join(", ")
        ))
    }

    /// When a row is of a value, and what its columns are called.
    fn of_value(&self, value: &ExprWithAlias) -> Result<(String, String)> {
        let parts = match &value.expr {
            Expr::Tuple(parts) if self.columns.len() > 1 => parts.as_slice(),
            Expr::Nested(only) => std::slice::from_ref(only.as_ref()),
            only => std::slice::from_ref(only),
        };
        if parts.len() != self.columns.len() {
            let text = format!(
                "a value of PIVOT must be for {} columns, got {}",
                self.columns.len(),
                value.expr
            );
            return Err(Error::new(ErrorKind::Query, text));
        }
        let pairs = self.columns.iter().zip(parts);
        let conditions: Vec<String> = pairs
            .map(|(column, part)| format!("({column}) IS NOT DISTINCT FROM ({})", literal(part)))
            .collect();
        let name = match &value.alias {
            Some(alias) => folded(alias),
            None => {
                let names: Vec<String> = parts.iter().map(shown).collect();
                names.join("_")
            }
        };
        Ok((conditions.join(" AND "), name))
    }

    fn item(&self, aggregate: &ExprWithAlias, condition: &str, name: &str) -> Result<String> {
        let refused = || {
            let text = format!("PIVOT works out aggregates, got {}", aggregate.expr);
            Error::new(ErrorKind::Query, text).with_hint("PIVOT (sum(x) FOR …)")
        };
        let Expr::Function(call) = &aggregate.expr else {
            return Err(refused());
        };
        if !is_of_several_rows(&aggregate.expr, self.state) {
            return Err(refused());
        }
        let mut call = call.clone();
        let condition = match call.filter.take() {
            Some(own) => format!("({own}) AND {condition}"),
            None => condition.to_owned(),
        };
        let name = match &aggregate.alias {
            Some(alias) => format!("{name}_{}", folded(alias)),
            None if self.aggregates.len() > 1 => format!("{name}_{}", text_of(&aggregate.expr)),
            None => name.to_owned(),
        };
        let value = format!("{call} FILTER (WHERE {condition})");
        let value = match self.otherwise {
            Some(otherwise) => format!("coalesce({value}, {otherwise})"),
            None => value,
        };
        Ok(format!("{value} AS {}", Ident::with_quote('"', name)))
    }
}

/// A word without quotes is a text, as in DuckDB.
fn literal(value: &Expr) -> String {
    match value {
        Expr::Identifier(name) => {
            Expr::value(Value::SingleQuotedString(name.value.clone())).to_string()
        }
        other => other.to_string(),
    }
}

fn shown(value: &Expr) -> String {
    match value {
        Expr::Identifier(name) => name.value.clone(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// The columns that an expression names.
fn names_in(expr: &Expr, names: &mut Vec<Ident>) {
    let visited: ControlFlow<()> = visit_expressions(expr, |part| {
        let name = match part {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(name) = name
            && !names.iter().any(|known| folded(known) == folded(name))
        {
            names.push(name.clone());
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// A name in quotes: those of EXCLUDE are compared as they are written.
fn quoted(name: &Ident) -> String {
    Ident::with_quote('"', folded(name)).to_string()
}

fn unpivot(
    value: &Expr,
    name: &Ident,
    columns: &[ExprWithAlias],
    nulls: Option<&NullInclusion>,
) -> Result<String> {
    let (mut own, mut said) = (Vec::new(), Vec::new());
    for column in columns {
        let Expr::Identifier(of) = &column.expr else {
            let text = format!("UNPIVOT makes rows of columns, got {}", column.expr);
            return Err(Error::unsupported(text)
                .with_hint("work it out in a query below: FROM (SELECT …) UNPIVOT …"));
        };
        let label = column
            .alias
            .as_ref()
            .map_or_else(|| folded(of), |alias| alias.value.clone());
        said.push(Expr::value(Value::SingleQuotedString(label)).to_string());
        own.push(quoted(of));
    }
    let Expr::Identifier(value) = value else {
        let text = format!("UNPIVOT makes one column of values, got {value}");
        return Err(Error::unsupported(text).with_hint("UNPIVOT (value FOR name IN (a, b))"));
    };
    let (own, value) = (own.join(", "), quoted(value));
    let rows = format!(
        "SELECT * EXCLUDE ({own}), unnest([{}]) AS {}, unnest([{own}]) AS {value} FROM __turned",
        said.join(", "),
        quoted(name)
    );
    Ok(match nulls {
        Some(NullInclusion::IncludeNulls) => format!("({rows})"),
        _ => format!("(SELECT * FROM ({rows}) AS __rows WHERE {value} IS NOT NULL)"),
    })
}

//! What UNPIVOT makes of columns: a row for each, with its name and its value.
//!
//! Comes in: columns, in FROM or as items of SELECT, and what is made of them is called. Goes out: `SELECT * EXCLUDE (a, b), unnest(['a', 'b']) AS name, unnest([a, b]) AS value`, without the rows that have a null there, unless they are wanted.
//! Never here: COLUMNS among them, which were written out before (`each_column`).

use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    NullInclusion, Select, SelectItem, SetExpr, Value,
};

use super::INTO;
use super::items::{exclude, names_in, quoted};
use super::table::{put_from, query_of};
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::using::folded;

/// Columns that become rows.
pub(super) struct Rows {
    name: Ident,
    values: Vec<Ident>,
    /// Of each row its name, and its values.
    parts: Vec<(String, Vec<Expr>)>,
    with_nulls: bool,
}

impl Rows {
    /// Of a table of FROM.
    ///
    /// # Errors
    /// As [`Rows::put`]; `Unsupported` where the values have no names.
    pub(super) fn of_table(
        value: &Expr,
        name: &Ident,
        columns: &[ExprWithAlias],
        nulls: Option<&NullInclusion>,
    ) -> Result<Self> {
        let mut values = Vec::new();
        for value in parts_of(value) {
            let Expr::Identifier(value) = value else {
                let text = format!("UNPIVOT makes columns of values, got {value} for their name");
                return Err(
                    Error::unsupported(text).with_hint("UNPIVOT (value FOR name IN (a, b))")
                );
            };
            values.push(value.clone());
        }
        let mut rows = Self {
            name: name.clone(),
            values,
            parts: Vec::new(),
            with_nulls: matches!(nulls, Some(NullInclusion::IncludeNulls)),
        };
        for column in columns {
            rows.put(&column.expr, column.alias.as_ref())?;
        }
        Ok(rows)
    }

    /// Puts what becomes of some columns behind other rows.
    ///
    /// # Errors
    /// `Query` for another number of columns than values.
    fn put(&mut self, columns: &Expr, alias: Option<&Ident>) -> Result<()> {
        let parts = parts_of(columns);
        if parts.len() != self.values.len() {
            let text = format!(
                "UNPIVOT makes {} of each row, got {columns}",
                match self.values.len() {
                    1 => "one value".to_owned(),
                    count => format!("{count} values"),
                }
            );
            return Err(Error::new(ErrorKind::Query, text).with_hint(
                "as many columns as names: UNPIVOT t ON (a, b), (c, d) INTO NAME n VALUE v, w",
            ));
        }
        let name = match alias {
            Some(alias) => alias.value.clone(),
            None => {
                let names: Vec<String> = parts.iter().map(called).collect();
                names.join("_")
            }
        };
        self.parts.push((name, parts.to_vec()));
        Ok(())
    }

    /// The query, over a table that is called `__turned`.
    pub(super) fn text(&self) -> String {
        let used = names_in(self.parts.iter().flat_map(|(_, parts)| parts));
        let names: Vec<String> = self.parts.iter().map(|(name, _)| literal(name)).collect();
        let values = self.values.iter().enumerate().map(|(place, value)| {
            let all = self.parts.iter().filter_map(|(_, parts)| parts.get(place));
            let all: Vec<String> = all.map(text_of).collect();
            format!("unnest([{}]) AS {}", all.join(", "), quoted(value))
        });
        let values: Vec<String> = values.collect();
        let rows = format!(
            "SELECT *{}, unnest([{}]) AS {}, {} FROM __turned",
            exclude(&used),
            names.join(", "),
            quoted(&self.name),
            values.join(", ")
        );
        if self.with_nulls {
            return format!("({rows})");
        }
        let values = self.values.iter();
        let conditions: Vec<String> = values
            .map(|value| format!("{} IS NOT NULL", quoted(value)))
            .collect();
        format!(
            "(SELECT * FROM ({rows}) AS __rows WHERE {})",
            conditions.join(" AND ")
        )
    }
}

/// Puts a query in place of a SELECT that stands for `UNPIVOT t ON …`.
///
/// # Errors
/// As [`Rows::put`].
pub(in crate::query::rewrite) fn of_statement(select: &mut Select) -> Result<()> {
    let Some(names) = select.projection.first().and_then(into) else {
        return Ok(());
    };
    let mut names = names.into_iter();
    let name = names.next().unwrap_or_else(|| Ident::new("name"));
    let mut values: Vec<Ident> = names.collect();
    if values.is_empty() {
        values.push(Ident::new("value"));
    }
    let mut rows = Rows {
        name,
        values,
        parts: Vec::new(),
        with_nulls: false,
    };
    for item in select.projection.iter().skip(1) {
        match item {
            SelectItem::UnnamedExpr(expr) => rows.put(expr, None)?,
            SelectItem::ExprWithAlias { expr, alias } => rows.put(expr, Some(alias))?,
            other => {
                let text = format!("UNPIVOT makes rows of columns, got {other}");
                return Err(Error::new(ErrorKind::Query, text)
                    .with_hint("UNPIVOT t ON COLUMNS(* EXCLUDE (k)) takes all but k"));
            }
        }
    }
    let mut query = query_of(&rows.text())?;
    put_from(&mut query.body, std::mem::take(&mut select.from));
    if let SetExpr::Select(turned) = *query.body {
        *select = *turned;
    }
    Ok(())
}

/// The names into which columns go, if the item says that they do.
fn into(item: &SelectItem) -> Option<Vec<Ident>> {
    // It has an alias where others were named as they are written.
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    let Expr::Function(Function { name, args, .. }) = expr else {
        return None;
    };
    if name.0.last()?.as_ident()?.value != INTO {
        return None;
    }
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let names = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name))) => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

/// The columns of one row.
fn parts_of(columns: &Expr) -> &[Expr] {
    match columns {
        Expr::Tuple(parts) => parts,
        Expr::Nested(only) => parts_of(only),
        only => std::slice::from_ref(only),
    }
}

/// What a row of a column is called: like the column, also if something is worked out of it.
fn called(column: &Expr) -> String {
    match names_in([column]).as_slice() {
        [only] => folded(only),
        _ => column.to_string(),
    }
}

/// Names without a table in quotes, as they are compared.
fn text_of(column: &Expr) -> String {
    match column {
        Expr::Identifier(name) => quoted(name),
        other => format!("({other})"),
    }
}

fn literal(text: &str) -> String {
    Expr::value(Value::SingleQuotedString(text.to_owned())).to_string()
}

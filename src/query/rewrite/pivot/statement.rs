//! A SELECT that stands for `PIVOT t ON k USING sum(x) GROUP BY g`.
//!
//! Comes in: `SELECT __pivot_on(k), __pivot_in(1), sum(x) FROM t GROUP BY g`. Goes out: what is said there, taken apart; `SELECT g, sum(x) FILTER (WHERE k IS NOT DISTINCT FROM 1) AS "1" FROM t GROUP BY g`. Never here: values that only the rows say (`asked.rs`).

use std::collections::HashSet;
use std::fmt::Display;

use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Query, Select, SelectItem, SetExpr,
};

use super::items::{Pivot, exclude};
use super::steps;
use super::table::query_of;
use super::{IN, ON, OUT_OF};
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::using::folded;

/// Where the values of a column come from.
#[derive(Debug)]
pub(super) enum Values {
    Said(Vec<ExprWithAlias>),
    /// Of this query.
    Of(Box<Query>),
    /// All that there are.
    All,
}

/// What such a SELECT says.
#[derive(Debug)]
pub(super) struct Said {
    /// What is turned by, each a column or a row of several.
    pub(super) on: Vec<(Vec<Expr>, Values)>,
    pub(super) aggregates: Vec<ExprWithAlias>,
}

impl Said {
    /// What a SELECT says, if it stands for PIVOT.
    ///
    /// # Errors
    /// `Query` for an item that is none.
    pub(super) fn of(select: &Select) -> Result<Option<Self>> {
        let begins = select.projection.first().and_then(marked);
        if begins.is_none_or(|(name, _)| name != ON) {
            return Ok(None);
        }
        let mut said = Self {
            on: Vec::new(),
            aggregates: Vec::new(),
        };
        for item in &select.projection {
            said.take(item)?;
        }
        Ok(Some(said))
    }

    fn take(&mut self, item: &SelectItem) -> Result<()> {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.clone())),
            other => return Err(no_aggregate(other)),
        };
        match (marked(item), self.on.last_mut()) {
            (Some((ON, Some(value))), _) => {
                let columns = match value {
                    Expr::Tuple(parts) => parts.clone(),
                    only => vec![only.clone()],
                };
                self.on.push((columns, Values::All));
            }
            (Some((IN, Some(value))), Some((_, values))) => {
                let expr = value.clone();
                let value = ExprWithAlias { expr, alias };
                match values {
                    Values::Said(all) => all.push(value),
                    _ => *values = Values::Said(vec![value]),
                }
            }
            (Some((OUT_OF, Some(Expr::Subquery(query)))), Some((_, values))) => {
                *values = Values::Of(query.clone());
            }
            (Some(_), _) => return Err(no_values()),
            (None, _) => {
                let expr = expr.clone();
                self.aggregates.push(ExprWithAlias { expr, alias });
            }
        }
        Ok(())
    }
}

fn no_aggregate(item: &SelectItem) -> Error {
    let text = format!("PIVOT works out aggregates, got {item}");
    Error::new(ErrorKind::Query, text).with_hint("PIVOT t ON k USING sum(x)")
}

fn no_values() -> Error {
    let text = "PIVOT is turned by values, each of one column";
    Error::new(ErrorKind::Query, text)
        .with_hint("PIVOT t ON k, PIVOT t ON k IN (1, 2), or PIVOT t ON k IN (SELECT …)")
}

/// The name and the argument of an item of ours; no argument where there is not one, or something else than a value.
fn marked(item: &SelectItem) -> Option<(&str, Option<&Expr>)> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    let Expr::Function(Function { name, args, .. }) = expr else {
        return None;
    };
    let name = name.0.last()?.as_ident()?.value.as_str();
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let argument = match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument),
        _ => None,
    };
    [ON, IN, OUT_OF].contains(&name).then_some((name, argument))
}

/// Puts what is worked out into a SELECT, in groups of its keys, or of all columns that are not used.
///
/// # Errors
/// As [`Pivot::items`]; `Query` for GROUP BY of anything but columns.
pub(super) fn put(select: &mut Select, pivot: &Pivot<'_>) -> Result<()> {
    let keys = keys_of(select)?;
    let in_steps = steps::of(pivot, keys.as_deref(), select)?;
    match in_steps {
        Some(stepped) => *select = stepped,
        None => put_filtered(select, keys, pivot)?,
    }
    tell_apart(&mut select.projection);
    Ok(())
}

/// Puts an aggregate for each value into a SELECT.
fn put_filtered(select: &mut Select, keys: Option<Vec<Expr>>, pivot: &Pivot<'_>) -> Result<()> {
    let items = pivot.items()?;
    select.projection = match keys {
        Some(keys) => keys.into_iter().map(SelectItem::UnnamedExpr).collect(),
        None => {
            let text = format!("(SELECT *{} FROM t GROUP BY ALL)", exclude(&pivot.used()));
            let mut projection = Vec::new();
            if let SetExpr::Select(all) = *query_of(&text)?.body {
                projection = all.projection;
                select.group_by = all.group_by;
            }
            projection
        }
    };
    select.projection.extend(items);
    Ok(())
}

/// Numbers columns that are called like others before them, as DuckDB does.
fn tell_apart(items: &mut [SelectItem]) {
    let mut taken = HashSet::new();
    for item in items {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                let (name, mut number) = (alias.value.clone(), 0);
                while !taken.insert(alias.value.clone()) {
                    number += 1;
                    alias.value = format!("{name}_{number}");
                }
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                taken.insert(folded(name));
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                taken.extend(parts.last().map(folded));
            }
            _ => {}
        }
    }
}

/// The columns of GROUP BY; none where there is none.
fn keys_of(select: &Select) -> Result<Option<Vec<Expr>>> {
    let refused = |got: &dyn Display, hint: &str| {
        let text = format!("PIVOT groups by columns, got {got}");
        Error::new(ErrorKind::Query, text).with_hint(hint)
    };
    let keys = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys,
        GroupByExpr::All(_) => {
            let hint = "without GROUP BY it groups by all columns that are not used";
            return Err(refused(&"ALL", hint));
        }
    };
    let is_column = |key: &&Expr| matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    if let Some(other) = keys.iter().find(|key| !is_column(key)) {
        let hint = "name it in a query below: PIVOT (SELECT *, a + 1 AS b FROM t) ON …";
        return Err(refused(other, hint));
    }
    Ok((!keys.is_empty()).then(|| keys.clone()))
}

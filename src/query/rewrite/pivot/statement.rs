//! A SELECT that stands for `PIVOT t ON k USING sum(x) GROUP BY g`.
//!
//! Comes in: `SELECT __pivot_on(k), __pivot_in(1), sum(x) FROM t GROUP BY g`. Goes out: what is said there, taken apart; `SELECT g, sum(x) FILTER (WHERE k IS NOT DISTINCT FROM 1) AS "1" FROM t GROUP BY g`. Never here: values that only the rows say (`asked.rs`).

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Query, Select, SelectItem, SetExpr,
};

use super::items::{On, Pivot, exclude};
use super::table::query_of;
use super::{IN, ON, OUT_OF};
use crate::error::{Error, ErrorKind, Result};

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
            (Some((ON, value)), _) => {
                let columns = match value {
                    Expr::Tuple(parts) => parts.clone(),
                    only => vec![only.clone()],
                };
                self.on.push((columns, Values::All));
            }
            (Some((IN, value)), Some((_, values))) => {
                let expr = value.clone();
                let value = ExprWithAlias { expr, alias };
                match values {
                    Values::Said(all) => all.push(value),
                    _ => *values = Values::Said(vec![value]),
                }
            }
            (Some((OUT_OF, Expr::Subquery(query))), Some((_, values))) => {
                *values = Values::Of(query.clone());
            }
            _ => {
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

/// The name and the argument of an item of ours.
fn marked(item: &SelectItem) -> Option<(&str, &Expr)> {
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
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => {
            [ON, IN, OUT_OF].contains(&name).then_some((name, argument))
        }
        _ => None,
    }
}

/// Puts what is said into the SELECT, with values for all that is turned by.
///
/// # Errors
/// As [`Pivot::items`]; `Query` for GROUP BY of anything but columns.
pub(super) fn put(
    select: &mut Select,
    on: &[On],
    aggregates: &[ExprWithAlias],
    state: &SessionState,
) -> Result<()> {
    let pivot = Pivot {
        aggregates,
        on,
        otherwise: None,
        state,
    };
    let items = pivot.items()?;
    let mut projection = Vec::new();
    match &select.group_by {
        GroupByExpr::Expressions(keys, _) if keys.is_empty() => {
            let text = format!("(SELECT *{} FROM t GROUP BY ALL)", exclude(&pivot.used()));
            let all = query_of(&text)?;
            if let SetExpr::Select(all) = *all.body {
                projection = all.projection;
                select.group_by = all.group_by;
            }
        }
        GroupByExpr::Expressions(keys, _) => {
            for key in keys {
                if !matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                    let text = format!("PIVOT groups by columns, got {key}");
                    return Err(Error::new(ErrorKind::Query, text).with_hint(
                        "name it in a query below: PIVOT (SELECT *, a + 1 AS b FROM t) ON …",
                    ));
                }
                projection.push(SelectItem::UnnamedExpr(key.clone()));
            }
        }
        GroupByExpr::All(_) => {
            let text = "PIVOT groups by columns, got ALL";
            return Err(Error::new(ErrorKind::Query, text)
                .with_hint("without GROUP BY it groups by all columns that are not used"));
        }
    }
    projection.extend(items);
    select.projection = projection;
    Ok(())
}

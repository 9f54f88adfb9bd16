//! What PIVOT makes of the rows: of each aggregate a column for each value, in which only the rows of that value take part.
//!
//! Comes in: aggregates, what is turned by, and the values. Goes out: items of SELECT, and the names of the columns that they are made of. Never here: where the values come from (`asked.rs`).

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, ExprWithAlias, Function, Ident, SelectItem, Value, visit_expressions,
    visit_expressions_mut,
};

use crate::error::{Error, ErrorKind, Result};
use crate::query::messages::group_keys::is_of_several_rows;
use crate::query::rewrite::called::called;
use crate::query::rewrite::synonyms;
use crate::query::rewrite::using::folded;
use crate::query::rewrite::written::text_of;

/// So many columns may come of one PIVOT: planning takes time by more than their number.
pub(super) const MAX_COLUMNS: usize = 2_000;

/// So many parts the aggregates of all columns may have together.
const MAX_PARTS: usize = 50_000;

/// What is turned by, and its values.
#[derive(Debug)]
pub(super) struct On {
    /// One, or those of a row.
    pub(super) columns: Vec<Expr>,
    pub(super) values: Vec<ExprWithAlias>,
}

/// What is worked out of the rows, for which values. Of several that are turned by, each value of one is there with each of the others.
pub(super) struct Pivot<'a> {
    pub(super) aggregates: &'a [ExprWithAlias],
    pub(super) on: &'a [On],
    /// What stands for NULL.
    pub(super) otherwise: Option<&'a Expr>,
    pub(super) state: &'a SessionState,
}

/// Values, one of each that is turned by: when a row has them, and what they are called.
struct Case {
    condition: Option<Expr>,
    name: String,
}

impl Pivot<'_> {
    /// How many columns each aggregate becomes.
    pub(super) fn num_cases(&self) -> usize {
        let counts = self.on.iter().map(|on| on.values.len());
        counts.fold(1, usize::saturating_mul)
    }

    /// The columns, those of the first value first, each made of the rows that fulfil a condition.
    ///
    /// # Errors
    /// `Query` for what is no aggregate, and for values of another number than the columns; `ResourcesExhausted` for too many columns.
    pub(super) fn items(&self) -> Result<Vec<SelectItem>> {
        let mut items = Vec::new();
        for case in self.cases()? {
            for aggregate in self.aggregates {
                let mut value = self.value_of(aggregate)?;
                if let Some(condition) = &case.condition {
                    self.put_condition(&mut value, condition);
                }
                items.push(self.item(aggregate, self.or_otherwise(value), &case.name));
            }
        }
        Ok(items)
    }

    /// What the columns are called after the values.
    ///
    /// # Errors
    /// As [`Pivot::items`].
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let cases = self.cases()?.into_iter();
        Ok(cases.map(|case| case.name).collect())
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let num_columns = self.num_cases().saturating_mul(self.aggregates.len());
        if num_columns > MAX_COLUMNS {
            return Err(too_many(num_columns));
        }
        let parts = self.aggregates.iter().map(|value| num_parts(&value.expr));
        let parts = parts.sum::<usize>().saturating_mul(self.num_cases());
        if parts > MAX_PARTS {
            return Err(too_large(parts));
        }
        let mut cases = vec![Case {
            condition: None,
            name: String::new(),
        }];
        for on in self.on {
            let mut with = Vec::with_capacity(cases.len() * on.values.len());
            for case in &cases {
                for value in &on.values {
                    with.push(case.with(on, value)?);
                }
            }
            cases = with;
        }
        Ok(cases)
    }

    /// The columns that aggregates and what is turned by are made of.
    pub(super) fn used(&self) -> Vec<Ident> {
        let aggregates = self.aggregates.iter().map(|aggregate| &aggregate.expr);
        names_in(aggregates.chain(self.on.iter().flat_map(|on| &on.columns)))
    }

    /// What is worked out, in words of the engine.
    ///
    /// # Errors
    /// `Query` for what is no aggregate.
    pub(super) fn value_of(&self, aggregate: &ExprWithAlias) -> Result<Expr> {
        let mut value = aggregate.expr.clone();
        synonyms::in_value(&mut value, self.state)?;
        if !is_of_several_rows(&value, self.state) && !self.calls_unknown(&value) {
            let text = format!("PIVOT works out aggregates, got {}", aggregate.expr);
            return Err(Error::new(ErrorKind::Query, text)
                .with_hint("PIVOT t ON k USING sum(x), or FROM t PIVOT (sum(x) FOR k IN (…))"));
        }
        Ok(value)
    }

    /// The value, or what stands for NULL.
    pub(super) fn or_otherwise(&self, value: Expr) -> Expr {
        match self.otherwise {
            Some(otherwise) => called("coalesce", [value, otherwise.clone()]),
            None => value,
        }
    }

    /// The column of a value.
    pub(super) fn item(&self, aggregate: &ExprWithAlias, expr: Expr, name: &str) -> SelectItem {
        let name = match &aggregate.alias {
            Some(alias) => format!("{name}_{}", folded(alias)),
            None if self.aggregates.len() > 1 => format!("{name}_{}", text_of(&aggregate.expr)),
            None => name.to_owned(),
        };
        let alias = Ident::with_quote('"', name);
        SelectItem::ExprWithAlias { expr, alias }
    }

    /// Lets only rows take part in the aggregates of a value that fulfil the condition.
    fn put_condition(&self, value: &mut Expr, condition: &Expr) {
        let visited: ControlFlow<()> = visit_expressions_mut(value, |part| {
            if let Expr::Function(call) = part
                && self.is_aggregate(call)
            {
                let both = match call.filter.take() {
                    Some(own) => and(Expr::Nested(own), condition.clone()),
                    None => condition.clone(),
                };
                call.filter = Some(Box::new(both));
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
    }

    /// Whether a function is called that there is not, of which the engine says more.
    fn calls_unknown(&self, value: &Expr) -> bool {
        let found = visit_expressions(value, |part| {
            let name = match part {
                Expr::Function(call) => call.name.0.last().and_then(|name| name.as_ident()),
                _ => None,
            };
            let is_unknown = name.map(folded).is_some_and(|name| {
                !self.state.scalar_functions().contains_key(&name)
                    && !self.state.window_functions().contains_key(&name)
            });
            match is_unknown {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        found.is_break()
    }

    pub(super) fn is_aggregate(&self, call: &Function) -> bool {
        let name = call.name.0.last().and_then(|name| name.as_ident());
        name.is_some_and(|name| {
            let name = folded(name);
            !self.state.scalar_functions().contains_key(&name)
                && self.state.aggregate_functions().contains_key(&name)
        })
    }
}

impl Case {
    /// The same with a value of another one that is turned by.
    fn with(&self, on: &On, value: &ExprWithAlias) -> Result<Self> {
        let parts = parts_of(on, &value.expr)?;
        let mut condition = self.condition.clone();
        for (column, part) in on.columns.iter().zip(parts) {
            let column = Box::new(Expr::Nested(Box::new(column.clone())));
            let is_it = Expr::IsNotDistinctFrom(column, Box::new(literal(part)));
            condition = Some(match condition {
                Some(others) => and(others, is_it),
                None => is_it,
            });
        }
        let own = match &value.alias {
            Some(alias) => folded(alias),
            None => {
                let names: Vec<String> = parts.iter().map(shown).collect();
                names.join("_")
            }
        };
        let name = match &self.condition {
            Some(_) => format!("{}_{own}", self.name),
            // A name needs a letter; DuckDB writes the text as SQL does.
            None if own.is_empty() => "''".to_owned(),
            None => own,
        };
        Ok(Self { condition, name })
    }
}

/// The values of the columns.
fn parts_of<'a>(on: &On, value: &'a Expr) -> Result<&'a [Expr]> {
    let parts = match value {
        Expr::Tuple(parts) if on.columns.len() > 1 => parts.as_slice(),
        Expr::Nested(only) => std::slice::from_ref(only.as_ref()),
        only => std::slice::from_ref(only),
    };
    if parts.len() != on.columns.len() {
        let text = format!(
            "a value of PIVOT must be for {} columns, got {value}",
            on.columns.len()
        );
        return Err(Error::new(ErrorKind::Query, text));
    }
    Ok(parts)
}

fn too_large(parts: usize) -> Error {
    let text = format!(
        "the aggregates of a PIVOT may have {MAX_PARTS} parts in all columns, here they would have {parts}"
    );
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint("work out what they are made of in a query below: PIVOT (SELECT …, a + b AS c FROM t) ON k USING sum(c)")
}

/// How many expressions stand within one.
fn num_parts(expr: &Expr) -> usize {
    let mut count = 0;
    let visited: ControlFlow<()> = visit_expressions(expr, |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    count
}

pub(super) fn too_many(num_columns: impl Display) -> Error {
    let text = format!("PIVOT may make {MAX_COLUMNS} columns, here it would make {num_columns}");
    Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
        "name the values that are wanted: ON k IN (1, 2), or group by the column instead",
    )
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    }
}

/// A word without quotes is a text, as in DuckDB.
pub(super) fn literal(value: &Expr) -> Expr {
    match value {
        Expr::Identifier(name) => Expr::value(Value::SingleQuotedString(name.value.clone())),
        other => Expr::Nested(Box::new(other.clone())),
    }
}

fn shown(value: &Expr) -> String {
    match value {
        Expr::Identifier(name) => name.value.clone(),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::TypedString(value) => match &value.value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// The columns that expressions name.
pub(super) fn names_in<'a>(parts: impl IntoIterator<Item = &'a Expr>) -> Vec<Ident> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    let mut named = |part: &Expr| {
        let name = match part {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(name) = name
            && known.insert(folded(name))
        {
            names.push(name.clone());
        }
        ControlFlow::<()>::Continue(())
    };
    for part in parts {
        let visited = visit_expressions(part, &mut named);
        debug_assert!(visited.is_continue());
    }
    names
}

/// A name in quotes: those of EXCLUDE are compared as they are written.
pub(super) fn quoted(name: &Ident) -> String {
    Ident::with_quote('"', folded(name)).to_string()
}

/// `EXCLUDE (a, b)`, if there is something to leave out.
pub(super) fn exclude(names: &[Ident]) -> String {
    let names: Vec<String> = names.iter().map(quoted).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" EXCLUDE ({})", names.join(", ")),
    }
}

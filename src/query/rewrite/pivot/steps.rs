//! PIVOT of many values in two steps: with a FILTER for each value, each row would be looked at once for each of them.
//!
//! Comes in: what is worked out, for which values, over which tables. Goes out: a SELECT whose rows are groups of the keys and of what is turned by, first; then all of one key become one row (`functions/cells.rs`):
//! `SELECT g, __cells['0_0'] AS a, … FROM (SELECT g, __cells(array_agg(named_struct('place', …, 'cell_0', __cell_0)), n) … FROM (SELECT g, k AS __on_0, sum(x) AS __cell_0 FROM t GROUP BY ALL) LEFT JOIN (VALUES ('a', 0), …) … GROUP BY ALL)`.
//! Nothing where there are few values, or where it is not known what an aggregate of no rows is. Never here: what the columns are called (`items.rs`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, Select, SelectItem, SetExpr, Value, visit_expressions,
    visit_expressions_mut,
};

use super::items::{On, Pivot, exclude, literal, names_in, quoted};
use super::table::{innermost, query_of};
use crate::error::Result;
use crate::query::functions::cells::{CELLS, name_of};
use crate::query::rewrite::called::called;
use crate::query::rewrite::synonyms::plain_arguments;
use crate::query::rewrite::using::folded;

/// So many values are told apart by conditions of their own, in groups of all columns that are not used: often there is a row for each value of each group, and two steps make as many groups as there are rows.
const MOST_FILTERED: usize = 20;

/// The same in groups of keys that are said, where a value of a group is mostly made of many rows.
const MOST_FILTERED_OF_KEYS: usize = 4;

/// Aggregates that are null where there are no rows.
const NULL_OF_NONE: [&str; 24] = [
    "any_value",
    "approx_median",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "first_value",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_samp",
];

/// Those that count.
const COUNTS: [&str; 2] = ["approx_distinct", "count"];

/// What the column of all cells is called.
fn cells() -> Expr {
    Expr::Identifier(Ident::new(CELLS))
}

/// The SELECT for a PIVOT of tables that another one has in its FROM, in groups of these keys, or of all columns that are not used.
///
/// # Errors
/// `Internal` when our own text cannot be read; as [`Pivot::items`].
pub(super) fn of(
    pivot: &Pivot<'_>,
    keys: Option<&[Expr]>,
    select: &Select,
) -> Result<Option<Select>> {
    let num_cases = pivot.num_cases();
    let most = match keys {
        Some(_) => MOST_FILTERED_OF_KEYS,
        None => MOST_FILTERED,
    };
    if num_cases <= most || !pivot.on.iter().all(is_plain) {
        return Ok(None);
    }
    let Some(calls) = calls_of(pivot)? else {
        return Ok(None);
    };
    let query = query_of(&text(pivot, keys, calls.len(), num_cases))?;
    let SetExpr::Select(mut stepped) = *query.body else {
        return Ok(None);
    };
    if let Some(inner) = innermost(&mut stepped) {
        if let Some(keys) = keys {
            let keys = keys.iter().cloned();
            inner.projection = keys.map(SelectItem::UnnamedExpr).collect();
        }
        let on = pivot.on.iter().flat_map(|on| &on.columns).enumerate();
        let on = on.map(|(place, column)| (column.clone(), format!("__on_{place}")));
        let values = calls.iter().enumerate();
        let values =
            values.map(|(place, call)| (Expr::Function(call.clone()), format!("__cell_{place}")));
        for (expr, name) in on.chain(values) {
            let alias = Ident::new(name);
            let item = SelectItem::ExprWithAlias { expr, alias };
            inner.projection.push(item);
        }
        inner.from.clone_from(&select.from);
    }
    let mut items = Vec::new();
    for (place, name) in pivot.names()?.into_iter().enumerate() {
        for aggregate in pivot.aggregates {
            let mut value = pivot.value_of(aggregate)?;
            put_cells(&mut value, &calls, place);
            let value = pivot.or_otherwise(value);
            items.push(pivot.item(aggregate, value, &name));
        }
    }
    stepped.projection.extend(items);
    Ok(Some(*stepped))
}

/// Whether the values are of one kind, none of them null, so that they can be looked up.
fn is_plain(on: &On) -> bool {
    let mut kinds = on.values.iter().map(|value| kind_of(&value.expr));
    let first = kinds.next().flatten();
    on.columns.len() == 1 && first.is_some() && kinds.all(|kind| kind == first)
}

/// Of what kind a value is that is written.
fn kind_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(_) => Some("text".to_owned()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(_) => Some("text".to_owned()),
            Value::Number(..) => Some("number".to_owned()),
            Value::Boolean(_) => Some("truth".to_owned()),
            _ => None,
        },
        Expr::TypedString(value) => Some(value.data_type.to_string()),
        Expr::Function(call) => typed(call),
        _ => None,
    }
}

/// The type of a value that rows said. Floats are numbers, of which not all are equal to themselves.
fn typed(call: &Function) -> Option<String> {
    let [value, kind] = plain_arguments(call).filter(|_| {
        let name = call.name.to_string();
        name == "arrow_cast"
    })?;
    let text = |value: &Expr| match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    text(&value)?;
    let kind = text(&kind)?;
    let is_equal = ["Date", "Decimal", "Int", "Time", "UInt"];
    let is_equal = is_equal.iter().any(|begin| kind.starts_with(begin));
    is_equal.then_some(kind)
}

/// The aggregates within all values, if it is known of each what it is of no rows, and nothing else is named beside them.
fn calls_of(pivot: &Pivot<'_>) -> Result<Option<Vec<Function>>> {
    let mut calls: Vec<Function> = Vec::new();
    for aggregate in pivot.aggregates {
        let mut value = pivot.value_of(aggregate)?;
        let mut is_known = true;
        let visited: ControlFlow<()> = visit_expressions(&value, |part| {
            if let Expr::Function(call) = part
                && pivot.is_aggregate(call)
            {
                is_known &= is_counted(call).is_some();
                if !calls.contains(call) {
                    calls.push(call.clone());
                }
            }
            is_known &= !matches!(part, Expr::Subquery(_) | Expr::Exists { .. });
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
        put_cells(&mut value, &calls, 0);
        let mut names = names_in([&value]).into_iter();
        if !is_known || names.any(|name| name.value != CELLS) {
            return Ok(None);
        }
    }
    Ok(Some(calls))
}

/// Whether it counts; nothing where it is not known what it is of no rows.
fn is_counted(call: &Function) -> Option<bool> {
    let name = folded(call.name.0.last()?.as_ident()?);
    let name = name.as_str();
    if call.over.is_some() {
        return None;
    }
    match () {
        () if COUNTS.contains(&name) => Some(true),
        () if NULL_OF_NONE.contains(&name) => Some(false),
        () => None,
    }
}

/// Puts the fields of a place where the aggregates are.
fn put_cells(value: &mut Expr, calls: &[Function], place: usize) {
    let visited: ControlFlow<()> = visit_expressions_mut(value, |part| {
        let found = match part {
            Expr::Function(call) => calls.iter().position(|known| known == call),
            _ => None,
        };
        if let (Some(number), Expr::Function(call)) = (found, &*part) {
            let is_counted = is_counted(call) == Some(true);
            let name = Expr::value(Value::SingleQuotedString(name_of(place, number)));
            let cell = called("get_field", [cells(), name]);
            *part = match is_counted {
                true => {
                    let zero = Expr::value(Value::Number("0".to_owned(), false));
                    called("coalesce", [cell, zero])
                }
                false => cell,
            };
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// The queries in one another, the innermost without its items if its keys are said.
fn text(pivot: &Pivot<'_>, keys: Option<&[Expr]>, num_calls: usize, num_cases: usize) -> String {
    let numbered = |prefix: &str, count: usize| {
        let names = (0..count).map(|place| format!("__{prefix}_{place}"));
        names.collect::<Vec<String>>()
    };
    let values = numbered("cell", num_calls);
    let own = [
        numbered("on", pivot.on.len()),
        numbered("value", pivot.on.len()),
        numbered("place", pivot.on.len()),
        values.clone(),
    ];
    let own = own.concat().join(", ");
    let names: Option<Vec<String>> = keys.map(|keys| keys.iter().filter_map(last_name).collect());
    let (mut tables, mut place, mut stride) = (String::new(), String::from("0"), num_cases);
    for (number, on) in pivot.on.iter().enumerate() {
        let rows = on.values.iter().enumerate();
        let rows = rows.map(|(place, value)| format!("({}, {place})", literal(&value.expr)));
        let rows: Vec<String> = rows.collect();
        tables.push_str(&format!(
            " LEFT JOIN (VALUES {}) AS __places_{number}(__value_{number}, __place_{number}) ON __on_{number} = __value_{number}",
            rows.join(", ")
        ));
        stride /= on.values.len().max(1);
        place.push_str(&format!(" + __place_{number} * {stride}"));
    }
    let fields = values.iter().map(|name| format!(", '{name}', {name}"));
    let fields: String = fields.collect();
    let gathered = format!(
        "{CELLS}(array_agg(named_struct('place', CAST({place} AS BIGINT){fields})), {num_cases}) AS {CELLS}"
    );
    let (outer, middle, inner) = match &names {
        Some(names) => {
            let of_rows = names.iter().map(|name| format!("__rows.{name}"));
            let of_rows: Vec<String> = of_rows.collect();
            (names.join(", "), of_rows.join(", "), "1".to_owned())
        }
        None => (
            format!("* EXCLUDE ({CELLS})"),
            format!("* EXCLUDE ({own})"),
            format!("*{}", exclude(&pivot.used())),
        ),
    };
    format!(
        "(SELECT {outer} FROM (SELECT {middle}, {gathered} FROM (SELECT {inner} FROM t GROUP BY ALL) AS __rows{tables} GROUP BY ALL) AS __turned)"
    )
}

/// What a key is called.
fn last_name(key: &Expr) -> Option<String> {
    match key {
        Expr::Identifier(name) => Some(quoted(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(quoted),
        _ => None,
    }
}

//! Casts between instants, what clocks show, and texts: the engine's take the clocks of UTC in place of those of the zone, and put a T between day and time.
//!
//! Comes in: an expression, before its types are settled and after. Goes out: the same, in which a date beside an instant begins when clocks in its zone show midnight, an instant as a timestamp without a zone is what they show,
//! the time of day of a timestamp is in no order that the engine could rely on, the text of a timestamp has a blank between day and time, and a text without a zone is what clocks in that of the instant show. Never here: AT TIME ZONE (`functions/timezone.rs`), days after an instant (`days.rs`).

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::functions::string::expr_fn::replace;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, Operator, cast, lit, try_cast};

use super::days::by_the_calendar;
use super::moments::as_read;
use crate::query::functions::timezone::in_zone;
use crate::query::plan::types::compares;
use crate::query::plan::types::decimals::{of_one_kind, with_room_for_long, with_room_for_numbers};

/// Functions that give one of their arguments, compare them, or make a list of them.
const OF_SEVERAL: [&str; 7] = [
    "coalesce",
    "nvl",
    "ifnull",
    "nullif",
    "greatest",
    "least",
    "make_array",
];

/// Shows an instant in the zone of another one: the engine knows no difference between two zones.
pub(in crate::query) fn in_zone_of(side: &mut Expr, other: &Expr, schema: &DFSchema) {
    let kind = |side: &Expr| side.get_type(schema).ok();
    if let (Some(DataType::Timestamp(unit, Some(own))), Some(DataType::Timestamp(_, Some(zone)))) =
        (kind(side), kind(other))
        && own != zone
    {
        *side = cast(side.clone(), DataType::Timestamp(unit, Some(zone)));
    }
}

/// Makes instants of dates beside them, before the engine makes both what clocks show, of which statistics say nothing; and decimals and floats beside each other alike.
pub(in crate::query) fn midnights(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_changed = match &mut expression {
        Expr::BinaryExpr(pair) if compares(pair.op) => {
            alike(&mut pair.left, &mut pair.right, schema)
        }
        Expr::BinaryExpr(pair) if pair.op.is_numerical_operators() => {
            let between = pair.op == Operator::Minus
                && (shown_as_instant(&mut pair.left, &pair.right, schema)
                    || shown_as_instant(&mut pair.right, &pair.left, schema));
            let mut parts = [&mut *pair.left, &mut *pair.right];
            with_room_for_numbers(&mut parts, schema)
                || pair.op == Operator::Minus && as_instants(parts.into(), schema)
                || between
        }
        Expr::Between(range) => {
            let parts = vec![&mut *range.expr, &mut *range.low, &mut *range.high];
            compared(parts, schema)
        }
        Expr::InList(list) => match values_of_row(&mut list.expr).is_some() {
            true => {
                let mut is_changed = false;
                for value in &mut list.list {
                    is_changed |= alike(&mut list.expr, value, schema);
                }
                is_changed
            }
            false => {
                let parts = list.list.iter_mut().chain([&mut *list.expr]);
                compared(parts.collect(), schema)
            }
        },
        Expr::Case(case) => {
            let (compared, given): (Vec<_>, Vec<_>) = case
                .when_then_expr
                .iter_mut()
                .map(|(when, then)| (when.as_mut(), then.as_mut()))
                .unzip();
            let given = given.into_iter().chain(case.else_expr.as_deref_mut());
            let is_given = settled(given.collect(), schema);
            let compared = compared.into_iter().chain(case.expr.as_deref_mut());
            settled(compared.collect(), schema) || is_given
        }
        Expr::ScalarFunction(call) if OF_SEVERAL.contains(&call.func.name()) => {
            settled(call.args.iter_mut().collect(), schema)
        }
        _ => false,
    };
    Transformed::new_transformed(expression, is_changed)
}

/// The same of two values, or of two rows one by one.
fn alike(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> bool {
    match (values_of_row(left), values_of_row(right)) {
        (Some(left), Some(right)) if left.len() == right.len() => {
            let mut is_changed = false;
            for (left, right) in left.iter_mut().zip(right) {
                is_changed |= alike(left, right, schema);
            }
            is_changed
        }
        _ => compared(vec![left, right], schema),
    }
}

/// The values of a row that is written: `(a, b)`.
fn values_of_row(row: &mut Expr) -> Option<&mut [Expr]> {
    match row {
        Expr::ScalarFunction(call) if call.func.name() == "struct" => Some(&mut call.args),
        _ => None,
    }
}

/// Makes an instant of a timestamp without a zone beside one: the difference would be that of what clocks in UTC show.
fn shown_as_instant(value: &mut Expr, beside: &Expr, schema: &DFSchema) -> bool {
    match (value.get_type(schema), beside.get_type(schema)) {
        (Ok(DataType::Timestamp(unit, None)), Ok(DataType::Timestamp(_, Some(zone)))) => {
            *value = cast(std::mem::take(value), DataType::Timestamp(unit, Some(zone)));
            true
        }
        _ => false,
    }
}

/// The same of values that are compared.
fn compared(mut parts: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    with_room_for_long(&mut parts, schema) || settled(parts, schema)
}

/// Gives values one type that the engine would give another; says whether there are such.
fn settled(mut parts: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    of_one_kind(&mut parts, schema) || as_instants(parts, schema)
}

/// Gives the dates among some values the type of the first instant among them; says whether there are such.
fn as_instants(parts: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let of = |part: &Expr| part.get_type(schema).ok();
    let mut known = parts.iter().filter_map(|part| of(part));
    let Some(instant) = known.find(is_instant) else {
        return false;
    };
    let dates = parts
        .into_iter()
        .filter(|part| matches!(of(part), Some(DataType::Date32 | DataType::Date64)));
    let mut is_changed = false;
    for date in dates {
        *date = cast(std::mem::take(date), instant.clone());
        is_changed = true;
    }
    is_changed
}

pub(in crate::query) fn is_instant(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(_, Some(_)))
}

/// The text of `to_timestamp` as the engine reads it.
fn read_by_function(mut call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let is_read = match call.args.as_mut_slice() {
        [text]
            if call.func.name().starts_with("to_timestamp")
                && text.get_type(schema).is_ok_and(|found| found.is_string()) =>
        {
            *text = as_read(std::mem::take(text), true);
            true
        }
        _ => false,
    };
    Transformed::new_transformed(Expr::ScalarFunction(call), is_read)
}

/// The type of what is cast. The texts of a dictionary become plain ones where they are to be moments: the engine casts them as they stand.
fn type_of(value: &mut Expr, target: &DataType, schema: &DFSchema) -> Result<DataType> {
    Ok(match value.get_type(schema)? {
        DataType::Dictionary(_, texts) if texts.is_string() && is_moment(target) => {
            *value = cast(std::mem::take(value), (*texts).clone());
            *texts
        }
        given => given,
    })
}

/// Rewrites one cast, or a sum of an instant and an interval.
pub(super) fn by_clocks(mut expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::BinaryExpr(pair) = expression {
        return by_the_calendar(pair, schema);
    }
    if let Expr::ScalarFunction(call) = expression {
        return Ok(read_by_function(call, schema));
    }
    let is_try = matches!(expression, Expr::TryCast(_));
    let (value, target) = match &mut expression {
        Expr::Cast(cast) => (&mut cast.expr, cast.field.data_type().clone()),
        Expr::TryCast(cast) => (&mut cast.expr, cast.field.data_type().clone()),
        _ => return Ok(Transformed::no(expression)),
    };
    let given = type_of(value, &target, schema)?;
    match (given, &target) {
        (DataType::Timestamp(_, Some(zone)), DataType::Timestamp(_, None)) if !is_utc(&zone) => {
            let instant = std::mem::take(value.as_mut());
            **value = to_local_time(vec![instant]);
        }
        // The engine compares what is cast with another value by the clocks of UTC, and refuses what clocks show twice or leave out.
        (
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None),
            DataType::Timestamp(unit, Some(zone)),
        ) if !is_utc(zone) => {
            let shown = DataType::Timestamp(*unit, None);
            let value = std::mem::take(value.as_mut());
            let shown = match is_try {
                true => try_cast(value, shown),
                false => cast(value, shown),
            };
            expression = in_zone(zone, shown);
        }
        (
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
            DataType::Timestamp(unit, Some(zone)),
        ) if !is_fixed(zone) => {
            let text = as_read(std::mem::take(value.as_mut()), true);
            expression = instant_of(text, *unit, zone, is_try);
        }
        (
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
            DataType::Timestamp(_, Some(_)),
        ) => {
            **value = as_read(std::mem::take(value.as_mut()), true);
        }
        (
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None),
        ) => {
            **value = as_read(std::mem::take(value.as_mut()), false);
        }
        // Two days have the same times: what the engine takes for the order of both is none.
        (DataType::Timestamp(..), DataType::Time32(_) | DataType::Time64(_)) => {
            let moment = std::mem::take(value.as_mut());
            **value = to_local_time(vec![moment]);
        }
        (DataType::Timestamp(..), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            expression = with_blank(expression, &target, schema)?
        }
        _ => return Ok(Transformed::no(expression)),
    }
    Ok(Transformed::yes(expression))
}

fn is_moment(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
    )
}

/// The instant that a text says, by the clocks of its zone: that of the text, or without one that of the type. The engine refuses what the latter show twice or leave out.
fn instant_of(text: Expr, unit: TimeUnit, zone: &Arc<str>, is_try: bool) -> Expr {
    let in_zone_of = |text: Expr, zone: &str| {
        let kind = DataType::Timestamp(unit, Some(zone.into()));
        match is_try {
            true => try_cast(text, kind),
            false => cast(text, kind),
        }
    };
    let utc = DataType::Timestamp(unit, Some("+00:00".into()));
    let read = in_zone_of(text.clone(), "+00:00");
    // What has a zone of its own is the same instant wherever it is read.
    let elsewhere = cast(in_zone_of(text, "+01:00"), utc);
    let has_zone = read.clone().eq(elsewhere);
    let instant = cast(
        read.clone(),
        DataType::Timestamp(unit, Some(Arc::clone(zone))),
    );
    let shown = in_zone(zone, cast(read, DataType::Timestamp(unit, None)));
    Expr::Case(Case::new(
        None,
        vec![(Box::new(has_zone), Box::new(instant))],
        Some(Box::new(shown)),
    ))
}

/// Whether the clocks of a zone never change.
pub(super) fn is_fixed(zone: &str) -> bool {
    is_utc(zone) || zone.starts_with(['+', '-'])
}

/// Whether the engine's casts are right.
fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Etc/UTC" | "Z" | "+00:00")
}

/// A blank in place of the only T in the text of a timestamp.
fn with_blank(text: Expr, data_type: &DataType, schema: &DFSchema) -> Result<Expr> {
    let part = |part: &str| ScalarValue::from(part).cast_to(data_type).map(lit);
    let text = replace(text, part("T")?, part(" ")?);
    Ok(match text.get_type(schema)? == *data_type {
        true => text,
        false => cast(text, data_type.clone()),
    })
}

//! Casts between instants, what clocks show, and texts: the engine's take the clocks of UTC in place of those of the zone, and put a T between day and time.
//!
//! Comes in: an expression whose types are settled. Goes out: the same, in which an instant as a timestamp without a zone is what clocks in its zone show, a date beside an instant begins when they show midnight, and the text of a
//! timestamp has a blank between day and time. Never here: AT TIME ZONE (`timezone.rs`), texts that become times.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::functions::string::expr_fn::replace;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit, try_cast};

/// Rewrites one cast.
pub(super) fn by_clocks(mut expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_try = matches!(expression, Expr::TryCast(_));
    let (value, target) = match &mut expression {
        Expr::Cast(cast) => (&mut cast.expr, cast.field.data_type().clone()),
        Expr::TryCast(cast) => (&mut cast.expr, cast.field.data_type().clone()),
        _ => return Ok(Transformed::no(expression)),
    };
    match (value.get_type(schema)?, &target) {
        (DataType::Timestamp(_, Some(zone)), DataType::Timestamp(_, None)) if !is_utc(&zone) => {
            let instant = std::mem::take(value.as_mut());
            **value = to_local_time(vec![instant]);
        }
        (DataType::Date32 | DataType::Date64, DataType::Timestamp(unit, Some(zone)))
            if !is_utc(zone) =>
        {
            let shown = DataType::Timestamp(*unit, None);
            let date = std::mem::take(value.as_mut());
            **value = match is_try {
                true => try_cast(date, shown),
                false => cast(date, shown),
            };
        }
        (DataType::Timestamp(..), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            expression = with_blank(expression, &target, schema)?
        }
        _ => return Ok(Transformed::no(expression)),
    }
    Ok(Transformed::yes(expression))
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

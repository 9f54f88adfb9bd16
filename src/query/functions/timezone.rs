//! `timezone('Europe/Berlin', x)`, which `x AT TIME ZONE 'Europe/Berlin'` is another form of: the engine has neither the function nor what it means for instants.
//!
//! Comes in: an instant, or a time without a zone. Goes out: of an instant the time that clocks in the zone show, without a zone; of a time without a zone the instant at which clocks in the zone show it. Never here: casts, which
//! go by the zone of a column (`plan/meaning/clocks.rs`).

use std::sync::{Arc, LazyLock};

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::temporal_conversions::as_datetime;
use chrono::offset::LocalResult;
use chrono::{Days, NaiveDateTime, Offset, TimeZone};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::datetime::to_local_time;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast;

use crate::error::{Error, ErrorKind};
use crate::query::rewrite::called::called;

const NAME: &str = "timezone";

/// Gives SQL the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(InZone::new()));
}

/// `x AT TIME ZONE zone` as `timezone(zone, x)`.
pub(in crate::query) fn as_call(expr: &mut ast::Expr) {
    if let ast::Expr::AtTimeZone {
        timestamp,
        time_zone,
    } = expr
    {
        let nothing = || ast::Expr::value(ast::Value::Null);
        let zone = std::mem::replace(time_zone.as_mut(), nothing());
        let value = std::mem::replace(timestamp.as_mut(), nothing());
        *expr = called(NAME, [zone, value]);
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_DATETIME,
        "Turns an instant into what clocks in a zone show, and what they show into an instant.",
        "timezone(zone, time)",
    )
    .with_argument("zone", "The zone: a text, such as 'Europe/Berlin'.")
    .with_argument(
        "time",
        "An instant (a timestamp with a zone), or a timestamp or date without one.",
    )
    .with_sql_example(
        "SELECT timezone('Europe/Berlin', TIMESTAMPTZ '2013-07-01 12:00:00Z') -- 2013-07-01 14:00:00",
    )
    .build()
});

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InZone {
    signature: Signature,
}

impl InZone {
    fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for InZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(refused())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [first, value] = arguments.arg_fields else {
            return Err(refused());
        };
        if is_time(first.data_type()) {
            return Err(turned(first.data_type()));
        }
        let Some(Some(zone)) = arguments.scalar_arguments.first() else {
            return Err(refused());
        };
        let result = given(zone, value.data_type())?;
        let is_nullable = zone.is_null() || value.is_nullable();
        Ok(Arc::new(Field::new(NAME, result, is_nullable)))
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(value), Some(ColumnarValue::Scalar(zone))) =
            (arguments.args.pop(), arguments.args.pop())
        else {
            return Err(refused());
        };
        let result = given(&zone, &value.data_type())?;
        let Some(zone) = zone_of(&zone)? else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_new_null(&result)?));
        };
        match value.data_type() {
            DataType::Timestamp(unit, Some(_)) => {
                let there = value.cast_to(&DataType::Timestamp(unit, Some(zone)), None)?;
                arguments.arg_fields = vec![Arc::new(Field::new("", there.data_type(), true))];
                arguments.args = vec![there];
                to_local_time().invoke_with_args(arguments)
            }
            // A day begins when clocks show midnight.
            DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 => {
                let DataType::Timestamp(unit, _) = result else {
                    return Err(refused());
                };
                let shown = value.cast_to(&DataType::Timestamp(unit, None), None)?;
                let is_one = matches!(shown, ColumnarValue::Scalar(_));
                let shown = shown.into_array(if is_one { 1 } else { arguments.number_rows })?;
                let instants = at(&shown, unit, &zone)?;
                Ok(match is_one {
                    true => ColumnarValue::Scalar(ScalarValue::try_from_array(&instants, 0)?),
                    false => ColumnarValue::Array(instants),
                })
            }
            _ => value.cast_to(&result, None),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }
}

/// The call of the function: the instant at which clocks in a zone show a timestamp.
pub(in crate::query) fn in_zone(zone: &str, shown: Expr) -> Expr {
    let function = Arc::new(ScalarUDF::from(InZone::new()));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![lit(zone), shown]))
}

/// The instants at which clocks in a zone show timestamps.
fn at(shown: &ArrayRef, unit: TimeUnit, zone: &Arc<str>) -> Result<ArrayRef> {
    match unit {
        TimeUnit::Second => at_unit::<TimestampSecondType>(shown, zone, 1),
        TimeUnit::Millisecond => at_unit::<TimestampMillisecondType>(shown, zone, 1_000),
        TimeUnit::Microsecond => at_unit::<TimestampMicrosecondType>(shown, zone, 1_000_000),
        TimeUnit::Nanosecond => at_unit::<TimestampNanosecondType>(shown, zone, 1_000_000_000),
    }
}

fn at_unit<T: ArrowTimestampType>(
    shown: &ArrayRef,
    zone: &Arc<str>,
    per_second: i64,
) -> Result<ArrayRef> {
    let clocks: Tz = zone.parse()?;
    let instants: PrimitiveArray<T> = shown.as_primitive::<T>().try_unary(|value| {
        as_datetime::<T>(value)
            .and_then(|shown| seconds_ahead(&clocks, shown))
            .and_then(|seconds| value.checked_sub(seconds * per_second))
            .ok_or_else(|| {
                let text = "a timestamp that is beyond the calendar or its unit";
                DataFusionError::from(Error::new(ErrorKind::Query, text))
            })
    })?;
    Ok(Arc::new(instants.with_timezone(Arc::clone(zone))))
}

/// How far clocks are ahead of UTC when they show a time: where they show it twice, the second time; where they leave it out, as before.
pub(in crate::query) fn seconds_ahead(clocks: &Tz, shown: NaiveDateTime) -> Option<i64> {
    let offset = match clocks.offset_from_local_datetime(&shown) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(_, offset) => offset,
        LocalResult::None => {
            let before = shown.checked_sub_days(Days::new(1))?;
            clocks.offset_from_local_datetime(&before).latest()?
        }
    };
    Some(i64::from(offset.fix().local_minus_utc()))
}

/// The zone of a literal, if it is not NULL.
fn zone_of(zone: &ScalarValue) -> Result<Option<Arc<str>>> {
    match zone.try_as_str() {
        Some(zone) => Ok(zone.map(Arc::from)),
        None if zone.is_null() => Ok(None),
        None => Err(refused()),
    }
}

/// What the function gives of a value of a type.
fn given(zone: &ScalarValue, data_type: &DataType) -> Result<DataType> {
    let zone = zone_of(zone)?;
    if let Some(zone) = &zone {
        zone.parse::<Tz>()?;
    }
    match data_type {
        DataType::Timestamp(unit, Some(_)) => Ok(DataType::Timestamp(*unit, None)),
        DataType::Timestamp(unit, None) => Ok(DataType::Timestamp(*unit, zone)),
        DataType::Date32 | DataType::Date64 => Ok(DataType::Timestamp(TimeUnit::Microsecond, zone)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
            Ok(DataType::Timestamp(TimeUnit::Nanosecond, zone))
        }
        other => {
            let text = format!("AT TIME ZONE of {other}, which is no time");
            let hint = "it takes timestamps, dates and texts of these";
            Err(Error::new(ErrorKind::Query, text).with_hint(hint).into())
        }
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}

fn turned(data_type: &DataType) -> DataFusionError {
    let text = format!("timezone() takes the zone first, got {data_type}");
    let hint = "write timezone('Europe/Berlin', x), or x AT TIME ZONE 'Europe/Berlin'";
    let error = Error::new(ErrorKind::Query, text);
    error.with_hint(hint).into()
}

fn refused() -> DataFusionError {
    let text = "a time zone that is not written as a text is not supported";
    let hint = "write x AT TIME ZONE 'Europe/Berlin'";
    Error::unsupported(text).with_hint(hint).into()
}

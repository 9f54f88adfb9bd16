//! Parts of points in time where the engine is mistaken: years that are compared (`year(t) > 1000`, `extract(year FROM t) = 2013`), and parts of a second before 1970.
//!
//! Comes in: `date_part` and `date_trunc` of the engine. The one says between which points in time a year lies, so that a comparison of years becomes one of these; the other cuts off parts of a second towards 1970. Goes out: the same
//! functions, of which the one says nothing of years that begin or end where the type has no points, as that of nanoseconds has none before 1677 and after 2262, where the engine compares with null; and the other never gives a later time. Never here:
//! parts that the engine does not have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::binary;
use arrow::datatypes::{
    ArrowTimestampType, DataType, FieldRef, TimeUnit, TimestampMicrosecondType,
    TimestampNanosecondType,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::datetime::{date_part, date_trunc};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;

use super::passed_on::scalar_as_inner;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Parts { inner: date_part() }));
    context.register_udf(ScalarUDF::from(Cut {
        inner: date_trunc(),
    }));
}

/// Reads EXTRACT as a call of the function.
#[derive(Debug)]
pub(in crate::query) struct Extracts;

impl ExprPlanner for Extracts {
    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let function = ScalarUDF::from(Parts { inner: date_part() });
        Ok(PlannerResult::Planned(function.call(arguments)))
    }
}

/// `date_part`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Parts {
    scalar_as_inner!();

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }

    fn preimage(
        &self,
        arguments: &[Expr],
        year: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        let found = self.inner.preimage(arguments, year, info)?;
        Ok(match &found {
            PreimageResult::Range { interval, .. }
                if interval.lower().is_null() || interval.upper().is_null() =>
            {
                PreimageResult::None
            }
            _ => found,
        })
    }
}

/// `date_trunc`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Cut {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Cut {
    scalar_as_inner!();

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (args, num_rows) = (call.args.clone(), call.number_rows);
        let cut = self.inner.invoke_with_args(call)?;
        let [ColumnarValue::Scalar(part), moments] = args.as_slice() else {
            return Ok(cut);
        };
        let part = part.try_as_str().flatten().unwrap_or_default();
        let nanoseconds = match part.to_lowercase().as_str() {
            "millisecond" | "milliseconds" => 1_000_000,
            "microsecond" | "microseconds" => 1_000,
            _ => return Ok(cut),
        };
        let unit = match moments.data_type() {
            DataType::Timestamp(unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond), _) => unit,
            _ => return Ok(cut),
        };
        let is_one = matches!(cut, ColumnarValue::Scalar(_));
        let num_rows = if is_one { 1 } else { num_rows };
        let (moments, cut) = (moments.to_array(num_rows)?, cut.into_array(num_rows)?);
        let put_right = match unit {
            TimeUnit::Microsecond => {
                not_later::<TimestampMicrosecondType>(&moments, &cut, nanoseconds / 1_000)?
            }
            _ => not_later::<TimestampNanosecondType>(&moments, &cut, nanoseconds)?,
        };
        Ok(match is_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&put_right, 0)?),
            false => ColumnarValue::Array(put_right),
        })
    }
}

/// What was cut off, one part earlier where it is later than before.
fn not_later<T: ArrowTimestampType>(
    moments: &ArrayRef,
    cut: &ArrayRef,
    part: i64,
) -> Result<ArrayRef> {
    let kind = cut.data_type().clone();
    let (moments, cut) = (moments.as_primitive::<T>(), cut.as_primitive::<T>());
    let earlier = |moment: i64, cut: i64| match cut > moment {
        true => cut.wrapping_sub(part),
        false => cut,
    };
    let put_right: PrimitiveArray<T> = binary(moments, cut, earlier)?;
    Ok(Arc::new(put_right.with_data_type(kind)))
}

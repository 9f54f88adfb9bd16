//! `bit_not(number)`, as `~number`: all bits the other way round.
//!
//! Comes in: whole numbers. Goes out: numbers of the same type. Never here: the operator, which `rewrite/operators.rs` writes as a call.

use std::ops::Not;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray, downcast_integer_array};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_MATH;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

/// The function that `~` is.
pub(in crate::query) const BIT_NOT: &str = "bit_not";

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(BitNot {
        signature: Signature::user_defined(Volatility::Immutable),
    }));
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_MATH,
        "A whole number with all bits the other way round, as `~number`.",
        "bit_not(number)",
    )
    .with_argument("number", "A whole number.")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct BitNot {
    signature: Signature,
}

impl ScalarUDFImpl for BitNot {
    fn name(&self) -> &'static str {
        BIT_NOT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn coerce_types(&self, types: &[DataType]) -> datafusion::error::Result<Vec<DataType>> {
        match types {
            [DataType::Null] => Ok(vec![DataType::Int64]),
            [kind] if kind.is_integer() => Ok(vec![kind.clone()]),
            other => datafusion::common::plan_err!("~ takes a whole number, got {other:?}"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Int64))
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> datafusion::error::Result<ColumnarValue> {
        let [numbers] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("the bits of several numbers");
        };
        Ok(match numbers {
            ColumnarValue::Array(numbers) => ColumnarValue::Array(turned(numbers)?),
            ColumnarValue::Scalar(number) => {
                let turned = turned(&number.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&turned, 0)?)
            }
        })
    }
}

fn turned(numbers: &ArrayRef) -> datafusion::error::Result<ArrayRef> {
    downcast_integer_array!(
        numbers => Ok(of_bits(numbers)),
        other => datafusion::common::internal_err!("the bits of {other}")
    )
}

fn of_bits<T: ArrowPrimitiveType>(numbers: &PrimitiveArray<T>) -> ArrayRef
where
    T::Native: Not<Output = T::Native>,
{
    Arc::new(numbers.unary::<_, T>(|number| !number))
}

//! Quotients of whole numbers of which one has no sign and 64 bits: no type of whole numbers has room for both, and the engine gives decimals with digits behind the point.
//!
//! Comes in: a division that the SQL planner meets. Goes out: the same of numbers without a sign, where the other one is written, or a decimal without digits behind the point. Never here: other operations, whose values are whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::try_binary;
use arrow::datatypes::{DataType, Decimal128Type};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, binary_expr, cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// As many digits as a whole number of 64 bits without a sign may have.
const WHOLE: DataType = DataType::Decimal128(20, 0);

/// The whole quotient, where one of both is of this type and the other has a sign. Parameters have the types of their values.
pub(super) fn quotient(
    expr: &RawBinaryExpr,
    schema: &DFSchema,
    values: &BTreeMap<String, DataType>,
) -> Option<Expr> {
    if expr.op != BinaryOperator::Divide {
        return None;
    }
    let kind = |side: &Expr| match side {
        Expr::Placeholder(parameter) => values.get(&parameter.id).cloned(),
        other => other.get_type(schema).ok(),
    };
    let (left, right) = (&expr.left, &expr.right);
    let with_sign = match (kind(left)?, kind(right)?) {
        (DataType::UInt64, other) if other.is_signed_integer() => right,
        (other, DataType::UInt64) if other.is_signed_integer() => left,
        _ => return None,
    };
    if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = with_sign
        && let Ok(number) = u64::try_from(*number)
    {
        let put = |side: &Expr| match std::ptr::eq(side, with_sign) {
            true => lit(number),
            false => side.clone(),
        };
        return Some(binary_expr(put(left), Operator::Divide, put(right)));
    }
    let sides = [left, right].map(|side| cast(side.clone(), WHOLE));
    Some(ScalarUDF::from(Quotient::new()).call(sides.to_vec()))
}

/// The function of whole decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Quotient {
    signature: Signature,
}

impl Quotient {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::exact(vec![WHOLE; 2], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &'static str {
        "whole_quotient"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(WHOLE)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [left, right] = arrays.as_slice() else {
            return datafusion::common::internal_err!("the quotient of {} values", arrays.len());
        };
        let divide =
            |left: i128, right: i128| left.checked_div(right).ok_or(ArrowError::DivideByZero);
        let quotients: Decimal128Array = try_binary(
            left.as_primitive::<Decimal128Type>(),
            right.as_primitive::<Decimal128Type>(),
            divide,
        )?;
        let quotients: ArrayRef = Arc::new(quotients.with_data_type(WHOLE));
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?),
            false => ColumnarValue::Array(quotients),
        })
    }
}

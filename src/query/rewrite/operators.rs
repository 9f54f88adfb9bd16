//! Operators that the engine does not know: `a // b` is `a / b`, `~a` and `a ** b` are functions.
//!
//! Comes in: an expression of a parsed statement; whole numbers. Goes out: the expression in words of the engine; numbers with all bits the other way round, of the same type. Never here: operators that the engine knows.

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
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::called::called;
use super::dialect::POWER;

/// The function that `~` is.
const BIT_NOT: &str = "bit_not";

/// Adds the function.
pub(in crate::query) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(BitNot {
        signature: Signature::user_defined(Volatility::Immutable),
    }));
}

/// `-a ** b` is `(-a) ** b`, as in DuckDB; the parser has it the other way round.
pub(super) fn regroup(expr: &mut Expr) {
    let Expr::UnaryOp {
        op: op @ (UnaryOperator::Minus | UnaryOperator::Plus),
        expr: powers,
    } = expr
    else {
        return;
    };
    if !is_power(powers) {
        return;
    }
    let (op, mut powers) = (*op, std::mem::replace(powers.as_mut(), nothing()));
    let mut first = &mut powers;
    while let Expr::BinaryOp { left, .. } = first {
        first = left.as_mut();
        if !is_power(first) {
            break;
        }
    }
    let signed = Box::new(std::mem::replace(first, nothing()));
    *first = Expr::UnaryOp { op, expr: signed };
    *expr = powers;
}

fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::Custom(name), .. } if name == POWER)
}

fn nothing() -> Expr {
    Expr::value(Value::Null)
}

/// Puts the other operator in its place.
pub(super) fn in_words(expr: &mut Expr) {
    if is_power(expr)
        && let Expr::BinaryOp { left, right, .. } = expr
    {
        let sides = [left, right].map(|side| std::mem::replace(side.as_mut(), nothing()));
        *expr = called("power", sides);
        return;
    }
    match expr {
        Expr::BinaryOp { op, .. } if *op == BinaryOperator::DuckIntegerDivide => {
            *op = BinaryOperator::Divide;
        }
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: bits,
        } => {
            let bits = std::mem::replace(bits.as_mut(), nothing());
            *expr = called(BIT_NOT, [bits]);
        }
        _ => {}
    }
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

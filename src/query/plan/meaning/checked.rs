//! Sums, differences and products of whole numbers that have no room in their type are errors.
//!
//! Comes in: an expression of a logical plan whose types are settled, or of a physical one. Goes out: the same with arithmetic that looks for overflow, where the engine's wraps around. Never
//! here: decimals and times, which the engine looks over itself; sums of columns (`functions/sums/`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, expressions};
use datafusion::physical_expr_common::datum::apply;

/// sum(x + 2), of which the engine makes sum(x) + 2 * count(x), if there are several. It is checked with what the engine writes ([`checked_late`]).
pub(super) fn is_checked_late(expression: &Expr) -> bool {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expression else {
        return false;
    };
    let [Expr::BinaryExpr(BinaryExpr { left, op, right })] = params.args.as_slice() else {
        return false;
    };
    let is_literal = |part: &Expr| matches!(part, Expr::Literal(..));
    let is_simple = |part: &Expr| match part {
        Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
        other => is_literal(other) || matches!(other, Expr::Column(_)),
    };
    func.name() == "sum"
        && *op == Operator::Plus
        // Conditions of a FILTER are never checked late.
        && params.filter.is_none()
        && !params.distinct
        && params.order_by.is_empty()
        && is_simple(left)
        && is_simple(right)
        && (is_literal(left) || is_literal(right))
}

/// An expression whose operation looks for overflow.
pub(super) fn checked(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let found = match Operation::of(op) {
                Some(operation) => whole(&left, schema)?.map(|data_type| (operation, data_type)),
                None => None,
            };
            let Some((operation, data_type)) = found else {
                let same = BinaryExpr::new(left, op, right);
                return Ok(Transformed::no(Expr::BinaryExpr(same)));
            };
            Ok(Transformed::yes(call(
                operation,
                data_type,
                vec![*left, *right],
            )))
        }
        Expr::Negative(inner) => match whole(&inner, schema)? {
            Some(data_type) => {
                let call = call(Operation::Negate, data_type, vec![*inner]);
                Ok(Transformed::yes(call))
            }
            None => Ok(Transformed::no(Expr::Negative(inner))),
        },
        other => Ok(Transformed::no(other)),
    }
}

/// The type of an expression over whole numbers.
fn whole(expression: &Expr, schema: &DFSchema) -> Result<Option<DataType>> {
    // Long chains would ask for the types of all their parts again and again.
    if let Expr::ScalarFunction(call) = expression
        && let Some(checked) = call.func.inner().downcast_ref::<Checked>()
    {
        return Ok(Some(checked.data_type.clone()));
    }
    let data_type = expression.get_type(schema)?;
    Ok(data_type.is_integer().then_some(data_type))
}

fn call(operation: Operation, data_type: DataType, arguments: Vec<Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::from(Checked::new(operation, data_type)));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

/// The operation of a physical plan that looks for overflow: what the engine's rules have written themselves, and calls as operators, which plans show as they were written.
pub(in crate::query) fn checked_late(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Option<Arc<dyn PhysicalExpr>> {
    if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
        let checked = call.fun().inner().downcast_ref::<Checked>()?;
        let [left, right] = call.args() else {
            return None;
        };
        let (left, right) = (Arc::clone(left), Arc::clone(right));
        let operator = checked.operation.operator();
        let binary = expressions::BinaryExpr::new(left, operator, right);
        return Some(Arc::new(binary.with_fail_on_overflow(true)));
    }
    let binary = expression.downcast_ref::<expressions::BinaryExpr>()?;
    Operation::of(*binary.op())?;
    if !binary.left().data_type(schema).ok()?.is_integer() {
        return None;
    }
    let checked = binary.clone().with_fail_on_overflow(true);
    (checked != *binary).then(|| Arc::new(checked) as _)
}

/// What is done to two values.
type Operands<'a> = (
    Operator,
    &'a Arc<dyn PhysicalExpr>,
    &'a Arc<dyn PhysicalExpr>,
);

/// A sum, a difference or a product in a physical plan, whether it looks for overflow or not, and any other operation of two values.
pub(in crate::query::plan) fn operands(expression: &Arc<dyn PhysicalExpr>) -> Option<Operands<'_>> {
    if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
        let checked = call.fun().inner().downcast_ref::<Checked>()?;
        let [left, right] = call.args() else {
            return None;
        };
        return Some((checked.operation.operator(), left, right));
    }
    let binary = expression.downcast_ref::<expressions::BinaryExpr>()?;
    Some((*binary.op(), binary.left(), binary.right()))
}

/// An expression of a physical plan, all operations of which look for overflow.
pub(in crate::query) fn all_checked_late(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let checked = expression.transform_up(|part| {
        Ok(match checked_late(&part, schema) {
            Some(checked) => Transformed::yes(checked),
            None => Transformed::no(part),
        })
    });
    checked.data()
}

/// What is done to whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Negate => "negate",
        }
    }

    fn operator(self) -> Operator {
        match self {
            Self::Add => Operator::Plus,
            Self::Multiply => Operator::Multiply,
            Self::Subtract | Self::Negate => Operator::Minus,
        }
    }

    fn of_two(self) -> fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError> {
        match self {
            Self::Add => numeric::add,
            Self::Multiply => numeric::mul,
            Self::Subtract | Self::Negate => numeric::sub,
        }
    }
}

/// Arithmetic of two whole numbers of one type, or the negative of one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Checked {
    operation: Operation,
    data_type: DataType,
    signature: Signature,
}

impl Checked {
    fn new(operation: Operation, data_type: DataType) -> Self {
        let arguments = match operation {
            Operation::Negate => 1,
            Operation::Add | Operation::Subtract | Operation::Multiply => 2,
        };
        let types = vec![data_type.clone(); arguments];
        Self {
            operation,
            data_type,
            signature: Signature::exact(types, Volatility::Immutable),
        }
    }

    /// All, for plans whose types were settled elsewhere and stand beside the calls.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn of_any_type() -> [Self; 4] {
        let all = [
            Operation::Add,
            Operation::Subtract,
            Operation::Multiply,
            Operation::Negate,
        ];
        all.map(|operation| Self::new(operation, DataType::Null))
    }
}

/// The call as the user wrote it, whose arguments are written so, too.
fn written(operation: Operation, arguments: &[Expr]) -> Result<Expr> {
    let call = operator(operation, arguments.to_vec())?;
    let rewritten = call.transform_up(|part| match part {
        Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<Checked>() {
            Some(checked) => Ok(Transformed::yes(operator(checked.operation, call.args)?)),
            None => Ok(Transformed::no(Expr::ScalarFunction(call))),
        },
        other => Ok(Transformed::no(other)),
    });
    rewritten.data()
}

/// The operator alone, over the arguments as they are.
fn operator(operation: Operation, arguments: Vec<Expr>) -> Result<Expr> {
    let count = arguments.len();
    let mut arguments = arguments.into_iter().map(Box::new);
    match (arguments.next(), arguments.next()) {
        (Some(left), Some(right)) if count == 2 => Ok(Expr::BinaryExpr(BinaryExpr::new(
            left,
            operation.operator(),
            right,
        ))),
        (Some(only), None) => Ok(Expr::Negative(only)),
        _ => datafusion::common::internal_err!("arithmetic of {count}"),
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        self.operation.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(written(self.operation, arguments)?
            .schema_name()
            .to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), self.data_type.clone(), nullable);
        Ok(Arc::new(field))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [left, right] => apply(left, right, self.operation.of_two()),
            [ColumnarValue::Array(array)] => {
                Ok(ColumnarValue::Array(numeric::neg(array.as_ref())?))
            }
            [ColumnarValue::Scalar(scalar)] => {
                Ok(ColumnarValue::Scalar(scalar.arithmetic_negate()?))
            }
            other => datafusion::common::internal_err!("arithmetic of {}", other.len()),
        }
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match (self.operation, inputs) {
            (Operation::Add, [left, right]) => left.add(*right),
            (Operation::Subtract, [left, right]) => left.sub(*right),
            (Operation::Multiply, [left, right]) => left.mul(*right),
            (Operation::Negate, [only]) => only.arithmetic_negate(),
            _ => Interval::make_unbounded(&self.data_type),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match (self.operation, inputs) {
            (Operation::Add, [left, right]) => left.sort_properties.add(&right.sort_properties),
            (Operation::Subtract, [left, right]) => {
                left.sort_properties.sub(&right.sort_properties)
            }
            (Operation::Negate, [only]) => -only.sort_properties,
            _ => SortProperties::Unordered,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    #[test]
    fn names_are_those_of_the_operators() {
        let plain = (col("a") + lit(1_i64)) * -col("b");
        let inner = call(Operation::Add, DataType::Int64, vec![col("a"), lit(1_i64)]);
        let negated = call(Operation::Negate, DataType::Int64, vec![col("b")]);
        let checked = call(Operation::Multiply, DataType::Int64, vec![inner, negated]);
        assert_eq!(
            checked.schema_name().to_string(),
            plain.schema_name().to_string()
        );
    }
}

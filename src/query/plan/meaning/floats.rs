//! One zero and one NaN, where the engine tells floats apart by their bits.
//!
//! Comes in: an expression whose types are settled; a plan that was optimized. Goes out: keys of windows, values of CASE, NULLIF and `IN` lists and those of which an aggregate takes the distinct ones, for which 0.0 and -0.0 are one number, as they are for GROUP BY, joins and
//! `=`, and quotients whose NaN has no sign: the processor gives 0 / 0 one, and with it NaN comes before all numbers. Never here: ORDER BY of statements, `min` and `max`, which tell them apart.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, Scalar};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, FieldRef, Float16Type, Float32Type, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Case, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::query::functions::placed::MODE;

/// Rewrites one expression.
pub(super) fn with_one_zero(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::WindowFunction(window) => over_one_zero(window, schema),
        Expr::AggregateFunction(aggregate) if is_of_distinct(&aggregate) => {
            distinct(aggregate, schema)
        }
        Expr::Case(case) => of_one_zero(case, schema),
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => null_if(call, schema),
        Expr::BinaryExpr(pair) if matches!(pair.op, Operator::Divide | Operator::Modulo) => {
            let found = float(&pair.left, schema)?;
            let quotient = Expr::BinaryExpr(pair);
            Ok(match found {
                Some(data_type) => Transformed::yes(call(Kind::Nan, data_type, quotient)),
                None => Transformed::no(quotient),
            })
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The keys of a window, and values of which it takes the distinct ones.
fn over_one_zero(mut window: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let parameters = &mut window.params;
    let keys = parameters.partition_by.iter_mut();
    let keys = keys.chain(parameters.order_by.iter_mut().map(|by| &mut by.expr));
    let values = parameters.args.iter_mut();
    let is_of_distinct = parameters.distinct || window.fun.name() == MODE;
    for part in keys.chain(values.filter(|_| is_of_distinct)) {
        if let Some(data_type) = float(part, schema)? {
            *part = call(Kind::Zero, data_type, std::mem::take(part));
            is_changed = true;
        }
    }
    let window = Expr::WindowFunction(window);
    Ok(match is_changed {
        true => Transformed::yes(window),
        false => Transformed::no(window),
    })
}

/// Whether an aggregate takes distinct values, or counts each of them; to `min` and `max` that makes no difference.
fn is_of_distinct(aggregate: &AggregateFunction) -> bool {
    let name = aggregate.func.name();
    name == MODE || aggregate.params.distinct && !matches!(name, "min" | "max")
}

/// Values of which an aggregate takes the distinct ones, and orders them.
fn distinct(mut aggregate: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let parameters = &mut aggregate.params;
    let ordered = parameters.order_by.iter_mut().map(|by| &mut by.expr);
    for value in parameters.args.iter_mut().chain(ordered) {
        if let Some(data_type) = float(value, schema)?
            && !is_settled(value)
        {
            *value = call(Kind::Zero, data_type, std::mem::take(value));
            is_changed = true;
        }
    }
    let aggregate = Expr::AggregateFunction(aggregate);
    Ok(match is_changed {
        true => Transformed::yes(aggregate),
        false => Transformed::no(aggregate),
    })
}

/// Whether it has one zero and one NaN already, or is one number that has no other form.
fn is_settled(value: &Expr) -> bool {
    match value {
        Expr::ScalarFunction(call) => {
            let settled = call.func.inner().downcast_ref::<Settled>();
            settled.is_some_and(|settled| settled.kind == Kind::Zero)
        }
        _ => is_plain(value),
    }
}

/// `CASE x WHEN 0.0 THEN …`.
fn of_one_zero(case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(value) = &case.expr else {
        return Ok(Transformed::no(Expr::Case(case)));
    };
    let are_plain = case.when_then_expr.iter().all(|(when, _)| is_plain(when));
    let data_type = float(value, schema)?;
    let Some(data_type) = data_type.filter(|_| !are_plain) else {
        return Ok(Transformed::no(Expr::Case(case)));
    };
    let zero = |part: Box<Expr>| Box::new(call(Kind::Zero, data_type.clone(), *part));
    let branches = case.when_then_expr.into_iter();
    let branches = branches.map(|(when, then)| (zero(when), then)).collect();
    let case = Case::new(case.expr.map(zero), branches, case.else_expr);
    Ok(Transformed::yes(Expr::Case(case)))
}

/// Whether it is a number that has no other form.
fn is_plain(value: &Expr) -> bool {
    let number = match value {
        Expr::Literal(ScalarValue::Float16(Some(value)), _) => f64::from(*value),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => f64::from(*value),
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value,
        _ => return false,
    };
    number != 0.0 && !number.is_nan()
}

/// `nullif(x, y)` is null where `x = y`.
fn null_if(call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let found = match call.args.as_slice() {
        [value, _] => float(value, schema)?,
        _ => None,
    };
    let Some(data_type) = found else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    let mut arguments = call.args;
    if let Some(other) = arguments.last_mut()
        && other.get_type(schema)? != data_type
    {
        *other = cast(std::mem::take(other), data_type.clone());
    }
    let settled = Settled::new(Kind::NullIf, data_type);
    let function = Arc::new(ScalarUDF::from(settled));
    let call = ScalarFunction::new_udf(function, arguments);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// The type of an expression that is a float.
fn float(expression: &Expr, schema: &DFSchema) -> Result<Option<DataType>> {
    // Long chains would ask for the types of all their parts again and again.
    if let Expr::ScalarFunction(call) = expression
        && let Some(settled) = call.func.inner().downcast_ref::<Settled>()
    {
        return Ok(Some(settled.data_type.clone()));
    }
    let data_type = expression.get_type(schema)?;
    Ok(data_type.is_floating().then_some(data_type))
}

fn call(kind: Kind, data_type: DataType, argument: Expr) -> Expr {
    let function = Arc::new(ScalarUDF::from(Settled::new(kind, data_type)));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![argument]))
}

/// Long `IN` lists, once rules of the engine have run, which make them of conditions beside OR.
#[derive(Debug)]
pub(in crate::query) struct BothZeros;

impl OptimizerRule for BothZeros {
    fn name(&self) -> &'static str {
        "both_zeros"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|part| Ok(both_zeros(part)))?;
            Ok(match changed.transformed {
                true => changed.update_data(|expression| name.restore(expression)),
                false => changed,
            })
        })
    }
}

/// `x IN (0.0, …)` is `x IN (0.0, -0.0, …)`: a long list is looked up by bits.
fn both_zeros(expression: Expr) -> Transformed<Expr> {
    let Expr::InList(mut list) = expression else {
        return Transformed::no(expression);
    };
    let others = list.list.iter().filter_map(other_zero).map(lit);
    let others: Vec<Expr> = others.filter(|other| !list.list.contains(other)).collect();
    if others.is_empty() {
        return Transformed::no(Expr::InList(list));
    }
    list.list.extend(others);
    Transformed::yes(Expr::InList(list))
}

/// Of a zero the one with the other sign.
fn other_zero(value: &Expr) -> Option<ScalarValue> {
    match value {
        Expr::Literal(ScalarValue::Float16(Some(zero)), _) if f32::from(*zero) == 0.0 => {
            Some(ScalarValue::Float16(Some(-*zero)))
        }
        Expr::Literal(ScalarValue::Float32(Some(zero)), _) if *zero == 0.0 => {
            Some(ScalarValue::Float32(Some(-zero)))
        }
        Expr::Literal(ScalarValue::Float64(Some(zero)), _) if *zero == 0.0 => {
            Some(ScalarValue::Float64(Some(-zero)))
        }
        _ => None,
    }
}

/// What there is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Of zeros, and of NaN.
    Zero,
    /// Of NaN alone: a zero keeps its sign.
    Nan,
    /// Of both, to compare two values: the first one as it is, or null where the second is equal.
    NullIf,
}

/// A float in the one form that it has.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Settled {
    kind: Kind,
    data_type: DataType,
    signature: Signature,
}

impl Settled {
    fn new(kind: Kind, data_type: DataType) -> Self {
        let arguments = match kind {
            Kind::NullIf => 2,
            _ => 1,
        };
        Self {
            kind,
            data_type,
            signature: Signature::any(arguments, Volatility::Immutable),
        }
    }

    /// All, for plans whose types were settled elsewhere and stand beside the calls.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn of_any_type() -> [Self; 3] {
        [Kind::Zero, Kind::Nan, Kind::NullIf].map(|kind| Self::new(kind, DataType::Null))
    }

    /// The floats; the same array where none of them has another form.
    fn settled(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let keeps_sign = self.kind == Kind::Nan;
        Ok(match array.data_type() {
            DataType::Float16 => {
                type Number = <Float16Type as ArrowPrimitiveType>::Native;
                settle::<Float16Type>(array, |value| match value {
                    nan if nan.is_nan() => Number::NAN,
                    zero if !keeps_sign && f32::from(zero) == 0.0 => Number::ZERO,
                    other => other,
                })
            }
            DataType::Float32 => settle::<Float32Type>(array, |value| match value {
                nan if nan.is_nan() => f32::NAN,
                zero if !keeps_sign && zero == 0.0 => 0.0,
                other => other,
            }),
            DataType::Float64 => settle::<Float64Type>(array, |value| match value {
                nan if nan.is_nan() => f64::NAN,
                zero if !keeps_sign && zero == 0.0 => 0.0,
                other => other,
            }),
            other => return datafusion::common::internal_err!("one form of {other}"),
        })
    }
}

/// Floats with one zero and one NaN; the same array where none of them has another form.
pub(super) fn one_form(array: &ArrayRef) -> Result<ArrayRef> {
    Settled::new(Kind::Zero, array.data_type().clone()).settled(array)
}

/// The values in the form that `form` gives; nothing is copied where all have it.
fn settle<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    form: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let values = array.as_primitive::<T>();
    let is_other = |value: &T::Native| form(*value).is_ne(*value);
    match values.values().iter().any(is_other) {
        true => Arc::new(values.unary::<_, T>(form)),
        false => Arc::clone(array),
    }
}

impl ScalarUDFImpl for Settled {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Zero => "one_zero",
            Kind::Nan => "one_nan",
            Kind::NullIf => "null_if",
        }
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [only] => Ok(only.schema_name().to_string()),
            [value, other] => {
                let (value, other) = (value.schema_name(), other.schema_name());
                Ok(format!("nullif({value},{other})"))
            }
            others => wrong(others.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value] | [value, _] => Ok(value.clone()),
            others => wrong(others.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [value] | [value, _] => {
                let is_nullable = value.is_nullable() || self.kind == Kind::NullIf;
                let data_type = value.data_type().clone();
                Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
            }
            others => wrong(others.len()),
        }
    }

    fn is_strict(&self) -> bool {
        self.kind != Kind::NullIf
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        match arguments.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(self.settled(array)?)),
            [ColumnarValue::Scalar(scalar)] => {
                let array = self.settled(&scalar.to_array()?)?;
                let scalar = ScalarValue::try_from_array(&array, 0)?;
                Ok(ColumnarValue::Scalar(scalar))
            }
            [value, other] => {
                let value = value.to_array(rows)?;
                let equal = match other {
                    ColumnarValue::Array(other) => {
                        eq(&self.settled(&value)?, &self.settled(other)?)
                    }
                    ColumnarValue::Scalar(other) => {
                        let other = self.settled(&other.to_array()?)?;
                        eq(&self.settled(&value)?, &Scalar::new(other))
                    }
                };
                Ok(ColumnarValue::Array(nullif(&value, &equal?)?))
            }
            others => wrong(others.len()),
        }
    }
}

fn wrong<T>(arguments: usize) -> Result<T> {
    datafusion::common::internal_err!("one form of {arguments} values")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;

    #[test]
    fn zeros_and_nan_have_one_form_and_other_floats_are_not_copied() {
        let all = Settled::new(Kind::Zero, DataType::Float64);
        let odd: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, -f64::NAN, 1.5]));
        let settled = all.settled(&odd).unwrap();
        let bits = |array: &ArrayRef| -> Vec<u64> {
            let values = array.as_primitive::<Float64Type>().values();
            values.iter().map(|value| value.to_bits()).collect()
        };
        let expected = [0.0_f64, f64::NAN, 1.5].map(f64::to_bits);
        assert_eq!(bits(&settled), expected);
        let quotients = Settled::new(Kind::Nan, DataType::Float64);
        let zero: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 1.5]));
        assert!(Arc::ptr_eq(&quotients.settled(&zero).unwrap(), &zero));
    }

    #[test]
    fn a_null_stands_where_two_floats_are_equal() {
        let null_if = ScalarUDF::from(Settled::new(Kind::NullIf, DataType::Float64));
        let values = vec![Some(-0.0), Some(0.0), Some(f64::NAN), None, Some(2.0)];
        let others = vec![Some(0.0), Some(1.0), Some(-f64::NAN), Some(1.0), None];
        let array = |values| ColumnarValue::Array(Arc::new(Float64Array::from(values)) as ArrayRef);
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let arguments = ScalarFunctionArgs {
            args: vec![array(values), array(others)],
            arg_fields: vec![Arc::clone(&field), Arc::clone(&field)],
            number_rows: 5,
            return_field: field,
            config_options: Arc::default(),
        };
        let made = null_if.invoke_with_args(arguments).unwrap();
        let made = made.to_array(5).unwrap();
        let expected = [None, Some(0.0), None, None, Some(2.0)];
        let made: Vec<Option<f64>> = made.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(made, expected);
    }
}

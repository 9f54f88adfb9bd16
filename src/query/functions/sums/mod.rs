//! Sums that are exact, or an error: never a value that wrapped around.
//!
//! Comes in: `sum` and `avg` of the engine. Goes out: the same functions, whose sums of whole numbers, decimals and durations are kept in 128 bits and looked over at the end, and which take truth values (`sum`) and moments (`avg`). A sum
//! of decimals of 32 or 64 bits is a decimal of 128 bits. Sums of floats are exact in frames that slide, as variances are (`variance`). Sums of all rows so far are made by batches (`running`). Never here: other sums of floats, intervals, decimals of 256 bits, which stay the
//! engine's.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal32Type, Decimal64Type, Decimal128Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Field, FieldRef, Int64Type, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampNanosecondType, UInt64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;

use self::groups::Groups;
use self::outcome::{Gives, Outcome};
pub(in crate::query) use self::running::Running;
use self::total::{Distinct, Total};
use crate::error::Error;
use crate::query::plan::types::bare::values_of;

mod fixed;
mod floats;
mod groups;
mod outcome;
mod running;
mod total;
mod variance;

/// Added to the digits of decimals, so that a sum of 10^10 of them has room.
const MORE_DIGITS: u8 = 10;

/// Puts the exact functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for (inner, gives) in [(sum_udaf(), Gives::Sum), (avg_udaf(), Gives::Mean)] {
        let signature = Signature::user_defined(inner.signature().volatility);
        context.register_udaf(AggregateUDF::from(Exact {
            inner,
            gives,
            signature,
        }));
    }
    variance::add_to(context);
}

/// What a total is kept in between threads.
fn state_type(input: &DataType) -> DataType {
    let scale = match input {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
}

/// A function of the engine whose sums are exact.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    inner: Arc<AggregateUDF>,
    gives: Gives,
    signature: Signature,
}

/// The type that the mean of moments has, with room for what lies between two of them; `None` for what is none.
fn of_moments(kind: &DataType) -> Option<DataType> {
    Some(match kind {
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Time32(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(..) | DataType::Time64(_) => kind.clone(),
        _ => return None,
    })
}

/// Calls `$make` with the Arrow type of a type that is summed here.
macro_rules! of_type {
    ($type:expr, $make:ident, $arguments:expr) => {
        match $type {
            DataType::Int64 => $make::<Int64Type>($arguments),
            DataType::UInt64 => $make::<UInt64Type>($arguments),
            DataType::Decimal32(..) => $make::<Decimal32Type>($arguments),
            DataType::Decimal64(..) => $make::<Decimal64Type>($arguments),
            DataType::Decimal128(..) => $make::<Decimal128Type>($arguments),
            DataType::Duration(TimeUnit::Second) => $make::<DurationSecondType>($arguments),
            DataType::Duration(TimeUnit::Millisecond) => {
                $make::<DurationMillisecondType>($arguments)
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                $make::<DurationMicrosecondType>($arguments)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                $make::<TimestampMicrosecondType>($arguments)
            }
            DataType::Timestamp(..) => $make::<TimestampNanosecondType>($arguments),
            DataType::Time64(TimeUnit::Microsecond) => $make::<Time64MicrosecondType>($arguments),
            DataType::Time64(_) => $make::<Time64NanosecondType>($arguments),
            _ => $make::<DurationNanosecondType>($arguments),
        }
    };
}

fn total<T: total::Summed>(outcome: Outcome) -> Box<dyn Accumulator> {
    Box::new(Total::<T>::new(outcome))
}

/// What adds up all rows so far, or so many before each and itself, if the function is one of ours and does so; of values of the first type, which come to the second.
pub(in crate::query) fn running(
    function: &AggregateUDF,
    name: &str,
    (input, output): (&DataType, &DataType),
    before: Option<usize>,
) -> Option<Running> {
    let exact = function.inner().downcast_ref::<Exact>()?;
    if *input == DataType::Float64 && *output == DataType::Float64 {
        return Some(running::of_floats(exact.gives, before));
    }
    if exact.gives != Gives::Sum || !exact.takes(input) {
        return None;
    }
    let outcome = Outcome {
        name: name.to_owned(),
        gives: exact.gives,
        data_type: output.clone(),
        state: state_type(input),
    };
    Some(of_type!(input, so_far, (outcome, before)))
}

fn so_far<T: total::Summed>((outcome, before): (Outcome, Option<usize>)) -> Running {
    running::total::<T>(outcome, before)
}

fn groups<T: total::Summed>(outcome: Outcome) -> Box<dyn GroupsAccumulator> {
    Box::new(Groups::<T>::new(outcome))
}

fn distinct<T: total::Summed>(
    (inner, outcome): (Box<dyn Accumulator>, Outcome),
) -> Box<dyn Accumulator> {
    Box::new(Distinct::<T>::new(inner, outcome))
}

impl Exact {
    /// Whether sums of this type are worked out here.
    fn takes(&self, input: &DataType) -> bool {
        match input {
            DataType::Duration(_) => true,
            DataType::Int64
            | DataType::UInt64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..) => self.gives == Gives::Sum,
            DataType::Timestamp(..) | DataType::Time64(_) => self.gives == Gives::Mean,
            _ => false,
        }
    }

    /// The type of the argument, and what its sums come to; `None` for those that stay the engine's.
    fn outcome<'a>(&self, arguments: &AccumulatorArgs<'a>) -> Option<(&'a DataType, Outcome)> {
        let input = arguments.expr_fields.first()?.data_type();
        self.takes(input).then(|| {
            let outcome = Outcome {
                name: arguments.name.to_owned(),
                gives: self.gives,
                data_type: arguments.return_field.data_type().clone(),
                state: state_type(input),
            };
            (input, outcome)
        })
    }
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Those of the engine's function, truth values as the numbers 0 and 1, and moments, which have a mean.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let plain: Vec<&DataType> = types.iter().map(values_of).collect();
        match (self.gives, plain.as_slice()) {
            (Gives::Sum, [DataType::Boolean]) => return Ok(vec![DataType::Int64]),
            (Gives::Mean, [kind]) => {
                if let Some(kind) = of_moments(kind) {
                    return Ok(vec![kind]);
                }
            }
            _ => {}
        }
        let fields = types.iter();
        let fields = fields.map(|kind| Arc::new(Field::new("", kind.clone(), true)));
        let fields: Vec<FieldRef> = fields.collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.gives, types) {
            (Gives::Mean, [kind]) if of_moments(kind).as_ref() == Some(kind) => Ok(kind.clone()),
            (
                Gives::Sum,
                [DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)],
            ) => Ok(DataType::Decimal128(*precision + MORE_DIGITS, *scale)),
            // Of a column of nulls that has no type yet; the plan makes whole numbers of them (`plan/types/`).
            (_, [DataType::Null]) => self.inner.return_type(&[DataType::Int64]),
            _ => self.inner.return_type(types),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_distinct = arguments.is_distinct;
        let Some((input, outcome)) = self.outcome(&arguments) else {
            return self.inner.accumulator(arguments);
        };
        if !is_distinct {
            return Ok(of_type!(input, total, outcome));
        }
        if of_moments(input).is_some() {
            let text = format!("avg(DISTINCT …) of {input} is not supported");
            return Err(Error::unsupported(text)
                .with_hint("SELECT avg(x) FROM (SELECT DISTINCT x FROM t)")
                .into());
        }
        // The engine keeps the distinct values by the type of its own sum.
        let field = Field::new(arguments.name, input.clone(), true);
        let inner = self.inner.accumulator(AccumulatorArgs {
            return_field: Arc::new(field),
            ..arguments
        })?;
        match self.gives {
            Gives::Sum => Ok(of_type!(input, distinct, (inner, outcome))),
            Gives::Mean => Ok(inner),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let input = arguments
            .input_fields
            .first()
            .map(|field| field.data_type());
        let Some(input) = input.filter(|input| self.takes(input)) else {
            return self.inner.state_fields(arguments);
        };
        if arguments.is_distinct {
            let return_field = Arc::new(Field::new(arguments.name, input.clone(), true));
            return self.inner.state_fields(StateFieldsArgs {
                return_field,
                ..arguments
            });
        }
        let name = |of: &str| format_state_name(arguments.name, of);
        let total = Arc::new(Field::new(name("sum"), state_type(input), true));
        let count = || Arc::new(Field::new(name("count"), DataType::UInt64, true));
        Ok(match self.gives {
            Gives::Sum => vec![total],
            Gives::Mean => vec![total, count()],
        })
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        match self.outcome(&arguments) {
            Some(_) => self.gives == Gives::Sum && !arguments.is_distinct,
            None => self.inner.groups_accumulator_supported(arguments),
        }
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.outcome(&arguments) {
            Some((input, outcome)) => Ok(of_type!(input, groups, outcome)),
            None => self.inner.create_groups_accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let is_distinct = arguments.is_distinct;
        match self.outcome(&arguments) {
            Some((input, outcome)) if !is_distinct => Ok(of_type!(input, total, outcome)),
            None if !is_distinct && floats::takes(&arguments) => {
                Ok(Box::new(floats::Sliding::new(self.gives)))
            }
            _ => self.inner.create_sliding_accumulator(arguments),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        let inner = self.inner.inner();
        inner.simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn value_from_stats(&self, arguments: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.value_from_stats(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    /// The engine does not ask where the nulls are that a frame begins with.
    fn set_monotonicity(&self, _: &DataType) -> SetMonotonicity {
        SetMonotonicity::NotMonotonic
    }
}

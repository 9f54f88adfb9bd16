//! The least and the greatest float of each group, and nested value.
//!
//! Comes in: `min` and `max` of the engine. Goes out: the same functions, whose values of groups order floats as those without groups do: NaN is greater than all numbers, infinities are values
//! as others, -0.0 is less than 0.0. The engine's begin with the largest number that is finite, and keep or drop NaN by the order of rows. Nested values are compared in `nested`, and those of all rows so far by batches (`running`). Never here: other types, which stay the
//! engine's.

use std::sync::Arc;

use arrow::array::ArrowNativeTypeOp;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Float16Type, Float32Type, Float64Type,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

mod nested;
mod running;

pub(in crate::query) use self::running::running;

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for (inner, is_max) in [(min_udaf(), false), (max_udaf(), true)] {
        context.register_udaf(AggregateUDF::from(Extreme { inner, is_max }));
    }
}

/// Values of groups in the total order of floats, which Arrow's comparisons have.
fn groups<T>(data_type: &DataType, is_max: bool) -> Box<dyn GroupsAccumulator>
where
    T: ArrowPrimitiveType + Send,
{
    if is_max {
        let greater = |best: &mut T::Native, value: T::Native| {
            if best.is_lt(value) {
                *best = value;
            }
        };
        let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, greater);
        return Box::new(groups.with_starting_value(T::Native::MIN_TOTAL_ORDER));
    }
    let less = |best: &mut T::Native, value: T::Native| {
        if value.is_lt(*best) {
            *best = value;
        }
    };
    let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, less);
    Box::new(groups.with_starting_value(T::Native::MAX_TOTAL_ORDER))
}

/// `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
    is_max: bool,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let data_type = arguments.return_field.data_type();
        Ok(match nested::takes(data_type) {
            true => Box::new(nested::Best::try_new(data_type, self.is_max)?),
            false => self.inner.inner().accumulator(arguments)?,
        })
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let data_type = arguments.return_field.data_type();
        Ok(match nested::takes(data_type) {
            true => Box::new(nested::Sliding::try_new(data_type, self.is_max)?),
            false => self.inner.inner().create_sliding_accumulator(arguments)?,
        })
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.inner().state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !nested::takes(arguments.return_field.data_type())
            && self.inner.inner().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = arguments.return_field.data_type();
        Ok(match data_type {
            DataType::Float16 => groups::<Float16Type>(data_type, self.is_max),
            DataType::Float32 => groups::<Float32Type>(data_type, self.is_max),
            DataType::Float64 => groups::<Float64Type>(data_type, self.is_max),
            _ => self.inner.inner().create_groups_accumulator(arguments)?,
        })
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.inner().is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.inner().reverse_expr()
    }

    fn value_from_stats(&self, arguments: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner.inner().value_from_stats(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }

    /// The engine does not ask where the nulls are that a frame begins with.
    fn set_monotonicity(&self, _: &DataType) -> SetMonotonicity {
        SetMonotonicity::NotMonotonic
    }
}

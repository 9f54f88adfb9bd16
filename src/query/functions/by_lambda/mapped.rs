//! What each element of a list becomes, and which stay.
//!
//! Comes in: lists, and a lambda of an element and its place. Goes out: lists of as many elements, or of those for which the lambda is true. Never here: names and types, which are those of the engine's functions.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, LargeListArray, ListArray, new_empty_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, filter, take_arrays};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::utils::{list_values, list_values_row_number, take_function_args};
use datafusion::common::{Result, exec_err};
use datafusion::functions_nested::{array_filter, array_transform};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs,
    HigherOrderSignature, HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument,
    LambdaParametersProgress, ValueOrLambda,
};

use super::{element_of, extents, place_field};

/// The functions.
pub(super) fn functions() -> [Arc<HigherOrderUDF>; 2] {
    let of = |inner, keeps| Arc::new(HigherOrderUDF::new_from_impl(Mapped { inner, keeps }));
    [
        of(
            array_transform::array_transform_higher_order_function(),
            false,
        ),
        of(array_filter::array_filter_higher_order_function(), true),
    ]
}

/// One of the functions, for the engine's of its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mapped {
    inner: Arc<HigherOrderUDF>,
    /// Whether it keeps elements for which the lambda is true, instead of taking what the lambda makes of them.
    keeps: bool,
}

impl HigherOrderUDFImpl for Mapped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &HigherOrderSignature {
        self.inner.signature()
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let [list, _] = take_function_args(self.name(), fields)?;
        let ValueOrLambda::Value(list) = list else {
            return exec_err!("{} without a list", self.name());
        };
        let element = element_of(self.name(), list)?;
        Ok(LambdaParametersProgress::Complete(vec![vec![
            element,
            place_field(),
        ]]))
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_value_types(types)
    }

    fn return_field_from_args(&self, arguments: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, arguments: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let field = match arguments.return_field.data_type() {
            DataType::List(field) | DataType::LargeList(field) => Arc::clone(field),
            other => return exec_err!("{} that gives {other}", self.name()),
        };
        let num_rows = arguments.number_rows;
        let [list, lambda] = take_function_args(self.name(), arguments.args)?;
        let (ValueOrLambda::Value(list), ValueOrLambda::Lambda(lambda)) = (list, lambda) else {
            return exec_err!("{} without a list and a lambda", self.name());
        };
        let lists = list.to_array(num_rows)?;
        let values = list_values(&lists)?;
        let lengths = extents(&lists)?.into_iter().map(|(_, length)| length);
        let lengths: Vec<usize> = lengths.collect();
        // Nobody asks a lambda of no elements: it may fail.
        let (lengths, values) = if values.is_empty() {
            (lengths, new_empty_array(field.data_type()))
        } else {
            let made = made_of(&lambda, &lists, &values, &lengths)?;
            match self.keeps {
                true => kept(&values, &made, &lengths)?,
                false => (lengths, made),
            }
        };
        Ok(ColumnarValue::Array(lists_of(
            &lists, field, lengths, values,
        )?))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// What the lambda makes of the elements, one for each.
fn made_of(
    lambda: &LambdaArgument,
    lists: &ArrayRef,
    values: &ArrayRef,
    lengths: &[usize],
) -> Result<ArrayRef> {
    let elements = || Ok(Arc::clone(values));
    let places = || {
        let places = lengths.iter().flat_map(|length| 1..=*length as i64);
        Ok(Arc::new(Int64Array::from_iter_values(places)) as ArrayRef)
    };
    // What has one value for each list has it for each element.
    let spread = |named: &[ArrayRef]| {
        let rows = list_values_row_number(lists)?;
        Ok(take_arrays(named, &rows, None)?)
    };
    let made = lambda.evaluate(&[&elements, &places], spread)?;
    made.into_array(values.len())
}

/// The elements for which the lambda is true, and how many of each list these are.
fn kept(values: &ArrayRef, made: &ArrayRef, lengths: &[usize]) -> Result<(Vec<usize>, ArrayRef)> {
    let strictly = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    // As a condition in WHERE: null is not true.
    let made = cast_with_options(made, &DataType::Boolean, &strictly)?;
    let made = made.as_boolean();
    let bits = match made.nulls() {
        Some(nulls) => made.values() & nulls.inner(),
        None => made.values().clone(),
    };
    let mut begin = 0;
    let lengths = lengths.iter().map(|length| {
        let places = begin..begin + length;
        begin = places.end;
        places.filter(|place| bits.value(*place)).count()
    });
    let lengths = lengths.collect();
    Ok((lengths, filter(values, &BooleanArray::new(bits, None))?))
}

/// Lists of these elements, null where others are.
fn lists_of(
    others: &ArrayRef,
    field: FieldRef,
    lengths: Vec<usize>,
    values: ArrayRef,
) -> Result<ArrayRef> {
    let nulls = others.nulls().cloned();
    Ok(match others.data_type() {
        DataType::List(_) => Arc::new(ListArray::try_new(
            field,
            OffsetBuffer::from_lengths(lengths),
            values,
            nulls,
        )?),
        _ => Arc::new(LargeListArray::try_new(
            field,
            OffsetBuffer::from_lengths(lengths),
            values,
            nulls,
        )?),
    })
}

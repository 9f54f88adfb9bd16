//! `greatest` and `least` of lists, structs and maps.
//!
//! Comes in: the functions of the engine, which take nulls inside of such values for less than all others in the one and for greater in the other. Goes out: the same functions, in which they are greater, as in ORDER BY (`plan/meaning/nested.rs`). Never here: values of other types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::functions::core::{greatest, least};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use datafusion::prelude::SessionContext;

use super::passed_on::scalar_as_inner;
use crate::query::plan::meaning::nested::{has_key, keys_of};

/// Puts the functions in place of those of the engine.
pub(super) fn add_to(context: &SessionContext) {
    for (of_engine, is_greatest) in [(greatest(), true), (least(), false)] {
        // It may be another one already (`coerced.rs`).
        let inner = context.udf(of_engine.name()).unwrap_or(of_engine);
        context.register_udf(ScalarUDF::from(Chosen { inner, is_greatest }));
    }
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Chosen {
    inner: Arc<ScalarUDF>,
    is_greatest: bool,
}

impl ScalarUDFImpl for Chosen {
    scalar_as_inner!();

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut kinds = arguments.args.iter().map(ColumnarValue::data_type);
        if !kinds.all(|kind| has_key(&kind)) {
            return self.inner.invoke_with_args(arguments);
        }
        let mut values = arguments.args.iter();
        let is_one = values.all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let num_rows = if is_one { 1 } else { arguments.number_rows };
        let values = arguments.args.iter();
        let values = values.map(|value| value.to_array(num_rows));
        let chosen = self.of_rows(&values.collect::<Result<Vec<_>>>()?, num_rows)?;
        Ok(match is_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&chosen, 0)?),
            false => ColumnarValue::Array(chosen),
        })
    }
}

impl Chosen {
    /// The value of each row; null where all are.
    fn of_rows(&self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let keys = values.iter().map(keys_of);
        let keys: Vec<BinaryArray> = keys.collect::<Result<_>>()?;
        let places = (0..num_rows).map(|row| {
            let keys = keys.iter().enumerate();
            let keys = keys.filter(|(_, keys)| keys.is_valid(row));
            let keys = keys.map(|(place, keys)| (keys.value(row), place));
            // Of equal values the first one.
            let chosen = match self.is_greatest {
                true => keys.reduce(|most, key| if key.0 > most.0 { key } else { most }),
                false => keys.reduce(|least, key| if key.0 < least.0 { key } else { least }),
            };
            (chosen.map_or(0, |(_, place)| place), row)
        });
        let places: Vec<(usize, usize)> = places.collect();
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&values, &places)?)
    }
}

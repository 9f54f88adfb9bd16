//! A check that a subquery in place of a value gave one row.
//!
//! Comes in: a value and how many rows it is the first of. Goes out: the value, or an error. Never here: where the rows are counted.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Error, ErrorKind};
#[cfg(feature = "distributed")]
use crate::query::traveling;

/// It stays in this process.
#[cfg(not(feature = "distributed"))]
fn traveling(error: Error) -> datafusion::error::DataFusionError {
    error.into()
}

/// Its first argument, if the second, a number of rows, is not more than 1.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Only {
    signature: Signature,
}

impl Only {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Only {
    fn name(&self) -> &'static str {
        "only_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => internal_err!("only_row of {}", types.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [value, _] => Ok(Arc::new(Field::clone(value).with_nullable(true))),
            _ => internal_err!("only_row of {}", arguments.arg_fields.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let num_rows = arguments.number_rows;
        let mut given = arguments.args.into_iter();
        let (Some(value), Some(rows)) = (given.next(), given.next()) else {
            return internal_err!("only_row without arguments");
        };
        let rows = rows.into_array(num_rows)?;
        let has_more = match rows.as_primitive_opt::<Int64Type>() {
            Some(rows) => rows.iter().flatten().any(|rows| rows > 1),
            None => return internal_err!("only_row of rows of type {}", rows.data_type()),
        };
        match has_more {
            false => Ok(value),
            true => {
                let text = "a subquery in place of a value gave more than one row";
                let hint = "give it a LIMIT 1 or an aggregate, or use IN (…)";
                Err(traveling(
                    Error::new(ErrorKind::Query, text).with_hint(hint),
                ))
            }
        }
    }
}

//! One column of one tile as numbers, before they become an array.
//!
//! Comes in: a column, and what it shall be cast to. Goes out: the same values as a column of numbers, over the same memory where Arrow has them as numbers already. Never here: a value
//! that comes out as another one; nulls replaced.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};

use crate::error::{Error, Result};
use crate::grid::{ElementType, exactly};

/// A column of numbers, and whether it is a copy.
pub(super) struct Column {
    pub(super) values: ArrayRef,
    pub(super) copied: bool,
}

/// The column as numbers: itself when it is some, its count of days or ticks when it is a time, and with `wanted` also booleans, decimals and dictionaries of numbers.
///
/// # Errors
/// `Unsupported`, with the column and the remedy; `InvalidData` for a decimal that `wanted` does not hold exactly.
pub(super) fn numbers(
    field: &Field,
    column: &ArrayRef,
    wanted: Option<ElementType>,
) -> Result<Column> {
    let kind = field.data_type();
    let refused = match ElementType::try_from_arrow(kind) {
        Ok(_) => return Ok(shared(Arc::clone(column))),
        Err(refused) => refused.with_column(field.name()),
    };
    let Some(wanted) = wanted else {
        return Err(match remedy(kind) {
            Some(cast) => refused.with_hint(format!("cast=\"{cast}\" exports its numbers")),
            None => refused,
        });
    };
    match kind {
        // The same bits under another name.
        DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Time64(_)
        | DataType::Date64 => Ok(shared(cast(column, &DataType::Int64)?)),
        DataType::Date32 | DataType::Time32(_) => Ok(shared(cast(column, &DataType::Int32)?)),
        DataType::Boolean => Ok(copied(cast(column, &DataType::UInt8)?)),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => {
            let values = exactly(column, wanted, 0);
            Ok(copied(
                values.map_err(|error| error.with_column(field.name()))?,
            ))
        }
        DataType::Dictionary(_, value) if ElementType::try_from_arrow(value).is_ok() => {
            Ok(copied(cast(column, value)?))
        }
        _ => Err(refused),
    }
}

/// What the elements of an array of these columns are.
///
/// # Errors
/// `Unsupported` for a column that is no number, unless `wanted` makes it one.
pub(super) fn element_of<'a>(
    fields: impl IntoIterator<Item = &'a Arc<Field>>,
    wanted: Option<ElementType>,
) -> Result<ElementType> {
    let mut elements = Vec::new();
    for field in fields {
        let empty = arrow::array::new_empty_array(field.data_type());
        let column = numbers(field, &empty, wanted)?;
        elements.push(ElementType::try_from_arrow(column.values.data_type())?);
    }
    wanted
        .or_else(|| ElementType::promoted(elements))
        .ok_or_else(|| Error::internal("an array has at least one column"))
}

/// What columns of this type can be cast to.
fn remedy(kind: &DataType) -> Option<&'static str> {
    match kind {
        DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Time64(_)
        | DataType::Date64 => Some("int64"),
        DataType::Date32 | DataType::Time32(_) => Some("int32"),
        DataType::Boolean => Some("uint8"),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Some("float64"),
        DataType::Dictionary(_, value) => {
            let element = ElementType::try_from_arrow(value);
            element.ok().map(ElementType::name)
        }
        _ => None,
    }
}

fn shared(values: ArrayRef) -> Column {
    Column {
        values,
        copied: false,
    }
}

fn copied(values: ArrayRef) -> Column {
    Column {
        values,
        copied: true,
    }
}

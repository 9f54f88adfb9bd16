//! `__cells(array_agg(…), n)`: the values of a group at numbered places, as the columns that PIVOT makes of them.
//!
//! Comes in: for each row a list of structs, of a place from 0 and of values, and how many places there are. Goes out: a struct with a field for each value of each place, null where the list has none; a place that is null is none. Of several
//! values for one place the last one is taken. Never here: what the places stand for (`rewrite/pivot/steps.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray, UInt32Array, UInt32Builder};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

/// Its name; it is written by `PIVOT` alone.
pub(in crate::query) const CELLS: &str = "__cells";

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Cells {
        signature: Signature::any(2, Volatility::Immutable),
    }));
}

/// The field of one of the values at a place.
pub(in crate::query) fn name_of(place: usize, value: usize) -> String {
    format!("{place}_{value}")
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cells {
    signature: Signature,
}

impl ScalarUDFImpl for Cells {
    fn name(&self) -> &'static str {
        CELLS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the places are not in the types")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let list = arguments.arg_fields.first().map(|field| field.data_type());
        let Some(DataType::List(element)) = list else {
            return plan_err!("{CELLS} takes a list of structs, got {list:?}");
        };
        let DataType::Struct(parts) = element.data_type() else {
            return plan_err!("{CELLS} takes a list of structs, got {list:?}");
        };
        let count = arguments.scalar_arguments.get(1).copied().flatten();
        let Some(ScalarValue::Int64(Some(count))) = count else {
            return plan_err!("{CELLS} takes the number of places as a literal, got {count:?}");
        };
        let count = usize::try_from(*count).unwrap_or_default();
        let fields = (0..count).flat_map(|place| {
            let values = parts.iter().skip(1).enumerate();
            values.map(move |(value, part)| {
                Field::new(name_of(place, value), part.data_type().clone(), true)
            })
        });
        let kind = DataType::Struct(fields.collect());
        Ok(Arc::new(Field::new(CELLS, kind, false)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Struct(fields) = arguments.return_field.data_type() else {
            return internal_err!("{CELLS} gives {}", arguments.return_field);
        };
        let [lists, _] = arguments.args.as_slice() else {
            return internal_err!("{CELLS} takes two arguments");
        };
        let lists = lists.to_array(arguments.number_rows)?;
        let Some(lists) = lists.as_list_opt::<i32>() else {
            return internal_err!("{CELLS} of {}", lists.data_type());
        };
        let cells = of_lists(lists, fields)?;
        Ok(ColumnarValue::Array(Arc::new(cells)))
    }
}

/// The rows of a place, and where their values are.
type Entries = Vec<(usize, u32)>;

fn of_lists(lists: &ListArray, fields: &Fields) -> Result<StructArray> {
    let Some(elements) = lists.values().as_struct_opt() else {
        return internal_err!("{CELLS} of {}", lists.value_type());
    };
    let num_values = elements.num_columns().saturating_sub(1);
    let num_places = fields.len().checked_div(num_values).unwrap_or_default();
    let of_places = by_place(lists, elements, num_places)?;
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(fields.len());
    for entries in &of_places {
        let indices = indices_of(entries, lists.len());
        for value in elements.columns().iter().skip(1) {
            columns.push(take(value, &indices, None)?);
        }
    }
    let cells = StructArray::try_new_with_length(fields.clone(), columns, None, lists.len());
    Ok(cells?)
}

/// What there is of each place, in the order of the rows.
fn by_place(lists: &ListArray, elements: &StructArray, num_places: usize) -> Result<Vec<Entries>> {
    let places = elements.columns().first();
    let Some(places) = places.and_then(|places| places.as_primitive_opt::<Int64Type>()) else {
        return internal_err!("{CELLS} takes places as numbers of 64 bits");
    };
    let mut found = vec![Entries::new(); num_places];
    for (row, ends) in lists.value_offsets().windows(2).enumerate() {
        let &[start, end] = ends else {
            continue;
        };
        if lists.is_null(row) {
            continue;
        }
        for at in start..end {
            let index = usize::try_from(at).unwrap_or_default();
            if places.is_null(index) {
                continue;
            }
            let place = usize::try_from(places.value(index)).ok();
            let entries = place.and_then(|place| found.get_mut(place));
            let Some(entries) = entries else {
                return internal_err!("{CELLS} has no place {}", places.value(index));
            };
            entries.push((row, u32::try_from(at).unwrap_or_default()));
        }
    }
    Ok(found)
}

/// Where the value of each row is.
fn indices_of(entries: &Entries, num_rows: usize) -> UInt32Array {
    let mut indices = UInt32Builder::with_capacity(num_rows);
    let mut entries = entries.iter().peekable();
    for row in 0..num_rows {
        let mut last = None;
        while let Some((_, at)) = entries.next_if(|(of, _)| *of == row) {
            last = Some(*at);
        }
        indices.append_option(last);
    }
    indices.finish()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::buffer::{NullBuffer, OffsetBuffer};

    use super::*;

    #[test]
    fn values_stand_in_the_fields_of_their_places() {
        let places = Int64Array::from(vec![Some(9), Some(1), Some(0), None, Some(1)]);
        let values = StringArray::from(vec![Some("cut"), Some("b"), None, Some("x"), Some("c")]);
        let parts: Fields = vec![
            Field::new("place", DataType::Int64, true),
            Field::new("value", DataType::Utf8, true),
        ]
        .into();
        let columns: Vec<ArrayRef> = vec![Arc::new(places), Arc::new(values)];
        let elements = StructArray::new(parts.clone(), columns, None);
        let item = Arc::new(Field::new("item", DataType::Struct(parts), true));
        let offsets = OffsetBuffer::new(vec![0, 1, 3, 3, 4, 5].into());
        let nulls = NullBuffer::from(vec![true, true, false, true, true]);
        let lists = ListArray::new(item, offsets, Arc::new(elements), Some(nulls));
        let fields: Fields = vec![
            Field::new("0_0", DataType::Utf8, true),
            Field::new("1_0", DataType::Utf8, true),
        ]
        .into();
        // The first list has a place that there is not; a slice leaves it out.
        assert!(of_lists(&lists, &fields).is_err());
        let cells = of_lists(&lists.slice(1, 4), &fields).unwrap();
        let column = |place: usize| {
            let texts = cells.column(place).as_string::<i32>();
            texts
                .iter()
                .map(|text| text.map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(column(0), [None, None, None, None]);
        let b = Some("b".to_owned());
        assert_eq!(column(1), [b, None, None, Some("c".to_owned())]);
    }
}

//! How often the values of a list are there, and how far they lie from their middle.
//!
//! Comes in: lists. Goes out: maps of values and counts; floats. Never here: how values become lists, which aggregates do (`histogram`, `entropy` and `mad` in `rewrite/synonyms/`).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, MapArray, StructArray,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;

use super::{Function, Takes, float, without_signs};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "list_histogram",
        aliases: &[],
        section: DOC_SECTION_ARRAY,
        about: "A map of the different elements of a list, in their order, and how often each is there; null where there is none. Nulls do not count.",
        takes: &[("list", Takes::List)],
        least: 1,
        repeats: false,
        returned: |types| Ok(DataType::Map(entries_of(types)?, false)),
        made: histogram,
    },
    Function {
        name: "list_entropy",
        aliases: &[],
        section: DOC_SECTION_ARRAY,
        about: "The entropy of the elements of a list in bits: how much each says, by how often it is there. Nulls do not count.",
        takes: &[("list", Takes::List)],
        least: 1,
        repeats: false,
        returned: float,
        made: entropy,
    },
    Function {
        name: "list_median",
        aliases: &[],
        section: DOC_SECTION_ARRAY,
        about: "The number in the middle of those of a list, or between the two that are. Nulls do not count.",
        takes: &[("list", Takes::Floats)],
        least: 1,
        repeats: false,
        returned: float,
        made: |arrays| of_numbers(arrays, median),
    },
    Function {
        name: "list_mad",
        aliases: &[],
        section: DOC_SECTION_ARRAY,
        about: "The median of how far the numbers of a list lie from their median. Nulls do not count.",
        takes: &[("list", Takes::Floats)],
        least: 1,
        repeats: false,
        returned: float,
        made: |arrays| of_numbers(arrays, median_deviation),
    },
];

fn entries_of(types: &[DataType]) -> Result<FieldRef> {
    let Some(DataType::List(element)) = types.first() else {
        return internal_err!("counts of no list");
    };
    let key = Field::new("key", element.data_type().clone(), false);
    let value = Field::new("value", DataType::Int64, true);
    let entries = DataType::Struct(Fields::from(vec![key, value]));
    Ok(Arc::new(Field::new("entries", entries, false)))
}

fn only_list(arrays: &[ArrayRef]) -> Result<&ListArray> {
    match arrays {
        [lists] => Ok(lists.as_list::<i32>()),
        _ => internal_err!("counts of several lists"),
    }
}

/// Where the elements of a row are.
fn places(lists: &ListArray, row: usize) -> Range<usize> {
    let ends = lists.value_offsets().get(row..row + 2);
    let ends = ends.filter(|_| lists.is_valid(row));
    match ends {
        Some([begin, end]) => {
            let place = |end: &i32| usize::try_from(*end).unwrap_or_default();
            place(begin)..place(end)
        }
        _ => 0..0,
    }
}

/// For each row the different elements, by the place of one, and how often each is there.
fn counts(lists: &ListArray) -> Result<Vec<Vec<(usize, usize)>>> {
    let values = without_signs(lists.values());
    let nulls = values.logical_nulls();
    let is_there = |place: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*place));
    let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
    let rows = converter.convert_columns(&[values])?;
    let of_row = |row: usize| {
        let mut ordered: Vec<usize> = places(lists, row).filter(is_there).collect();
        ordered.sort_by(|one, other| rows.row(*one).cmp(&rows.row(*other)));
        let alike = ordered.chunk_by(|one, other| rows.row(*one) == rows.row(*other));
        let counted = alike.filter_map(|alike| Some((*alike.first()?, alike.len())));
        counted.collect::<Vec<_>>()
    };
    Ok((0..lists.len()).map(of_row).collect())
}

fn histogram(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = only_list(arrays)?;
    let counts = counts(lists)?;
    let offsets = OffsetBuffer::from_lengths(counts.iter().map(Vec::len));
    let all = counts.iter().flatten();
    let places: UInt64Array = all.clone().map(|(place, _)| *place as u64).collect();
    let keys = take(lists.values(), &places, None)?;
    let counted = all.map(|(_, count)| i64::try_from(*count).unwrap_or(i64::MAX));
    let counted: Int64Array = counted.collect();
    let field = entries_of(&[lists.data_type().clone()])?;
    let DataType::Struct(fields) = field.data_type() else {
        return internal_err!("entries that are no structs");
    };
    let entries = StructArray::try_new(fields.clone(), vec![keys, Arc::new(counted)], None)?;
    // Of nothing it is null.
    let nulls: NullBuffer = counts.iter().map(|counts| !counts.is_empty()).collect();
    let map = MapArray::try_new(Arc::clone(&field), offsets, entries, Some(nulls), false)?;
    Ok(Arc::new(map))
}

#[expect(clippy::cast_precision_loss, reason = "lists are not that long")]
fn entropy(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = only_list(arrays)?;
    let counts = counts(lists)?.into_iter().enumerate();
    let entropies = counts.map(|(row, counts)| {
        let all: usize = counts.iter().map(|(_, count)| count).sum();
        let bits = counts.iter().map(|(_, count)| {
            let share = *count as f64 / all as f64;
            -share * share.log2()
        });
        // Of one value it is 0, and not -0.
        lists.is_valid(row).then(|| bits.sum::<f64>() + 0.0)
    });
    let entropies: Float64Array = entropies.collect();
    Ok(Arc::new(entropies))
}

fn of_numbers(arrays: &[ArrayRef], value: fn(&mut [f64]) -> Option<f64>) -> Result<ArrayRef> {
    let lists = only_list(arrays)?;
    let numbers = lists.values().as_primitive::<Float64Type>();
    let values = (0..lists.len()).map(|row| {
        let there = places(lists, row).filter(|place| numbers.is_valid(*place));
        let mut there: Vec<f64> = there.map(|place| numbers.value(place)).collect();
        value(&mut there)
    });
    let values: Float64Array = values.collect();
    Ok(Arc::new(values))
}

/// The number in the middle.
fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let upper = *numbers.get(numbers.len() / 2)?;
    if numbers.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *numbers.get(numbers.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

fn median_deviation(numbers: &mut [f64]) -> Option<f64> {
    let middle = median(numbers)?;
    for number in numbers.iter_mut() {
        *number = (*number - middle).abs();
    }
    median(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_between_two() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0]), Some(2.0));
        assert_eq!(median_deviation(&mut [1.0, 2.0, 2.0, 10.0]), Some(0.5));
    }

    #[test]
    fn zeros_are_one_value() {
        let values = Float64Array::from(vec![0.0, -0.0, 1.5]);
        let field = Arc::new(Field::new_list_field(DataType::Float64, true));
        let offsets = OffsetBuffer::from_lengths([3]);
        let lists = ListArray::new(field, offsets, Arc::new(values), None);
        let counts = counts(&lists).unwrap();
        assert_eq!(counts, [[(0, 2), (2, 1)]]);
    }
}

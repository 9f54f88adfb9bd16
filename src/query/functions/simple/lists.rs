//! Elements of lists by their places.
//!
//! Comes in: lists, and places or truth values. Goes out: lists of some of the elements, or the places in order. Never here: slices and filters, which the engine has.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, StringViewArray, UInt64Builder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, Int64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;

use super::{Function, Takes, wrong};

/// Its values may be far larger than its arguments, since places may be there again and again.
pub(super) const SELECT: &Function = &Function {
    name: "list_select",
    aliases: &["array_select"],
    section: DOC_SECTION_ARRAY,
    about: "The elements of a list at these places, the first being 1; null where the list has none.",
    takes: &[("list", Takes::List), ("places", Takes::Wholes)],
    least: 2,
    repeats: false,
    returned: like_first,
    made: selected,
};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "list_where",
        aliases: &["array_where"],
        section: DOC_SECTION_ARRAY,
        about: "The elements of a list for which the list of truth values is true.",
        takes: &[("list", Takes::List), ("truths", Takes::Truths)],
        least: 2,
        repeats: false,
        returned: like_first,
        made: kept,
    },
    Function {
        name: "list_grade_up",
        aliases: &["array_grade_up", "grade_up"],
        section: DOC_SECTION_ARRAY,
        about: "The places of the elements of a list in their order, the first being 1: 'ASC' or 'DESC', and 'NULLS FIRST' or 'NULLS LAST'.",
        takes: &[
            ("list", Takes::List),
            ("order", Takes::Text),
            ("nulls", Takes::Text),
        ],
        least: 1,
        repeats: false,
        returned: |_| Ok(places_type()),
        made: graded,
    },
];

/// A list of such elements, or of nulls where there are none.
fn like_first(types: &[DataType]) -> Result<DataType> {
    match types {
        [DataType::List(element), ..] => {
            let element = element.as_ref().clone().with_nullable(true);
            Ok(DataType::List(Arc::new(element)))
        }
        _ => internal_err!("elements of no list"),
    }
}

fn places_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

/// Lists of the elements at places among all values, row by row.
struct Taken {
    places: UInt64Builder,
    lengths: Vec<usize>,
}

impl Taken {
    fn new() -> Self {
        Self {
            places: UInt64Builder::new(),
            lengths: Vec::new(),
        }
    }

    fn lists_of(mut self, lists: &ListArray, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let DataType::List(element) = like_first(&[lists.data_type().clone()])? else {
            return internal_err!("elements in no list");
        };
        let values = take(lists.values(), &self.places.finish(), None)?;
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(ListArray::try_new(
            element, offsets, values, nulls,
        )?))
    }
}

/// Both lists, and where both are.
fn both(arrays: &[ArrayRef]) -> Result<(&ListArray, &ListArray, Option<NullBuffer>)> {
    let [lists, others] = arrays else {
        return internal_err!("lists that are not two");
    };
    let (lists, others) = (lists.as_list::<i32>(), others.as_list::<i32>());
    let nulls = NullBuffer::union(lists.nulls(), others.nulls());
    Ok((lists, others, nulls))
}

/// Where the values of a row begin, and how many there are.
fn span(lists: &ListArray, row: usize) -> Result<(u64, u64)> {
    let begin = lists.value_offsets().get(row).copied().unwrap_or_default();
    match (u64::try_from(begin), u64::try_from(lists.value_length(row))) {
        (Ok(begin), Ok(length)) => Ok((begin, length)),
        _ => internal_err!("a list that begins before its values"),
    }
}

/// The bytes of the values of `list_select`, at most: all of the largest element.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn most_bytes(arrays: &[ArrayRef]) -> f64 {
    let [lists, places, ..] = arrays else {
        return 0.0;
    };
    let (Some(lists), Some(places)) = (lists.as_list_opt::<i32>(), places.as_list_opt::<i32>())
    else {
        return 0.0;
    };
    let rows = 0..lists.len().min(places.len());
    let of_row = |row: usize| {
        let (elements, times) = (lists.value(row), f64::from(places.value_length(row)));
        let bytes = match elements.data_type().primitive_width() {
            Some(width) => width as f64,
            // One of them may be nearly all.
            None => elements.to_data().get_slice_memory_size().unwrap_or(0) as f64,
        };
        times * bytes
    };
    rows.filter(|row| lists.is_valid(*row) && places.is_valid(*row))
        .map(of_row)
        .sum()
}

fn selected(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let (lists, others, nulls) = both(arrays)?;
    let mut taken = Taken::new();
    for row in 0..lists.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            taken.lengths.push(0);
            continue;
        }
        let (begin, length) = span(lists, row)?;
        let places = others.value(row);
        let places = places.as_primitive::<Int64Type>();
        if places.null_count() > 0 {
            return Err(wrong("a place of list_select must be a whole number, got null").into());
        }
        for place in places.values() {
            let known = u64::try_from(*place).ok();
            let known = known.filter(|place| (1..=length).contains(place));
            taken
                .places
                .append_option(known.map(|place| begin + place - 1));
        }
        taken.lengths.push(places.len());
    }
    taken.lists_of(lists, nulls)
}

fn kept(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let (lists, others, nulls) = both(arrays)?;
    let mut taken = Taken::new();
    for row in 0..lists.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            taken.lengths.push(0);
            continue;
        }
        let (begin, length) = span(lists, row)?;
        let truths = others.value(row);
        let truths = truths.as_boolean();
        if truths.null_count() > 0 {
            return Err(wrong("a value of list_where must be true or false, got null").into());
        }
        let mut count = 0;
        for (place, truth) in (0..).zip(truths.values()) {
            if truth {
                let known = (place < length).then(|| begin + place);
                taken.places.append_option(known);
                count += 1;
            }
        }
        taken.lengths.push(count);
    }
    taken.lists_of(lists, nulls)
}

fn graded(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [lists, said @ ..] = arrays else {
        return internal_err!("the order of no list");
    };
    let lists = lists.as_list::<i32>();
    let said: Vec<&StringViewArray> = said.iter().map(|array| array.as_string_view()).collect();
    let at = |place: usize, row: usize| match said.get(place) {
        Some(texts) if texts.is_valid(row) => texts.value(row).to_uppercase(),
        _ => String::new(),
    };
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        if lists.is_null(row) {
            lengths.push(0);
            continue;
        }
        let options = SortOptions {
            descending: match at(0, row).as_str() {
                "" | "ASC" => false,
                "DESC" => true,
                other => {
                    let text = format!("the order must be 'ASC' or 'DESC', got '{other}'");
                    return Err(wrong(text).into());
                }
            },
            nulls_first: match at(1, row).as_str() {
                "" | "NULLS LAST" => false,
                "NULLS FIRST" => true,
                other => {
                    let text =
                        format!("nulls must be 'NULLS FIRST' or 'NULLS LAST', got '{other}'");
                    return Err(wrong(text).into());
                }
            },
        };
        let order = order(&lists.value(row), options)?;
        lengths.push(order.len());
        places.extend(order.into_iter().map(|place| i64::from(place) + 1));
    }
    let field = Arc::new(Field::new_list_field(DataType::Int64, true));
    let values = Arc::new(Int64Array::from(places));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = lists.nulls().cloned();
    Ok(Arc::new(ListArray::try_new(field, offsets, values, nulls)?))
}

/// The places of values in their order; equal ones stay in theirs.
fn order(values: &ArrayRef, options: SortOptions) -> Result<Vec<u32>> {
    let field = SortField::new_with_options(values.data_type().clone(), options);
    let converter = RowConverter::new(vec![field])?;
    let rows = converter.convert_columns(&[Arc::clone(values)])?;
    let mut order: Vec<u32> = (0..).take(values.len()).collect();
    order.sort_by_key(|place| rows.row(*place as usize));
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_stay_in_their_order() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100).map(|n| n % 2)));
        let wanted: Vec<u32> = (0..100).step_by(2).chain((1..100).step_by(2)).collect();
        assert_eq!(
            order(&values, SortOptions::new(false, false)).unwrap(),
            wanted
        );
        let nulls = arrow::array::new_null_array(&DataType::Null, 2);
        assert_eq!(order(&nulls, SortOptions::default()).unwrap(), [0, 1]);
    }
}

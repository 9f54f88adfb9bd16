//! Sums of lists, in the types in which SQL adds, and bytes of texts and of bytes.
//!
//! Comes in: lists of numbers; texts and bytes. Goes out: a number of each. Never here: sums of rows (`functions/sums/`).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, ListArray, PrimitiveArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType,
    Float64Type, Int64Type,
};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::{DOC_SECTION_ARRAY, DOC_SECTION_STRING};

use super::{Function, Takes, is_text, whole, wrong};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "array_sum",
        aliases: &["list_sum"],
        section: DOC_SECTION_ARRAY,
        about: "The sum of the numbers of a list: of whole numbers and truth values a whole number, of decimals a decimal, else a float. Nulls do not count; the sum of none is null.",
        takes: &[("list", Takes::List)],
        least: 1,
        repeats: false,
        returned: type_of_sum,
        made: sums,
    },
    Function {
        name: "octet_length",
        aliases: &[],
        section: DOC_SECTION_STRING,
        about: "How many bytes a text has, or bytes.",
        takes: &[("text", Takes::Any)],
        least: 1,
        repeats: false,
        returned: |types| match types {
            [kind] if is_text(kind) || kind.is_binary() => whole(types),
            _ => {
                let got: Vec<String> = types.iter().map(ToString::to_string).collect();
                plan_err!("octet_length takes a text or bytes, got {}", got.join(", "))
            }
        },
        made: |arrays| {
            let [values] = arrays else {
                return internal_err!("octet_length of {} columns", arrays.len());
            };
            let kind = match is_text(values.data_type()) {
                true => DataType::Utf8View,
                false => DataType::BinaryView,
            };
            let bytes = cast(&cast(values, &kind)?, &DataType::BinaryView)?;
            let bytes = bytes.as_binary_view().iter();
            // No value is longer than memory.
            let counts = bytes.map(|bytes| Some(i64::try_from(bytes?.len()).unwrap_or(i64::MAX)));
            Ok(Arc::new(counts.collect::<Int64Array>()))
        },
    },
];

fn type_of_sum(types: &[DataType]) -> Result<DataType> {
    let Some(DataType::List(element)) = types.first() else {
        return internal_err!("a sum of no list");
    };
    match element.data_type() {
        DataType::Boolean | DataType::Null => Ok(DataType::Int64),
        kind if kind.is_integer() => Ok(DataType::Int64),
        kind if kind.is_floating() => Ok(DataType::Float64),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => {
            Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale))
        }
        DataType::Decimal256(..) => Ok(DataType::Float64),
        other => plan_err!("array_sum takes a list of numbers, got a list of {other}"),
    }
}

fn sums(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [lists] = arrays else {
        return internal_err!("sums of {} columns", arrays.len());
    };
    let kind = type_of_sum(&[lists.data_type().clone()])?;
    let lists = lists.as_list::<i32>();
    let checked = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let values = cast_with_options(lists.values(), &kind, &checked)?;
    match kind {
        DataType::Int64 => {
            let values = values.as_primitive::<Int64Type>();
            let sums = each(lists, values, |sum: i64, value: i64| {
                sum.checked_add(value).ok_or("64 bits")
            });
            let sums: Int64Array = sums.collect::<Result<_>>()?;
            Ok(Arc::new(sums))
        }
        DataType::Decimal128(precision, scale) => {
            let values = values.as_primitive::<Decimal128Type>();
            let sums = each(lists, values, |sum: i128, value: i128| {
                let sum = sum.checked_add(value);
                sum.filter(|sum| Decimal128Type::is_valid_decimal_precision(*sum, precision))
                    .ok_or("38 digits")
            });
            let sums: Decimal128Array = sums.collect::<Result<_>>()?;
            Ok(Arc::new(sums.with_precision_and_scale(precision, scale)?))
        }
        _ => {
            let values = values.as_primitive::<Float64Type>();
            let sums = each(lists, values, |sum: f64, value: f64| Ok(sum + value));
            let sums: Float64Array = sums.collect::<Result<_>>()?;
            Ok(Arc::new(sums))
        }
    }
}

/// The sum of each list; none where there is no value.
fn each<'a, T: ArrowPrimitiveType>(
    lists: &'a ListArray,
    values: &'a PrimitiveArray<T>,
    add: impl Fn(T::Native, T::Native) -> Result<T::Native, &'static str> + 'a,
) -> impl Iterator<Item = Result<Option<T::Native>>> + 'a {
    (0..lists.len()).map(move |row| {
        let ends = lists.value_offsets().get(row..row + 2);
        let (true, Some([begin, end])) = (lists.is_valid(row), ends) else {
            return Ok(None);
        };
        let place = |end: &i32| usize::try_from(*end).unwrap_or_default();
        let mut sum = None;
        for place in place(begin)..place(end) {
            if values.is_null(place) {
                continue;
            }
            let value = values.value(place);
            sum = Some(match sum {
                None => value,
                Some(sum) => add(sum, value).map_err(|room| {
                    wrong(format!(
                        "array_sum: the sum of a list has no room in {room}"
                    ))
                })?,
            });
        }
        Ok(sum)
    })
}

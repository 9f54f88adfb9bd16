//! `array_sort`, whose nulls come where ORDER BY puts them.
//!
//! Comes in: the function of the engine, by which nulls come first, and which sorts the lists of all rows as the first of them says. Goes out: the same function, by which nulls, also those inside of elements, are greater than all
//! values, as in ORDER BY of PostgreSQL and DuckDB, unless NULLS FIRST or NULLS LAST says where elements that are null go, and which sorts the list of each row as that row says. Never here: how elements are compared.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, UInt64Array};
use arrow::compute::{cast, interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::sort::array_sort_udf;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use datafusion::prelude::SessionContext;

use super::passed_on::scalar_as_inner;

const FIRST: &str = "NULLS FIRST";
const LAST: &str = "NULLS LAST";

/// Puts the function in place of that of the engine.
pub(super) fn add_to(context: &SessionContext) {
    let inner = array_sort_udf();
    context.register_udf(ScalarUDF::from(SortedList { inner }));
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_ARRAY,
        "Sorts the elements of an array.",
        "array_sort(array[, order[, nulls_order]])",
    )
    .with_argument("array", "What is sorted.")
    .with_argument("order", "`ASC`, which is the default, or `DESC`.")
    .with_argument(
        "nulls_order",
        "`NULLS FIRST` or `NULLS LAST`; by default last for `ASC` and first for `DESC`.",
    )
    .with_sql_example("SELECT array_sort([3, 1, NULL, 2]) -- [1, 2, 3, NULL]")
    .build()
});

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SortedList {
    inner: Arc<ScalarUDF>,
}

/// How a list is sorted, in the words of whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    order: String,
    nulls: String,
}

impl Way {
    fn new(order: &str, nulls: Option<&str>) -> Self {
        let order = order.to_uppercase();
        let greatest = if order == "DESC" { FIRST } else { LAST };
        let nulls = nulls.map_or_else(|| greatest.to_owned(), str::to_uppercase);
        Self { order, nulls }
    }

    /// The way in which nulls are greater than all values, if this is another one.
    fn natural(&self) -> Option<Self> {
        let natural = Self::new(&self.order, None);
        let is_known = [FIRST, LAST].contains(&self.nulls.as_str());
        (is_known && natural != *self).then_some(natural)
    }
}

impl ScalarUDFImpl for SortedList {
    scalar_as_inner!();

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let words = arguments.args.split_off(1.min(arguments.args.len()));
        let is_scalar = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = words.iter().all(is_scalar);
        let is_one = are_scalars && arguments.args.iter().all(is_scalar);
        let num_ways = if are_scalars {
            1
        } else {
            arguments.number_rows
        };
        let ways = ways(&words, num_ways)?;
        let num_rows = if is_one { 1 } else { arguments.number_rows };
        let [lists] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("array_sort of no list");
        };
        let lists = lists.to_array(num_rows)?;
        let sorted = match ways.as_slice() {
            [way] => self.sorted(&lists, way.as_ref(), &arguments)?,
            ways => self.each(&lists, ways, &arguments)?,
        };
        Ok(match is_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&sorted, 0)?),
            false => ColumnarValue::Array(sorted),
        })
    }
}

/// How the list of each row is sorted; `None` where that is null.
fn ways(words: &[ColumnarValue], num_rows: usize) -> Result<Vec<Option<Way>>> {
    let words = words.iter().map(|word| {
        let word = word.to_array(num_rows)?;
        Ok(cast(&word, &DataType::Utf8)?)
    });
    let words: Vec<ArrayRef> = words.collect::<Result<_>>()?;
    let ways = (0..num_rows).map(|row| {
        let mut said = words.iter().map(|word| {
            let word = word.as_string::<i32>();
            word.is_valid(row).then(|| word.value(row))
        });
        let order = said.next().unwrap_or(Some("ASC"));
        let nulls = said.next();
        match nulls {
            Some(nulls) => Some(Way::new(order?, Some(nulls?))),
            None => Some(Way::new(order?, None)),
        }
    });
    Ok(ways.collect())
}

impl SortedList {
    /// The list of each row, sorted as that row says.
    fn each(
        &self,
        lists: &ArrayRef,
        ways: &[Option<Way>],
        arguments: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let mut different: Vec<&Option<Way>> = Vec::new();
        let mut places = Vec::with_capacity(ways.len());
        for (row, way) in ways.iter().enumerate() {
            let known = different.iter().position(|known| *known == way);
            let place = known.unwrap_or(different.len());
            if known.is_none() {
                different.push(way);
            }
            places.push((place, row));
        }
        let sorted = different
            .into_iter()
            .map(|way| self.sorted(lists, way.as_ref(), arguments));
        let sorted: Vec<ArrayRef> = sorted.collect::<Result<_>>()?;
        if sorted.is_empty() {
            return Ok(Arc::clone(lists));
        }
        let sorted: Vec<&dyn Array> = sorted.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&sorted, &places)?)
    }

    /// All lists, sorted in one way.
    fn sorted(
        &self,
        lists: &ArrayRef,
        way: Option<&Way>,
        arguments: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        // Nulls inside of elements are where nulls are natural.
        let is_nested = match lists.data_type() {
            DataType::List(field) | DataType::LargeList(field) => field.data_type().is_nested(),
            _ => false,
        };
        match way.and_then(Way::natural).filter(|_| is_nested) {
            None => self.as_engine(lists, way, arguments),
            Some(natural) => {
                let sorted = self.as_engine(lists, Some(&natural), arguments)?;
                match sorted.data_type() {
                    DataType::List(_) => turned(sorted.as_list::<i32>(), &natural),
                    _ => turned(sorted.as_list::<i64>(), &natural),
                }
            }
        }
    }

    fn as_engine(
        &self,
        lists: &ArrayRef,
        way: Option<&Way>,
        arguments: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let number_rows = lists.len();
        let word = |word: Option<&String>| ColumnarValue::Scalar(ScalarValue::Utf8(word.cloned()));
        let words = [way.map(|way| &way.order), way.map(|way| &way.nulls)];
        let args = [ColumnarValue::Array(Arc::clone(lists))];
        let args = args.into_iter().chain(words.into_iter().map(word));
        let field = arguments.arg_fields.first().map(Arc::clone);
        let of_word = || Arc::new(Field::new("word", DataType::Utf8, true));
        let sorted = self.inner.invoke_with_args(ScalarFunctionArgs {
            args: args.collect(),
            arg_fields: field.into_iter().chain([of_word(), of_word()]).collect(),
            number_rows,
            return_field: Arc::clone(&arguments.return_field),
            config_options: Arc::clone(&arguments.config_options),
        })?;
        sorted.into_array(number_rows)
    }
}

/// The lists, in which nulls are at the one end, with these at the other.
fn turned<O: OffsetSizeTrait>(lists: &GenericListArray<O>, natural: &Way) -> Result<ArrayRef> {
    let (field, offsets, values, nulls) = lists.clone().into_parts();
    let mut places: Vec<u64> = (0..values.len() as u64).collect();
    for (start, end) in offsets.iter().zip(offsets.iter().skip(1)) {
        let (start, end) = (start.as_usize(), end.as_usize());
        let num_nulls = (start..end).filter(|place| values.is_null(*place)).count();
        if let Some(list) = places.get_mut(start..end) {
            match natural.nulls == FIRST {
                true => list.rotate_left(num_nulls),
                false => list.rotate_right(num_nulls),
            }
        }
    }
    let values = take(&values, &UInt64Array::from(places), None)?;
    let lists = GenericListArray::<O>::try_new(field, offsets, values, nulls)?;
    Ok(Arc::new(lists))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ListArray, StringArray};
    use arrow::datatypes::Int32Type;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    fn of(word: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(word))
    }

    fn column(words: [Option<&str>; 4]) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(StringArray::from(words.to_vec())))
    }

    /// Four times the list of 2, null and 1, sorted.
    fn sorted(words: Vec<ColumnarValue>) -> Result<ArrayRef> {
        let lists = [[Some(2), None, Some(1)]; 4].map(|list| Some(list.to_vec()));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        let field = Arc::new(Field::new("l", lists.data_type().clone(), true));
        let arg_fields = vec![Arc::clone(&field); words.len() + 1];
        let lists = [ColumnarValue::Array(lists)];
        let function = SortedList {
            inner: array_sort_udf(),
        };
        let sorted = function.invoke_with_args(ScalarFunctionArgs {
            args: lists.into_iter().chain(words).collect(),
            arg_fields,
            number_rows: 4,
            return_field: field,
            config_options: Arc::new(ConfigOptions::default()),
        })?;
        sorted.into_array(4)
    }

    fn expected(lists: [Option<[Option<i32>; 3]>; 4]) -> ArrayRef {
        let lists = lists.map(|list| list.map(|list| list.to_vec()));
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
    }

    const UP: Option<[Option<i32>; 3]> = Some([Some(1), Some(2), None]);
    const DOWN: Option<[Option<i32>; 3]> = Some([None, Some(2), Some(1)]);

    #[test]
    fn nulls_are_greater_than_all_values() {
        assert_eq!(&sorted(Vec::new()).unwrap(), &expected([UP; 4]));
        assert_eq!(&sorted(vec![of("asc")]).unwrap(), &expected([UP; 4]));
        assert_eq!(&sorted(vec![of("DESC")]).unwrap(), &expected([DOWN; 4]));
        let last = sorted(vec![of("DESC"), of("nulls last")]).unwrap();
        let list = Some([Some(2), Some(1), None]);
        assert_eq!(&last, &expected([list; 4]));
        assert!(sorted(vec![of("up")]).is_err());
        assert!(sorted(vec![of("ASC"), of("nulls")]).is_err());
    }

    #[test]
    fn each_list_is_sorted_as_its_row_says() {
        let orders = column([Some("DESC"), None, Some("asc"), Some("desc")]);
        let each = sorted(vec![orders.clone()]).unwrap();
        assert_eq!(&each, &expected([DOWN, None, UP, DOWN]));
        let nulls = column([
            Some("NULLS LAST"),
            Some("NULLS LAST"),
            Some("NULLS FIRST"),
            None,
        ]);
        let each = sorted(vec![orders, nulls]).unwrap();
        let lists = [
            Some([Some(2), Some(1), None]),
            None,
            Some([None, Some(1), Some(2)]),
            None,
        ];
        assert_eq!(&each, &expected(lists));
        let wrong = column([Some("asc"), Some("asc"), Some("up"), Some("asc")]);
        assert!(sorted(vec![wrong]).is_err());
    }
}

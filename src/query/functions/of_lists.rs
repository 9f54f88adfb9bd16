//! What aggregates make of the elements of each list: `list_stddev_samp(l)`, and with it `list_aggregate(l, 'stddev_samp')`.
//!
//! Comes in: the aggregates of a session. Goes out: a function of lists for each. Never here: what needs no aggregate (`simple/totals.rs`, `simple/counted.rs`).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, new_empty_array};
use arrow::compute::{filter, is_null, nullif, or};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Documentation, EmitTo, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::prelude::SessionContext;

use super::simple::without_signs;

/// The functions, their aggregates, and what these make.
const OF_LISTS: [(&str, &str, &str); 13] = [
    (
        "list_bit_and",
        "bit_and",
        "The bits that all elements of a list have",
    ),
    (
        "list_bit_or",
        "bit_or",
        "The bits that any element of a list has",
    ),
    (
        "list_bit_xor",
        "bit_xor",
        "The bits that an odd number of elements of a list have",
    ),
    (
        "list_bool_and",
        "bool_and",
        "Whether all elements of a list are true",
    ),
    (
        "list_bool_or",
        "bool_or",
        "Whether any element of a list is true",
    ),
    (
        "list_kurtosis",
        "kurtosis",
        "The excess kurtosis of the elements of a list, as of a sample",
    ),
    (
        "list_kurtosis_pop",
        "kurtosis_pop",
        "The excess kurtosis of the elements of a list",
    ),
    ("list_mode", "mode", "The most frequent element of a list"),
    (
        "list_skewness",
        "skewness",
        "The skewness of the elements of a list",
    ),
    (
        "list_stddev_pop",
        "stddev_pop",
        "The standard deviation of the elements of a list",
    ),
    (
        "list_stddev_samp",
        "stddev",
        "The standard deviation of the elements of a list, as of a sample",
    ),
    (
        "list_var_pop",
        "var_pop",
        "The variance of the elements of a list",
    ),
    (
        "list_var_samp",
        "var",
        "The variance of the elements of a list, as of a sample",
    ),
];

/// Adds the functions, once a context has all aggregates.
pub(super) fn add_to(context: &SessionContext) {
    let state = context.state();
    for (name, aggregate, about) in OF_LISTS {
        let Some(inner) = state.aggregate_functions().get(aggregate) else {
            debug_assert!(false, "there is no {aggregate}");
            continue;
        };
        let about = format!("{about}. Nulls do not count.");
        let documented = Documentation::builder(DOC_SECTION_ARRAY, about, format!("{name}(list)"));
        context.register_udf(ScalarUDF::from(OfLists {
            name,
            inner: Arc::clone(inner),
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: documented.with_argument("list", "A list.").build(),
        }));
    }
}

/// An aggregate, of the elements of each list.
#[derive(Debug)]
struct OfLists {
    name: &'static str,
    inner: Arc<AggregateUDF>,
    signature: Signature,
    documentation: Documentation,
}

impl PartialEq for OfLists {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OfLists {}

impl Hash for OfLists {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfLists {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let element = match types {
            [DataType::Null] => &DataType::Null,
            [
                DataType::List(element)
                | DataType::LargeList(element)
                | DataType::FixedSizeList(element, _),
            ] => element.data_type(),
            [other] => return plan_err!("{} takes a list, got {other}", self.name),
            _ => return plan_err!("{} takes a list, got {} arguments", self.name, types.len()),
        };
        // Of nothing but nulls the type is one that the aggregate takes.
        let tried = match element {
            DataType::Null => vec![DataType::Int64, DataType::Boolean],
            known => vec![known.clone()],
        };
        let taken = |kind: &DataType| self.taken(kind).ok();
        match tried.iter().find_map(taken) {
            Some(kind) => Ok(vec![DataType::new_list(kind, true)]),
            None => plan_err!("{} does not take a list of {element}", self.name),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::List(element)] => self.inner.return_type(&[element.data_type().clone()]),
            _ => internal_err!("{} of no list", self.name),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_scalars = arguments.args.iter().all(is_one);
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [lists] = arrays.as_slice() else {
            return internal_err!("{} of {} columns", self.name, arrays.len());
        };
        let made = self.of_each(lists.as_list(), &arguments.return_field)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

impl OfLists {
    /// The type in which the aggregate takes values of another.
    fn taken(&self, kind: &DataType) -> Result<DataType> {
        let field = Arc::new(Field::new("element", kind.clone(), true));
        let taken = fields_with_udf(&[field], self.inner.as_ref())?;
        match taken.as_slice() {
            [field] => Ok(field.data_type().clone()),
            _ => internal_err!("{} takes several values", self.inner.name()),
        }
    }

    /// What the aggregate makes of each list; null of what is null.
    fn of_each(&self, lists: &ListArray, returned: &FieldRef) -> Result<ArrayRef> {
        let kind = lists.value_type();
        let field = Arc::new(Field::new("element", kind, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let element: Arc<dyn PhysicalExpr> = Arc::new(Column::new("element", 0));
        let arguments = || AccumulatorArgs {
            return_field: Arc::clone(returned),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: self.name,
            is_distinct: false,
            exprs: std::slice::from_ref(&element),
            expr_fields: std::slice::from_ref(&field),
        };
        let made = match self.inner.groups_accumulator_supported(arguments()) {
            true => {
                let (elements, rows) = elements(lists)?;
                let elements = without_signs(&elements);
                let mut groups = self.inner.create_groups_accumulator(arguments())?;
                groups.update_batch(&[elements], &rows, None, lists.len())?;
                groups.evaluate(EmitTo::All)?
            }
            false => {
                let each = lists.iter().map(|list| {
                    let mut one = self.inner.accumulator(arguments())?;
                    if let Some(list) = list {
                        one.update_batch(&[without_signs(&list)])?;
                    }
                    one.evaluate()
                });
                let each: Vec<ScalarValue> = each.collect::<Result<_>>()?;
                match each.is_empty() {
                    true => new_empty_array(returned.data_type()),
                    false => ScalarValue::iter_to_array(each)?,
                }
            }
        };
        // Of no elements there is nothing, whatever the aggregate makes of no rows.
        let empty = lists.offsets().lengths().map(|length| Some(length == 0));
        let empty: BooleanArray = empty.collect();
        Ok(nullif(&made, &or(&empty, &is_null(lists)?)?)?)
    }
}

/// The elements of lists, and the row of each. What lists that are null have is left out.
fn elements(lists: &ListArray) -> Result<(ArrayRef, Vec<usize>)> {
    let place = |end: i32| usize::try_from(end).unwrap_or_default();
    let offsets = lists.value_offsets();
    let begin = offsets.first().copied().map_or(0, place);
    let end = offsets.last().copied().map_or(0, place);
    let lengths = lists.offsets().lengths().enumerate();
    let mut rows: Vec<usize> = lengths
        .flat_map(|(row, length)| std::iter::repeat_n(row, length))
        .collect();
    let mut elements = lists.values().slice(begin, end - begin);
    if lists.null_count() > 0 {
        let kept: BooleanArray = rows.iter().map(|row| Some(lists.is_valid(*row))).collect();
        elements = filter(&elements, &kept)?;
        rows.retain(|row| lists.is_valid(*row));
    }
    Ok((elements, rows))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, new_null_array};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn elements_of_what_is_null_do_not_count() {
        let values = Arc::new(Int64Array::from(vec![9, 1, 2, 3, 4, 9]));
        let element = Arc::new(Field::new_list_field(DataType::Int64, true));
        let offsets = OffsetBuffer::new(vec![1, 3, 4, 4, 5].into());
        let nulls = NullBuffer::from(vec![true, false, true, true]);
        let lists = ListArray::new(element, offsets, values, Some(nulls));
        let (elements, rows) = elements(&lists).unwrap();
        assert_eq!(elements.as_primitive::<Int64Type>().values(), &[1, 2, 4]);
        assert_eq!(rows, [0, 0, 3]);
    }

    #[test]
    fn each_function_has_its_aggregate() {
        let context = SessionContext::new();
        super::super::add_to(&context);
        let state = context.state();
        for (name, ..) in OF_LISTS {
            let function = state.scalar_functions().get(name).unwrap();
            let kind = DataType::new_list(DataType::Null, true);
            let kinds = function.inner().coerce_types(&[kind]).unwrap();
            let returned = function.inner().return_type(&kinds).unwrap();
            let made = function.inner().invoke_with_args(ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(new_null_array(&kinds[0], 2))],
                arg_fields: vec![Arc::new(Field::new("list", kinds[0].clone(), true))],
                number_rows: 2,
                return_field: Arc::new(Field::new("made", returned, true)),
                config_options: Arc::default(),
            });
            assert_eq!(
                made.unwrap().into_array(2).unwrap().null_count(),
                2,
                "{name}"
            );
        }
    }
}

//! One value of all elements of a list: `list_reduce(l, (sum, x) -> sum + x)`.
//!
//! Comes in: lists, a lambda of what was made so far, the next element and its place, and perhaps what to begin with. Goes out: what the lambda has made at the end of each list. Lists are gone through side by side: each step takes the next
//! element of all that have one. Never here: what is made of each element (`mapped.rs`).

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, Int64Array, UInt64Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, interleave, take, take_arrays};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::utils::list_values;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs,
    HigherOrderSignature, HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument,
    LambdaParametersProgress, ValueOrLambda, Volatility,
};

use super::{element_of, extents, place_field};
use crate::error::Error;
use crate::query::plan::types::decimals::{is_decimal, with_room};

/// So often the type of what is made is asked for with the type that it had: `sum + x` of decimals has one more digit each time.
const ROUNDS: usize = 2;

/// The function.
pub(super) fn function() -> Arc<HigherOrderUDF> {
    Arc::new(HigherOrderUDF::new_from_impl(Reduce {
        signature: HigherOrderSignature::user_defined(Volatility::Immutable),
        aliases: ["list_reduce", "reduce"].map(String::from).to_vec(),
    }))
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_ARRAY,
        "One value of all elements of a list, from left to right.",
        "array_reduce(array, (value, element) -> expression[, initial])",
    )
    .with_argument("array", "A list.")
    .with_argument(
        "lambda",
        "What becomes of what was made so far, by the next element and, as a third parameter, its place. Without an initial value the first element is what it begins with.",
    )
    .with_argument("initial", "What it begins with. An empty list gives this.")
    .with_sql_example("SELECT array_reduce([1, 2, 3], (sum, x) -> sum * 10 + x) -- 123")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct Reduce {
    signature: HigherOrderSignature,
    aliases: Vec<String>,
}

/// What the function is given.
type Given<V, L> = (V, L, Option<V>);

impl Reduce {
    fn given<V, L>(
        &self,
        arguments: impl IntoIterator<Item = ValueOrLambda<V, L>>,
    ) -> Result<Given<V, L>> {
        use ValueOrLambda::{Lambda, Value};
        let mut arguments = arguments.into_iter();
        let first = (arguments.next(), arguments.next());
        match (first, arguments.next(), arguments.next()) {
            ((Some(Value(list)), Some(Lambda(lambda))), None, _) => Ok((list, lambda, None)),
            ((Some(Value(list)), Some(Lambda(lambda))), Some(Value(initial)), None) => {
                Ok((list, lambda, Some(initial)))
            }
            _ => plan_err!(
                "{} takes a list, a lambda and perhaps an initial value",
                self.name()
            ),
        }
    }

    /// The type of what is made, from that of what it begins with and what the lambda makes of it.
    fn made(&self, begun: &DataType, by: &DataType) -> Result<DataType> {
        // As everywhere: decimals beside floats are floats, and narrow numbers get room beside whole ones.
        let is_mixed = |one: &DataType, other: &DataType| is_decimal(one) && other.is_floating();
        if is_mixed(begun, by) || is_mixed(by, begun) {
            return Ok(DataType::Float64);
        }
        let roomy = |kind: &DataType, beside: &DataType| match beside.is_integer() {
            true => with_room(kind),
            false => None,
        };
        let (begun, by) = (
            &roomy(begun, by).unwrap_or_else(|| begun.clone()),
            &roomy(by, begun).unwrap_or_else(|| by.clone()),
        );
        match type_union_coercion(begun, by) {
            Some(made) => Ok(made),
            None => {
                let text = format!(
                    "the lambda of {} must make values of the type that it is given, {begun}, got {by}",
                    self.name()
                );
                Err(Error::invalid_argument(text)
                    .with_hint(
                        "give it an initial value of the type that it makes, as a third argument",
                    )
                    .into())
            }
        }
    }

    /// What it begins with.
    fn begun(&self, list: &FieldRef, initial: Option<&FieldRef>) -> Result<DataType> {
        let element = element_of(self.name(), list)?;
        match initial {
            Some(initial) => Ok(initial.data_type().clone()),
            None => Ok(element.data_type().clone()),
        }
    }
}

impl HigherOrderUDFImpl for Reduce {
    fn name(&self) -> &'static str {
        "array_reduce"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let mut types = types.to_vec();
        let Some(list) = types.first_mut() else {
            return plan_err!("{} without a list", self.name());
        };
        *list = match &*list {
            DataType::ListView(field) | DataType::FixedSizeList(field, _) => {
                DataType::List(Arc::clone(field))
            }
            DataType::LargeListView(field) => DataType::LargeList(Arc::clone(field)),
            DataType::Null => DataType::new_list(DataType::Null, true),
            other => other.clone(),
        };
        Ok(types)
    }

    fn lambda_parameters(
        &self,
        step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let (list, by, initial) = self.given(fields.iter().cloned())?;
        let begun = self.begun(&list, initial.as_ref())?;
        let made = match &by {
            Some(by) => self.made(&begun, by.data_type())?,
            None => begun.clone(),
        };
        // Where all is settled, members of a cluster ask once, with what the lambda makes.
        let is_last = step == 0 || step >= ROUNDS;
        let is_settled = by.is_some() && (made == begun || is_last);
        let made = match made {
            // Sums and products of decimals have more digits each time.
            DataType::Decimal128(_, scale) if step >= ROUNDS && made != begun => {
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
            }
            made => made,
        };
        let made = Arc::new(Field::new("made", made, true));
        let element = element_of(self.name(), &list)?;
        let params = vec![made, element, place_field()];
        Ok(match is_settled {
            true => LambdaParametersProgress::Complete(vec![params]),
            false => LambdaParametersProgress::Partial(vec![Some(params)]),
        })
    }

    fn return_field_from_args(&self, arguments: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let (list, by, initial) = self.given(arguments.arg_fields.iter().cloned())?;
        let begun = self.begun(&list, initial.as_ref())?;
        let made = self.made(&begun, by.data_type())?;
        Ok(Arc::new(Field::new("", made, true)))
    }

    fn invoke_with_args(&self, arguments: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let num_rows = arguments.number_rows;
        let made = arguments.return_field.data_type();
        let (list, lambda, initial) = self.given(arguments.args)?;
        let lists = list.to_array(num_rows)?;
        let initial = initial.map(|initial| initial.to_array(num_rows));
        let steps = Steps::begin(&lists, initial.transpose()?, made)?;
        Ok(ColumnarValue::Array(steps.taken(&lambda)?))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }
}

/// Lists that are gone through side by side.
struct Steps {
    /// What is made.
    data_type: DataType,
    /// The elements of all.
    values: ArrayRef,
    /// Where those of each list begin, and how many there are.
    extents: Vec<(usize, usize)>,
    /// The rows of the lists that have elements left, or have not been looked at.
    rows: Vec<usize>,
    /// What was made of them so far.
    made: ArrayRef,
    /// How many elements of them were taken.
    taken: usize,
    /// What the lambda names beside its parameters, of these rows.
    named: RefCell<Option<Vec<ArrayRef>>>,
    /// What was made of those that are done. First a null, which all others have.
    done: Vec<ArrayRef>,
    /// Where there what was made of each row is.
    places: Vec<(usize, usize)>,
}

impl Steps {
    fn begin(lists: &ArrayRef, initial: Option<ArrayRef>, data_type: &DataType) -> Result<Self> {
        let values = list_values(lists)?;
        let extents = extents(lists)?;
        let rows: Vec<usize> = (0..lists.len())
            .filter(|row| lists.is_valid(*row))
            .collect();
        let (made, taken) = match initial {
            Some(initial) => (take(&initial, &indices(rows.iter().copied()), None)?, 0),
            None => {
                let firsts = rows.iter().filter_map(|row| extents.get(*row));
                if firsts.clone().any(|(_, length)| *length == 0) {
                    let text = "list_reduce of an empty list has no element to begin with";
                    return Err(Error::invalid_argument(text)
                        .with_hint("give it an initial value as a third argument, or leave such lists out: CASE WHEN len(l) > 0 THEN …")
                        .into());
                }
                let firsts = firsts.map(|(begin, _)| *begin);
                (take(&values, &indices(firsts), None)?, 1)
            }
        };
        Ok(Self {
            data_type: data_type.clone(),
            values,
            rows,
            made: cast(&made, data_type)?,
            taken,
            named: RefCell::new(None),
            done: vec![new_null_array(data_type, 1)],
            places: vec![(0, 0); extents.len()],
            extents,
        })
    }

    /// All steps: what was made of each row.
    fn taken(mut self, lambda: &LambdaArgument) -> Result<ArrayRef> {
        while self.go_on()? {
            let next = self.rows.iter().filter_map(|row| self.extents.get(*row));
            let next = indices(next.map(|(begin, _)| begin + self.taken));
            let made = || Ok(Arc::clone(&self.made));
            let elements = || Ok(take(&self.values, &next, None)?);
            let place = || {
                let place = i64::try_from(self.taken + 1).unwrap_or(i64::MAX);
                Ok(Arc::new(Int64Array::from_value(place, next.len())) as ArrayRef)
            };
            let spread = |named: &[ArrayRef]| {
                let mut known = self.named.borrow_mut();
                if let Some(known) = known.as_ref() {
                    return Ok(known.clone());
                }
                let rows = indices(self.rows.iter().copied());
                let taken = take_arrays(named, &rows, None)?;
                *known = Some(taken.clone());
                Ok(taken)
            };
            let made = lambda.evaluate(&[&made, &elements, &place], spread)?;
            self.made = cast(&made.into_array(next.len())?, &self.data_type)?;
            self.taken += 1;
        }
        let done: Vec<&dyn Array> = self.done.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&done, &self.places)?)
    }

    /// Takes out the lists without elements left; whether there are others.
    fn go_on(&mut self) -> Result<bool> {
        let has_more = |row: &usize| {
            let extent = self.extents.get(*row);
            extent.is_some_and(|(_, length)| *length > self.taken)
        };
        let (more, over): (Vec<usize>, Vec<usize>) =
            (0..self.rows.len()).partition(|number| self.rows.get(*number).is_some_and(has_more));
        if !over.is_empty() {
            for (number, over) in over.iter().enumerate() {
                let place = self
                    .rows
                    .get(*over)
                    .and_then(|row| self.places.get_mut(*row));
                if let Some(place) = place {
                    *place = (self.done.len(), number);
                }
            }
            self.done.push(take(&self.made, &indices(over), None)?);
            self.made = take(&self.made, &indices(more.iter().copied()), None)?;
            let rows = more.iter().filter_map(|number| self.rows.get(*number));
            self.rows = rows.copied().collect();
            self.named = RefCell::new(None);
        }
        Ok(!self.rows.is_empty())
    }
}

fn indices(rows: impl IntoIterator<Item = usize>) -> UInt64Array {
    UInt64Array::from_iter_values(rows.into_iter().map(|row| row as u64))
}

/// As values are put into a column: what has no room there is an error.
fn cast(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if values.data_type() == data_type {
        return Ok(Arc::clone(values));
    }
    let strictly = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    Ok(cast_with_options(values, data_type, &strictly)?)
}

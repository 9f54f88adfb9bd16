//! How a function is told to the engine: a table entry with its name, what it takes, and how values are made.
//!
//! Comes in: an entry. Goes out: the function as the engine calls it, which casts arguments, and writes out those that are the same in each row for few rows at once. Never here: what functions do.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, DocSection, Documentation, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};

/// Arguments that are the same in each row are written out for so many bytes at once.
const WRITTEN_OUT_BYTES: usize = 16 << 20;

/// What an argument may be, and what the function gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A text, as views.
    Text,
    /// A whole number of up to 64 bits, as it is.
    Integer,
    /// A whole number, in 64 bits with a sign.
    Whole,
    /// A number, as a float of 64 bits.
    Float,
    Truth,
    /// A list, with offsets of 32 bits.
    List,
    /// A list of whole numbers.
    Wholes,
    /// A list of numbers, as floats of 64 bits.
    Floats,
    /// A list of truth values.
    Truths,
    Struct,
    Map,
    /// Anything, as it is.
    Any,
}

impl Takes {
    /// The type that an argument is cast to; `None` where it is none of these.
    fn type_of(self, given: &DataType) -> Option<DataType> {
        let list_of = |kind| DataType::List(Arc::new(Field::new_list_field(kind, true)));
        let list_if = |is_any: bool, kind| is_any.then(|| list_of(kind));
        match (self, given) {
            (_, DataType::Dictionary(_, values)) => self.type_of(values),
            (_, DataType::RunEndEncoded(_, values)) => self.type_of(values.data_type()),
            (Self::Any, other) => Some(other.clone()),
            (Self::Text, other) if is_text(other) => Some(DataType::Utf8View),
            (Self::Integer, other) if other.is_integer() => Some(other.clone()),
            (Self::Integer | Self::Whole, DataType::Null) => Some(DataType::Int64),
            (Self::Whole, other) if other.is_integer() => Some(DataType::Int64),
            (Self::Float, other) if other.is_numeric() || other.is_null() => {
                Some(DataType::Float64)
            }
            (Self::Truth, DataType::Boolean | DataType::Null) => Some(DataType::Boolean),
            (Self::List, DataType::Null) => Some(list_of(DataType::Null)),
            (Self::Wholes, DataType::Null) => Some(list_of(DataType::Int64)),
            (Self::Floats, DataType::Null) => Some(list_of(DataType::Float64)),
            (Self::Truths, DataType::Null) => Some(list_of(DataType::Boolean)),
            (Self::Struct, DataType::Struct(_) | DataType::Null)
            | (Self::Map, DataType::Map(..) | DataType::Null) => Some(given.clone()),
            (
                takes,
                DataType::List(element)
                | DataType::LargeList(element)
                | DataType::FixedSizeList(element, _),
            ) => {
                let (kind, is_null) = (element.data_type(), element.data_type().is_null());
                match takes {
                    Self::List => Some(DataType::List(Arc::clone(element))),
                    Self::Wholes => list_if(kind.is_integer() || is_null, DataType::Int64),
                    Self::Floats => list_if(kind.is_numeric() || is_null, DataType::Float64),
                    Self::Truths => {
                        list_if(*kind == DataType::Boolean || is_null, DataType::Boolean)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn named(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Integer | Self::Whole => "a whole number",
            Self::Float => "a number",
            Self::Truth => "true or false",
            Self::List => "a list",
            Self::Wholes => "a list of whole numbers",
            Self::Floats => "a list of numbers",
            Self::Truths => "a list of truth values",
            Self::Struct => "a struct",
            Self::Map => "a map",
            Self::Any => "a value",
        }
    }
}

pub(super) fn is_text(kind: &DataType) -> bool {
    kind.is_string() || kind.is_null()
}

/// A function: how it is called, what it takes, and how values are made of columns of one length.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    pub(super) section: DocSection,
    pub(super) about: &'static str,
    pub(super) takes: &'static [(&'static str, Takes)],
    /// So many arguments it has at least.
    pub(super) least: usize,
    /// Whether the last argument may come again and again.
    pub(super) repeats: bool,
    pub(super) returned: fn(&[DataType]) -> Result<DataType>,
    pub(super) made: fn(&[ArrayRef]) -> Result<ArrayRef>,
}

impl Function {
    pub(super) fn syntax(&self) -> String {
        let names: Vec<&str> = self.takes.iter().map(|(name, _)| *name).collect();
        let (least, more) = names.split_at(self.least.min(names.len()));
        let mut all = least.join(", ");
        for name in more {
            let comma = if all.is_empty() { "" } else { ", " };
            all += &format!("[{comma}{name}");
        }
        all += &"]".repeat(more.len());
        let again = if self.repeats { ", …" } else { "" };
        format!("{}({all}{again})", self.said())
    }

    /// The name as statements have it: that of a function behind another one begins with two lines.
    fn said(&self) -> &'static str {
        self.name.trim_start_matches("__")
    }

    /// The name and the kind of the argument at a place.
    fn argument(&self, place: usize) -> Option<&(&'static str, Takes)> {
        let last = self.takes.last().filter(|_| self.repeats);
        self.takes.get(place).or(last)
    }

    pub(super) fn coerced(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let most = match self.repeats {
            true => usize::MAX,
            false => self.takes.len(),
        };
        if !(self.least..=most).contains(&types.len()) {
            return plan_err!("it is {}, got {} arguments", self.syntax(), types.len());
        }
        let one = |(place, given): (usize, &DataType)| {
            let Some((name, takes)) = self.argument(place) else {
                return datafusion::common::internal_err!("an argument that nobody takes");
            };
            match takes.type_of(given) {
                Some(wanted) => Ok(wanted),
                None => plan_err!(
                    "{name} of {} must be {}, got {given}",
                    self.said(),
                    takes.named()
                ),
            }
        };
        types.iter().enumerate().map(one).collect()
    }
}

/// A function as the engine has it.
#[derive(Debug)]
pub(super) struct Registered {
    function: &'static Function,
    aliases: Vec<String>,
    signature: Signature,
    documentation: Documentation,
}

impl fmt::Debug for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}

impl Eq for Registered {}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl Registered {
    pub(super) fn of(function: &'static Function) -> Self {
        let syntax = function.syntax();
        let section = function.section.clone();
        let mut documented = Documentation::builder(section, function.about, syntax);
        for (name, takes) in function.takes {
            let about = takes.named();
            let letters = about.chars();
            let about: String = letters.enumerate().map(upper_first).collect();
            documented = documented.with_argument(*name, format!("{about}."));
        }
        Self {
            function,
            aliases: function.aliases.iter().map(ToString::to_string).collect(),
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: documented.build(),
        }
    }
}

fn upper_first((place, letter): (usize, char)) -> char {
    match place {
        0 => letter.to_ascii_uppercase(),
        _ => letter,
    }
}

impl ScalarUDFImpl for Registered {
    fn name(&self) -> &'static str {
        self.function.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerced(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        (self.function.returned)(types)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_same = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let are_same = arguments.args.iter().all(is_same);
        if are_same {
            let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
            let made = (self.function.made)(&arrays)?;
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &made, 0,
            )?));
        }
        let parts = in_steps(&arguments.args, arguments.number_rows);
        let parts = parts.map(|arrays| (self.function.made)(&arrays?));
        let parts: Vec<ArrayRef> = parts.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(match parts.as_slice() {
            [all] => Arc::clone(all),
            parts => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                concat(&parts)?
            }
        }))
    }
}

/// Arguments as columns, of few rows at once where a long one is the same in each row.
pub(in crate::query) fn in_steps(
    arguments: &[ColumnarValue],
    rows: usize,
) -> impl Iterator<Item = Result<Vec<ArrayRef>>> {
    let bytes_of_row: usize = arguments.iter().map(same_bytes).sum();
    let step = (WRITTEN_OUT_BYTES / bytes_of_row.max(1)).max(1);
    // Of no rows there are columns too.
    let begins = (0..rows.max(1)).step_by(step);
    begins.map(move |begin| {
        let count = step.min(rows - begin);
        let arrays = arguments.iter().map(|value| match value {
            ColumnarValue::Array(array) => Ok(array.slice(begin, count)),
            ColumnarValue::Scalar(value) => value.to_array_of_size(count),
        });
        arrays.collect()
    })
}

/// The bytes of a value that is the same in each row, once it is written out for one.
fn same_bytes(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Array(_) => 0,
        ColumnarValue::Scalar(value) => value.size(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    use super::super::{lists, paths};
    use super::*;

    #[test]
    fn what_is_optional_is_in_brackets() {
        let function = paths::ALL.first().unwrap();
        assert_eq!(
            function.syntax(),
            "parse_filename(path[, trim_extension[, separator]])"
        );
        let error = function.coerced(&[]).unwrap_err().to_string();
        assert!(error.contains("got 0 arguments"), "{error}");
        let error = function.coerced(&[DataType::Int64]).unwrap_err();
        let text = "path of parse_filename must be a text, got Int64";
        assert!(error.to_string().contains(text), "{error}");
    }

    #[test]
    fn long_values_that_are_the_same_are_written_out_for_few_rows_at_once() {
        let list = Int64Array::from_iter_values(0..1_000_000);
        let list = ScalarValue::List(ScalarValue::new_list(
            &list.iter().map(ScalarValue::from).collect::<Vec<_>>(),
            &DataType::Int64,
            true,
        ));
        let places = (0..50).map(|row| Some(vec![Some(row + 1), Some(1_000_000)]));
        let places = ListArray::from_iter_primitive::<Int64Type, _, _>(places);
        let function = Registered::of(lists::SELECT);
        let field = |kind: &DataType| Arc::new(Field::new("x", kind.clone(), true));
        let returned = (function.function.returned)(&[list.data_type()]).unwrap();
        let arguments = ScalarFunctionArgs {
            arg_fields: vec![field(&list.data_type()), field(places.data_type())],
            args: vec![
                ColumnarValue::Scalar(list),
                ColumnarValue::Array(Arc::new(places)),
            ],
            number_rows: 50,
            return_field: field(&returned),
            config_options: Arc::default(),
        };
        let ColumnarValue::Array(made) = function.invoke_with_args(arguments).unwrap() else {
            panic!("there is a column among the arguments")
        };
        let made = made.as_list::<i32>();
        assert_eq!((made.len(), made.data_type()), (50, &returned));
        for row in 0..50 {
            let wanted = [i64::try_from(row).unwrap(), 999_999];
            assert_eq!(
                made.value(row).as_primitive::<Int64Type>().values(),
                &wanted
            );
        }
    }
}

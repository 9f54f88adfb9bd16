//! Nested values as texts; lengths of lists, nulls in them, and lists of nothing.
//!
//! Comes in: a cast of a list, struct or map to a text, `length` of a list, and a list of columns that have nulls alone and no type. Goes out: the same, written by `functions/nested_text.rs`, since the engine casts lists alone, and writes texts in them, and nulls, so that they cannot be told from what is between them; and with a type, without which
//! the engine gives fewer rows. Never here: the text itself.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility, cast,
};

use crate::query::functions::nested_text::{NestedText, has_text};

/// The cast, if it is one of a list, struct or map to a text.
pub(super) fn as_text(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (value, data_type) = match &expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (expr, field.data_type())
        }
        _ => return Transformed::no(expression),
    };
    if !data_type.is_string() || !value.get_type(schema).is_ok_and(|of| has_text(&of)) {
        return Transformed::no(expression);
    }
    let text = ScalarUDF::from(NestedText::new()).call(vec![value.as_ref().clone()]);
    Transformed::yes(cast(text, data_type.clone()))
}

/// The list of nulls that have no type, with one.
pub(in crate::query) fn with_a_type(
    mut call: ScalarFunction,
    schema: &DFSchema,
) -> Transformed<Expr> {
    let is_nothing = |value: &Expr| matches!(value.get_type(schema), Ok(DataType::Null));
    let is_column = |value: &Expr| !matches!(value, Expr::Literal(..) | Expr::Placeholder(_));
    let is_meant = call.func.name() == "make_array"
        && call.args.iter().all(is_nothing)
        && call.args.iter().any(is_column);
    if is_meant {
        for value in &mut call.args {
            *value = cast(std::mem::take(value), DataType::Int64);
        }
    }
    let call = Expr::ScalarFunction(call);
    match is_meant {
        true => Transformed::yes(call),
        false => Transformed::no(call),
    }
}

/// The length of a list: the engine makes a text of that.
pub(in crate::query) fn length_of(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    match call.args.as_slice() {
        [list]
            if call.func.name() == "character_length"
                && list.get_type(schema).is_ok_and(|found| found.is_list()) =>
        {
            let length = array_length_udf().call(call.args);
            Transformed::yes(cast(length, DataType::Int64))
        }
        _ => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// Whether a list has an element that is null; null of a list that is null. `x = ANY(list)` is written with it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct HasNull {
    signature: Signature,
}

impl HasNull {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for HasNull {
    fn name(&self) -> &'static str {
        "list_has_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Null] => Ok(DataType::Boolean),
            [list] if list.is_list() => Ok(DataType::Boolean),
            other => datafusion::common::plan_err!("a list was expected, got {other:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("nulls of several lists");
        };
        Ok(match lists {
            ColumnarValue::Array(lists) => ColumnarValue::Array(Arc::new(have_null(lists)?)),
            ColumnarValue::Scalar(list) => {
                let found = have_null(&list.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
            }
        })
    }
}

fn have_null(lists: &ArrayRef) -> Result<BooleanArray> {
    let data_type = lists.data_type();
    if data_type.is_null() {
        return Ok(BooleanArray::new_null(lists.len()));
    }
    let whole = match data_type {
        DataType::LargeList(_) => Arc::clone(lists),
        _ => {
            let (DataType::List(field)
            | DataType::FixedSizeList(field, _)
            | DataType::ListView(field)
            | DataType::LargeListView(field)) = data_type
            else {
                return datafusion::common::internal_err!("nulls of {data_type}");
            };
            let large = DataType::LargeList(Arc::clone(field));
            arrow::compute::cast(lists, &large)?
        }
    };
    let lists = whole.as_list::<i64>();
    let ends = lists.offsets().windows(2).map(|ends| match ends {
        [begin, end] => (
            usize::try_from(*begin).unwrap_or_default(),
            usize::try_from(*end).unwrap_or_default(),
        ),
        _ => (0, 0),
    });
    let nulls = lists.values().logical_nulls();
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let has_null = |(begin, end): (usize, usize)| {
        let within = |nulls: &NullBuffer| nulls.slice(begin, end - begin).null_count() > 0;
        nulls.as_ref().is_some_and(within)
    };
    let found: Vec<bool> = ends.map(has_null).collect();
    Ok(BooleanArray::new(found.into(), lists.nulls().cloned()))
}

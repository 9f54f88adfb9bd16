//! Lists as texts, their lengths, and lists of nothing.
//!
//! Comes in: a cast of a list to a text, `length` of a list, and a list of columns that have nulls alone and no type. Goes out: the same, in whose text a null is `NULL`, where the engine writes nothing, so that a list of one null would be an empty one; and with a type, without which
//! the engine gives fewer rows. Never here: structs and maps, which are not cast to texts.

use std::sync::Arc;

use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::FormatOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility, cast,
};

const OPTIONS: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new().with_null("NULL"),
};

/// The cast, if it is one of a list to a text.
pub(super) fn as_text(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (value, data_type) = match &expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (expr, field.data_type())
        }
        _ => return Transformed::no(expression),
    };
    if !data_type.is_string() || !value.get_type(schema).is_ok_and(|of| of.is_list()) {
        return Transformed::no(expression);
    }
    let text = ScalarUDF::from(ListText::new()).call(vec![value.as_ref().clone()]);
    Transformed::yes(cast(text, data_type.clone()))
}

/// The list of nulls that have no type, with one.
pub(super) fn with_a_type(mut call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
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
pub(super) fn length_of(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
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

/// The text of a list.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct ListText {
    signature: Signature,
}

impl ListText {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ListText {
    fn name(&self) -> &'static str {
        "list_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("the text of several lists");
        };
        Ok(match lists {
            ColumnarValue::Array(lists) => {
                ColumnarValue::Array(cast_with_options(lists, &DataType::Utf8, &OPTIONS)?)
            }
            ColumnarValue::Scalar(list) => {
                let list = list.to_array()?;
                let text = cast_with_options(&list, &DataType::Utf8, &OPTIONS)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&Arc::clone(&text), 0)?)
            }
        })
    }
}

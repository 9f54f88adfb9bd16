//! UUIDs, which are 16 bytes, beside texts of them.
//!
//! Comes in: two operands of a comparison. Goes out: the same with the bytes in place of the text. Never here: UUIDs as texts, and columns of 16 bytes beside anything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::encoding::expr_fn::decode;
use datafusion::functions::string::expr_fn::replace;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};

use crate::error::{Error, ErrorKind};

const BYTES: DataType = DataType::FixedSizeBinary(16);

/// The digits of a UUID.
const DIGITS: usize = 32;

/// Makes bytes of texts among values of which another one has 16 bytes; says whether there are such. `values` are the types of parameters.
///
/// # Errors
/// `Query` for a text that is written and is no UUID.
pub(in crate::query) fn as_bytes(
    parts: &mut [&mut Expr],
    schema: &DFSchema,
    values: &BTreeMap<String, DataType>,
) -> Result<bool> {
    let is_bytes = |part: &&mut Expr| part.get_type(schema).is_ok_and(|kind| kind == BYTES);
    if !parts.iter().any(is_bytes) {
        return Ok(false);
    }
    let mut is_changed = false;
    for part in parts {
        let is_text = match &**part {
            Expr::Placeholder(Placeholder { id, field: None }) => {
                values.get(id).is_some_and(DataType::is_string)
            }
            part => part.get_type(schema).is_ok_and(|kind| kind.is_string()),
        };
        if is_text {
            **part = bytes_of(std::mem::take(*part))?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

fn bytes_of(mut text: Expr) -> Result<Expr> {
    match &mut text {
        Expr::Placeholder(placeholder) => {
            let field = Field::new(placeholder.id.as_str(), DataType::Utf8, true);
            placeholder.field = Some(Arc::new(field));
        }
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
            _,
        ) => check(text)?,
        _ => {}
    }
    let digits = replace(text, lit("-"), lit(""));
    Ok(cast(decode(digits, lit("hex")), BYTES))
}

fn check(text: &str) -> Result<()> {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    if digits.clone().count() == DIGITS && digits.clone().all(is_digit) {
        return Ok(());
    }
    let text = format!("the text '{text}' is no UUID, which the 16 bytes beside it are taken for");
    let hint = "write '8d6b0fcc-35b5-4c3c-9a0b-1f2d3c4b5a69' for a UUID, x'…' for bytes";
    Err(Error::new(ErrorKind::Query, text).with_hint(hint).into())
}

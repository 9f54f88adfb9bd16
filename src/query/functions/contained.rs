//! `array_has(list, value)`, to which elements that are null are no values.
//!
//! Comes in: the function of the engine, and its calls. Goes out: the same function, of which constant lists become `value IN (…)` without their nulls; by the engine's own, a value that is none of a list with a null would be unknown. Never here: how values are looked for in lists of columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_nested::array_has::array_has_udf;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, lit, when,
};
use datafusion::prelude::SessionContext;

use super::passed_on::scalar_as_inner;

/// Puts the function in place of that of the engine.
pub(super) fn add_to(context: &SessionContext) {
    let inner = array_has_udf();
    context.register_udf(ScalarUDF::from(Contained { inner }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Contained {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Contained {
    scalar_as_inner!();

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [list, value] = args.as_slice() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let Some(elements) = constants(list)? else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let unknown = ScalarValue::Boolean(None);
        let Elements::Of(elements) = elements else {
            return Ok(ExprSimplifyResult::Simplified(Expr::Literal(unknown, None)));
        };
        let there = elements.into_iter().filter(|element| !element.is_null());
        let there: Vec<Expr> = there.map(|element| Expr::Literal(element, None)).collect();
        Ok(ExprSimplifyResult::Simplified(match there.is_empty() {
            true => when(value.clone().is_not_null(), lit(false)).end()?,
            false => Expr::InList(InList {
                expr: Box::new(value.clone()),
                list: there,
                negated: false,
            }),
        }))
    }
}

/// What a constant list has.
enum Elements {
    /// The list is null.
    Unknown,
    Of(Vec<ScalarValue>),
}

/// The elements of a list that is constant.
fn constants(list: &Expr) -> Result<Option<Elements>> {
    match list {
        Expr::Literal(list, _) if list.is_null() => Ok(Some(Elements::Unknown)),
        Expr::Literal(list @ (ScalarValue::List(_) | ScalarValue::LargeList(_)), _) => {
            let rows = ScalarValue::convert_array_to_scalar_vec(&list.to_array()?)?;
            let elements = rows.into_iter().flatten().flatten();
            Ok(Some(Elements::Of(elements.collect())))
        }
        _ => Ok(None),
    }
}

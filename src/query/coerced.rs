//! Functions of which the engine takes too few types at once.
//!
//! Comes in: the functions of a state. Goes out: those that give one of their arguments (`coalesce`, `nvl`, `nullif`, `greatest` and `least`), which also take times of different units (literals have nanoseconds, columns
//! hardly ever) and bytes of a fixed length beside other bytes; `levenshtein`, which also takes texts of which the second alone has long offsets. Never here: types that the engine finds a common type for.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::plan::types::{FINEST, is_time};

/// Their names.
const GIVING: [&str; 5] = ["coalesce", "nvl", "nullif", "greatest", "least"];

/// One that takes two texts for as long as the first one.
const LEVENSHTEIN: &str = "levenshtein";

/// Puts the functions in place of those of a state.
pub(super) fn coerced(state: &SessionState) -> Vec<ScalarUDF> {
    let find = |name: &str| state.scalar_functions().get(name);
    let giving = GIVING.into_iter().filter_map(find);
    let giving = giving.map(|inner| Coerced {
        inner: Arc::clone(inner),
        signature: Signature::user_defined(inner.signature().volatility),
    });
    let of_texts = find(LEVENSHTEIN).map(|inner| Coerced {
        inner: Arc::clone(inner),
        signature: inner.signature().clone(),
    });
    giving.chain(of_texts).map(ScalarUDF::from).collect()
}

/// Gives the first text long offsets where the second one alone has such.
fn as_long(texts: &mut [ColumnarValue]) -> Result<()> {
    if let [first, second] = texts
        && first.data_type() == DataType::Utf8
        && second.data_type() == DataType::LargeUtf8
    {
        *first = first.cast_to(&DataType::LargeUtf8, None)?;
    }
    Ok(())
}

/// The type of arguments that the engine finds none for. It asks for types that it was told once more, and would make texts of them then.
fn common(types: &[DataType]) -> Option<DataType> {
    let known = || types.iter().filter(|data_type| !data_type.is_null());
    let first = known().next()?;
    if known().all(|data_type| data_type == first) {
        let is_odd = is_time(first) || first.is_binary();
        return is_odd.then(|| first.clone());
    }
    if known().all(is_time) {
        return Some(FINEST);
    }
    let is_fixed = |data_type: &DataType| matches!(data_type, DataType::FixedSizeBinary(_));
    if known().all(|data_type| data_type.is_binary()) && known().any(is_fixed) {
        let is_large = known().any(|data_type| *data_type == DataType::LargeBinary);
        return Some(match is_large {
            true => DataType::LargeBinary,
            false => DataType::Binary,
        });
    }
    None
}

/// A function of the engine that takes more types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Coerced {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Coerced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.inner.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(common) = common(types) {
            return Ok(vec![common; types.len()]);
        }
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let fields: Vec<FieldRef> = types.iter().map(field).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        let types = fields.iter().map(|field| field.data_type().clone());
        Ok(types.collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.name() == LEVENSHTEIN {
            as_long(&mut arguments.args)?;
        }
        self.inner.inner().invoke_with_args(arguments)
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult> {
        self.inner.inner().simplify(arguments, context)
    }

    fn conditional_arguments<'a>(
        &self,
        arguments: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

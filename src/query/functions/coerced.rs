//! Functions of which the engine takes too few types at once.
//!
//! Comes in: the functions of a state. Goes out: those that give one of their arguments (`coalesce`, `nvl`, `nullif`, `greatest` and `least`), which also take times of different units (literals have nanoseconds, columns
//! hardly ever), bytes of a fixed length beside other bytes, and texts beside dates and timestamps, which become such; `length`, which also takes lists of anything; `levenshtein`, which also takes texts of which the second alone has long offsets. Never here: types that the engine finds a common type for.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::query::plan::meaning::lengths::longest;
use crate::query::plan::types::{FINEST, is_time};

/// Their names.
const GIVING: [&str; 5] = ["coalesce", "nvl", "nullif", "greatest", "least"];

/// One that takes texts; of lists it is that of another function, which stands in its place before it runs.
const LENGTH: &str = "character_length";

/// One that takes two texts for as long as the first one.
const LEVENSHTEIN: &str = "levenshtein";

/// Puts the functions in place of those of a state.
pub(in crate::query) fn coerced(state: &SessionState) -> Vec<ScalarUDF> {
    let find = |name: &str| state.scalar_functions().get(name);
    let giving = GIVING.into_iter().chain([LENGTH]).filter_map(find);
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

/// The type of arguments that the engine finds none for. It asks for types that it was told once more, and would make texts of some of them then.
fn common(types: &[DataType]) -> Option<DataType> {
    let known = || types.iter().filter(|data_type| !data_type.is_null());
    let first = known().next()?;
    if known().all(|data_type| data_type == first) {
        let is_dictionary = matches!(first, DataType::Dictionary(..));
        return (!is_dictionary).then(|| first.clone());
    }
    if known().all(is_time) {
        return Some(FINEST);
    }
    if let Some(moment) = moment(types) {
        return Some(moment);
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

/// The date or timestamp that stands beside texts.
fn moment(types: &[DataType]) -> Option<DataType> {
    let known = || types.iter().filter(|data_type| !data_type.is_null());
    let mut others = known().filter(|data_type| !data_type.is_string());
    let first = others.next()?;
    let is_moment = matches!(
        first,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
    );
    let has_text = known().any(DataType::is_string);
    (is_moment && has_text && others.all(|data_type| data_type == first)).then(|| first.clone())
}

/// A function of the engine that takes more types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Coerced {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Coerced {
    fn is_length_of_list(&self, types: &[DataType]) -> bool {
        matches!(types, [list] if self.name() == LENGTH && list.is_list())
    }
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
        if self.is_length_of_list(types) {
            return Ok(types.to_vec());
        }
        if self.name() != LENGTH
            && let Some(common) = common(types)
        {
            return Ok(vec![common; types.len()]);
        }
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let fields: Vec<FieldRef> = types.iter().map(field).collect();
        // The engine makes texts of dates for `nvl`, which is `coalesce` of two.
        let fields = match (self.name(), types.len()) {
            ("nvl", 2) => fields_with_udf(&fields, coalesce().as_ref())?,
            _ => fields_with_udf(&fields, self.inner.as_ref())?,
        };
        let types = fields.iter().map(|field| field.data_type().clone());
        Ok(types.collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.is_length_of_list(types) {
            true => Ok(DataType::Int64),
            false => self.inner.inner().return_type(types),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = arguments.arg_fields.iter();
        let types: Vec<DataType> = types.map(|field| field.data_type().clone()).collect();
        if self.is_length_of_list(&types) {
            return Ok(Arc::new(Field::new(self.name(), DataType::Int64, true)));
        }
        self.inner.inner().return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.name() == LEVENSHTEIN {
            as_long(&mut arguments.args)?;
        }
        let is_span = |value: &ColumnarValue| matches!(value.data_type(), DataType::Interval(_));
        if matches!(self.name(), "greatest" | "least") && arguments.args.iter().all(is_span) {
            let is_longest = self.name() == "greatest";
            return longest(&arguments.args, arguments.number_rows, is_longest);
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

//! Functions whose values may be far larger than their arguments, within the memory limit.
//!
//! Comes in: the functions of DataFusion that repeat, pad, replace or count up. Goes out: the same functions, which refuse a call before it allocates more than the session may
//! use. They allocate in one piece that no memory pool sees; a machine that has no room for it ends the process. Never here: other functions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::formats;
use super::simple;
use crate::error::{Error, ErrorKind};
use crate::query::plan::meaning::concatenate::Concatenate;
use crate::query::running::bounds::size;

/// How many bytes the values of a call may have, at most.
type Estimate = fn(&[ArrayRef]) -> f64;

/// By name, with all aliases.
const GROWING: [(&[&str], Estimate); 12] = [
    (&["repeat"], repeated),
    (&["lpad", "rpad"], padded),
    (&["replace"], replaced),
    (&["regexp_replace"], replaced_by_pattern),
    (&["array_repeat", "list_repeat"], repeated_in_lists),
    (&["array_resize", "list_resize"], resized),
    (&["generate_series", "range"], counted),
    (&["concat"], joined),
    (
        &["array_concat", "list_concat", "array_cat", "list_cat"],
        joined,
    ),
    (&["concat_ws"], joined_with),
    (&["array_to_string", "list_to_string"], lists_joined),
    (&["format", "printf"], formats::most_bytes),
];

/// The bounded functions that are put in place of those of a state, and those of ours.
pub(in crate::query) fn bounded(state: &SessionState, limit: usize) -> Vec<ScalarUDF> {
    let of = |name: &str| {
        let mut all = GROWING.iter().chain(&simple::MOST_BYTES);
        let found = all.find(|(names, _)| names.contains(&name));
        found.map(|(_, estimate)| *estimate)
    };
    let functions = state.scalar_functions().values().cloned();
    let mut bounded: Vec<ScalarUDF> = functions
        .chain(formats::functions().map(Arc::new))
        .chain(simple::that_grow().map(Arc::new))
        .filter_map(|inner| {
            let estimate = of(inner.name())?;
            Some(ScalarUDF::from(Bounded {
                inner,
                estimate,
                limit,
            }))
        })
        .collect();
    bounded.sort_by(|one, other| one.name().cmp(other.name()));
    bounded.dedup_by(|one, other| one.name() == other.name());
    bounded
}

/// Bytes that such functions have made in this process, or wanted to.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Bytes that such functions have made in this process so far. Who looks twice sees what was made meanwhile, perhaps by others too.
pub(in crate::query) fn made_bytes() -> u64 {
    MADE.load(Ordering::Relaxed)
}

pub(in crate::query) fn note_made(bytes: u64) {
    MADE.fetch_add(bytes, Ordering::Relaxed);
}

/// Whether an expression calls one of these functions, or `||`.
pub(in crate::query) fn grows(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let call = expression.downcast_ref::<ScalarFunctionExpr>();
    let function = call.map(|call| call.fun().inner());
    function.is_some_and(|function| function.is::<Bounded>() || function.is::<Concatenate>())
        || expression.children().into_iter().any(grows)
}

/// The bytes of a value that such a function makes of any other, as its arguments say: `repeat(t, 1000)`, `lpad(t, 1000)`, `range(1000)`.
pub(in crate::query) fn said_bytes(expression: &Arc<dyn PhysicalExpr>) -> u64 {
    let call = expression.downcast_ref::<ScalarFunctionExpr>();
    let Some(call) = call.filter(|call| call.fun().inner().is::<Bounded>()) else {
        return 0;
    };
    let each = match call.return_type() {
        DataType::List(_) | DataType::LargeList(_) => 8,
        _ => 1,
    };
    let numbers = call.args().iter().filter_map(|argument| {
        let number = argument.downcast_ref::<Literal>()?.value();
        let number = number
            .cast_to(&DataType::Int64)
            .ok()
            .filter(|_| number.data_type().is_integer())?;
        match number {
            ScalarValue::Int64(Some(number)) => u64::try_from(number).ok(),
            _ => None,
        }
    });
    numbers.max().unwrap_or(0).saturating_mul(each)
}

/// The function whose third argument names groups of a pattern: `\1`. To the engine `$1` is one as well, but to SQL a text like any other.
const REPLACING: &str = "regexp_replace";

/// Texts in which `$` names nothing.
fn without_names(replacement: &ColumnarValue) -> PlanResult<ColumnarValue> {
    let written_out = |text: Option<&str>| text.map(|text| text.replace('$', "$$"));
    Ok(match replacement {
        ColumnarValue::Scalar(value) => match value.try_as_str() {
            Some(Some(text)) if text.contains('$') => {
                let text = ScalarValue::Utf8(written_out(Some(text)));
                ColumnarValue::Scalar(text.cast_to(&value.data_type())?)
            }
            _ => replacement.clone(),
        },
        ColumnarValue::Array(texts) => {
            let plain = cast(texts, &DataType::Utf8View)?;
            let plain = plain.as_string_view();
            if !plain.iter().flatten().any(|text| text.contains('$')) {
                return Ok(replacement.clone());
            }
            let texts_out: StringViewArray = plain.iter().map(written_out).collect();
            ColumnarValue::Array(cast(&texts_out, texts.data_type())?)
        }
    })
}

#[derive(Debug)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    estimate: Estimate,
    limit: usize,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && self.limit == other.limit
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> PlanResult<String> {
        self.inner.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn with_updated_config(&self, _: &ConfigOptions) -> Option<ScalarUDF> {
        None
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs<'_>,
    ) -> PlanResult<arrow::datatypes::FieldRef> {
        self.inner.inner().return_field_from_args(arguments)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.check(&arguments)?;
        if self.inner.name() == REPLACING
            && let Some(replacement) = arguments.args.get_mut(2)
        {
            *replacement = without_names(replacement)?;
        }
        self.inner.inner().invoke_with_args(arguments)
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        context: &SimplifyContext,
    ) -> PlanResult<ExprSimplifyResult> {
        self.inner.inner().simplify(arguments, context)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> PlanResult<Interval> {
        self.inner.inner().evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

impl Bounded {
    fn check(&self, arguments: &ScalarFunctionArgs) -> PlanResult<()> {
        let literal = arguments
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        // A call with literals is worked out once, for all rows.
        let num_rows = if literal { 1 } else { arguments.number_rows };
        let mut wanted = 0.0;
        for arrays in simple::in_steps(&arguments.args, num_rows) {
            wanted += (self.estimate)(&arrays?);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, which is never less than 0"
        )]
        note_made(wanted as u64);
        #[expect(clippy::cast_precision_loss, reason = "compared with an estimate")]
        if wanted <= self.limit as f64 {
            return Ok(());
        }
        let text = format!(
            "{}() would need about {:.1e} bytes, the memory limit of the session is {}",
            self.name().trim_start_matches("__"),
            wanted,
            size(self.limit)
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).into())
    }
}

/// The numbers of an argument; 0 for null and for what is no number.
fn numbers(arguments: &[ArrayRef], place: usize) -> Vec<f64> {
    let argument = arguments
        .get(place)
        .and_then(|values| cast(values, &DataType::Float64).ok());
    let Some(argument) = argument else {
        return Vec::new();
    };
    let numbers = argument.as_primitive::<Float64Type>();
    numbers.iter().map(Option::unwrap_or_default).collect()
}

/// The lengths of the texts of an argument in bytes.
fn lengths(arguments: &[ArrayRef], place: usize) -> Vec<f64> {
    let argument = arguments
        .get(place)
        .and_then(|values| cast(values, &DataType::Utf8View).ok());
    let Some(argument) = argument else {
        return Vec::new();
    };
    let length =
        |text: Option<&str>| u32::try_from(text.map_or(0, str::len)).map_or(f64::MAX, f64::from);
    argument.as_string_view().iter().map(length).collect()
}

fn repeated(arguments: &[ArrayRef]) -> f64 {
    let (texts, times) = (lengths(arguments, 0), numbers(arguments, 1));
    texts
        .iter()
        .zip(&times)
        .map(|(text, times)| text * times.max(0.0))
        .sum()
}

fn padded(arguments: &[ArrayRef]) -> f64 {
    // A letter has up to four bytes.
    let lengths = numbers(arguments, 1);
    lengths.iter().map(|length| length.max(0.0) * 4.0).sum()
}

fn replaced(arguments: &[ArrayRef]) -> f64 {
    let (texts, from, to) = (
        lengths(arguments, 0),
        lengths(arguments, 1),
        lengths(arguments, 2),
    );
    let parts = texts.iter().zip(&from).zip(&to);
    parts
        .map(|((text, from), to)| text + (text / from.max(1.0) + 1.0) * to)
        .sum()
}

fn replaced_by_pattern(arguments: &[ArrayRef]) -> f64 {
    let (texts, to) = (lengths(arguments, 0), lengths(arguments, 2));
    texts
        .iter()
        .zip(&to)
        .map(|(text, to)| text + (text + 1.0) * to)
        .sum()
}

/// Bytes of one value of a row, on average.
fn each(values: &ArrayRef) -> f64 {
    let bytes = values.to_data().get_slice_memory_size().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let each = bytes as f64 / values.len().max(1) as f64;
    each.max(1.0)
}

fn repeated_in_lists(arguments: &[ArrayRef]) -> f64 {
    let each = arguments.first().map_or(1.0, each);
    numbers(arguments, 1)
        .iter()
        .map(|times| times.max(0.0) * each)
        .sum()
}

fn resized(arguments: &[ArrayRef]) -> f64 {
    let each = arguments.get(2).map_or(8.0, each).max(8.0);
    numbers(arguments, 1)
        .iter()
        .map(|length| length.max(0.0) * each)
        .sum()
}

fn joined(arguments: &[ArrayRef]) -> f64 {
    let bytes = |place: usize| match arguments.get(place) {
        // The size of an array of views says nothing of the texts.
        Some(values) if values.data_type().is_string() => lengths(arguments, place).iter().sum(),
        Some(values) => {
            let bytes = values.to_data().get_slice_memory_size().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let bytes = bytes as f64;
            bytes
        }
        None => 0.0,
    };
    (0..arguments.len()).map(bytes).sum()
}

/// The first argument stands between all others.
fn joined_with(arguments: &[ArrayRef]) -> f64 {
    let between = u32::try_from(arguments.len().saturating_sub(2)).map_or(f64::MAX, f64::from);
    let separators: f64 = lengths(arguments, 0).iter().sum();
    separators * between + joined(arguments.get(1..).unwrap_or_default())
}

/// The second argument stands between the values of each list, which count twice as texts.
fn lists_joined(arguments: &[ArrayRef]) -> f64 {
    let separator = lengths(arguments, 1).into_iter().fold(0.0, f64::max);
    let Some(lists) = arguments.first() else {
        return 0.0;
    };
    let values = lists
        .to_data()
        .child_data()
        .iter()
        .map(ArrayData::len)
        .sum::<usize>();
    let bytes = lists.to_data().get_slice_memory_size().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (values, bytes) = (values as f64, bytes as f64);
    values * separator + 2.0 * bytes
}

fn counted(arguments: &[ArrayRef]) -> f64 {
    let (starts, stops, steps) = match arguments {
        [_] => (Vec::new(), steps_of(arguments, 0), Vec::new()),
        _ => (
            steps_of(arguments, 0),
            steps_of(arguments, 1),
            steps_of(arguments, 2),
        ),
    };
    let count = |(row, stop): (usize, &f64)| {
        let start = starts.get(row).copied().unwrap_or_default();
        let step = steps.get(row).copied().unwrap_or(1.0);
        let count = (stop - start) / step;
        // Eight bytes for each; a step of 0 is refused by the function itself.
        if count.is_finite() {
            (count.max(0.0) + 1.0) * 8.0
        } else {
            0.0
        }
    };
    stops.iter().enumerate().map(count).sum()
}

/// Numbers as they are, times and intervals as nanoseconds.
fn steps_of(arguments: &[ArrayRef], place: usize) -> Vec<f64> {
    const DAY: f64 = 86_400e9;
    let Some(values) = arguments.get(place) else {
        return Vec::new();
    };
    match values.data_type() {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            let seconds = cast(values, &DataType::Timestamp(TimeUnit::Second, None));
            let seconds = seconds.and_then(|seconds| cast(&seconds, &DataType::Int64));
            let Ok(seconds) = seconds else {
                return Vec::new();
            };
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let nanoseconds = |second: Option<i64>| second.unwrap_or_default() as f64 * 1e9;
            seconds
                .as_primitive::<Int64Type>()
                .iter()
                .map(nanoseconds)
                .collect()
        }
        DataType::Interval(_) => {
            let Ok(steps) = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano)) else {
                return Vec::new();
            };
            let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let nanoseconds = steps.iter().flatten().map(|step| {
                f64::from(step.months) * 28.0 * DAY
                    + f64::from(step.days) * DAY
                    + step.nanoseconds as f64
            });
            nanoseconds.collect()
        }
        _ => numbers(arguments, place),
    }
}

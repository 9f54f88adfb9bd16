//! Functions that users bring: scalar functions and aggregates over Arrow arrays.
//!
//! Comes in: a name, types, and what to call. Goes out: functions that SQL calls by the name. What they give is checked: type and number of rows. Never here: Python.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Error, ErrorKind, Result};

/// What a scalar function does: arrays of equal length in, and how long they are; one array of that length out.
pub type ScalarBody = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync>;

/// What begins an aggregate for one group of rows.
pub type AggregateBody = Arc<dyn Fn() -> Result<Box<dyn Aggregate>> + Send + Sync>;

/// One group of rows on its way to one value. Rows of a group may be shared out to several of these, which are merged through their states.
pub trait Aggregate: fmt::Debug + Send + Sync {
    /// Takes rows in: one array for each argument.
    ///
    /// # Errors
    /// Whatever stands in the way; it ends the query.
    fn update(&mut self, arguments: &[ArrayRef]) -> Result<()>;

    /// What was found so far, for `merge` of another one.
    ///
    /// # Errors
    /// As `update`.
    fn state(&mut self) -> Result<Vec<u8>>;

    /// Takes in what another one found.
    ///
    /// # Errors
    /// As `update`.
    fn merge(&mut self, state: &[u8]) -> Result<()>;

    /// The value of the group, as an array of one.
    ///
    /// # Errors
    /// As `update`.
    fn evaluate(&mut self) -> Result<ArrayRef>;
}

/// The types of a function that users bring, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionSignature {
    /// As SQL calls it; folded to lower case unless the call has it in quotes.
    pub name: String,
    /// The types of the arguments, to which others are cast where SQL does so by itself.
    pub arguments: Vec<DataType>,
    /// The type of the value.
    pub returns: DataType,
    /// Whether equal arguments may give other values, so that it is called for every row and never before the query runs.
    pub volatile: bool,
}

impl FunctionSignature {
    fn check(&self) -> Result<()> {
        if self.name.is_empty() {
            return Err(Error::invalid_argument(
                "the name of a function must not be empty",
            ));
        }
        Ok(())
    }

    fn of_plan(&self) -> Signature {
        let volatility = if self.volatile {
            Volatility::Volatile
        } else {
            Volatility::Immutable
        };
        match self.arguments.as_slice() {
            [] => Signature::nullary(volatility),
            arguments => Signature::exact(arguments.to_vec(), volatility),
        }
    }

    /// What the function gave, in the type that it promised.
    fn checked(&self, value: ArrayRef, num_rows: usize) -> Result<ArrayRef> {
        let wrong = |must: String, got: String| {
            let text = format!("the function {} must give {must}, got {got}", self.name);
            Error::new(ErrorKind::Query, text)
        };
        if value.len() != num_rows {
            return Err(wrong(format!("{num_rows} values"), value.len().to_string()));
        }
        if *value.data_type() == self.returns {
            return Ok(value);
        }
        if alike(value.data_type(), &self.returns) {
            let strict = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            return Ok(cast_with_options(&value, &self.returns, &strict)?);
        }
        Err(wrong(
            self.returns.to_string(),
            value.data_type().to_string(),
        ))
    }
}

/// Types that hold the same values in other layouts; `Null` holds what every type holds.
fn alike(given: &DataType, wanted: &DataType) -> bool {
    let text = |kind: &DataType| {
        matches!(
            kind,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let bytes = |kind: &DataType| {
        matches!(
            kind,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        )
    };
    *given == DataType::Null || (text(given) && text(wanted)) || (bytes(given) && bytes(wanted))
}

/// A function that SQL can call.
#[derive(Debug, Clone)]
pub struct Function(pub(super) Kind);

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Scalar(Arc<ScalarUDF>),
    Aggregate(Arc<AggregateUDF>),
}

impl Function {
    /// A function that gives one value for each row.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name.
    pub fn try_scalar(signature: FunctionSignature, body: ScalarBody) -> Result<Self> {
        signature.check()?;
        let of_plan = signature.of_plan();
        let scalar = UserScalar {
            signature,
            of_plan,
            body,
        };
        Ok(Self(Kind::Scalar(Arc::new(ScalarUDF::from(scalar)))))
    }

    /// A function that gives one value for each group of rows.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name.
    pub fn try_aggregate(signature: FunctionSignature, body: AggregateBody) -> Result<Self> {
        signature.check()?;
        let of_plan = signature.of_plan();
        let aggregate = UserAggregate {
            signature,
            of_plan,
            body,
        };
        Ok(Self(Kind::Aggregate(Arc::new(AggregateUDF::from(
            aggregate,
        )))))
    }

    /// Whether SQL calls a function of a user there.
    pub(super) fn is_of_user(function: &ScalarUDF) -> bool {
        function.inner().downcast_ref::<UserScalar>().is_some()
    }

    pub(super) fn name(&self) -> &str {
        match &self.0 {
            Kind::Scalar(function) => function.name(),
            Kind::Aggregate(function) => function.name(),
        }
    }
}

/// A function as it is planned. Two are the same when they say so and have one body.
struct User<Body: ?Sized> {
    signature: FunctionSignature,
    of_plan: Signature,
    body: Arc<Body>,
}

type UserScalar = User<dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync>;
type UserAggregate = User<dyn Fn() -> Result<Box<dyn Aggregate>> + Send + Sync>;

impl<Body: ?Sized> fmt::Debug for User<Body> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signature.fmt(formatter)
    }
}

impl<Body: ?Sized> PartialEq for User<Body> {
    fn eq(&self, other: &Self) -> bool {
        self.signature == other.signature && Arc::ptr_eq(&self.body, &other.body)
    }
}

impl<Body: ?Sized> Eq for User<Body> {}

impl<Body: ?Sized> Hash for User<Body> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for UserScalar {
    fn name(&self) -> &str {
        &self.signature.name
    }

    fn signature(&self) -> &Signature {
        &self.of_plan
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.signature.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let num_rows = arguments.number_rows;
        let arrays = arguments
            .args
            .into_iter()
            .map(|value| value.into_array(num_rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<PlanResult<_>>()?;
        let value = (self.body)(&arrays, num_rows)?;
        Ok(ColumnarValue::Array(
            self.signature.checked(value, num_rows)?,
        ))
    }
}

impl AggregateUDFImpl for UserAggregate {
    fn name(&self) -> &str {
        &self.signature.name
    }

    fn signature(&self) -> &Signature {
        &self.of_plan
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.signature.returns.clone())
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let name = format_state_name(arguments.name, "state");
        Ok(vec![Arc::new(Field::new(
            name,
            DataType::LargeBinary,
            true,
        ))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        if !arguments.order_bys.is_empty() {
            let name = &self.signature.name;
            let text = format!(
                "ORDER BY within `{name}` is not supported: a registered aggregate gets its rows in any order"
            );
            return Err(Error::unsupported(text)
                .with_hint("let it gather what it orders, and order it at the end")
                .into());
        }
        Ok(Box::new(Group {
            signature: self.signature.clone(),
            group: (self.body)()?,
            state_bytes: 0,
        }))
    }

    /// What it gives for no rows, which a subquery for each row has to know.
    fn default_value(&self, _: &DataType) -> PlanResult<ScalarValue> {
        let value = (self.body)()?.evaluate()?;
        ScalarValue::try_from_array(&self.signature.checked(value, 1)?, 0)
    }
}

#[derive(Debug)]
struct Group {
    signature: FunctionSignature,
    group: Box<dyn Aggregate>,
    /// Of the last state that was seen: what is known of its size.
    state_bytes: usize,
}

impl Accumulator for Group {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> PlanResult<()> {
        Ok(self.group.update(arguments)?)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let value = self.group.evaluate()?;
        ScalarValue::try_from_array(&self.signature.checked(value, 1)?, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state_bytes
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let state = self.group.state()?;
        self.state_bytes = state.len();
        Ok(vec![ScalarValue::LargeBinary(Some(state))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        for states in states {
            for state in states.as_binary::<i64>().iter().flatten() {
                self.state_bytes = self.state_bytes.max(state.len());
                self.group.merge(state)?;
            }
        }
        Ok(())
    }
}

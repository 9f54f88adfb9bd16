//! Values for the parameters of a statement.
//!
//! Comes in: typed values, in order (`$1`, `?`) or by name (`$name`). Goes out: a plan with the values in place of the parameters. Values never become SQL text.
//! Never here: text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Value, visit_expressions};

use crate::error::{Error, ErrorKind, Result};

/// Values for the parameters of a statement, each an array of one value.
#[derive(Debug, Clone)]
pub enum Parameters {
    /// For `$1`, `$2` and so on, or for `?`.
    InOrder(Vec<ArrayRef>),
    /// For `$name`.
    ByName(BTreeMap<String, ArrayRef>),
}

impl Default for Parameters {
    fn default() -> Self {
        Self::InOrder(Vec::new())
    }
}

impl Parameters {
    fn names(&self) -> BTreeSet<String> {
        match self {
            Self::InOrder(values) => (1..=values.len())
                .map(|number| format!("${number}"))
                .collect(),
            Self::ByName(values) => values.keys().map(|name| format!("${name}")).collect(),
        }
    }

    fn values(&self) -> Result<ParamValues> {
        match self {
            Self::InOrder(values) => {
                let values: Result<Vec<ScalarValue>> = values.iter().map(scalar).collect();
                Ok(ParamValues::from(values?))
            }
            Self::ByName(values) => {
                let pair = |(name, value): (&String, &ArrayRef)| Ok((name.clone(), scalar(value)?));
                let values: Result<Vec<_>> = values.iter().map(pair).collect();
                Ok(ParamValues::from(values?))
            }
        }
    }

    /// The types of the values, by parameter.
    pub(super) fn types(&self) -> BTreeMap<String, DataType> {
        let kind = |value: &ArrayRef| value.data_type().clone();
        match self {
            Self::InOrder(values) => {
                let numbered = values.iter().enumerate();
                numbered
                    .map(|(place, value)| (format!("${}", place + 1), kind(value)))
                    .collect()
            }
            Self::ByName(values) => {
                let named = values.iter();
                named
                    .map(|(name, value)| (format!("${name}"), kind(value)))
                    .collect()
            }
        }
    }

    /// Those of the names that are wanted.
    pub(super) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let named: Vec<(String, ArrayRef)> = match self {
            Self::InOrder(values) => {
                let numbered = values.iter().enumerate();
                numbered
                    .map(|(place, value)| ((place + 1).to_string(), ArrayRef::clone(value)))
                    .collect()
            }
            Self::ByName(values) => values.clone().into_iter().collect(),
        };
        let wanted = named.into_iter();
        Self::ByName(
            wanted
                .filter(|(name, _)| is_wanted(&format!("${name}")))
                .collect(),
        )
    }

    /// Whether there are no values.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::InOrder(values) => values.is_empty(),
            Self::ByName(values) => values.is_empty(),
        }
    }

    /// The plan with the values in place. Each parameter must have a value, and each value a parameter.
    ///
    /// # Errors
    /// `Query` when they do not fit.
    pub(super) fn bind(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let wanted: BTreeSet<String> = plan.get_parameter_names()?.into_iter().collect();
        let given = self.names();
        if wanted.is_empty() && given.is_empty() {
            return Ok(plan);
        }
        check(&wanted, &given)?;
        Ok(plan.with_param_values(self.values()?)?)
    }

    /// The same values in the declared types, which are for values in order.
    ///
    /// # Errors
    /// `Query` for another number of values than types, and for a value that the type does not have.
    pub(super) fn cast_to(self, types: &[DataType]) -> Result<Self> {
        if types.is_empty() {
            return Ok(self);
        }
        let Self::InOrder(values) = self else {
            let text = "a statement with declared parameter types takes values in order, got values by name";
            return Err(Error::new(ErrorKind::Query, text));
        };
        if values.len() != types.len() {
            let text = format!(
                "the statement must get {} values, got {}",
                types.len(),
                values.len()
            );
            return Err(Error::new(ErrorKind::Query, text));
        }
        let cast = |(number, (value, data_type)): (usize, (&ArrayRef, &DataType))| {
            let cast = scalar(value)?.cast_to(data_type);
            let cast = cast.and_then(|cast| cast.to_array()).map_err(|error| {
                let text = format!(
                    "the value of ${} must be {data_type}, got {}",
                    number + 1,
                    value.data_type()
                );
                Error::new(ErrorKind::Query, text).with_source(error)
            })?;
            Ok(cast)
        };
        let cast: Result<_> = values.iter().zip(types).enumerate().map(cast).collect();
        Ok(Self::InOrder(cast?))
    }
}

/// The parameters of a statement that asks for rows.
pub(super) struct Placeholders {
    /// As it is written.
    before: BTreeSet<String>,
    /// Of what is planned: the query that asks, or the statement with what was told in place.
    now: BTreeSet<String>,
    asks: bool,
}

impl Placeholders {
    /// Of a statement as it is written.
    pub(super) fn of(statement: &Statement) -> Self {
        let before = names_in(statement);
        Self {
            now: before.clone(),
            before,
            asks: false,
        }
    }

    /// Of what is planned in its place.
    pub(super) fn after(self, planned: &Statement, asks: bool) -> Self {
        let now = names_in(planned);
        Self { now, asks, ..self }
    }

    /// The values for what is planned: for a query that asks its own, for the statement all but those that such queries alone have.
    ///
    /// # Errors
    /// `Query` where a query that asks has parameters without values.
    pub(super) fn values(&self, parameters: Parameters) -> Result<Parameters> {
        if !self.asks {
            check(&self.before, &parameters.names())?;
            let is_gone = |name: &str| self.before.contains(name) && !self.now.contains(name);
            return Ok(parameters.only(|name| !is_gone(name)));
        }
        if parameters.is_empty()
            && let Some(first) = self.now.first()
        {
            let text = format!(
                "the columns of this PIVOT depend on the rows that there are for {first}, which has no value"
            );
            return Err(Error::new(ErrorKind::Query, text).with_hint("name the values, as in ON k IN (1, 2), where it is prepared; otherwise pass params"));
        }
        Ok(parameters.only(|name| self.now.contains(name)))
    }
}

fn names_in(statement: &Statement) -> BTreeSet<String> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return names_in(&explain.statement),
        _ => return BTreeSet::new(),
    };
    let mut names = BTreeSet::new();
    let visited: ControlFlow<()> = visit_expressions(inner, |expr| {
        if let SqlExpr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
        {
            names.insert(name.clone());
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    names
}

/// The values of literals, for `EXECUTE`.
impl FromIterator<ArrayRef> for Parameters {
    fn from_iter<T: IntoIterator<Item = ArrayRef>>(values: T) -> Self {
        Self::InOrder(values.into_iter().collect())
    }
}

fn scalar(value: &ArrayRef) -> Result<ScalarValue> {
    if value.len() != 1 {
        let text = format!(
            "a parameter must be one value, got an array of {}",
            value.len()
        );
        return Err(Error::invalid_argument(text));
    }
    Ok(ScalarValue::try_from_array(value, 0)?)
}

fn check(wanted: &BTreeSet<String>, given: &BTreeSet<String>) -> Result<()> {
    let list = |names: &BTreeSet<String>| {
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        // $10 after $9.
        names.sort_by_key(|name| (name.len(), *name));
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    if wanted == given {
        return Ok(());
    }
    let text = format!(
        "the parameters of the statement are {}, values came for {}",
        list(wanted),
        list(given)
    );
    let error = Error::new(ErrorKind::Query, text);
    let numbered = |names: &BTreeSet<String>| {
        names.iter().any(|name| {
            name.get(1..)
                .is_some_and(|rest| rest.parse::<usize>().is_ok())
        })
    };
    Err(if given.is_empty() {
        error.with_hint("pass params: a list for $1 or ?, a dict for $name")
    } else if !wanted.is_empty() && numbered(wanted) != numbered(given) {
        error.with_hint("a list gives values for $1, $2 (or ?), a dict for $name")
    } else {
        error
    })
}

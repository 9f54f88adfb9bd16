//! A function of the engine with its lambda, as a function of ours.
//!
//! Comes in: lists, and what the lambda names, for some rows. Goes out: what the engine's function makes of them. What the lambda does is settled for the types of these: they may change as long as a statement is planned. Never here: what is done with what a lambda makes.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::utils::remove_list_null_values;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::type_coercion::functions::value_fields_with_higher_order_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderUDF,
    LambdaArgument, LambdaParametersProgress, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl,
    Signature, ValueOrLambda,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::cast;

use super::body::{Settings, compiled, named_name, param_name};

/// A function of the engine with its lambda. Arguments are its values, then what the lambda names.
#[derive(Debug)]
pub(super) struct WithLambda {
    /// That of the function with the text of the lambda, for people.
    pub(super) name: String,
    pub(super) function: Arc<HigherOrderUDF>,
    /// Where the lambda stands among the arguments of the function.
    pub(super) place: usize,
    /// The numbers of the parameters that the lambda names, ascending.
    pub(super) used: Vec<usize>,
    /// How many values it names beside these.
    pub(super) num_named: usize,
    /// Over a column for each of these values, and one for each of these parameters.
    pub(super) body: Expr,
    pub(super) settings: Arc<Settings>,
    pub(super) signature: Signature,
    /// What was settled last.
    pub(super) settled: Mutex<Option<Arc<Settled>>>,
}

/// A lambda for arguments of some types.
#[derive(Debug)]
pub(super) struct Settled {
    arguments: Vec<FieldRef>,
    /// All that the function gives its lambda.
    pub(super) params: Vec<FieldRef>,
    /// The columns of the body.
    #[cfg(feature = "distributed")]
    pub(super) schema: Schema,
    pub(super) body: Arc<dyn PhysicalExpr>,
    /// What the lambda makes.
    made: FieldRef,
}

/// The columns of a body: what is named, then the parameters.
fn columns(named: &[FieldRef], params: &[FieldRef], used: &[usize]) -> Schema {
    let used = used.iter().filter_map(|number| {
        let field = params.get(*number)?;
        Some(renamed(field, param_name(*number)))
    });
    Schema::new(named.iter().cloned().chain(used).collect::<Vec<_>>())
}

fn renamed(field: &FieldRef, name: String) -> FieldRef {
    Arc::new(field.as_ref().clone().with_name(name))
}

impl PartialEq for WithLambda {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.function == other.function
            && self.place == other.place
            && self.used == other.used
            && self.num_named == other.num_named
            && self.body == other.body
    }
}

impl Eq for WithLambda {}

impl Hash for WithLambda {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.num_named.hash(state);
    }
}

impl WithLambda {
    /// The arguments of the engine's function, without the lambda, and what the lambda names.
    pub(super) fn split<'a, T>(&self, arguments: &'a [T]) -> Result<(&'a [T], &'a [T])> {
        let values = arguments.len().checked_sub(self.num_named);
        let parts = values.and_then(|values| arguments.split_at_checked(values));
        parts.map_or_else(
            || internal_err!("{} with {} arguments", self.name, arguments.len()),
            Ok,
        )
    }

    /// Values with the lambda where it belongs.
    fn with<V, L>(
        &self,
        values: impl IntoIterator<Item = V>,
        lambda: L,
    ) -> Vec<ValueOrLambda<V, L>> {
        let mut all: Vec<_> = values.into_iter().map(ValueOrLambda::Value).collect();
        all.insert(self.place.min(all.len()), ValueOrLambda::Lambda(lambda));
        all
    }

    /// The lambda for arguments of these types.
    pub(super) fn settled(&self, arguments: &[FieldRef]) -> Result<Arc<Settled>> {
        let last = || self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(settled) = last().as_ref()
            && settled.arguments == arguments
        {
            return Ok(Arc::clone(settled));
        }
        let settled = Arc::new(self.settle(arguments)?);
        *last() = Some(Arc::clone(&settled));
        Ok(settled)
    }

    fn settle(&self, arguments: &[FieldRef]) -> Result<Settled> {
        let (values, named) = self.split(arguments)?;
        let named = named.iter().enumerate();
        let named = named.map(|(number, field)| renamed(field, named_name(number)));
        let named = named.collect::<Vec<_>>();
        let mut made = None;
        for step in 0..self.function.signature().lambda_parameters_max_iterations {
            let fields = self.with(values.iter().cloned(), made.take());
            let (params, is_last) = match self.function.lambda_parameters(step, &fields)? {
                LambdaParametersProgress::Complete(all) => (all.into_iter().next(), true),
                LambdaParametersProgress::Partial(all) => (all.into_iter().next().flatten(), false),
            };
            let params = params.unwrap_or_default();
            let schema = columns(&named, &params, &self.used);
            let body = compiled(&self.body, &schema, &self.settings)?;
            if !is_last {
                made = Some(body.return_field(&schema)?);
                continue;
            }
            // What it makes is given to it again, as its first parameter.
            let body = match params.first() {
                Some(first) if step > 0 => cast(body, &schema, first.data_type().clone())?,
                _ => body,
            };
            return Ok(Settled {
                arguments: arguments.to_vec(),
                made: body.return_field(&schema)?,
                #[cfg(feature = "distributed")]
                schema,
                params,
                body,
            });
        }
        internal_err!("{} without an end", self.name)
    }

    /// What the lambda names, for each row.
    fn rows(&self, named: &[ColumnarValue], rows: usize) -> Result<Option<RecordBatch>> {
        if named.is_empty() {
            return Ok(None);
        }
        let columns = named.iter().map(|value| value.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().enumerate().map(|(number, column)| {
            Field::new(named_name(number), column.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(Some(batch))
    }
}

impl ScalarUDFImpl for WithLambda {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (values, named) = self.split(types)?;
        let fields = values
            .iter()
            .map(|kind| Arc::new(Field::new("", kind.clone(), true)));
        let fields = value_fields_with_higher_order_udf(&self.with(fields, ()), &self.function)?;
        let values = fields.into_iter().filter_map(|field| match field {
            ValueOrLambda::Value(field) => Some(field.data_type().clone()),
            ValueOrLambda::Lambda(()) => None,
        });
        Ok(values.chain(named.iter().cloned()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field", self.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let settled = self.settled(arguments.arg_fields)?;
        let (values, _) = self.split(arguments.arg_fields)?;
        let (constants, _) = self.split(arguments.scalar_arguments)?;
        let mut constants: Vec<Option<&ScalarValue>> = constants.to_vec();
        constants.insert(self.place.min(constants.len()), None);
        self.function
            .return_field_from_args(HigherOrderReturnFieldArgs {
                arg_fields: &self.with(values.iter().cloned(), Arc::clone(&settled.made)),
                scalar_arguments: &constants,
            })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let settled = self.settled(&arguments.arg_fields)?;
        let (values, named) = self.split(&arguments.args)?;
        let (fields, _) = self.split(&arguments.arg_fields)?;
        let body = Arc::clone(&settled.body);
        let named = self.rows(named, rows)?;
        let lambda = LambdaArgument::new(settled.params.clone(), body, named, &self.used);
        let clears = self.function.clear_null_values();
        let values = values.iter().map(|value| match clears {
            true => without_hidden(value, rows),
            false => Ok(value.clone()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        self.function.invoke_with_args(HigherOrderFunctionArgs {
            args: self.with(values, lambda),
            arg_fields: self.with(fields.iter().cloned(), Arc::clone(&settled.made)),
            number_rows: rows,
            return_field: arguments.return_field,
            config_options: arguments.config_options,
        })
    }
}

/// Lists without what lies below those that are null.
fn without_hidden(value: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    if !matches!(
        value.data_type(),
        DataType::List(_) | DataType::LargeList(_)
    ) {
        return Ok(value.clone());
    }
    let lists = value.to_array(rows)?;
    Ok(ColumnarValue::Array(match lists.null_count() {
        0 => lists,
        _ => remove_list_null_values(&lists)?,
    }))
}

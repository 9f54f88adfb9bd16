//! A function of the engine with its lambda, as a function of ours.
//!
//! Comes in: lists, and what the lambda names, for some rows. Goes out: what the engine's function makes of them. Never here: what the lambda does.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::utils::remove_list_null_values;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderUDF,
    LambdaArgument, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, ValueOrLambda,
};
use datafusion::physical_expr::PhysicalExpr;

/// A function of the engine with its lambda. Arguments are its values, then what the lambda names.
#[derive(Debug, Eq, Hash)]
pub(super) struct WithLambda {
    /// That of the function with the text of the lambda, for people.
    pub(super) name: String,
    pub(super) function: Arc<HigherOrderUDF>,
    /// Where the lambda stands among the arguments of the function.
    pub(super) place: usize,
    pub(super) params: Vec<FieldRef>,
    /// The numbers of the parameters that the lambda names.
    pub(super) used: Vec<usize>,
    /// What it names beside these.
    pub(super) named: Vec<FieldRef>,
    /// Over `named`, then `used`.
    pub(super) body: Arc<dyn PhysicalExpr>,
    pub(super) signature: Signature,
}

// Rust derives none over a shared trait object.
impl PartialEq for WithLambda {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.function == other.function
            && self.place == other.place
            && self.params == other.params
            && self.used == other.used
            && self.named == other.named
            && self.body.as_ref() == other.body.as_ref()
            && self.signature == other.signature
    }
}

impl WithLambda {
    /// The arguments of the engine's function, without the lambda, and what the lambda names.
    pub(super) fn split<'a, T>(&self, arguments: &'a [T]) -> Result<(&'a [T], &'a [T])> {
        let values = arguments.len().checked_sub(self.named.len());
        let parts = values.and_then(|values| arguments.split_at_checked(values));
        parts.map_or_else(
            || internal_err!("{} with {} arguments", self.name, arguments.len()),
            Ok,
        )
    }

    /// The fields of the body.
    pub(super) fn schema(&self) -> Schema {
        let used = self
            .used
            .iter()
            .filter_map(|number| self.params.get(*number));
        let fields = self.named.iter().chain(used).cloned();
        Schema::new(fields.collect::<Vec<_>>())
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

    fn fields(&self, values: &[FieldRef]) -> Result<Vec<ValueOrLambda<FieldRef, FieldRef>>> {
        let made = self.body.return_field(&self.schema())?;
        Ok(self.with(values.iter().cloned(), made))
    }

    /// What the lambda names, for each row.
    fn rows(&self, named: &[ColumnarValue], rows: usize) -> Result<Option<RecordBatch>> {
        if named.is_empty() {
            return Ok(None);
        }
        let columns = named.iter().map(|value| value.to_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let fields = self.named.iter().zip(&columns).map(|(field, column)| {
            Field::new(field.name(), column.data_type().clone(), true)
                .with_metadata(field.metadata().clone())
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

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field", self.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (values, _) = self.split(arguments.arg_fields)?;
        let (constants, _) = self.split(arguments.scalar_arguments)?;
        let mut constants: Vec<Option<&ScalarValue>> = constants.to_vec();
        constants.insert(self.place.min(constants.len()), None);
        self.function
            .return_field_from_args(HigherOrderReturnFieldArgs {
                arg_fields: &self.fields(values)?,
                scalar_arguments: &constants,
            })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let (values, named) = self.split(&arguments.args)?;
        let (fields, _) = self.split(&arguments.arg_fields)?;
        let body = Arc::clone(&self.body);
        let named = self.rows(named, rows)?;
        let lambda = LambdaArgument::new(self.params.clone(), body, named, &self.used);
        let clears = self.function.clear_null_values();
        let values = values.iter().map(|value| match clears {
            true => without_hidden(value, rows),
            false => Ok(value.clone()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        self.function.invoke_with_args(HigherOrderFunctionArgs {
            args: self.with(values, lambda),
            arg_fields: self.fields(fields)?,
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

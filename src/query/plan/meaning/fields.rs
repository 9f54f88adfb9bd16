//! Fields of structs, and structs that are made of fields.
//!
//! Comes in: a call of a function. Goes out: the same call; the field of a struct that is null is null, and of a struct that is made of columns it is known that its fields are these. Both in every process: what a
//! part of a plan is made of is told by the names of functions.
//! Never here: what else is done with structs.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    StructFieldMapping,
};

use crate::query::functions::passed_on::scalar_as_inner;

/// The call of ours, where it is one of the engine's.
pub(super) fn of_fields(call: ScalarFunction) -> Transformed<ScalarFunction> {
    let function = call.func.inner();
    let is_ours = function.is::<FieldOf>() || function.is::<StructOf>();
    let ours = match call.func.name() {
        _ if is_ours => return Transformed::no(call),
        "get_field" => ScalarUDF::from(FieldOf::new(call.func)),
        "named_struct" => ScalarUDF::from(StructOf::new(call.func)),
        _ => return Transformed::no(call),
    };
    Transformed::yes(ScalarFunction::new_udf(Arc::new(ours), call.args))
}

/// A struct of fields. The engine's own says of its fields what it says with its own function of a field, of which plans would not know that it is the same as [`FieldOf`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct StructOf {
    inner: Arc<ScalarUDF>,
}

impl StructOf {
    fn new(inner: Arc<ScalarUDF>) -> Self {
        Self { inner }
    }

    /// That of the engine's function of this name.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn of_the_engine() -> Self {
        Self::new(datafusion::functions::core::named_struct())
    }
}

impl ScalarUDFImpl for StructOf {
    scalar_as_inner!();

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        let mapping = self.inner.struct_field_mapping(literals)?;
        let field_accessor = Arc::new(ScalarUDF::from(FieldOf::new(mapping.field_accessor)));
        Some(StructFieldMapping {
            field_accessor,
            ..mapping
        })
    }
}

/// A field of a struct, null where the struct is: the engine's own gives what the child array holds there.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct FieldOf {
    inner: Arc<ScalarUDF>,
}

impl FieldOf {
    fn new(inner: Arc<ScalarUDF>) -> Self {
        Self { inner }
    }

    /// That of the engine's function of this name.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn of_the_engine() -> Self {
        Self::new(datafusion::functions::core::get_field())
    }
}

impl ScalarUDFImpl for FieldOf {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = arguments
            .arg_fields
            .first()
            .is_none_or(|field| field.is_nullable());
        let field = self.inner.inner().return_field_from_args(arguments)?;
        let nullable = nullable || field.is_nullable();
        Ok(Arc::new(Field::clone(&field).with_nullable(nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut values = arguments.args.iter();
        let mut fields = arguments.arg_fields.iter();
        let (Some(value), Some(field)) = (values.next(), fields.next()) else {
            return self.inner.invoke_with_args(arguments);
        };
        let (mut value, mut field) = (value.clone(), Arc::clone(field));
        // A path goes down one struct at a time, since each may be null.
        for (name, name_field) in values.zip(fields) {
            let step = [Arc::clone(&field), Arc::clone(name_field)];
            let literal = match name {
                ColumnarValue::Scalar(name) => Some(name),
                ColumnarValue::Array(_) => None,
            };
            let found = self.inner.inner().return_field_from_args(ReturnFieldArgs {
                arg_fields: &step,
                scalar_arguments: &[None, literal],
            })?;
            let Some(name) = key_of(&value.data_type(), name) else {
                let nothing = ScalarValue::try_new_null(found.data_type())?;
                value = ColumnarValue::Array(nothing.to_array_of_size(arguments.number_rows)?);
                field = found;
                continue;
            };
            let child = self.inner.invoke_with_args(ScalarFunctionArgs {
                args: vec![value.clone(), name],
                arg_fields: step.to_vec(),
                number_rows: arguments.number_rows,
                return_field: Arc::clone(&found),
                config_options: Arc::clone(&arguments.config_options),
            })?;
            value = within(&value, child)?;
            field = found;
        }
        Ok(value)
    }
}

/// The name of a field; of a map a key, in the type of its keys. `None` where no key can be equal to it.
fn key_of(of: &DataType, name: &ColumnarValue) -> Option<ColumnarValue> {
    let (DataType::Map(entries, _), ColumnarValue::Scalar(key)) = (of, name) else {
        return Some(name.clone());
    };
    let kind = match entries.data_type() {
        DataType::Struct(fields) => fields.first()?.data_type(),
        _ => return Some(name.clone()),
    };
    if key.is_null() {
        return None;
    }
    let key = match key {
        // Zero has no sign.
        ScalarValue::Float64(Some(0.0)) => ScalarValue::Float64(Some(0.0)),
        ScalarValue::Float32(Some(0.0)) => ScalarValue::Float32(Some(0.0)),
        key => key.clone(),
    };
    let given = key.data_type();
    let is_moment = |kind: &DataType| {
        matches!(
            kind,
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        )
    };
    let goes_together = given.is_numeric() && kind.is_numeric()
        || given.is_string() && kind.is_string()
        || is_moment(&given) && is_moment(kind);
    if given == *kind || !goes_together {
        return Some(ColumnarValue::Scalar(key));
    }
    let cast = key.cast_to(kind).ok()?;
    // A part of the number may be lost.
    let is_same = cast.cast_to(&given).ok()? == key;
    is_same.then(|| ColumnarValue::Scalar(cast))
}

/// The children, null where their parents are.
fn within(parent: &ColumnarValue, child: ColumnarValue) -> Result<ColumnarValue> {
    let parents: &ArrayRef = match parent {
        ColumnarValue::Array(parents) => parents,
        ColumnarValue::Scalar(parent) if parent.is_null() => {
            let nothing = ScalarValue::try_new_null(&child.data_type())?;
            return Ok(ColumnarValue::Scalar(nothing));
        }
        ColumnarValue::Scalar(_) => return Ok(child),
    };
    let is_struct = parents.as_struct_opt().is_some();
    if !is_struct || parents.null_count() == 0 {
        return Ok(child);
    }
    let children = child.into_array(parents.len())?;
    Ok(ColumnarValue::Array(nullif(&children, &is_null(parents)?)?))
}

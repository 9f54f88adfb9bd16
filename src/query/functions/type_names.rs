//! Names of types in SQL: `typeof(x)`.
//!
//! Comes in: a type of Arrow. Goes out: its name as DuckDB has it: `BIGINT`, `DECIMAL(10,2)`, `VARCHAR[]`. Never here: types of Arrow by their own names (`arrow_typeof`, DESCRIBE).

use std::sync::LazyLock;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::utils::quote_identifier;
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_OTHER;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;

/// Adds the function.
pub(super) fn add_to(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(TypeOf {
        signature: Signature::any(1, Volatility::Immutable),
        aliases: ["pg_typeof".to_owned()],
    }));
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    Documentation::builder(
        DOC_SECTION_OTHER,
        "The name of the type of a value in SQL; arrow_typeof gives that of Arrow.",
        "typeof(value)",
    )
    .with_argument("value", "Any value.")
    .with_sql_example("SELECT typeof([1]) -- BIGINT[]")
    .build()
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
    aliases: [String; 1],
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &'static str {
        "typeof"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [field] = arguments.arg_fields.as_slice() else {
            return datafusion::common::internal_err!("typeof of several values");
        };
        let name = name_of(field.data_type());
        Ok(ColumnarValue::Scalar(ScalarValue::from(name)))
    }
}

/// The name of a type.
pub(in crate::query) fn name_of(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".to_owned(),
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INTEGER".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::UInt8 => "UTINYINT".to_owned(),
        DataType::UInt16 => "USMALLINT".to_owned(),
        DataType::UInt32 => "UINTEGER".to_owned(),
        DataType::UInt64 => "UBIGINT".to_owned(),
        DataType::Float16 => "HALF".to_owned(),
        DataType::Float32 => "FLOAT".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => format!("DECIMAL({digits},{scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_owned(),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "BLOB".to_owned(),
        DataType::Date32 | DataType::Date64 => "DATE".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_owned(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_owned(),
        DataType::Timestamp(unit, None) => match unit {
            TimeUnit::Second => "TIMESTAMP_S",
            TimeUnit::Millisecond => "TIMESTAMP_MS",
            TimeUnit::Microsecond => "TIMESTAMP",
            TimeUnit::Nanosecond => "TIMESTAMP_NS",
        }
        .to_owned(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_owned(),
        nested => name_of_nested(nested),
    }
}

/// The name of a type that is made of others.
fn name_of_nested(data_type: &DataType) -> String {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => format!("{}[]", name_of(element.data_type())),
        DataType::FixedSizeList(element, length) => {
            format!("{}[{length}]", name_of(element.data_type()))
        }
        DataType::Struct(fields) => format!("STRUCT({})", parts(fields.iter().map(AsRef::as_ref))),
        DataType::Union(fields, _) => {
            format!(
                "UNION({})",
                parts(fields.iter().map(|(_, field)| field.as_ref()))
            )
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let kinds: Vec<String> = fields
                    .iter()
                    .map(|field| name_of(field.data_type()))
                    .collect();
                format!("MAP({})", kinds.join(", "))
            }
            other => format!("MAP({other})"),
        },
        DataType::Dictionary(_, value) => name_of(value),
        DataType::RunEndEncoded(_, value) => name_of(value.data_type()),
        other => other.to_string(),
    }
}

fn parts<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    let parts = fields.map(|field| {
        format!(
            "{} {}",
            quote_identifier(field.name()),
            name_of(field.data_type())
        )
    });
    parts.collect::<Vec<_>>().join(", ")
}

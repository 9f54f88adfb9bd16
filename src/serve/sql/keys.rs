//! Keys of tables: grids have none.
//!
//! Comes in: a question for keys. Goes out: no rows, with the columns of Flight SQL (`CommandGetPrimaryKeys` and the others of `FlightSql.proto`). Never here: tables.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};

/// `CommandGetPrimaryKeys`.
pub(super) fn primary() -> RecordBatch {
    let text = |name: &str, nullable: bool| Field::new(name, DataType::Utf8, nullable);
    empty(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ])
}

/// `CommandGetExportedKeys`, `CommandGetImportedKeys`, `CommandGetCrossReference`.
pub(super) fn foreign() -> RecordBatch {
    let text = |name: &str, nullable: bool| Field::new(name, DataType::Utf8, nullable);
    empty(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ])
}

fn empty(fields: Vec<Field>) -> RecordBatch {
    RecordBatch::new_empty(Arc::new(Schema::new(fields)))
}

//! The names that a server has.
//!
//! Comes in: nothing, or the wish for columns. Goes out: grids and views, as the metadata of Flight SQL say them: that stands in no queue. Never here: rows.

use arrow::array::{Array, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use arrow_flight::sql::{CommandGetTables, ProstMessageExt};
use arrow_flight::{FlightDescriptor, IpcMessage};
use bytes::Bytes;
use futures::TryStreamExt;
use prost::Message;

use super::connection::Client;
use crate::error::{Error, ErrorKind, Result};

/// A grid or view of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTable {
    /// Its name.
    pub name: String,
    /// Whether it is a view.
    pub is_view: bool,
    /// The names of its columns, if they were asked for.
    pub columns: Vec<String>,
}

impl Client {
    /// The grids and views that the caller may see, as the server lists them; with `columns`, also the names of their columns.
    ///
    /// # Errors
    /// Whatever the server says; `Protocol` for what is no list of tables.
    pub async fn tables(&self, columns: bool) -> Result<Vec<ServedTable>> {
        let command = CommandGetTables {
            include_schema: columns,
            ..CommandGetTables::default()
        };
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let info = self.info(descriptor).await?;
        let mut tables = Vec::new();
        for endpoint in info.endpoint {
            let ticket = endpoint.ticket.unwrap_or_default();
            let batches: Vec<RecordBatch> = self.fetch(ticket.ticket).await?.try_collect().await?;
            for batch in &batches {
                read(batch, columns, &mut tables)?;
            }
        }
        Ok(tables)
    }
}

/// The tables of a batch.
fn read(batch: &RecordBatch, columns: bool, tables: &mut Vec<ServedTable>) -> Result<()> {
    let schemas: Option<&BinaryArray> = match columns {
        true => {
            let column = batch.column_by_name("table_schema");
            let column = column.and_then(|column| column.as_binary_opt::<i32>());
            Some(column.ok_or_else(|| not_tables("table_schema"))?)
        }
        false => None,
    };
    let names = texts(batch, "table_name")?.iter();
    let named = names.zip(texts(batch, "table_type")?);
    for (row, (name, kind)) in named.enumerate() {
        let schema = schemas.filter(|schemas| schemas.is_valid(row));
        tables.push(ServedTable {
            name: name.unwrap_or_default().to_owned(),
            is_view: kind == Some("VIEW"),
            columns: match schema {
                Some(schemas) => columns_of(schemas.value(row))?,
                None => Vec::new(),
            },
        });
    }
    Ok(())
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = batch.column_by_name(name);
    let texts = column.and_then(|column| column.as_string_opt::<i32>());
    texts.ok_or_else(|| not_tables(name))
}

/// The names of the columns of a schema.
fn columns_of(bytes: &[u8]) -> Result<Vec<String>> {
    let schema = Schema::try_from(IpcMessage(Bytes::copy_from_slice(bytes)))?;
    let fields = schema.fields().iter();
    Ok(fields.map(|field| field.name().clone()).collect())
}

fn not_tables(column: &str) -> Error {
    let text = "the server lists its tables in other columns than Flight SQL says";
    Error::new(ErrorKind::Protocol, text).with_column(column)
}

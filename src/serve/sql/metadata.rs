//! What there is: catalogs, schemas, tables, types, what the server can do.
//!
//! Comes in: a metadata command of Flight SQL. Goes out: its rows, of what the caller may see. Never here: data.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::sql::{Command, CommandGetTables};

use super::super::service::Service;
use super::{info, keys, no_command, types};
use crate::error::{Error, Result};
use crate::flight::of_flight;
use crate::query::{CATALOG, SCHEMA};
use crate::serve::door::call::Call;

/// The type of a table that is a grid, and of a view.
const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";

/// The rows of a metadata command.
///
/// # Errors
/// `Unsupported` for plans of Substrait, `Protocol` for a command that gives no rows.
pub(in super::super) async fn batch(
    service: &Service,
    call: &Call,
    command: &Command,
) -> Result<RecordBatch> {
    Ok(match command {
        Command::CommandGetCatalogs(command) => {
            let mut builder = command.into_builder();
            builder.append(CATALOG);
            builder.build().map_err(of_flight)?
        }
        Command::CommandGetDbSchemas(command) => {
            let mut builder = command.clone().into_builder();
            builder.append(CATALOG, SCHEMA);
            builder.build().map_err(of_flight)?
        }
        Command::CommandGetTables(command) => tables(service, call, command).await?,
        Command::CommandGetTableTypes(command) => {
            let mut builder = command.into_builder();
            builder.append(TABLE);
            builder.append(VIEW);
            builder.build().map_err(of_flight)?
        }
        Command::CommandGetSqlInfo(command) => info::batch(service, call, &command.info)?,
        Command::CommandGetXdbcTypeInfo(command) => types::batch(command.data_type)?,
        Command::CommandGetPrimaryKeys(_) => keys::primary(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => keys::foreign(),
        Command::CommandStatementSubstraitPlan(_) => {
            let text = "the server takes no plans of Substrait: send SQL";
            return Err(Error::unsupported(text));
        }
        other => return Err(no_command(other.type_url())),
    })
}

async fn tables(service: &Service, call: &Call, command: &CommandGetTables) -> Result<RecordBatch> {
    let session = service.session_of(&call.caller)?;
    let mut builder = command.clone().into_builder();
    for name in session.tables() {
        match session.grid(&name) {
            Ok(grid) => {
                let appended = builder.append(CATALOG, SCHEMA, &name, TABLE, grid.schema());
                appended.map_err(of_flight)?;
            }
            Err(_) => {
                let schema = match command.include_schema {
                    true => columns_of_view(service, call, &name).await,
                    false => Arc::new(Schema::empty()),
                };
                let appended = builder.append(CATALOG, SCHEMA, &name, VIEW, &schema);
                appended.map_err(of_flight)?;
            }
        }
    }
    builder.build().map_err(of_flight)
}

/// The columns of a view; none when what it needs is gone, which only a query of it says.
async fn columns_of_view(service: &Service, call: &Call, name: &str) -> SchemaRef {
    let text = format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""));
    match super::prepared::looked_up(service, call, &text).await {
        Ok(statement) => super::columns(&statement),
        Err(error) => {
            tracing::debug!(view = name, %error, "its columns are not known");
            Arc::new(Schema::empty())
        }
    }
}

//! `partgrid --server URI rm`: drops grids and views.
//!
//! Comes in: names. Goes out: a line for each that is gone. Never here: how a server forgets.

use arrow::array::{ArrayRef, AsArray, StringArray};
use clap::Args;
use std::sync::Arc;

use super::remote::Remote;
use super::table::visible;
use super::{Pipe, runtime};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::query::Parameters;

/// What a name stands for.
const KIND: &str = "SELECT table_type FROM information_schema.tables WHERE table_name = $1 AND table_schema = 'public'";

/// Drop grids and views of a server; there is no way back
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLE
  partgrid --server grpc://localhost:8815 rm flights 'Old data'

Names are taken as they are, without quotes of SQL. The first that cannot be dropped ends it.")]
pub(super) struct Rm {
    /// Names of grids and views
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Take a name that is not there for dropped
    #[arg(long)]
    if_exists: bool,
}

impl Rm {
    pub(super) fn run(&self, remote: &Remote, stdout: &mut Pipe<'_>) -> Result<()> {
        let runtime = runtime(None)?;
        let Some(client) = runtime.block_on(remote.connect())? else {
            return Ok(());
        };
        for name in &self.names {
            let is_gone = runtime.block_on(Box::pin(dropped(&client, name)))?;
            match is_gone {
                true => stdout.print(&format!("dropped {}\n", visible(name)))?,
                false if self.if_exists => {}
                false => {
                    let text = format!("the server has no grid or view {name:?}");
                    return Err(Error::new(ErrorKind::NotFound, text).with_hint("`ls` lists them"));
                }
            }
        }
        Ok(())
    }
}

/// Drops one; `false` when there is none.
async fn dropped(client: &Client, name: &str) -> Result<bool> {
    let value: ArrayRef = Arc::new(StringArray::from(vec![name]));
    let asked = client
        .sql_with(KIND, Parameters::InOrder(vec![value]))
        .await?;
    let batches = asked.collect().await?;
    let kinds = batches.iter().filter_map(|batch| batch.columns().first());
    let mut kinds = kinds
        .filter_map(|kinds| kinds.as_string_opt::<i32>())
        .flatten();
    let Some(kind) = kinds.next().flatten() else {
        return Ok(false);
    };
    let what = if kind == "VIEW" { "VIEW" } else { "TABLE" };
    let quoted = name.replace('"', "\"\"");
    client.sql(&format!("DROP {what} \"{quoted}\"")).await?;
    Ok(true)
}

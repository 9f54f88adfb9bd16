//! `partgrid --server URI rm`: drops grids and views.
//!
//! Comes in: names. Goes out: a line for each that is gone. Never here: how a server forgets.

use clap::Args;

use super::remote::Remote;
use super::{Pipe, runtime};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::visible;

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
    let tables = client.tables(false).await?;
    let table = tables.iter().find(|table| table.name == name);
    let what = match table {
        Some(table) if table.is_view => "VIEW",
        Some(_) => "TABLE",
        // The server takes a name that differs in case only for this one, which is not what was said.
        None if tables.iter().any(|table| is_alike(&table.name, name)) => return Ok(false),
        // It knows of tables that are damaged, which nobody can drop.
        None => "TABLE IF EXISTS",
    };
    let quoted = name.replace('"', "\"\"");
    client.sql(&format!("DROP {what} \"{quoted}\"")).await?;
    Ok(table.is_some())
}

fn is_alike(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

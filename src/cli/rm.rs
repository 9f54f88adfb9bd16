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
    let Some(table) = tables.iter().find(|table| table.name == name) else {
        return Ok(false);
    };
    let what = if table.is_view { "VIEW" } else { "TABLE" };
    let quoted = name.replace('"', "\"\"");
    client.sql(&format!("DROP {what} \"{quoted}\"")).await?;
    Ok(true)
}

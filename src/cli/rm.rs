//! `partgrid --server URI rm`: drops grids and views.
//!
//! Comes in: names. Goes out: a line for each that is gone, which says where a grid of a cluster is gone. Never here: how a server forgets.

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

Names are taken as they are, without quotes of SQL. The first that cannot be dropped ends it.

Of a server in a cluster, a grid that members contributed goes from this member alone: the others
have it as before, and those who contributed its parts go on to have these.")]
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
        // Nobody can say of a grid that is gone whose it was.
        let of_all = runtime.block_on(of_all(&client));
        for name in &self.names {
            let is_gone = runtime.block_on(Box::pin(dropped(&client, name)))?;
            match is_gone {
                true if of_all.contains(name) => stdout.print(&dropped_here(name))?,
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

/// The names of grids that several members of a cluster have. Of a server that does not say what it has nobody knows.
async fn of_all(client: &Client) -> Vec<String> {
    let Ok(status) = client.status().await else {
        return Vec::new();
    };
    if status.members.len() < 2 {
        return Vec::new();
    }
    let of_all = status.grids.into_iter().filter(|grid| grid.parts.is_some());
    of_all.map(|grid| grid.name).collect()
}

/// What is said of such a grid.
fn dropped_here(name: &str) -> String {
    let call = visible(&format!("withdraw({name:?})"));
    let name = visible(name);
    format!(
        "dropped {name} at this member alone: the others have it as before, and its parts stay where they were contributed; {call} there ends it for all\n"
    )
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

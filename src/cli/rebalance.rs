//! `partgrid --server URI rebalance`: spreads grids of a cluster over its members.
//!
//! Comes in: names. Goes out: a line for each grid, with what moved. Never here: who gets what.

use clap::Args;

use super::remote::Remote;
use super::{Pipe, runtime};
use crate::error::Result;
use crate::grid::picture::{self, visible};

/// Spread grids of a cluster over the members that are there now, with the fewest bytes moved
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLE
  partgrid --server grpc://localhost:8815 rebalance flights
  partgrid --server grpc://localhost:8815 rebalance flights --without grpc://m3:8815
  partgrid --server grpc://localhost:8815 rebalance flights --without grpc://m2:8815,grpc://m3:8815

Any member of the cluster will do. Rows keep their order, and statements go on meanwhile. The token must
be one that may do everything.")]
pub(super) struct Rebalance {
    /// Names of grids that members have parts of
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// A member that is to have nothing of them, since it is going to be taken away; several with
    /// commas, or said several times
    #[arg(long, value_name = "URI", value_delimiter = ',')]
    without: Vec<String>,
}

impl Rebalance {
    pub(super) fn run(&self, remote: &Remote, stdout: &mut Pipe<'_>) -> Result<()> {
        let runtime = runtime(None)?;
        let Some(client) = runtime.block_on(remote.connect())? else {
            return Ok(());
        };
        for name in &self.names {
            let moved = runtime.block_on(Box::pin(client.rebalance(name, &self.without)))?;
            stdout.print(&format!(
                "{}: moved {} ({} tiles), kept {} tiles\n",
                visible(name),
                picture::bytes(moved.moved_bytes),
                moved.moved_tiles,
                moved.kept_tiles
            ))?;
        }
        Ok(())
    }
}

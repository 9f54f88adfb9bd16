//! `partgrid --server URI ls`: what a server has.
//!
//! Comes in: a server. Goes out: a line for each grid and view, and for each grid of its cluster of which parts are missing. Never here: values of the data.

use clap::Args;
use comfy_table::{CellAlignment, Table};

use super::remote::Remote;
use super::table::plain;
use super::{Pipe, runtime};
use crate::client::{IncompleteGrid, ServedGrid};
use crate::error::Result;
use crate::grid::picture::{self, visible};
use crate::location::Locality;

/// List the grids and views of a server
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLE
  partgrid --server grpc://localhost:8815 ls

COLUMNS
  bytes    of the tiles, as they lie in memory
  where    how many tiles are in the memory of the server, in shared memory, in other processes, in
           files; lost are those of members that are gone, of which nobody has a copy
  durable  whether the grid outlives the server

Of a server in a cluster, then a line for each grid of all members of which parts are missing, or
contradict each other: one that is not there yet, or that is there and was whole before.")]
pub(super) struct Ls {}

impl Ls {
    #[expect(clippy::unused_self, reason = "as the other verbs are run")]
    pub(super) fn run(&self, remote: &Remote, stdout: &mut Pipe<'_>) -> Result<()> {
        let runtime = runtime(None)?;
        let Some(client) = runtime.block_on(remote.connect())? else {
            return Ok(());
        };
        let status = runtime.block_on(client.status())?;
        let tables = runtime.block_on(client.tables(false))?;
        let views = tables.into_iter().filter(|table| table.is_view);
        let mut views: Vec<String> = views.map(|view| view.name).collect();
        views.sort();
        stdout.print(&format!("{}\n", listed(&status.grids, &views)))?;
        for grid in &status.incomplete {
            stdout.print(&format!("{}\n", not_whole(grid)))?;
        }
        Ok(())
    }
}

/// What a grid lacks.
fn not_whole(grid: &IncompleteGrid) -> String {
    let how = match grid.is_there {
        true => "not whole",
        false => "not there yet",
    };
    format!("{how}: {}", visible(&grid.message))
}

fn listed(grids: &[ServedGrid], views: &[String]) -> String {
    let mut table = Table::new();
    table.set_header([
        "name", "rows", "columns", "tiles", "bytes", "where", "durable",
    ]);
    for grid in grids {
        table.add_row(row(grid));
    }
    for view in views {
        table.add_row([visible(view).as_str(), "", "", "", "", "view", ""]);
    }
    for number in 1..5 {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let bytes = grids.iter().map(|grid| grid.bytes).sum();
    let total = format!(
        "{}, {}, {}",
        picture::counted(grids.len() as u64, "grid"),
        picture::counted(views.len() as u64, "view"),
        picture::bytes(bytes)
    );
    format!("{}\n{total}", plain(table))
}

fn row(grid: &ServedGrid) -> [String; 7] {
    let places = grid.localities.iter().map(|place| {
        let count = picture::thousands(place.tiles);
        match place.locality.as_str() {
            Locality::LOST => format!("{count} of {} lost", picture::counted(grid.tiles, "tile")),
            only if grid.localities.len() == 1 => visible(only),
            other => format!("{count} {}", visible(other)),
        }
    });
    [
        visible(&grid.name),
        picture::thousands(grid.rows),
        picture::thousands(grid.columns),
        picture::thousands(grid.tiles),
        picture::bytes(grid.bytes),
        places.collect::<Vec<_>>().join(", "),
        if grid.durable { "yes" } else { "no" }.to_owned(),
    ]
}

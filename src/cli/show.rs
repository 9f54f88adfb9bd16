//! `partgrid show`: a picture of the grid that files make, and their columns.
//!
//! Comes in: paths. Goes out: picture and schema. Never here: values of the data.

use std::collections::HashSet;

use clap::Args;
use comfy_table::{CellAlignment, Table};

use super::remote::Remote;
use super::table::plain;
use super::{Pipe, runtime};
use crate::error::Result;
use crate::grid::picture::{visible, visible_lines};
use crate::grid::{PartitionGrid, Tile, picture};
use crate::load::{LoadOptions, load};

/// Width of the picture where no terminal says otherwise.
const WIDTH: u16 = 100;

/// What stands for a number of nulls that nobody knows.
const UNKNOWN: &str = "?";

/// Numbers of a tile along rows and columns.
type Place = (usize, usize);

/// Load files as one grid, or take one of a server; show its tiles, where they are, and its columns
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  partgrid show flights.parquet
  partgrid show 'year=2013/*.parquet' --tile-rows 100000
  partgrid show a.parquet b.parquet --columns origin,dest
  partgrid --server grpc://localhost:8815 show flights

With --server, the names of grids of the server.")]
pub(super) struct Show {
    /// Files, folders or patterns, together one grid; with --server, names of grids
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// Cut the rows into tiles of at most so many; by default by size, at borders of the files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tile_rows: Option<u64>,
    /// Load these columns only, in this order
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Take no columns from folder names such as year=2013
    #[arg(long)]
    no_hive: bool,
}

impl Show {
    pub(super) fn run(&self, remote: &Remote, stdout: &mut Pipe<'_>) -> Result<()> {
        let runtime = runtime(None)?;
        let Some(client) = runtime.block_on(remote.connect())? else {
            let grid = runtime.block_on(Box::pin(load(&self.paths, &self.options())))?;
            tracing::debug!(grid = ?grid, paths = ?self.paths, "loaded");
            return shown(&grid, stdout);
        };
        for name in &self.paths {
            let grid = runtime.block_on(client.grid(name))?;
            shown(&grid, stdout)?;
        }
        Ok(())
    }

    fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default().with_hive_partitioning(!self.no_hive);
        if let Some(columns) = &self.columns {
            options = options.with_columns(columns.clone());
        }
        if let Some(rows) = self.tile_rows {
            options = options.with_tile_rows(rows);
        }
        options
    }
}

/// The picture, and the columns.
fn shown(grid: &PartitionGrid, stdout: &mut Pipe<'_>) -> Result<()> {
    let width = Table::new().width().unwrap_or(WIDTH);
    let picture = visible_lines(&picture::text(grid, usize::from(width)));
    stdout.print(&format!("{picture}\n\n{}\n", schema(grid)))
}

/// One line for each column: name, type, how many nulls. A last one says of how many tiles nobody knows these.
fn schema(grid: &PartitionGrid) -> String {
    let mut table = Table::new();
    table.set_header(["column", "type", "nulls"]);
    let mut unread = HashSet::new();
    for (number, field) in grid.schema().fields().iter().enumerate() {
        let nullable = if field.is_nullable() { "" } else { " not null" };
        table.add_row([
            visible(field.name()),
            visible(&format!("{}{nullable}", field.data_type())),
            nulls(grid, number, &mut unread),
        ]);
    }
    if let Some(nulls) = table.column_mut(2) {
        nulls.set_cell_alignment(CellAlignment::Right);
    }
    let all = picture::counted(grid.tiles().len() as u64, "tile");
    let columns = plain(table);
    match unread.len() as u64 {
        0 => columns,
        some => format!(
            "{columns}\n\nnulls of {} of {all} are not counted: they are lost, or could not be read",
            picture::thousands(some)
        ),
    }
}

/// How many rows of a column are null: of those tiles that can be read, if these are not all. Takes note of the others, which are not tried again.
fn nulls(grid: &PartitionGrid, column: usize, unread: &mut HashSet<Place>) -> String {
    let (mut count, mut num_read, mut num_tiles) = (0_u64, 0_u64, 0_u64);
    let Some((band, local)) = grid.columns().locate(column as u64) else {
        return UNKNOWN.to_owned();
    };
    let local = usize::try_from(local).unwrap_or(usize::MAX);
    for row_band in 0..grid.rows().num_intervals() {
        let Some(tile) = grid.row_band(row_band).get(band) else {
            continue;
        };
        num_tiles += 1;
        match null_count(tile, local, unread.contains(&(row_band, band))) {
            Some(nulls) => (count, num_read) = (count + nulls, num_read + 1),
            None => {
                unread.insert((row_band, band));
            }
        }
    }
    match num_read {
        all if all == num_tiles => picture::thousands(count),
        0 => UNKNOWN.to_owned(),
        _ => format!("at least {}", picture::thousands(count)),
    }
}

/// The nulls in a column of a tile; `None` where nobody has said it and the tile is lost, cannot be read, or could not (`is_unread`).
fn null_count(tile: &Tile, column: usize, is_unread: bool) -> Option<u64> {
    let known = tile.known_statistics(column);
    let is_there = !is_unread && !tile.data().is_lost();
    let read = || {
        is_there
            .then(|| tile.column_statistics(column).ok())
            .flatten()
    };
    known.or_else(read).map(|known| known.null_count)
}

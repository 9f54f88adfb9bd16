//! `partgrid ps`: who shares tiles on this host, and who reads them.
//!
//! Comes in: nothing. Goes out: a line for each segment of shared memory of this user's processes. Never here: memory, or processes of others.

use clap::Args;
use comfy_table::{CellAlignment, Table};

use super::Pipe;
use crate::error::{Result, format_position};
use crate::grid::picture;
use crate::share::{SharedSegment, SharingProcess, sharing_processes};

/// Show the shared memory of your processes on this host, and who reads it
#[derive(Debug, Args)]
#[command(after_help = "COLUMNS
  owner     the process that made the tile
  bytes     in memory, once, however many processes read it
  kind      shared: put there by to_shared; copy: of a tile in private memory, until its last reader
            is done
  readers   the processes that have it open beside its owner

A grid in private memory that nobody else reads shows no line.")]
pub(super) struct Ps {}

impl Ps {
    #[expect(clippy::unused_self, reason = "as the other verbs are run")]
    pub(super) fn run(&self, stdout: &mut Pipe<'_>) -> Result<()> {
        let owners = sharing_processes()?;
        stdout.print(&format!("{}\n", listed(&owners)))
    }
}

fn listed(owners: &[SharingProcess]) -> String {
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_header(["owner", "grid", "tile", "bytes", "kind", "readers"]);
    let mut bytes = 0;
    for owner in owners {
        let process = owner.process.to_string();
        match &owner.segments {
            None => {
                table.add_row([process.as_str(), "does not answer", "", "", "", ""]);
            }
            Some(segments) => {
                for segment in segments {
                    bytes += segment.segment_bytes;
                    table.add_row(row(&process, segment));
                }
            }
        }
    }
    if let Some(column) = table.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let shares =
        |owner: &&SharingProcess| owner.segments.as_ref().is_some_and(|all| !all.is_empty());
    let processes = match owners.iter().filter(shares).count() {
        1 => "1 process shares".to_owned(),
        many => format!("{many} processes share"),
    };
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    let total = format!("{processes} {}", picture::bytes(bytes));
    lines.chain([total]).collect::<Vec<_>>().join("\n")
}

fn row(process: &str, segment: &SharedSegment) -> [String; 6] {
    let mut readers: Vec<String> = Vec::new();
    for reader in &segment.readers {
        let reader = reader.to_string();
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    [
        process.to_owned(),
        segment.grid.to_string(),
        format_position(&segment.position),
        picture::thousands(segment.segment_bytes),
        if segment.is_copy { "copy" } else { "shared" }.to_owned(),
        readers.join(" "),
    ]
}

//! Grids and their tiles by name.
//!
//! Comes in: the name of a grid, or a ticket. Goes out: what is known of the grid with a ticket for each row band; the rows of a ticket. Never here: queries.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::{FlightDescriptor, FlightInfo};
use futures::{StreamExt, stream};
use glob::Pattern;

use super::flight::{endpoint, protocol};
use super::service::Service;
use crate::error::{Error, Result};
use crate::flight::messages::{Named, TileTicket};
use crate::flight::schema_bytes;
use crate::grid::{GridId, PartitionGrid};
use crate::serve::door::call::{Call, unknown};
use crate::serve::queries::rows::Rows;
use crate::serve::watch::describe;

/// Rows of one batch of a tile that is sent.
const BATCH_ROWS: usize = 64 * 1024;

/// The grids that a caller may see and whose names match, each as [`info`] says.
///
/// # Errors
/// `Protocol` for a pattern that is none.
pub(super) fn list(service: &Service, call: &Call, pattern: &[u8]) -> Result<Vec<FlightInfo>> {
    let pattern = std::str::from_utf8(pattern).ok();
    let pattern = pattern.map(|text| Pattern::new(if text.is_empty() { "*" } else { text }));
    let Some(Ok(pattern)) = pattern else {
        return Err(protocol(
            "the expression of ListFlights must be a pattern of names, such as flights_*",
        ));
    };
    let session = service.session_of(&call.caller)?;
    let mut infos = Vec::new();
    for name in session.tables() {
        // Views have no tiles.
        if pattern.matches(&name)
            && let Ok(grid) = session.grid(&name)
        {
            infos.push(info(service, &name, &grid)?);
        }
    }
    Ok(infos)
}

/// What is known of a grid: its columns, rows, bytes, and a ticket for each row band, which another member takes as well that has it.
///
/// # Errors
/// `Unsupported` for columns that Arrow IPC does not hold.
pub(super) fn info(service: &Service, name: &str, grid: &Arc<PartitionGrid>) -> Result<FlightInfo> {
    #[cfg(feature = "distributed")]
    let there = super::member::bands_there(service, grid);
    let endpoints = (0..grid.rows().num_intervals()).map(|row_band| {
        let ticket = TileTicket {
            grid: id_bytes(grid.id()),
            row_band: row_band as u64,
            ..TileTicket::default()
        };
        #[cfg(feature = "distributed")]
        if let Some(there) = there(row_band) {
            let ticket = TileTicket {
                part: id_bytes(there.part),
                part_row_band: there.row_band as u64,
                ..ticket
            };
            return endpoint(service, ticket.to_bytes(), false).with_location(there.uri);
        }
        endpoint(service, ticket.to_bytes(), false)
    });
    let described = describe::grid_to_share(name, grid, service.limits.grid_bytes);
    Ok(FlightInfo {
        schema: schema_bytes(grid.schema())?,
        flight_descriptor: Some(FlightDescriptor::new_path(vec![name.to_owned()])),
        endpoint: endpoints.collect(),
        total_records: i64::try_from(grid.num_rows()).unwrap_or(-1),
        total_bytes: i64::try_from(grid.memory_bytes()).unwrap_or(-1),
        ordered: true,
        app_metadata: described.to_string().into(),
    })
}

/// The rows of a ticket.
///
/// # Errors
/// `NotFound` when there is no such grid, for this caller, or no such tile.
pub(super) fn rows(service: &Service, call: &Call, ticket: &TileTicket) -> Result<Rows> {
    let (grid, row_band) = find(service, call, ticket)?;
    let band = usize::try_from(row_band).unwrap_or(usize::MAX);
    let positions: Vec<[usize; 2]> = match ticket.column_band {
        Some(column) => vec![[band, usize::try_from(column).unwrap_or(usize::MAX)]],
        None => (0..grid.columns().num_intervals())
            .map(|column| [band, column])
            .collect(),
    };
    for position in &positions {
        grid.tile(position)?;
    }
    let whole = match ticket.column_band {
        None => Arc::clone(grid.schema()),
        Some(column) => {
            let column = usize::try_from(column).unwrap_or(usize::MAX);
            grid.tile(&[band, column])?.data().schema()
        }
    };
    let width = whole.fields().len();
    let columns: Vec<usize> = match ticket.is_projected {
        true => ticket
            .columns
            .iter()
            .map(|column| *column as usize)
            .collect(),
        false => (0..width).collect(),
    };
    let different: BTreeSet<usize> = columns.iter().copied().collect();
    if different.len() != columns.len() || different.last().is_some_and(|last| *last >= width) {
        return Err(protocol(format!(
            "a ticket names each of the {width} columns once, this one names others"
        )));
    }
    let schema: SchemaRef = Arc::new(whole.project(&columns)?);
    let wanted = Wanted {
        grid,
        positions,
        columns,
        schema: Arc::clone(&schema),
    };
    let batches = stream::once(wanted.fetch()).flat_map(|fetched| match fetched {
        Ok(batch) => stream::iter(pieces(&batch).into_iter().map(Ok).collect::<Vec<_>>()),
        Err(error) => stream::iter(vec![Err(error)]),
    });
    Ok(Rows {
        schema,
        batches: batches.boxed(),
    })
}

/// The grid of a ticket that the caller may see, with the number of the row band; or the part of it that this member has.
fn find(service: &Service, call: &Call, ticket: &TileTicket) -> Result<(Arc<PartitionGrid>, u64)> {
    let id = id_of(&ticket.grid)?;
    let session = service.session_of(&call.caller)?;
    let mut names = session.tables().into_iter();
    let found = names.find_map(|name| session.grid(&name).ok().filter(|grid| grid.id() == id));
    #[cfg(feature = "distributed")]
    let found = found.or_else(|| super::member::part_with(service, call, id));
    if let Some(grid) = found {
        return Ok((grid, ticket.row_band));
    }
    #[cfg(feature = "distributed")]
    if !ticket.part.is_empty()
        && let Some(part) = super::member::part_for(service, call, id_of(&ticket.part)?)
    {
        return Ok((part, ticket.part_row_band));
    }
    Err(unknown("grid"))
}

fn id_bytes(id: GridId) -> Vec<u8> {
    id.bits().to_le_bytes().to_vec()
}

/// # Errors
/// `NotFound` for bytes that are no id of a grid.
fn id_of(bytes: &[u8]) -> Result<GridId> {
    let bits: [u8; 16] = bytes.try_into().map_err(|_| unknown("grid"))?;
    Ok(GridId::from_bits(u128::from_le_bytes(bits)))
}

/// Columns of the tiles of one row band.
struct Wanted {
    grid: Arc<PartitionGrid>,
    positions: Vec<[usize; 2]>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Wanted {
    /// The columns side by side; only those tiles are touched that have one of them.
    async fn fetch(self) -> Result<RecordBatch> {
        let mut arrays: Vec<Option<arrow::array::ArrayRef>> = vec![None; self.columns.len()];
        let mut start = 0;
        let mut num_rows = 0;
        for position in &self.positions {
            let data = self.grid.tile(position)?.data();
            let width = data.schema().fields().len();
            num_rows = usize::try_from(data.num_rows()).unwrap_or(usize::MAX);
            let here = self.columns.iter().enumerate();
            let here: Vec<(usize, usize)> = here
                .filter(|(_, column)| (start..start + width).contains(*column))
                .map(|(place, column)| (place, *column - start))
                .collect();
            start += width;
            if here.is_empty() {
                continue;
            }
            let local: Vec<usize> = here.iter().map(|(_, column)| *column).collect();
            let batch = data.fetch(&local).await;
            let batch = batch.map_err(|error| error.with_position(position))?;
            for ((place, _), array) in here.iter().zip(batch.columns()) {
                if let Some(slot) = arrays.get_mut(*place) {
                    *slot = Some(Arc::clone(array));
                }
            }
        }
        let arrays: Option<Vec<_>> = arrays.into_iter().collect();
        let arrays = arrays.ok_or_else(|| Error::internal("a column lies in no tile"))?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(num_rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema,
            arrays,
            &options,
        )?)
    }
}

/// The batch in slices; a whole one when it is empty.
fn pieces(batch: &RecordBatch) -> Vec<RecordBatch> {
    let num_rows = batch.num_rows();
    if num_rows <= BATCH_ROWS {
        return vec![batch.clone()];
    }
    let starts = (0..num_rows).step_by(BATCH_ROWS);
    starts
        .map(|start| batch.slice(start, BATCH_ROWS.min(num_rows - start)))
        .collect()
}

//! How scans travel.
//!
//! Comes in: a scan of the row bands of one member, with the grids of all. Goes out: bytes that name its tiles by their handles, never data, and on the other side the same scan over a grid of just those
//! tiles: its own where it has them, and such that can be fetched. The bytes of another member are not believed: what does not fit together is an error. Never here: which tiles (`leaf.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;

use super::channel::Reach;
use super::members::Members;
use super::message::{FORMAT, Order, Run, Scan, Source};
use super::owner::elsewhere;
use super::tile::{MemberTile, Outline};
use crate::error::Error;
use crate::flight::schema_bytes;
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile};
use crate::location::{Device, Location};
use crate::query::GridScanExec;
use crate::share::{Handle, Incarnation, find, handle};

/// The most shares that a scan of another member may have.
const MOST_SHARES: u32 = 4096;

/// Writes down scans, which the engine does not know. Functions of ours it finds by their names (`query/travel.rs`): of several codecs it asks the first one alone for them, and that is its own.
#[derive(Debug)]
pub(super) struct Codec {
    pub(super) reach: Arc<Reach>,
    /// The members of the query; without them nothing is written down.
    pub(super) members: Option<Arc<Members>>,
    pub(super) forbids_fetching: bool,
}

fn broken(what: &str) -> DataFusionError {
    Error::invalid_data(format!(
        "a member sent a part of a plan that cannot be: {what}"
    ))
    .into()
}

fn foreign(node: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!("partgrid does not write down {node}"))
}

fn id_bytes(bits: u128) -> Vec<u8> {
    bits.to_le_bytes().to_vec()
}

fn id_bits(bytes: &[u8]) -> Result<u128> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| broken("an id"))?;
    Ok(u128::from_le_bytes(bytes))
}

fn small(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| broken("a number"))
}

fn place(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| broken("a number"))
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buffer: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let message = Scan::decode(buffer).map_err(|_| broken("its bytes"))?;
        if message.format != FORMAT {
            let text = format!(
                "a member of another version sent a part of a plan in format {}, this one knows {FORMAT}",
                message.format
            );
            return Err(Error::invalid_data(text).into());
        }
        let schema = schema_of(&message.schema)?;
        let grid = Arc::new(self.grid(&message, &schema)?);
        let decoding = PhysicalPlanDecodeContext::new(context, self);
        let conditions = message.conditions.iter().map(|condition| {
            let node = PhysicalExprNode::decode(condition.as_slice());
            let node = node.map_err(|_| broken("a condition"))?;
            converter.proto_to_physical_expr(&node, &schema, &decoding)
        });
        let conditions: Vec<Arc<dyn PhysicalExpr>> = conditions.collect::<Result<_>>()?;
        let columns: Vec<usize> = message.columns.iter().map(|at| *at as usize).collect();
        if columns
            .iter()
            .any(|column| *column >= schema.fields().len())
        {
            return Err(broken("the number of a column"));
        }
        if message.num_shares == 0 || message.num_shares > MOST_SHARES {
            return Err(broken("the number of shares"));
        }
        let limit = message.limit.map(place).transpose()?;
        let orders: Vec<_> = message.orders.iter().map(order_of).collect();
        let batch_rows = context.session_config().batch_size();
        let scan = GridScanExec::over(grid, columns, &conditions)?.with_limit(limit);
        let scan = scan.into_part(&orders, message.num_shares as usize, batch_rows)?;
        Ok(Arc::new(scan))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        // Nothing is written before it is certain that the node is ours: others may try after us, into the same buffer.
        let Some(scan) = node.downcast_ref::<GridScanExec>() else {
            return Err(foreign(node.name()));
        };
        let message = self.written(scan, converter)?;
        message
            .encode(buffer)
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

fn schema_of(bytes: &[u8]) -> Result<SchemaRef> {
    Ok(Arc::new(try_schema_from_ipc_buffer(bytes)?))
}

fn order_of(order: &Order) -> Vec<(usize, SortOptions)> {
    let keys = order.columns.iter().zip(&order.descending);
    let keys = keys.zip(&order.nulls_first);
    let keys = keys.map(|((column, descending), nulls_first)| {
        let options = SortOptions::new(*descending, *nulls_first);
        (*column as usize, options)
    });
    keys.collect()
}

impl Codec {
    /// A scan as it is written down.
    fn written(
        &self,
        scan: &GridScanExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Scan> {
        let grid = scan.grid();
        let bands = touched(scan);
        // The columns of these column bands, and where each column of the grid is among them.
        let numbers: Vec<usize> = bands
            .iter()
            .flat_map(|(_, columns)| columns.clone())
            .collect();
        let places: HashMap<usize, usize> = numbers
            .iter()
            .enumerate()
            .map(|(place, number)| (*number, place))
            .collect();
        let schema = Arc::new(grid.schema().project(&numbers)?);
        let mut sources = Sources::default();
        let mut runs: Vec<Run> = Vec::new();
        for (band, _) in &bands {
            self.write_band(scan, *band, &mut sources, &mut runs)?;
        }
        let conditions = scan.filters().iter().map(|condition| {
            let condition = reassign_expr_columns(Arc::clone(condition), &schema)?;
            let node = converter.physical_expr_to_proto(&condition, self)?;
            Ok(node.encode_to_vec())
        });
        let conditions = conditions.collect::<Result<_>>()?;
        let columns = scan.columns_out().iter();
        let columns = columns.map(|column| {
            let place = places.get(column).ok_or_else(|| broken("a column"))?;
            small(*place)
        });
        let rows = scan.kept_row_bands().iter().map(|band| {
            let rows = grid.rows().interval(*band).unwrap_or_default();
            rows.end - rows.start
        });
        let orders = scan.orders().into_iter().map(|order| {
            let mut written = Order::default();
            for (column, options) in order {
                written.columns.push(small(column)?);
                written.descending.push(options.descending);
                written.nulls_first.push(options.nulls_first);
            }
            Ok(written)
        });
        Ok(Scan {
            format: FORMAT,
            schema: schema_bytes(&schema)?.to_vec(),
            band_columns: bands
                .iter()
                .map(|(_, columns)| columns.len() as u64)
                .collect(),
            band_rows: rows.collect(),
            sources: sources.all,
            runs,
            columns: columns.collect::<Result<_>>()?,
            conditions,
            limit: scan.row_limit().map(|limit| limit as u64),
            num_shares: small(scan.properties().partitioning.partition_count())?,
            orders: orders.collect::<Result<_>>()?,
            forbids_fetching: self.forbids_fetching,
            grid: id_bytes(grid.id().bits()),
        })
    }

    /// Writes down the tiles of one column band.
    fn write_band(
        &self,
        scan: &GridScanExec,
        band: usize,
        sources: &mut Sources,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let first = runs.len();
        for row_band in scan.kept_row_bands() {
            let position = [*row_band, band];
            let tile = scan.grid().tile(&position)?;
            let handle = match elsewhere(tile) {
                Some(handle) => handle.clone(),
                None => handle(scan.grid(), &position)?,
            };
            let [row, column] = handle.position.as_slice() else {
                return Err(broken("a tile whose position is not of a frame"));
            };
            let source = sources.place(&handle, self.members.as_deref())?;
            let (row, column) = (*row as u64, *column as u64);
            let bytes = tile.data().memory_bytes();
            match runs.get_mut(first..).and_then(<[Run]>::last_mut) {
                Some(run)
                    if run.source == source
                        && run.column_band == column
                        && run.row_band.checked_add(run.tile_bytes.len() as u64) == Some(row) =>
                {
                    run.tile_bytes.push(bytes);
                }
                _ => runs.push(Run {
                    source,
                    row_band: row,
                    column_band: column,
                    tile_bytes: vec![bytes],
                }),
            }
        }
        Ok(())
    }

    /// The grid of the tiles that are written down.
    fn grid(&self, message: &Scan, schema: &SchemaRef) -> Result<PartitionGrid> {
        let columns = Axis::try_from_lengths(message.band_columns.iter().copied())?;
        if columns.extent() != schema.fields().len() as u64 {
            return Err(broken("the columns of its column bands"));
        }
        let bands = columns.intervals().map(|band| {
            let numbers: Vec<usize> = band.map(place).collect::<Result<_>>()?;
            Ok(Arc::new(schema.project(&numbers)?))
        });
        let bands: Vec<SchemaRef> = bands.collect::<Result<_>>()?;
        if message.band_rows.is_empty() {
            // A member that has no tile of the grid takes part nevertheless.
            return Ok(PartitionGrid::try_from_batches(Arc::clone(schema), &[])?);
        }
        let rows = Axis::try_from_lengths(message.band_rows.iter().copied())?;
        let num_row_bands = rows.num_intervals();
        let known = known(&message.sources)?;
        let mut builder = GridBuilder::try_new(Arc::clone(schema), rows, columns)?;
        let mut number = 0;
        for run in &message.runs {
            let source = known.get(run.source as usize);
            let source = source.ok_or_else(|| broken("the place of a source"))?;
            for (further, bytes) in (0..).zip(&run.tile_bytes) {
                let (row_band, band) = (number % num_row_bands, number / num_row_bands);
                let schema = bands
                    .get(band)
                    .ok_or_else(|| broken("more tiles than places"))?;
                let rows = message.band_rows.get(row_band).copied().unwrap_or_default();
                let outline = Outline {
                    handle: Handle {
                        grid: source.grid,
                        position: vec![
                            place(run.row_band.saturating_add(further))?,
                            place(run.column_band)?,
                        ],
                        incarnation: source.incarnation,
                        owner: source.owner.clone(),
                    },
                    uri: source.uri.clone(),
                    schema: Arc::clone(schema),
                    num_rows: rows,
                    memory_bytes: *bytes,
                    forbids_fetching: message.forbids_fetching,
                };
                builder.set(&[row_band, band], self.tile(source, outline)?)?;
                number += 1;
            }
        }
        if number != num_row_bands * bands.len() {
            return Err(broken("fewer tiles than places"));
        }
        Ok(builder.build()?)
    }

    /// A tile by its name: this process's own, or one that can be fetched.
    fn tile(&self, source: &Known, outline: Outline) -> Result<Tile> {
        let Some(grid) = &source.here else {
            let tile = MemberTile::new(outline, Arc::clone(&self.reach));
            return Ok(Tile::new(Arc::new(tile)));
        };
        let tile = grid.tile(&outline.handle.position)?;
        let is_same = tile.num_rows() == outline.num_rows
            && tile.data().schema().fields() == outline.schema.fields();
        match is_same {
            true => Ok(tile.clone()),
            false => Err(broken("a tile with other rows or columns than it has here")),
        }
    }
}

/// The column bands that a scan reads, with their columns by numbers in the grid; that of the first column, if it reads none.
fn touched(scan: &GridScanExec) -> Vec<(usize, Vec<usize>)> {
    let axis = scan.grid().columns();
    let read = scan.columns_read().iter();
    let mut bands: Vec<usize> = read
        .filter_map(|column| axis.locate(*column as u64))
        .map(|(band, _)| band)
        .collect();
    bands.sort_unstable();
    bands.dedup();
    if bands.is_empty() && axis.num_intervals() > 0 {
        bands.push(0);
    }
    let columns = |band: usize| {
        let numbers = axis.interval(band).unwrap_or_default();
        numbers
            .filter_map(|number| usize::try_from(number).ok())
            .collect()
    };
    bands
        .into_iter()
        .map(|band| (band, columns(band)))
        .collect()
}

/// Grids of processes, each once.
#[derive(Default)]
struct Sources {
    all: Vec<Source>,
    places: HashMap<(GridId, Incarnation), u32>,
}

impl Sources {
    fn place(&mut self, handle: &Handle, members: Option<&Members>) -> Result<u32> {
        let key = (handle.grid, handle.incarnation);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let members = members.ok_or_else(|| foreign("a scan outside of a query"))?;
        let number = members.number_of(handle.incarnation);
        let member = number.and_then(|number| members.iter().nth(number));
        let place = small(self.all.len())?;
        self.all.push(Source {
            grid: id_bytes(handle.grid.bits()),
            incarnation: id_bytes(handle.incarnation.bits()),
            host: handle.owner.host().to_string(),
            process: handle.owner.process(),
            uri: member
                .map(|member| member.uri().to_owned())
                .unwrap_or_default(),
        });
        self.places.insert(key, place);
        Ok(place)
    }
}

/// A grid of a process, looked up.
struct Known {
    grid: GridId,
    incarnation: Incarnation,
    owner: Location,
    uri: String,
    /// If this process has it.
    here: Option<Arc<PartitionGrid>>,
}

fn known(sources: &[Source]) -> Result<Vec<Known>> {
    let known = sources.iter().map(|source| {
        let grid = GridId::from_bits(id_bits(&source.grid)?);
        let host: IpAddr = source.host.parse().map_err(|_| broken("a host"))?;
        Ok(Known {
            grid,
            incarnation: Incarnation::from_bits(id_bits(&source.incarnation)?),
            owner: Location::new(host, source.process, Device::CPU),
            uri: source.uri.clone(),
            here: find(grid),
        })
    });
    known.collect()
}

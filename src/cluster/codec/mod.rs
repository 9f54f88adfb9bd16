//! How scans travel.
//!
//! Comes in: a scan of the row bands of one member, with the grids of all, or which rows belong to which task, or an operator of ours over one input or two (`over.rs`, `over_two.rs`). Goes out: bytes that name its tiles (`tiles.rs`), its columns and conditions, and on the other side the same scan over a grid of
//! just those tiles. The bytes of another member are not believed: what does not fit together is an error. Never here: which tiles (`leaf.rs`).

pub(super) mod message;
mod over;
mod over_two;
pub(super) mod tiles;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::SortOptions;
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

use super::placement::leaf::touched_bands;
use crate::error::{Error, ErrorKind};
use crate::query::{GridScanExec, kind_within, with_lambdas, with_wide_keys};
use crate::quiet::quietly;
use message::{FORMAT, Order, Scan};
use tiles::{TileCodec, columns_of, id_bytes};

/// The most shares that a scan of another member may have.
const MOST_SHARES: u32 = 4096;

/// Writes down scans, which the engine does not know. Functions of ours it finds by their names (`query/travel.rs`): of several codecs it asks the first one alone for them, and that is its own.
#[derive(Debug)]
pub(super) struct Codec(pub(super) TileCodec);

fn broken(what: &str) -> DataFusionError {
    tiles::broken(what).into()
}

fn small(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| broken("a number"))
}

fn foreign(node: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!("partgrid does not write down {node}"))
}

fn place(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| broken("a number"))
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let reading = || match inputs {
            [input] => self.over(buffer, input, context, converter),
            [one, other] => over_two::read(buffer, one, other),
            _ => self.scan(buffer, context, converter),
        };
        // The engine panics over some conditions, and takes others for faults of its own.
        let read = quietly(reading).unwrap_or_else(|_| Err(broken("its reader gave up")));
        read.map_err(|error| match kind_within(&error) {
            ErrorKind::Internal => {
                let text = "the engine makes nothing of it";
                tiles::broken(text).with_source(error).into()
            }
            _ => error,
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        // Nothing is written before it is certain that the node is ours: others may try after us, into the same buffer.
        if let Some(message) = self.written_over(&node, converter)? {
            buffer.extend(message.encode_to_vec());
            return Ok(());
        }
        if let Some(message) = over_two::written(&node)? {
            buffer.extend(message.encode_to_vec());
            return Ok(());
        }
        let Some(scan) = node.downcast_ref::<GridScanExec>() else {
            return Err(foreign(node.name()));
        };
        let message = self.written(scan, converter)?;
        message
            .encode(buffer)
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

fn check_format(format: u32) -> Result<()> {
    match format == FORMAT {
        true => Ok(()),
        false => {
            let text = format!(
                "a member of another version sent a part of a plan in format {format}, this one knows {FORMAT}"
            );
            Err(Error::invalid_data(text).into())
        }
    }
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

/// Numbers that ascend, in turns: how many are none of them, and how many that follow are.
fn turns(numbers: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut turns: Vec<u64> = Vec::new();
    let mut next = 0;
    for number in numbers {
        match turns.last_mut() {
            Some(run) if number == next => *run += 1,
            _ => turns.extend([number.saturating_sub(next) as u64, 1]),
        }
        next = number + 1;
    }
    turns
}

/// The numbers that were written so. Room is made for `count` of them, all of which are there.
///
/// # Errors
/// `InvalidData` for more or fewer, and for numbers beyond what there can be.
fn in_turns(turns: &[u64], count: usize) -> Result<Vec<usize>> {
    let wrong = || broken("the numbers of its bands");
    let mut numbers = Vec::with_capacity(count);
    let mut next = 0_usize;
    for turn in turns.chunks(2) {
        let [between, run] = turn else {
            return Err(wrong());
        };
        let first = next.checked_add(place(*between)?).ok_or_else(wrong)?;
        let run = place(*run)?;
        if run > count - numbers.len() {
            return Err(wrong());
        }
        next = first.checked_add(run).ok_or_else(wrong)?;
        numbers.extend(first..next);
    }
    match numbers.len() == count {
        true => Ok(numbers),
        false => Err(wrong()),
    }
}

impl Codec {
    /// A scan that was written down.
    fn scan(
        &self,
        buffer: &[u8],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let message = Scan::decode(buffer).map_err(|_| broken("its bytes"))?;
        check_format(message.format)?;
        let tiles = message.tiles.as_ref().ok_or_else(|| broken("no tiles"))?;
        let grid = Arc::new(self.0.read(tiles)?);
        let row_bands = in_turns(&message.row_bands, tiles.band_rows.len())?;
        let column_bands = in_turns(&message.column_bands, tiles.band_columns.len())?;
        let schema = match message.has_wide_keys {
            true => with_wide_keys(grid.schema()),
            false => Arc::clone(grid.schema()),
        };
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
        let grid = (grid, message.has_wide_keys);
        let scan = GridScanExec::over_part(grid, columns, &conditions)?.with_limit(limit);
        let scan = scan.with_numbers(row_bands, column_bands);
        let scan = scan.into_part(&orders, message.num_shares as usize, batch_rows)?;
        Ok(Arc::new(scan))
    }

    /// A scan as it is written down.
    fn written(
        &self,
        scan: &GridScanExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Scan> {
        let grid = scan.grid();
        let bands = touched_bands(scan);
        // The columns of these column bands, and where each column of the grid is among them.
        let numbers = columns_of(grid, &bands);
        let places: HashMap<usize, usize> = numbers
            .iter()
            .enumerate()
            .map(|(place, number)| (*number, place))
            .collect();
        let schema = Arc::new(grid.schema().project(&numbers)?);
        let conditions = scan.filters().iter().map(|condition| {
            let condition = reassign_expr_columns(Arc::clone(condition), &schema)?;
            let condition = with_lambdas(&condition, &schema)?.data;
            let node = converter.physical_expr_to_proto(&condition, self)?;
            Ok(node.encode_to_vec())
        });
        let conditions = conditions.collect::<Result<_>>()?;
        let columns = scan.columns_out().iter();
        let columns = columns.map(|column| {
            let place = places.get(column).ok_or_else(|| broken("a column"))?;
            small(*place)
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
        let kept = scan.kept_row_bands().iter();
        let positions = kept.map(|row_band| scan.named(*row_band, 0));
        let row_bands = turns(positions.map(|[row_band, _]| row_band));
        let positions = bands.iter().map(|band| scan.named(0, *band));
        let column_bands = turns(positions.map(|[_, band]| band));
        Ok(Scan {
            format: FORMAT,
            tiles: Some(self.0.written(grid, scan.kept_row_bands(), &bands)?),
            columns: columns.collect::<Result<_>>()?,
            conditions,
            limit: scan.row_limit().map(|limit| limit as u64),
            num_shares: small(scan.properties().partitioning.partition_count())?,
            orders: orders.collect::<Result<_>>()?,
            grid: id_bytes(grid.id().bits()),
            row_bands,
            column_bands,
            has_wide_keys: scan.facts().has_wide_keys(),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::physical_plan::common::collect;

    use super::super::hostile::{codec_of, empty_catalog, read, written};
    use super::*;
    use crate::grid::{Axis, GridBuilder, MemoryTile, PartitionGrid, Tile};

    /// A grid of this process with four row bands and three column bands.
    fn grid() -> Arc<PartitionGrid> {
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let rows = Axis::try_from_lengths([2; 4]).unwrap();
        let columns = Axis::try_from_lengths([1; 3]).unwrap();
        let mut builder = GridBuilder::try_new(Arc::clone(&schema), rows, columns).unwrap();
        for (row_band, band) in (0..4).flat_map(|row_band| (0..3).map(move |band| (row_band, band)))
        {
            let schema = Arc::new(schema.project(&[band]).unwrap());
            let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
            let batch = RecordBatch::try_new(schema, vec![values]).unwrap();
            let tile = Tile::new(Arc::new(MemoryTile::try_new(&batch).unwrap()));
            builder.set(&[row_band, band], tile).unwrap();
        }
        Arc::new(builder.build().unwrap())
    }

    /// What is sent to read the last column of some row bands of a grid that is gone by then.
    fn sent(codec: &Codec, row_bands: Vec<usize>) -> Vec<u8> {
        let scan = GridScanExec::over(grid(), vec![2], &[]).unwrap();
        let mut scans = scan.try_of_each(vec![row_bands], 1, 8192).unwrap();
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scans.remove(0));
        written(codec, &scan)
    }

    #[test]
    fn a_tile_that_is_lost_is_named_by_its_position_in_the_grid_of_all() {
        let codec = codec_of(empty_catalog());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for (row_bands, first) in [(vec![0, 3], 0), (vec![1, 2, 3], 1), (vec![3], 3)] {
            let plan = read(&codec, &sent(&codec, row_bands), &[]).unwrap();
            // The same by who has the plan from there.
            let again = read(&codec, &written(&codec, &plan), &[]).unwrap();
            for plan in [plan, again] {
                let rows = plan.execute(0, Arc::default()).unwrap();
                let error = Error::from(runtime.block_on(collect(rows)).unwrap_err());
                assert_eq!(error.kind(), ErrorKind::PartitionLost);
                let text = error.to_string();
                assert!(text.contains(&format!("position: ({first}, 2)")), "{text}");
            }
        }
    }

    #[test]
    fn numbers_are_read_as_they_were_written_and_no_others() {
        for numbers in [
            vec![],
            vec![0],
            vec![0, 1, 2],
            vec![7],
            vec![2, 3, 9, 11, 12],
        ] {
            let told = turns(numbers.iter().copied());
            assert_eq!(in_turns(&told, numbers.len()).unwrap(), numbers);
            assert!(in_turns(&told, numbers.len() + 1).is_err());
        }
        assert_eq!(turns(0..1000), [0, 1000]);
        let wrong: [&[u64]; 6] = [
            &[0],
            &[0, 3],
            &[0, 2, 0],
            &[u64::MAX, 2],
            &[0, u64::MAX],
            &[1, 0, u64::MAX, 2],
        ];
        for told in wrong {
            assert!(in_turns(told, 2).is_err(), "{told:?}");
        }
    }
}

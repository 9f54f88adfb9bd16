//! Tiles that were read, and know from where.
//!
//! Comes in: a grid that was loaded as its files lie, its plan. Goes out: the same tiles, in memory or spilled, of which another process can be told from which rows of which files they come: where this one is lost with
//! them, others read them again. Never here: reading, who is told.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::grid::{GridBuilder, GridId, PartitionGrid, Tile, TileData, TileMemory};
use crate::load::layout::Plan;
use crate::load::lazy::SourceId;
use crate::location::{Locality, Location};

/// What the tiles of a grid were read from.
#[derive(Debug)]
pub(super) struct LoadedFrom {
    /// Without what is needed to read: footers, column bands.
    pub(super) plan: Plan,
    pub(super) id: SourceId,
}

/// A tile as it was read.
#[derive(Debug)]
pub(super) struct LoadedTile {
    data: Arc<dyn TileData>,
    pub(super) from: Arc<LoadedFrom>,
    pub(super) task: usize,
    pub(super) first_column: usize,
}

/// The grid of a load, whose tiles know their files; the grid as it is where rows lie otherwise than in these.
///
/// # Errors
/// `Internal` when the operating system gives no random bytes, and for a grid that is no frame.
pub(crate) fn remembering(grid: PartitionGrid, plan: &Plan) -> Result<PartitionGrid> {
    let lengths = grid.rows().intervals().map(|rows| rows.end - rows.start);
    let is_as_read = lengths.eq(plan.tasks.iter().map(|task| task.num_rows));
    if plan.filter.is_some() || !is_as_read {
        return Ok(grid);
    }
    let from = Arc::new(LoadedFrom {
        plan: Plan {
            files: plan.files.clone(),
            footers: Vec::new(),
            columns: plan.columns.clone(),
            bands: Vec::new(),
            tasks: plan.tasks.clone(),
            filter: None,
            text: plan.text.clone(),
        },
        id: (GridId::try_random()?, 0),
    });
    let (rows, columns) = (grid.rows().clone(), grid.columns().clone());
    let mut builder = GridBuilder::try_new(Arc::clone(grid.schema()), rows, columns)?;
    for (position, tile) in grid.geometry().positions().zip(grid.tiles()) {
        let [task, band] = position.as_slice() else {
            return Err(Error::internal("a tile of a load has no place in a frame"));
        };
        let columns = grid.columns().interval(*band).unwrap_or_default();
        let data = LoadedTile {
            data: Arc::clone(tile.data()),
            from: Arc::clone(&from),
            task: *task,
            first_column: usize::try_from(columns.start).unwrap_or(usize::MAX),
        };
        let num_columns = tile.data().schema().fields().len();
        let known = (0..num_columns).map(|column| tile.known_statistics(column).cloned());
        builder.set(&position, Tile::with_statistics(Arc::new(data), known))?;
    }
    builder.build()
}

/// As the tile itself.
#[async_trait]
impl TileData for LoadedTile {
    fn schema(&self) -> SchemaRef {
        self.data.schema()
    }

    fn num_rows(&self) -> u64 {
        self.data.num_rows()
    }

    fn memory_bytes(&self) -> u64 {
        self.data.memory_bytes()
    }

    fn locations(&self) -> Vec<Location> {
        self.data.locations()
    }

    fn is_lazy(&self) -> bool {
        self.data.is_lazy()
    }

    fn locality(&self) -> Locality {
        self.data.locality()
    }

    fn home(&self) -> Locality {
        self.data.home()
    }

    fn is_lost(&self) -> bool {
        self.data.is_lost()
    }

    fn open(&self) -> Result<RecordBatch> {
        self.data.open()
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.data.open_columns(columns)
    }

    fn column_bytes(&self, columns: &[usize]) -> u64 {
        self.data.column_bytes(columns)
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.data.fetch(columns).await
    }

    async fn may_hold(&self, column: usize, values: &ArrayRef) -> Result<bool> {
        self.data.may_hold(column, values).await
    }

    fn view(&self, rows: Range<usize>, columns: &[usize]) -> Option<Result<Arc<dyn TileData>>> {
        self.data.view(rows, columns)
    }

    fn settle(&self, memory: Arc<TileMemory>) {
        self.data.settle(memory);
    }
}

//! Some rows and columns of another tile, without copying.
//!
//! Comes in: a tile, a row range, column indices. Goes out: a tile that shares the same buffers. Never here: values.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::grid::compact::compact;
use crate::grid::tile::{ColumnBytes, Tile, TileData};
use crate::location::{Locality, Location};

/// The part of `tile` that holds `rows` (of the tile) and `columns` (of the tile). Keeps the statistics when all rows are in it.
pub(crate) fn view(tile: &Tile, rows: &Range<u64>, columns: &[usize]) -> Result<Tile> {
    let whole = *rows == (0..tile.num_rows());
    let schema = tile.data().schema();
    if whole && columns.iter().copied().eq(0..schema.fields().len()) {
        return Ok(tile.clone());
    }
    let (start, stop) = (row_number(rows.start)?, row_number(rows.end)?);
    let data = match tile.data().view(start..stop, columns) {
        Some(view) => view?,
        None => Arc::new(TileView {
            schema: Arc::new(Schema::clone(&schema.project(columns)?)),
            tile: tile.clone(),
            rows: start..stop,
            columns: columns.into(),
            bytes: ColumnBytes::new(columns.len()),
        }),
    };
    if !whole {
        return Ok(Tile::new(data));
    }
    let known = columns
        .iter()
        .map(|column| tile.known_statistics(*column).cloned());
    Ok(Tile::with_statistics(data, known))
}

/// Some of the columns that a tile has of another one, by their numbers there.
///
/// # Errors
/// `InvalidArgument` for a column that it has not.
pub(crate) fn chosen(all: &[usize], columns: &[usize]) -> Result<Vec<usize>> {
    let found: Option<Vec<usize>> = columns
        .iter()
        .map(|column| all.get(*column).copied())
        .collect();
    found.ok_or_else(|| {
        let count = all.len();
        Error::invalid_argument(format!(
            "a tile of {count} columns has not all of {columns:?}"
        ))
    })
}

fn row_number(row: u64) -> Result<usize> {
    usize::try_from(row)
        .map_err(|_| Error::internal(format!("row {row} is past this machine's range")))
}

#[derive(Debug)]
struct TileView {
    tile: Tile,
    rows: Range<usize>,
    columns: Box<[usize]>,
    schema: SchemaRef,
    bytes: ColumnBytes,
}

impl TileView {
    fn sliced(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        compact(&batch.slice(self.rows.start, self.rows.len()))
    }
}

#[async_trait]
impl TileData for TileView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn memory_bytes(&self) -> u64 {
        if !self.is_lazy() {
            return self.bytes.all(|| self.open());
        }
        // Not read for its size: the part of the whole by rows and columns.
        let (rows, columns) = (
            self.tile.num_rows(),
            self.tile.data().schema().fields().len(),
        );
        let part = u128::from(self.num_rows()) * self.columns.len() as u128;
        let whole = u128::from(rows) * columns as u128;
        let bytes = u128::from(self.tile.data().memory_bytes()) * part;
        u64::try_from(bytes.checked_div(whole).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn column_bytes(&self, columns: &[usize]) -> u64 {
        self.bytes.of(columns, || self.open())
    }

    fn locations(&self) -> Vec<Location> {
        self.tile.locations()
    }

    fn is_lazy(&self) -> bool {
        self.tile.data().is_lazy()
    }

    fn locality(&self) -> Locality {
        self.tile.data().locality()
    }

    fn home(&self) -> Locality {
        self.tile.data().home()
    }

    fn is_lost(&self) -> bool {
        self.tile.data().is_lost()
    }

    fn open(&self) -> Result<RecordBatch> {
        self.sliced(&self.tile.data().open_columns(&self.columns)?)
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        let below = chosen(&self.columns, columns)?;
        self.sliced(&self.tile.data().open_columns(&below)?)
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        let below = chosen(&self.columns, columns)?;
        self.sliced(&self.tile.data().fetch(&below).await?)
    }

    /// What no row of the whole holds, none of its rows holds.
    async fn may_hold(&self, column: usize, values: &ArrayRef) -> Result<bool> {
        match chosen(&self.columns, &[column])?.as_slice() {
            [below] => self.tile.data().may_hold(*below, values).await,
            _ => Ok(true),
        }
    }
}

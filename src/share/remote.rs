//! Tiles of which this process has only the handle, until somebody reads them.
//!
//! Comes in: a handle, columns, number of rows. Goes out: a tile that says all that, and opens the handle once it is asked for data. Never here: how a handle is opened.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tokio::runtime::Handle as Runtime;

use super::{Handle, acquire};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Tile, TileData};
use crate::location::{Locality, Location, host_address};

/// A tile that a handle names. It is opened when it is read for the first time, and then kept.
#[derive(Debug, Clone)]
pub struct RemoteTile(Arc<Outline>);

#[derive(Debug)]
struct Outline {
    handle: Handle,
    schema: SchemaRef,
    num_rows: u64,
    memory_bytes: u64,
    /// Filled by the first `open`.
    opened: OnceLock<Tile>,
}

impl RemoteTile {
    /// The tile with these columns, so many rows and bytes.
    #[must_use]
    pub fn new(handle: Handle, schema: SchemaRef, num_rows: u64, memory_bytes: u64) -> Self {
        Self(Arc::new(Outline {
            handle,
            schema,
            num_rows,
            memory_bytes,
            opened: OnceLock::new(),
        }))
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.0.handle
    }

    fn opened(&self) -> Result<&Tile> {
        let outline = &self.0;
        if let Some(tile) = outline.opened.get() {
            return Ok(tile);
        }
        let device = outline.handle.owner.device();
        if !device.is_host_readable() {
            let text = format!("the tile is in the memory of {device} of another process");
            return Err(Error::new(ErrorKind::NotLocal, text)
                .with_position(&outline.handle.position)
                .with_hint("let that process copy the grid to its host before it is sent: to(\"kDLCPU\"); or serve it, and read it by a connection"));
        }
        let (tile, _) = acquire(&outline.handle)?;
        let fields = tile.data().schema();
        if tile.num_rows() != outline.num_rows || fields.fields() != outline.schema.fields() {
            let text = "the tile that came has other rows or columns than its grid says";
            return Err(Error::invalid_data(text).with_position(&outline.handle.position));
        }
        Ok(outline.opened.get_or_init(|| tile))
    }
}

#[async_trait]
impl TileData for RemoteTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn num_rows(&self) -> u64 {
        self.0.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }

    fn locations(&self) -> Vec<Location> {
        match self.0.opened.get() {
            Some(tile) => tile.locations(),
            None => vec![self.0.handle.owner.clone()],
        }
    }

    fn locality(&self) -> Locality {
        match self.0.opened.get() {
            Some(tile) => tile.data().locality(),
            None if !self.0.handle.owner.device().is_host_readable() => Locality::Process,
            None if self.0.handle.owner.host() == host_address() => Locality::Shared,
            None => Locality::Process,
        }
    }

    fn owned_as(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0.handle)
    }

    fn open(&self) -> Result<RecordBatch> {
        self.opened()?.open()
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.opened()?.data().open_columns(columns)
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        if self.0.opened.get().is_none()
            && let Ok(runtime) = Runtime::try_current()
        {
            // The owner may take its time, and whoever waits may be told to stop.
            let tile = self.clone();
            let opening = runtime.spawn_blocking(move || tile.opened().map(drop));
            let ended = |_| Error::internal("a thread that opened a tile ended");
            opening.await.map_err(ended)??;
        }
        self.opened()?.data().fetch(columns).await
    }
}

/// The handle of a tile that is the memory of another process.
pub(super) fn handle_of(tile: &Tile) -> Option<&Handle> {
    tile.data().owned_as()?.downcast_ref()
}

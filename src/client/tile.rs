//! Tiles of a server.
//!
//! Comes in: what the server says of a tile. Goes out: a tile that is mapped where the server is on this host and of this user, and fetched column by column elsewhere. Nothing that was fetched is kept: a
//! grid of a server may be larger than this machine. Never here: which tiles there are.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::TryStreamExt;
use tokio::runtime::{Handle as Runtime, RuntimeFlavor};

use super::connection::Client;
use crate::error::{Error, Result};
use crate::flight::messages::{Named, TileTicket};
use crate::grid::{GridId, Tile, TileData};
use crate::location::{Locality, Location, host_address};
use crate::share::{GLANCE, Handle, acquire, answers};
use crate::still::wait_for;

/// What is known of a tile before it is read.
pub(super) struct Outline {
    pub(super) client: Client,
    /// Its name within the host of the server, where the server said it.
    pub(super) handle: Option<Handle>,
    /// Whether the server answers those who share its memory, once somebody asked; one for all tiles of a grid.
    pub(super) answers: Arc<OnceLock<bool>>,
    pub(super) grid: GridId,
    pub(super) position: Vec<usize>,
    /// Where it is, as the server says, which may have it of others; empty where it does not say it.
    pub(super) locations: Vec<Location>,
    pub(super) schema: SchemaRef,
    pub(super) num_rows: u64,
    pub(super) memory_bytes: u64,
    /// Whether nobody had it any more when that was asked.
    pub(super) is_lost: bool,
    /// Whether it was in the server's memory when that was asked.
    #[cfg(feature = "distributed")]
    pub(super) is_in_memory: bool,
}

/// A tile that a server holds.
pub struct ServedTile {
    outline: Outline,
    /// The runtime that carries the connection, and the process that has its threads.
    runtime: Option<Runtime>,
    process: u32,
    /// The tile over the server's memory, once it was mapped; `None` once that was found not to work.
    mapped: OnceLock<Option<Tile>>,
}

impl fmt::Debug for ServedTile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outline {
            client, position, ..
        } = &self.outline;
        write!(formatter, "ServedTile({position:?} of {client:?})")
    }
}

impl ServedTile {
    /// Made on the runtime that carries the connection.
    pub(super) fn new(outline: Outline) -> Self {
        Self {
            outline,
            runtime: Runtime::try_current().ok(),
            process: std::process::id(),
            mapped: OnceLock::new(),
        }
    }

    /// A tile by its handle, of so many rows and bytes. Made on the runtime that carries the connection.
    #[cfg(feature = "distributed")]
    pub(crate) fn of_handle(
        client: Client,
        handle: Handle,
        schema: SchemaRef,
        (num_rows, memory_bytes): (u64, u64),
    ) -> Self {
        Self::new(Outline {
            client,
            grid: handle.grid,
            position: handle.position.clone(),
            locations: Vec::new(),
            handle: Some(handle),
            answers: Arc::default(),
            schema,
            num_rows,
            memory_bytes,
            is_lost: false,
            is_in_memory: false,
        })
    }

    /// Whether it was in the server's memory when that was asked, so that nothing has to be read to share it.
    #[cfg(feature = "distributed")]
    pub(crate) fn was_in_memory(&self) -> bool {
        self.outline.is_in_memory
    }

    /// Its handle, where the server said it.
    #[must_use]
    pub fn handle(&self) -> Option<&Handle> {
        self.outline.handle.as_ref()
    }

    /// Whether it is in memory of this host, which is mapped; that of a device is copied by the server.
    fn is_on_this_host(&self) -> bool {
        let owner = self.outline.handle.as_ref().map(|handle| &handle.owner);
        owner.is_some_and(|owner| {
            owner.host() == host_address() && owner.device().is_host_readable()
        })
    }

    /// The tile over the server's own memory; `None` where that cannot be.
    fn mapped(&self) -> Option<&Tile> {
        let tile = self.mapped.get_or_init(|| {
            let handle = self.outline.handle.as_ref().filter(|_| self.is_on_this_host())?;
            match acquire(handle).map(|(tile, _)| tile) {
                Ok(tile) if self.is_right(&tile) => Some(tile),
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(%error, "a tile of a server on this host is fetched, not mapped");
                    None
                }
            }
        });
        tile.as_ref()
    }

    /// Whether processes like this one can read it in the server's own memory, as far as that is known without making it.
    fn is_shared(&self) -> bool {
        match (self.mapped.get(), &self.outline.handle) {
            (Some(mapped), _) => mapped.is_some(),
            (None, Some(handle)) if self.is_on_this_host() => *self
                .outline
                .answers
                .get_or_init(|| answers(handle, GLANCE).is_ok()),
            _ => false,
        }
    }

    fn is_right(&self, tile: &Tile) -> bool {
        let outline = &self.outline;
        tile.num_rows() == outline.num_rows
            && tile.data().schema().fields() == outline.schema.fields()
    }

    /// # Errors
    /// `InvalidArgument` in a forked child, which has no threads of its parent: it would wait for ever.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text =
            "the connection that brings this tile was made before a fork, in the parent process";
        Err(Error::invalid_argument(text)
            .with_position(&self.outline.position)
            .with_hint("call connect() again in this process"))
    }

    /// The columns by way of the server.
    async fn fetched(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.check_process()?;
        let outline = &self.outline;
        let number = |place: usize| outline.position.get(place).map(|at| *at as u64);
        let schema: SchemaRef = Arc::new(outline.schema.project(columns)?);
        let ticket = TileTicket {
            grid: outline.grid.bits().to_le_bytes().to_vec(),
            row_band: number(0).unwrap_or(u64::MAX),
            column_band: number(1),
            columns: columns
                .iter()
                .map(|column| u32::try_from(*column).unwrap_or(u32::MAX))
                .collect(),
            is_projected: true,
            ..TileTicket::default()
        };
        let batches = outline.client.fetch(ticket.to_bytes()).await?;
        let batches: Vec<RecordBatch> = batches.try_collect().await?;
        let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let is_right = batches
            .iter()
            .all(|batch| batch.schema().fields() == schema.fields());
        if num_rows as u64 != outline.num_rows || !is_right {
            let text = "the tile that came has other rows or columns than its grid says";
            return Err(Error::invalid_data(text).with_position(&outline.position));
        }
        if columns.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
            return Ok(RecordBatch::try_new_with_options(schema, vec![], &options)?);
        }
        let joined = tokio::task::spawn_blocking(move || concat_batches(&schema, &batches)).await;
        let joined = joined.map_err(|error| {
            Error::internal("a thread that joined rows ended").with_source(error)
        })?;
        Ok(joined?)
    }

    /// As [`ServedTile::fetched`], waited for here.
    fn fetched_now(&self, columns: &[usize]) -> Result<RecordBatch> {
        self.check_process()?;
        let runtime = self
            .runtime
            .as_ref()
            .ok_or_else(|| Error::internal("a tile of a server was made outside of a runtime"))?;
        match Runtime::try_current().map(|here| here.runtime_flavor()) {
            Ok(RuntimeFlavor::CurrentThread) => Err(Error::unsupported(
                "a tile of a server cannot be waited for on a runtime of one thread",
            )
            .with_hint("await fetch() instead")),
            Ok(_) => tokio::task::block_in_place(|| runtime.block_on(self.fetched(columns))),
            Err(_) => wait_for(runtime, self.fetched(columns)),
        }
    }
}

#[async_trait]
impl TileData for ServedTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.outline.schema)
    }

    fn num_rows(&self) -> u64 {
        self.outline.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.outline.memory_bytes
    }

    fn locations(&self) -> Vec<Location> {
        match (self.mapped.get(), &self.outline.handle) {
            (Some(Some(tile)), _) => tile.locations(),
            _ if !self.outline.locations.is_empty() => self.outline.locations.clone(),
            (_, Some(handle)) => vec![handle.owner.clone()],
            _ => Vec::new(),
        }
    }

    /// It is brought to be read, and for nothing else: not for what planning would like to know. One that was mapped is here.
    fn is_lazy(&self) -> bool {
        !matches!(self.mapped.get(), Some(Some(_)))
    }

    fn locality(&self) -> Locality {
        match self.mapped.get() {
            Some(Some(_)) => Locality::Shared,
            None if self.is_on_this_host() => Locality::Shared,
            _ => Locality::Process,
        }
    }

    fn is_lost(&self) -> bool {
        self.outline.is_lost && self.is_lazy()
    }

    /// Elsewhere it is the connection of this process that brings it, and whoever gets it from here asks this one: what opens the connection is nothing to hand on.
    fn owned_as(&self) -> Option<&(dyn Any + Send + Sync)> {
        let handle: &(dyn Any + Send + Sync) = self.outline.handle.as_ref()?;
        self.is_shared().then_some(handle)
    }

    fn open(&self) -> Result<RecordBatch> {
        if let Some(tile) = self.mapped() {
            return tile.open();
        }
        let all: Vec<usize> = (0..self.outline.schema.fields().len()).collect();
        self.fetched_now(&all)
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        match self.mapped() {
            Some(tile) => tile.data().open_columns(columns),
            None => self.fetched_now(columns),
        }
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        let is_known = self.mapped.get().is_some();
        let mapped = match is_known || !self.is_on_this_host() {
            true => self.mapped(),
            // The server may take its time to make the memory.
            false => match Runtime::try_current().map(|here| here.runtime_flavor()) {
                Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| self.mapped()),
                _ => self.mapped(),
            },
        };
        match mapped {
            Some(tile) => tile.data().fetch(columns).await,
            None => self.fetched(columns).await,
        }
    }
}

//! Tiles of other members.
//!
//! Comes in: a handle, columns, number of rows, where the owner answers. Goes out: a tile that lies in memory which its owner shares with this process, once somebody has it mapped (`near.rs`); else one that is fetched from there when it is
//! read after all: mapped where the owner is on this host, column by column elsewhere; columns of small ones are kept (`small.rs`). Parts of plans are sent to where the tiles are, so that fetching is the exception: it is counted like any tile that is
//! brought, logged, and an error where it is forbidden. Never here: which member reads what.

pub(super) mod ahead;
pub(super) mod anywhere;
pub(super) mod near;
pub(super) mod outline;
pub(super) mod owner;
pub(super) mod small;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tokio::runtime::{Handle as Runtime, RuntimeFlavor};
use tokio::sync::OnceCell;

use super::members::channel::Reach;
use crate::client::ServedTile;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{GridBuilder, PartitionGrid, Tile, TileData};
use crate::location::{Locality, Location, host_address};
use crate::share::{GLANCE, Handle, Heard, Incarnation, acquire, answers};
use near::{Counted, about_bytes};
use outline::{AGAIN, Access, BACK, Outline, There};
use owner::{elsewhere, was_in_memory};
use small::SMALL_BYTES;

/// How long an owner on this host may take to greet where its tile is to be fetched, and nothing else can be done.
const GREETING: Duration = Duration::from_secs(2);

/// A tile that another member has.
pub struct MemberTile {
    outline: Outline,
    reach: Arc<Reach>,
    /// The tile by way of its owner, once somebody has asked for it.
    served: ArcSwap<OnceCell<Arc<Served>>>,
    /// The tile in memory that its owner shares, as long as it is mapped for statements over little data.
    mapped: ArcSwapOption<Near>,
    /// Whether somebody has read that since it was looked at last.
    was_read: AtomicBool,
    /// Whether it was mapped once, so that it is mapped again for whoever reads it.
    was_mapped: AtomicBool,
}

/// A tile by way of its owner: over a connection, or mapped.
struct Served {
    tile: ServedTile,
    _counted: Counted,
}

/// Memory of another member that is mapped.
#[derive(Debug)]
struct Near {
    tile: Tile,
    _counted: Counted,
}

impl std::fmt::Debug for MemberTile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outline { handle, uri, .. } = &self.outline;
        write!(formatter, "MemberTile({:?} of {uri})", handle.position)
    }
}

impl MemberTile {
    pub(super) fn new(outline: Outline, reach: Arc<Reach>) -> Self {
        Self {
            outline,
            reach,
            served: ArcSwap::default(),
            mapped: ArcSwapOption::empty(),
            was_read: AtomicBool::new(false),
            was_mapped: AtomicBool::new(false),
        }
    }

    /// The tiles of a part of a grid, as its member describes them, which answers at a URI.
    pub(super) fn of_part(
        part: &PartitionGrid,
        mut heard: Heard,
        there: There<'_>,
        reach: &Arc<Reach>,
    ) -> Result<PartitionGrid> {
        let (rows, columns) = (part.rows().clone(), part.columns().clone());
        let (uri, table): (Arc<str>, Arc<str>) = (there.uri.into(), there.table.into());
        let (access, here) = (there.access, host_address());
        let mut builder = GridBuilder::try_new(Arc::clone(part.schema()), rows, columns)?;
        for (position, tile) in part.geometry().positions().zip(part.tiles()) {
            let tile = match elsewhere(tile) {
                None => tile.clone(),
                Some(handle) => {
                    let is_near = access.is_near && handle.owner.host() == here;
                    let access = Access {
                        is_near: is_near && was_in_memory(tile),
                        ..access
                    };
                    let outline = Outline {
                        handle: handle.clone(),
                        uri: Arc::clone(&uri),
                        was: Arc::default(),
                        table: Arc::clone(&table),
                        schema: tile.data().schema(),
                        num_rows: tile.num_rows(),
                        memory_bytes: tile.data().memory_bytes(),
                        access,
                    };
                    let data = Arc::new(Self::new(outline, Arc::clone(reach)));
                    let known = match position.as_slice() {
                        [row_band, band] => heard.take(*row_band, part.columns().interval(*band)),
                        _ => Vec::new(),
                    };
                    Tile::with_statistics(data, known)
                }
            };
            builder.set(&position, tile)?;
        }
        builder.build()
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.outline.handle
    }

    /// The name of the grid of all that it belongs to; empty if nobody knows.
    pub(super) fn table(&self) -> &str {
        &self.outline.table
    }

    /// Where its owner answers, or did as long as it was a member; empty if nobody knows.
    pub(super) fn member(&self) -> &str {
        self.outline.member()
    }

    /// Whether it may be mapped for statements over little data.
    pub(super) fn is_near(&self) -> bool {
        self.outline.access.is_near
    }

    /// Whether it is mapped for them.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.load().is_some()
    }

    /// Maps it, unless it is mapped. Waits for its owner, seconds at most if that hangs.
    ///
    /// # Errors
    /// As [`acquire`]; `InvalidData` for other rows or columns than it is said to have; `ResourcesExhausted` when as many are mapped as may be.
    pub(super) fn map(&self) -> Result<()> {
        self.was_read.store(true, Ordering::Relaxed);
        if self.is_mapped() {
            return Ok(());
        }
        let outline = &self.outline;
        let counted = self.reach.near.counted()?;
        let (tile, _) = acquire(&outline.handle)?;
        let fields = tile.data().schema();
        if tile.num_rows() != outline.num_rows || fields.fields() != outline.schema.fields() {
            let text = "the tile that came has other rows or columns than its grid says";
            return Err(Error::invalid_data(text).with_position(&outline.handle.position));
        }
        let near = Near {
            tile,
            _counted: counted,
        };
        self.mapped.store(Some(Arc::new(near)));
        self.was_mapped.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets go of what is mapped; who reads it has it until then.
    pub(super) fn let_go(&self) {
        if self.mapped.swap(None).is_some() {
            self.reach.near.was_let_go();
        }
    }

    /// The same if nobody has read it since this was asked last.
    pub(super) fn let_go_if_unread(&self) {
        if !self.was_read.swap(false, Ordering::Relaxed) {
            self.let_go();
        }
    }

    /// Lets go of the way to its owner, and of memory that is mapped by it; who reads it has it until then.
    pub(super) fn let_go_of_served(&self) {
        // Also of one that is being made: whoever waits for it has it alone.
        self.served.store(Arc::default());
    }

    /// The tile that is mapped.
    fn shared(&self) -> Option<Tile> {
        let mapped = self.mapped.load();
        let near = mapped.as_ref()?;
        self.was_read.store(true, Ordering::Relaxed);
        Some(near.tile.clone())
    }

    /// The same, mapped again if it was let go of: a plan that counts on it may have been kept.
    fn shared_again(&self) -> Option<Tile> {
        if let Some(tile) = self.shared() {
            return Some(tile);
        }
        if !self.was_mapped.load(Ordering::Relaxed) || self.is_silent() {
            return None;
        }
        // One that hangs is not waited for twice.
        let map = || answers(&self.outline.handle, GLANCE).and_then(|()| self.map());
        let mapped = match Runtime::try_current().map(|here| here.runtime_flavor()) {
            // Its owner may take its time.
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(map),
            _ => map(),
        };
        if let Err(error) = mapped {
            tracing::debug!(%error, "a tile of a member on this host is not mapped again");
        }
        self.shared()
    }

    /// Why it is nowhere to be had, where its owner is no member any more.
    pub(super) fn gone(&self) -> Error {
        self.lost("the member that had the tile is gone", BACK)
    }

    /// It is not to be had. Of a grid that is known not to be whole what is wrong with that is said in place of the remedy: whoever asks again would be told the same.
    fn lost(&self, what: &str, remedy: &str) -> Error {
        let known = self.reach.incomplete.remedy(self.table());
        self.outline.lost(what, known.as_deref().unwrap_or(remedy))
    }

    /// The tile by way of its owner.
    async fn served(&self) -> Result<Arc<Served>> {
        let Outline {
            handle,
            uri,
            schema,
            num_rows,
            memory_bytes,
            access,
            ..
        } = &self.outline;
        if handle.incarnation == Incarnation::current()? {
            return Err(self.lost("the grid was dropped, its tile is gone", AGAIN));
        }
        if uri.is_empty() {
            return Err(self.gone());
        }
        if access.forbids_fetching {
            let text = format!(
                "the tile lives in another member, {}, and tiles are not to be fetched",
                handle.owner
            );
            let error = Error::new(ErrorKind::NotLocal, text).with_position(&handle.position);
            return Err(error.with_hint("set cluster.fetch=true at all members, or load the grids so that what the statement reads together lies together"));
        }
        let connecting = async {
            // Before it is there: it may be to be let go of while it is made.
            let counted = self.reach.near.counted_served();
            self.check_answers().await?;
            let client = self.reach.client(uri).await?;
            tracing::info!(%uri, grid = %handle.grid, position = ?handle.position, "a tile of another member is fetched");
            let shape = (*num_rows, *memory_bytes);
            let schema = Arc::clone(schema);
            Ok(Arc::new(Served {
                tile: ServedTile::of_handle(client, handle.clone(), schema, shape),
                _counted: counted,
            }))
        };
        let served = self.served.load_full();
        let made: Result<&Arc<Served>> = served.get_or_try_init(|| connecting).await;
        made.map(Arc::clone)
    }

    /// Whether its owner is no member any more, and was waited for in vain a moment ago: each statement over its tiles would wait for it anew.
    fn is_silent(&self) -> bool {
        let owner = self.handle().incarnation;
        self.reach.lives.is_nobody(owner) && self.reach.silent.has(owner, Instant::now())
    }

    /// Its owner hangs.
    fn unanswered(&self) -> Error {
        let what = "the member that had the tile does not answer";
        self.lost(what, "ask again in a moment: it is looked for meanwhile")
    }

    /// Sees that its owner does not hang where there is no connection to it yet, if it is on this host: a thread of its own greets others there, however busy all its others are. Making a connection would take longer.
    /// One that is no member any more is waited for once in ten seconds.
    ///
    /// # Errors
    /// `PartitionLost` for one that does not greet. Whatever else stands in the way says nothing of whether it can be reached by its URI.
    async fn check_answers(&self) -> Result<()> {
        let handle = self.outline.handle.clone();
        if handle.owner.host() != host_address() || self.reach.has_client(&self.outline.uri) {
            return Ok(());
        }
        if self.is_silent() {
            return Err(self.unanswered());
        }
        let owner = handle.incarnation;
        let greeted = tokio::task::spawn_blocking(move || answers(&handle, GREETING)).await;
        match greeted {
            Ok(Err(error)) if error.kind() == ErrorKind::ResourcesExhausted => {
                self.reach.silent.add(owner, Instant::now());
                Err(self.unanswered().with_source(error))
            }
            _ => Ok(()),
        }
    }

    /// Its columns by way of its owner.
    async fn brought(&self, columns: &[usize]) -> Result<RecordBatch> {
        let fetching = async { self.served().await?.tile.fetch(columns).await };
        fetching.await.map_err(|error| match error.kind() {
            // The connection, not the tile.
            ErrorKind::Storage { .. } => {
                let what = "the member that had the tile does not answer";
                self.lost(what, BACK).with_source(error)
            }
            ErrorKind::NotFound => {
                let what = "the member that had the tile has its grid no more";
                self.lost(what, AGAIN).with_source(error)
            }
            _ => error,
        })
    }

    /// Whether what it gave is kept for others who read it.
    fn is_kept(&self) -> bool {
        let outline = &self.outline;
        outline.memory_bytes <= SMALL_BYTES && !outline.access.forbids_fetching
    }

    /// Its columns, for what stays in this process: nothing of it is kept for statements as well, which would have the memory of others as long.
    pub(super) async fn fetch_to_stay(&self, columns: &[usize]) -> Result<RecordBatch> {
        match self.shared_again() {
            Some(tile) => tile.data().fetch(columns).await,
            None => self.brought(columns).await,
        }
    }

    /// Its columns: those that were fetched before as they are, all others fetched now, and kept.
    async fn kept(&self, columns: &[usize]) -> Result<RecordBatch> {
        let (small, outline) = (&self.reach.small, &self.outline);
        let handle = &outline.handle;
        let mut all: Vec<_> = columns
            .iter()
            .map(|column| small.get(handle, *column))
            .collect();
        let places = columns.iter().zip(&all);
        let missing = places.filter(|(_, kept)| kept.is_none());
        let missing: Vec<usize> = missing.map(|(column, _)| *column).collect();
        if !missing.is_empty() {
            let brought = self.brought(&missing).await?;
            let mut brought = missing.iter().zip(brought.columns());
            for place in all.iter_mut().filter(|place| place.is_none()) {
                let Some((column, values)) = brought.next() else {
                    break;
                };
                small.keep(handle, *column, Arc::clone(values));
                if self.reach.lives.is_nobody(handle.incarnation) {
                    small.let_go(handle, *column);
                }
                *place = Some(Arc::clone(values));
            }
        }
        let schema = Arc::new(outline.schema.project(columns)?);
        let num_rows = usize::try_from(outline.num_rows).ok();
        let options = RecordBatchOptions::new().with_row_count(num_rows);
        let all = all.into_iter().flatten().collect();
        Ok(RecordBatch::try_new_with_options(schema, all, &options)?)
    }
}

#[async_trait]
impl TileData for MemberTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.outline.schema)
    }

    fn num_rows(&self) -> u64 {
        self.outline.num_rows
    }

    fn memory_bytes(&self) -> u64 {
        self.outline.memory_bytes
    }

    /// Of one that is not mapped about so many: nothing is fetched to know it.
    fn column_bytes(&self, columns: &[usize]) -> u64 {
        match self.shared() {
            Some(tile) => tile.data().column_bytes(columns),
            None => about_bytes(self, columns),
        }
    }

    /// Its owner, whose process has it whatever others have mapped or kept of it.
    fn locations(&self) -> Vec<Location> {
        vec![self.outline.handle.owner.clone()]
    }

    /// It may be fetched to be read, and for nothing else: not for what planning would like to know. One that is mapped is here.
    fn is_lazy(&self) -> bool {
        !self.is_mapped()
    }

    /// The memory of its owner, also where this process has kept columns of it, or mapped it by way of its owner, since somebody read it.
    fn home(&self) -> Locality {
        match self.is_near() {
            true => Locality::Shared,
            false => Locality::Process,
        }
    }

    fn locality(&self) -> Locality {
        // Scans are planned by it, once for all, before anything is mapped.
        if self.is_near() {
            return Locality::Shared;
        }
        let Outline { handle, schema, .. } = &self.outline;
        if self.is_kept() && self.reach.small.has_any(handle, schema.fields().len()) {
            return Locality::Memory;
        }
        match self.served.load().get() {
            Some(served) => served.tile.locality(),
            None => Locality::Process,
        }
    }

    fn is_lost(&self) -> bool {
        !self.is_mapped() && self.reach.lives.is_lost(self.handle().incarnation)
    }

    fn open(&self) -> Result<RecordBatch> {
        if let Some(tile) = self.shared() {
            return tile.open();
        }
        let all: Vec<usize> = (0..self.outline.schema.fields().len()).collect();
        self.open_columns(&all)
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        if let Some(tile) = self.shared() {
            return tile.data().open_columns(columns);
        }
        let runtime = Runtime::try_current().map_err(|_| {
            Error::internal("a tile of another member was opened outside of a runtime")
        })?;
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(Error::unsupported(
                "a tile of another member cannot be waited for on a runtime of one thread",
            )
            .with_hint("await fetch() instead"));
        }
        tokio::task::block_in_place(|| runtime.block_on(self.fetch(columns)))
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        if let Some(tile) = self.shared_again() {
            return tile.data().fetch(columns).await;
        }
        match self.is_kept() {
            true => self.kept(columns).await,
            false => self.brought(columns).await,
        }
    }
}

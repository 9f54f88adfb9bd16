//! Tiles that only know where their rows lie.
//!
//! Comes in: a plan. Goes out: a grid whose tiles read the columns that somebody asks for. What was read is kept for the next who asks, up to the memory limit; the columns that
//! were not used for the longest time go first. Statistics are those of the footers. Never here: how columns are read.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parquet::bloom_filter::Sbbf;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::Mutex;

use super::assembly::{column_axis, empty_grid};
use super::bloom::{self, chunk_of};
use super::budget::Budget;
use super::decode::Rows;
use super::error::{blocking, contained};
use super::footer_statistics::statistics;
use super::layout::Plan;
use super::options::LoadOptions;
use super::progress::Counters;
use super::read::{decode_column, pages_of, parts};
use super::source::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Axis, GridBuilder, GridId, PartitionGrid, Tile, TileData, chosen};
use crate::location::Location;

/// The part of the memory limit that is not for columns that are kept: they use it while they are decoded, and bloom filters do.
const DECODING_PART: u64 = 4;

/// The part of the limit that bloom filters may use.
const BLOOM_PART: u64 = 16;

/// What the cache weighs in: a larger column than 4 GiB would not fit a weight in bytes.
const WEIGHT_BYTES: usize = 1 << 10;

/// Which of several sources that share room: a grid, and a number in it.
pub(super) type SourceId = (GridId, u32);

/// What all tiles of one lazy grid share.
pub(super) struct Source {
    plan: Plan,
    id: SourceId,
    memory_limit_bytes: u64,
    concurrency: usize,
    /// Whether others need no settings to read the files but those that they have themselves.
    #[cfg(feature = "distributed")]
    is_plain: bool,
    /// Where requests to stores are driven.
    runtime: Handle,
    /// The process that made the grid: a forked child must not use its connections.
    pid: u32,
    state: ArcSwap<State>,
}

/// What one process has read.
struct State {
    pid: u32,
    room: Room,
    /// One for each row band, so that nobody reads what another is reading.
    reading: Vec<Mutex<()>>,
}

/// Columns and filters that were read, up to a limit; clones share them.
#[derive(Clone)]
pub(super) struct Room {
    /// Row band and column of the grid -> the column.
    columns: Cache<(SourceId, usize, usize), ArrayRef>,
    /// File, row group and column of the grid -> the bloom filter, if there is one.
    blooms: Cache<(SourceId, usize, usize, usize), Option<Arc<Sbbf>>>,
    budget: Arc<Budget>,
}

/// A tile of a lazy grid.
pub(super) struct LazyTile {
    pub(super) source: Arc<Source>,
    pub(super) schema: SchemaRef,
    pub(super) task: usize,
    /// The columns of the grid that it has.
    pub(super) columns: Vec<usize>,
}

/// The grid of a plan; nothing is read.
pub(super) fn grid(
    plan: Plan,
    options: &LoadOptions,
    counters: &Counters,
) -> Result<PartitionGrid> {
    if plan.tasks.is_empty() {
        return empty_grid(&plan);
    }
    let rows = Axis::try_from_lengths(plan.tasks.iter().map(|task| task.num_rows))?;
    let schema = plan.columns.visible_schema();
    let mut builder = GridBuilder::try_new(schema, rows, column_axis(&plan)?)?;
    let limit = options.memory_limit_bytes();
    let bounds = (limit, options.concurrency());
    let source = Source::new(plan, (GridId::try_random()?, 0), bounds, Room::new(limit));
    #[cfg(feature = "distributed")]
    let source = Source {
        is_plain: options.storage_options().is_empty() && options.store().is_none(),
        ..source
    };
    let source = Arc::new(source);
    let plan = &source.plan;
    for (number, task) in plan.tasks.iter().enumerate() {
        for (place, band) in plan.bands.iter().enumerate() {
            let columns: Vec<usize> = band.columns.clone().collect();
            let known: Vec<_> = columns
                .iter()
                .map(|column| statistics(plan, task, *column))
                .collect();
            let tile = LazyTile {
                source: Arc::clone(&source),
                schema: Arc::new(plan.columns.schema.project(&columns)?),
                task: number,
                columns,
            };
            let tile = Tile::with_statistics(Arc::new(tile), known);
            counters.num_tiles.add(1);
            builder.set(&[number, place], tile)?;
        }
        counters.num_rows.add(task.num_rows);
    }
    builder.build()
}

impl Room {
    pub(super) fn new(memory_limit_bytes: u64) -> Self {
        let apart = memory_limit_bytes / DECODING_PART;
        let blooms = memory_limit_bytes / BLOOM_PART;
        let weigh_bloom = |_: &(SourceId, usize, usize, usize), filter: &Option<Arc<Sbbf>>| {
            let blocks = filter.as_ref().map_or(1, |filter| filter.num_blocks());
            u32::try_from(blocks * size_of::<[u32; 8]>()).unwrap_or(u32::MAX)
        };
        let weigh = |_: &(SourceId, usize, usize), column: &ArrayRef| {
            let weight = column.get_array_memory_size().div_ceil(WEIGHT_BYTES);
            u32::try_from(weight).unwrap_or(u32::MAX)
        };
        Self {
            columns: Cache::builder()
                .weigher(weigh)
                .eviction_policy(EvictionPolicy::lru())
                .max_capacity((memory_limit_bytes - apart) / WEIGHT_BYTES as u64)
                .build(),
            blooms: Cache::builder()
                .weigher(weigh_bloom)
                .eviction_policy(EvictionPolicy::lru())
                .max_capacity(blooms)
                .build(),
            budget: Arc::new(Budget::new(apart - blooms)),
        }
    }

    /// Whether columns of so many bytes can be kept beside those that are.
    #[cfg(feature = "distributed")]
    fn has_room(&self, bytes: u64) -> bool {
        self.columns.run_pending_tasks();
        let wanted = bytes.div_ceil(WEIGHT_BYTES as u64);
        let limit = self.columns.policy().max_capacity().unwrap_or(u64::MAX);
        self.columns.weighted_size().saturating_add(wanted) <= limit
    }

    /// The same for all grids of other processes, whose tiles are as large as those thought right: one column is read in any case.
    #[cfg(feature = "distributed")]
    pub(super) fn of_others(memory_limit_bytes: u64) -> Self {
        let room = Self::new(memory_limit_bytes);
        let budget = Budget::letting_one(room.budget.limit_bytes());
        Self {
            budget: Arc::new(budget),
            ..room
        }
    }
}

impl State {
    fn new(plan: &Plan, room: Room) -> Self {
        Self {
            pid: std::process::id(),
            room,
            reading: plan.tasks.iter().map(|_| Mutex::new(())).collect(),
        }
    }
}

impl Source {
    /// Made on the runtime that shall read it; bounds are a limit for a forked child, and how many columns are decoded at a time.
    pub(super) fn new(plan: Plan, id: SourceId, bounds: (u64, usize), room: Room) -> Self {
        let (memory_limit_bytes, concurrency) = bounds;
        Self {
            state: ArcSwap::from_pointee(State::new(&plan, room)),
            plan,
            id,
            memory_limit_bytes,
            concurrency,
            #[cfg(feature = "distributed")]
            is_plain: true,
            runtime: Handle::current(),
            pid: std::process::id(),
        }
    }

    #[cfg(feature = "distributed")]
    pub(super) fn id(&self) -> SourceId {
        self.id
    }

    #[cfg(feature = "distributed")]
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether others need no settings to read the files but those that they have themselves.
    #[cfg(feature = "distributed")]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    fn state(&self) -> Arc<State> {
        let current = self.state.load();
        let pid = std::process::id();
        if current.pid == pid {
            return Arc::clone(&current);
        }
        // A forked child begins anew, since a thread of its parent may hold a lock for ever. Of several threads the first one's is taken.
        let room = Room::new(self.memory_limit_bytes);
        let fresh = Arc::new(State::new(&self.plan, room));
        self.state.compare_and_swap(&current, fresh);
        self.state.load_full()
    }

    /// Columns of a row band: those that were read before, and the others from the file.
    async fn columns(self: Arc<Self>, task: usize, wanted: Vec<usize>) -> Result<Vec<ArrayRef>> {
        let state = self.state();
        let columns = &state.room.columns;
        let known = |column: &usize| columns.get(&(self.id, task, *column));
        if let Some(found) = wanted.iter().map(known).collect() {
            return Ok(found);
        }
        let reading = state.reading.get(task);
        let reading = reading.ok_or_else(|| Error::internal("a lazy tile has no row band"))?;
        let _alone = reading.lock().await;
        let found: Vec<Option<ArrayRef>> = wanted.iter().map(known).collect();
        let mut missing: Vec<usize> = wanted
            .iter()
            .zip(&found)
            .filter_map(|(column, found)| found.is_none().then_some(*column))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let read = self.read(&state, task, &missing).await?;
        // A cache that is too small keeps nothing of it.
        for (column, values) in missing.iter().zip(&read) {
            columns.insert((self.id, task, *column), Arc::clone(values));
        }
        columns.run_pending_tasks();
        let values = wanted.iter().zip(found).map(|(column, found)| {
            let fresh = || read.get(missing.binary_search(column).ok()?).cloned();
            let values = found.or_else(fresh);
            values.ok_or_else(|| Error::internal("a lazy column was not read"))
        });
        values.collect()
    }

    /// Reads the columns of a row band that are not kept yet, to be kept, unless that would take the place of others; says whether all are kept now.
    #[cfg(feature = "distributed")]
    pub(super) async fn read_ahead(
        self: Arc<Self>,
        number: usize,
        wanted: &[usize],
    ) -> Result<bool> {
        let state = self.state();
        let is_kept = |column: &usize| {
            let columns = &state.room.columns;
            columns.contains_key(&(self.id, number, *column))
        };
        let missing = wanted.iter().copied().filter(|column| !is_kept(column));
        let missing: Vec<usize> = missing.collect();
        let (task, ..) = parts(&self.plan, number)?;
        let sizes = missing.iter();
        let sizes = sizes.map(|column| self.plan.sizes(task, *column).decoded_bytes);
        let has_room = state.room.has_room(sizes.sum());
        if has_room && !missing.is_empty() {
            Arc::clone(&self).columns(number, missing).await?;
        }
        Ok(has_room)
    }

    async fn read(
        self: &Arc<Self>,
        state: &Arc<State>,
        number: usize,
        missing: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        let (task, file, _) = parts(&self.plan, number)?;
        if matches!(file.place, Place::Remote { .. }) && self.pid != std::process::id() {
            let text = "a lazy tile of a store cannot be read after a fork";
            let error = Error::new(ErrorKind::NotLocal, text).with_file(&file.name);
            return Err(error.with_hint("load again in this process"));
        }
        let pages = pages_of(&self.plan, number, missing, None).await?;
        stream::iter(missing.to_vec())
            .map(|column| {
                let (source, pages) = (Arc::clone(self), pages.clone());
                let bytes = self.plan.sizes(task, column).decoded_bytes;
                async move {
                    let _leave = state.room.budget.reserve(bytes).await?;
                    blocking(move || {
                        let (task, file, _) = parts(&source.plan, number)?;
                        let rows = Rows::all(task);
                        contained(&file.name, || {
                            decode_column(&source.plan, number, column, &rows, &pages)
                        })
                    })
                    .await
                }
            })
            .buffered(self.concurrency)
            .try_collect()
            .await
    }

    /// Whether a row of a row band may hold one of these values, by the bloom filters of its row groups.
    async fn may_hold(&self, number: usize, column: usize, values: &ArrayRef) -> Result<bool> {
        let state = self.state();
        let (task, file, footer) = parts(&self.plan, number)?;
        let is_remote = matches!(file.place, Place::Remote { .. });
        if state.room.columns.contains_key(&(self.id, number, column))
            || is_remote && self.pid != std::process::id()
        {
            return Ok(true);
        }
        let name = self.plan.columns.schema.field(column).name();
        for row_group in task.row_groups.clone() {
            let Some(chunk) = chunk_of(footer, row_group, name, values) else {
                return Ok(true);
            };
            let key = (self.id, task.file, row_group, column);
            let filter = match state.room.blooms.get(&key) {
                Some(known) => known,
                None => {
                    let filter = bloom::read(file, chunk).await?.map(Arc::new);
                    state.room.blooms.insert(key, filter.clone());
                    filter
                }
            };
            if filter.is_none_or(|filter| bloom::may_hold(&filter, chunk, values)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As `columns`, for callers that cannot await.
    fn columns_now(self: &Arc<Self>, task: usize, wanted: Vec<usize>) -> Result<Vec<ArrayRef>> {
        let (_, file, _) = parts(&self.plan, task)?;
        let is_local = matches!(file.place, Place::Local(_));
        let work = Arc::clone(self).columns(task, wanted);
        // A thread of its own may block wherever the caller is.
        let on_thread = || {
            std::thread::scope(|scope| {
                let done = scope.spawn(|| {
                    if !is_local {
                        return self.runtime.block_on(work);
                    }
                    let runtime = Builder::new_current_thread().build();
                    let failed = |error| {
                        Error::internal("a runtime for a lazy tile could not be made")
                            .with_source(error)
                    };
                    runtime.map_err(failed)?.block_on(work)
                });
                let ended = |_| Error::internal("a reading thread ended");
                done.join().map_err(ended)?
            })
        };
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(on_thread),
            Ok(_) if !is_local => {
                let text = "a lazy tile of a store cannot be opened on a runtime of one thread, which would wait for itself";
                Err(Error::unsupported(text).with_hint("await fetch instead"))
            }
            _ => on_thread(),
        }
    }
}

impl LazyTile {
    fn batch(&self, columns: &[usize], values: Vec<ArrayRef>) -> Result<RecordBatch> {
        let schema = Arc::new(self.schema.project(columns)?);
        let num_rows = usize::try_from(self.num_rows()).ok();
        let options = RecordBatchOptions::new().with_row_count(num_rows);
        Ok(RecordBatch::try_new_with_options(schema, values, &options)?)
    }
}

impl fmt::Debug for LazyTile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = self.source.plan.tasks.get(self.task);
        write!(formatter, "LazyTile {task:?}")
    }
}

#[async_trait]
impl TileData for LazyTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        let task = self.source.plan.tasks.get(self.task);
        task.map_or(0, |task| task.num_rows)
    }

    /// What the footer makes expect.
    fn memory_bytes(&self) -> u64 {
        let plan = &self.source.plan;
        let Some(task) = plan.tasks.get(self.task) else {
            return 0;
        };
        let columns = self.columns.iter();
        columns
            .map(|column| plan.sizes(task, *column).decoded_bytes)
            .sum()
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location::here()]
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn open(&self) -> Result<RecordBatch> {
        let values = self.source.columns_now(self.task, self.columns.clone())?;
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.batch(&all, values)
    }

    fn open_columns(&self, columns: &[usize]) -> Result<RecordBatch> {
        let wanted = chosen(&self.columns, columns)?;
        let values = self.source.columns_now(self.task, wanted)?;
        self.batch(columns, values)
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        let wanted = chosen(&self.columns, columns)?;
        let values = Arc::clone(&self.source).columns(self.task, wanted).await?;
        self.batch(columns, values)
    }

    async fn may_hold(&self, column: usize, values: &ArrayRef) -> Result<bool> {
        match chosen(&self.columns, &[column])?.as_slice() {
            [column] => self.source.may_hold(self.task, *column, values).await,
            _ => Ok(true),
        }
    }
}

//! Tiles of a catalog.
//!
//! Comes in: the file of a tile. Goes out: the tile, read when it is needed, with its length and checksum seen, and kept in memory while there is room. Never here: writing.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::runtime::{Handle as Runtime, RuntimeFlavor};
use tokio::sync::Mutex;

use super::files::{Files, Held};
use super::manifest::{TileFile, checksum};
use super::store::Store;
use crate::error::{Error, Result};
use crate::grid::{ColumnBytes, Tile, TileData, TileMemory, slice_bytes};
use crate::location::Location;
use crate::memory::default_memory_limit_bytes;
use crate::share::ipc;
use crate::still::wait_for;

/// A tile in a catalog.
#[derive(Debug)]
pub(super) struct KeptTile {
    held: Held,
    file: TileFile,
    schema: SchemaRef,
    runtime: Option<Runtime>,
    bytes: ColumnBytes,
    /// So that nobody reads what another is reading; how that failed last.
    reading: Mutex<Option<Error>>,
    num_failed: AtomicU64,
}

/// Tiles that were read and are known to be right, by their paths; those that nobody asks for go first.
pub(super) type TileCache = Cache<String, Arc<TileMemory>>;

/// One for a share of the memory that queries may use by default.
pub(super) fn cache() -> TileCache {
    let kibibytes = default_memory_limit_bytes() as u64 / MEMORY_SHARE / 1024;
    Cache::builder()
        .max_capacity(kibibytes)
        .weigher(|_, memory: &Arc<TileMemory>| {
            u32::try_from(slice_bytes(memory.batch()) / 1024)
                .unwrap_or(u32::MAX)
                .max(1)
        })
        .eviction_policy(EvictionPolicy::lru())
        .build()
}

/// A catalog keeps so many parts of one in memory.
const MEMORY_SHARE: u64 = 4;

impl KeptTile {
    /// Made on the runtime that shall read it.
    pub(super) fn new(files: &Arc<Files>, file: TileFile, schema: SchemaRef) -> Self {
        Self {
            held: files.hold(&file.path),
            file,
            bytes: ColumnBytes::new(schema.fields().len()),
            schema,
            runtime: Runtime::try_current().ok(),
            reading: Mutex::default(),
            num_failed: AtomicU64::new(0),
        }
    }

    /// Keeps its batch in memory, which is at hand.
    pub(super) fn keep_batch(&self, batch: RecordBatch) {
        let memory = TileMemory::new(batch, None);
        self.cache().insert(self.file.path.clone(), memory);
    }

    /// The file of a tile that is in this very catalog.
    pub(super) fn of<'a>(tile: &'a Tile, files: &Arc<Files>) -> Option<&'a TileFile> {
        let data: &dyn Any = tile.data().as_ref();
        let kept = data.downcast_ref::<Self>()?;
        Arc::ptr_eq(kept.held.files(), files).then_some(&kept.file)
    }

    fn cache(&self) -> &TileCache {
        &self.held.files().cache
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.held.files().store
    }

    fn known(&self) -> Option<RecordBatch> {
        let known = self.cache().get(&self.file.path)?;
        Some(known.batch().clone())
    }

    async fn load(&self) -> Result<RecordBatch> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let before = self.num_failed.load(Ordering::Acquire);
        let mut failed = self.reading.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        // All who waited for a reader hear what it heard: one after the other would wait for the same store.
        let has_failed = self.num_failed.load(Ordering::Acquire) != before;
        if let (true, Some(error)) = (has_failed, failed.as_ref()) {
            return Err(error.clone());
        }
        let read = self.read().await;
        if let Err(error) = &read {
            tracing::warn!(%error, "a tile of the catalog cannot be read");
        }
        *failed = read.as_ref().err().cloned();
        if failed.is_some() {
            self.num_failed.fetch_add(1, Ordering::AcqRel);
        }
        read
    }

    async fn read(&self) -> Result<RecordBatch> {
        let bytes = self.store().read(&self.file.path).await?;
        let (file, schema) = (self.file.clone(), Arc::clone(&self.schema));
        let decoded = tokio::task::spawn_blocking(move || decode(&bytes, &file, &schema)).await;
        let decoded = decoded.map_err(|error| {
            Error::internal("a thread that read a tile ended").with_source(error)
        })?;
        let place = || format!("{}/{}", self.store().place(), self.file.path);
        let batch = decoded.map_err(|error| error.with_file(place()).with_hint(DAMAGED))?;
        self.keep_batch(batch.clone());
        Ok(batch)
    }

    fn load_now(&self) -> Result<RecordBatch> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let missing = || Error::internal("a tile of a catalog was made outside of a runtime");
        let runtime = self.runtime.as_ref().ok_or_else(missing)?;
        match Runtime::try_current().map(|here| here.runtime_flavor()) {
            Ok(RuntimeFlavor::CurrentThread) => Err(Error::unsupported(
                "a tile of a catalog cannot be waited for on a runtime of one thread",
            )
            .with_hint("await fetch() instead")),
            Ok(_) => tokio::task::block_in_place(|| runtime.block_on(self.load())),
            Err(_) => wait_for(runtime, self.load()),
        }
    }
}

/// What can be done about a tile whose file is not what it was. Clients read it, too: it names no place.
const DAMAGED: &str = "the administrator can put the file back as it was, which is read with the next statement; or drop the table and make it again. What does not read this tile is answered as before";

fn decode(bytes: &[u8], file: &TileFile, schema: &SchemaRef) -> Result<RecordBatch> {
    if bytes.len() as u64 != file.bytes || checksum(bytes) != file.checksum {
        let text = "the file of a tile is damaged: its length or checksum is another than its manifest says";
        return Err(Error::invalid_data(text).with_position(&file.position));
    }
    let mut aligned = MutableBuffer::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    let (batch, _) = ipc::read(&Buffer::from(aligned))?;
    if batch.num_rows() as u64 != file.rows || batch.schema().fields() != schema.fields() {
        let text = "the file of a tile has other rows or columns than its manifest says";
        return Err(Error::invalid_data(text).with_position(&file.position));
    }
    Ok(batch)
}

#[async_trait]
impl TileData for KeptTile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.file.rows
    }

    fn memory_bytes(&self) -> u64 {
        self.file.memory_bytes
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location::here()]
    }

    fn is_lazy(&self) -> bool {
        !self.cache().contains_key(&self.file.path)
    }

    fn column_bytes(&self, columns: &[usize]) -> u64 {
        // Not read to be counted.
        let gone = || Error::internal("the tile is not in memory any more");
        self.bytes.of(columns, || self.known().ok_or_else(gone))
    }

    fn open(&self) -> Result<RecordBatch> {
        self.load_now()
    }

    async fn fetch(&self, columns: &[usize]) -> Result<RecordBatch> {
        Ok(self.load().await?.project(columns)?)
    }

    /// In place of what is kept of it; a tile that is not kept takes no memory here.
    fn settle(&self, memory: Arc<TileMemory>) {
        if !self.is_lazy() {
            self.cache().insert(self.file.path.clone(), memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use arrow::datatypes::Schema;
    use bytes::Bytes;
    use futures::future::join_all;

    use super::super::store::Listed;
    use super::*;

    /// A place that answers nothing but errors, each after a while.
    #[derive(Debug, Default)]
    struct Stalled {
        num_reads: AtomicU64,
    }

    /// Long enough that all are there before it is over.
    const STALL: Duration = Duration::from_millis(500);

    #[async_trait]
    impl Store for Stalled {
        fn place(&self) -> String {
            "nowhere".to_owned()
        }

        fn is_ours_alone(&self) -> bool {
            false
        }

        async fn put_new(&self, _: &str, _: Bytes) -> Result<bool> {
            Err(Error::internal("nothing is written here"))
        }

        async fn read(&self, _: &str) -> Result<Bytes> {
            let number = self.num_reads.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(STALL).await;
            Err(Error::not_found(format!("attempt {number} took too long")))
        }

        async fn list(&self, _: &str) -> Result<Vec<Listed>> {
            Ok(Vec::new())
        }

        async fn now(&self, _: &str) -> Result<SystemTime> {
            Ok(SystemTime::now())
        }

        async fn remove(&self, _: &str) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn all_who_wait_for_a_stalled_store_wait_for_it_once() {
        let store = Arc::new(Stalled::default());
        let files = Files::new(Arc::clone(&store) as Arc<dyn Store>, cache());
        let file = TileFile {
            path: "tiles/0".to_owned(),
            position: vec![0, 0],
            rows: 1,
            bytes: 1,
            memory_bytes: 1,
            checksum: String::new(),
        };
        let tile = KeptTile::new(&files, file, Arc::new(Schema::empty()));
        let failed = join_all((0..100).map(|_| tile.fetch(&[]))).await;
        for one in failed {
            assert_eq!(one.unwrap_err().message(), "attempt 0 took too long");
        }
        // Whoever comes later asks anew.
        assert_eq!(store.num_reads.load(Ordering::Acquire), 1);
        let again = tile.fetch(&[]).await;
        assert_eq!(again.unwrap_err().message(), "attempt 1 took too long");
        assert_eq!(store.num_reads.load(Ordering::Acquire), 2);
    }
}

//! Footers that were read before.
//!
//! Comes in: a file with its stamp. Goes out: its footer, if it was read before and the file is still the same. One cache for each process, bounded in bytes; a forked child
//! begins with an empty one, since a thread of its parent may hold a lock of the old one for ever. Never here: reading.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use moka::sync::Cache;

use super::footer::Footer;
use super::source::SourceFile;
use crate::memory::default_memory_limit_bytes;

/// The most bytes of footers that are kept: this, or a part of the memory that loads may use by default.
const CACHE_BYTES: u64 = 1 << 30;
const CACHE_PART: u64 = 16;

/// Name, stamp and size of a file.
type Key = (String, String, u64);

struct OfProcess {
    pid: u32,
    footers: Cache<Key, Footer>,
}

static CACHE: ArcSwapOption<OfProcess> = ArcSwapOption::const_empty();

/// The footers of this process.
#[derive(Clone)]
pub(super) struct FooterCache(Arc<OfProcess>);

impl FooterCache {
    pub(super) fn of_this_process() -> Self {
        let pid = std::process::id();
        if let Some(cache) = CACHE.load_full()
            && cache.pid == pid
        {
            return Self(cache);
        }
        let weigh = |(name, stamp, _): &Key, footer: &Footer| {
            let bytes = footer.memory_bytes() + name.len() + stamp.len();
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let footers = Cache::builder()
            .weigher(weigh)
            .max_capacity(CACHE_BYTES.min(default_memory_limit_bytes() as u64 / CACHE_PART))
            .build();
        let fresh = Arc::new(OfProcess { pid, footers });
        // Two threads may both make one; the footers of the one that loses are read again some day.
        CACHE.store(Some(Arc::clone(&fresh)));
        Self(fresh)
    }

    pub(super) fn get(&self, file: &SourceFile) -> Option<Footer> {
        self.0.footers.get(&key(file)?)
    }

    pub(super) fn keep(&self, file: &SourceFile, footer: &Footer) {
        if let Some(key) = key(file) {
            self.0.footers.insert(key, footer.clone());
        }
    }
}

/// Files without a stamp, or with one of just now, cannot be told from later ones of the same name.
fn key(file: &SourceFile) -> Option<Key> {
    if !file.settled {
        return None;
    }
    Some((file.name.clone(), file.stamp.clone()?, file.size_bytes))
}

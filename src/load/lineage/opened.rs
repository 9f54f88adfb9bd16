//! What this process has read of files of grids of others.
//!
//! Comes in: files with their footers, columns. Goes out: the same for all queries of the process, within a part of its memory; what nobody asks for goes first. Never here: reading.

use std::sync::{Arc, LazyLock};

use moka::sync::Cache;

use crate::load::footer::Footer;
use crate::load::lazy::{Room, Source, SourceId};
use crate::memory::default_memory_limit_bytes;

/// The part of the memory that queries may use by default which is for what was read of files of others.
const MEMORY_PART: u64 = 4;

/// The part of it that is for their footers.
const FOOTER_PART: u64 = 64;

pub(super) struct Opened {
    /// With footers, by grid and file.
    pub(super) sources: Cache<SourceId, Arc<Source>>,
    pub(super) room: Room,
    pub(super) limit_bytes: u64,
}

pub(super) static OPENED: LazyLock<Opened> = LazyLock::new(|| {
    let limit_bytes = default_memory_limit_bytes() as u64 / MEMORY_PART;
    let weigh = |_: &SourceId, source: &Arc<Source>| {
        let footers = source.plan().footers.iter();
        let bytes: usize = footers.map(Footer::memory_bytes).sum();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    Opened {
        sources: Cache::builder()
            .weigher(weigh)
            .max_capacity(limit_bytes / FOOTER_PART)
            .build(),
        room: Room::of_others(limit_bytes),
        limit_bytes,
    }
});

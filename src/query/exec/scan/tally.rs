//! What one run of a scan has done so far.
//!
//! Comes in: from the shares, while they read: row bands opened and skipped, rows looked at, bytes that came from elsewhere. Goes out: the same, to whoever asks how far the run is.
//! Counting costs a few additions for each window of rows. Never here: sizes of tiles that are here, which are worked out when somebody asks (`scan/count.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::location::Locality;

/// Counters of one run of a scan. All shares add to them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// One for each row band that the scan keeps, made when the run begins.
    bands: OnceLock<Box<[Band]>>,
    /// One for each locality.
    groups: [Group; Locality::ALL.len()],
    /// Runs of rows that a dynamic filter left unread.
    pub(super) skipped_morsels: AtomicU64,
    /// Rows that were read and that a dynamic filter took away.
    pub(super) filtered_rows: AtomicU64,
    /// Bytes of the rows that passed conditions and were put together into new batches.
    pub(super) gathered_bytes: AtomicU64,
}

/// One row band.
#[derive(Debug, Default)]
pub(super) struct Band {
    is_opened: AtomicBool,
    read_rows: AtomicU64,
    skipped_rows: AtomicU64,
}

/// The tiles of one locality.
#[derive(Debug, Default)]
pub(super) struct Group {
    brought_bytes: AtomicU64,
    copied_bytes: AtomicU64,
}

/// One row band at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BandSoFar {
    pub(super) is_opened: bool,
    pub(super) read_rows: u64,
    pub(super) skipped_rows: u64,
}

impl Tally {
    /// Makes room for so many row bands, once.
    pub(super) fn begin(&self, num_bands: usize) {
        self.bands
            .get_or_init(|| (0..num_bands).map(|_| Band::default()).collect());
    }

    fn band(&self, place: usize) -> Option<&Band> {
        self.bands.get()?.get(place)
    }

    /// The row band at this place among the kept ones is open.
    pub(super) fn open(&self, place: usize) {
        if let Some(band) = self.band(place) {
            band.is_opened.store(true, Ordering::Relaxed);
        }
    }

    /// So many rows of it were looked at.
    pub(super) fn read(&self, place: usize, rows: u64) {
        if let Some(band) = self.band(place) {
            band.read_rows.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// A run of so many of its rows was left unread.
    pub(super) fn skip(&self, place: usize, rows: u64) {
        self.skipped_morsels.fetch_add(1, Ordering::Relaxed);
        if let Some(band) = self.band(place) {
            band.skipped_rows.fetch_add(rows, Ordering::Relaxed);
        }
    }

    /// The row bands so far, in the order of those that are kept; none before the run begins.
    pub(super) fn bands(&self) -> impl Iterator<Item = BandSoFar> + '_ {
        let bands = self.bands.get().map(AsRef::as_ref).unwrap_or_default();
        bands.iter().map(|band: &Band| BandSoFar {
            is_opened: band.is_opened.load(Ordering::Relaxed),
            read_rows: band.read_rows.load(Ordering::Relaxed),
            skipped_rows: band.skipped_rows.load(Ordering::Relaxed),
        })
    }

    fn group(&self, locality: Locality) -> Option<&Group> {
        self.groups.get(locality as usize)
    }

    /// Bytes of a tile came here from elsewhere, which is a copy.
    pub(super) fn bring(&self, locality: Locality, bytes: u64) {
        if let Some(group) = self.group(locality) {
            group.brought_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.copy(locality, bytes);
    }

    /// Bytes of a tile were copied.
    pub(super) fn copy(&self, locality: Locality, bytes: u64) {
        if let Some(group) = self.group(locality) {
            group.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that came from elsewhere.
    pub(super) fn brought(&self, locality: Locality) -> u64 {
        let group = self.group(locality);
        group.map_or(0, |group| group.brought_bytes.load(Ordering::Relaxed))
    }

    /// Bytes that were copied.
    pub(super) fn copied(&self, locality: Locality) -> u64 {
        let group = self.group(locality);
        group.map_or(0, |group| group.copied_bytes.load(Ordering::Relaxed))
    }
}

//! What is wrong with a catalog at this moment.
//!
//! Comes in: tables that cannot be had, writes that failed or succeeded. Goes out: which tables are left out, whose names nobody takes meanwhile, and whether what is written lasts. Never here: what is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::Catalog;
use super::paths::{TILES, is_tile, unique};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::GridId;

/// What is written to see whether it lasts: more than fits beside the name of a file.
static PROBE: [u8; 4096] = [0; 4096];

/// Something that is wrong with a catalog.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Since when it is known.
    pub since: SystemTime,
    /// What is wrong.
    pub error: Error,
}

impl Fault {
    fn new(error: Error) -> Self {
        Self {
            since: SystemTime::now(),
            error,
        }
    }
}

/// The state of a catalog, as far as it is not what it should be.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Tables that are left out, by name.
    damaged: Mutex<BTreeMap<String, Fault>>,
    /// Since the first write that failed, until one succeeds; the error is that of the last one.
    failing: Mutex<Option<Fault>>,
    num_failed: AtomicU64,
    /// When it was last tried whether it may be written again; held meanwhile.
    tried: tokio::sync::Mutex<Option<Instant>>,
}

impl Health {
    fn damaged(&self) -> MutexGuard<'_, BTreeMap<String, Fault>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failing(&self) -> MutexGuard<'_, Option<Fault>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be done about a table that cannot be had, which is left out or keeps the catalog from being opened.
fn with_remedies(error: Error, name: &str, manifest: &str, is_left_out: bool) -> Error {
    let back = "put the file back as it was";
    let away = format!("move its manifest {manifest} away, which gives the table up");
    let hint = match is_left_out {
        true => format!("{back}, or {away}"),
        false => format!(
            "{back}; or start with the setting server.skip_damaged = true, which leaves the table out and its files alone; or {away}"
        ),
    };
    error.with_context("table", name).with_hint(hint)
}

/// Whether an error says that the place of a catalog takes nothing, and not that it was asked for something wrong.
fn is_of_place(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Storage { .. }
            | ErrorKind::ResourcesExhausted
            | ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::Unsupported
    )
}

impl Catalog {
    /// The tables that are left out since they cannot be had, by name. Until a name is whole again nobody can keep or drop a grid under it.
    #[must_use]
    pub fn damaged(&self) -> BTreeMap<String, Fault> {
        self.health.damaged().clone()
    }

    /// Whether a name may be given to a grid.
    ///
    /// # Errors
    /// `InvalidData` when it is that of a table that is damaged.
    pub fn check_whole(&self, name: &str) -> Result<()> {
        if !self.health.damaged().contains_key(name) {
            return Ok(());
        }
        let text = "the catalog has a table of this name that is damaged: nothing else gets the name, so that it can be restored";
        Err(Error::invalid_data(text)
            .with_context("table", name)
            .with_hint("choose another name, or have the administrator restore or move away the files that the log of the server names"))
    }

    /// Leaves a table out that cannot be had. Its files stay; where it is not known which they are, all that are there.
    ///
    /// # Errors
    /// Why it cannot be had, with the remedies, unless such tables are to be left out.
    pub(super) fn leave_out<'a>(
        &self,
        name: &str,
        path: &str,
        error: Error,
        tiles: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        let is_left_out = self.skips_damaged || self.is_shared();
        let error = self.remedied(error, name, path, is_left_out);
        if !is_left_out {
            return Err(error);
        }
        if !self.files.has_of(name) {
            let tiles = tiles.map(String::as_str);
            self.files.leave_files(tiles.filter(|path| is_tile(path)));
        }
        self.mark_damaged(name, error);
        Ok(())
    }

    /// What is wrong with the table of a manifest, and what can be done.
    pub(super) fn remedied(
        &self,
        error: Error,
        name: &str,
        path: &str,
        is_left_out: bool,
    ) -> Error {
        let manifest = format!("{}/{path}", self.place());
        with_remedies(error, name, &manifest, is_left_out)
    }

    /// Says of a name that its table cannot be had.
    pub(super) fn mark_damaged(&self, name: &str, error: Error) {
        let mut damaged = self.health.damaged();
        if damaged.contains_key(name) {
            return;
        }
        tracing::error!(table = name, %error, "a table of the catalog is damaged, and left out");
        damaged.insert(name.to_owned(), Fault::new(error));
    }

    /// Says of a name that it is whole, or gone.
    pub(super) fn mark_whole(&self, name: &str) {
        if self.health.damaged().remove(name).is_some() {
            tracing::info!(table = name, "a table of the catalog is whole again");
        }
    }

    /// The names of those.
    pub(super) fn damaged_names(&self) -> BTreeSet<String> {
        self.health.damaged().keys().cloned().collect()
    }

    /// The write that failed since which none has succeeded: what is asked to be durable is not at this moment. Its error is that of the latest.
    #[must_use]
    pub fn failing(&self) -> Option<Fault> {
        self.health.failing().clone()
    }

    /// How many writes have failed since it was opened.
    #[must_use]
    pub fn num_failed_writes(&self) -> u64 {
        self.health.num_failed.load(Ordering::Relaxed)
    }

    /// Takes note of how the place of the catalog answered; gives the answer. That something was read proves nothing.
    pub(super) fn noted<T>(&self, answer: Result<T>) -> Result<T> {
        let Err(error) = &answer else {
            return answer;
        };
        if is_of_place(error) {
            self.health.num_failed.fetch_add(1, Ordering::Relaxed);
            let mut failing = self.health.failing();
            let since = failing.as_ref().map(|before| before.since);
            if since.is_none() {
                tracing::error!(%error, "the catalog cannot be written: nothing is durable until it can");
            }
            *failing = Some(Fault {
                since: since.unwrap_or_else(SystemTime::now),
                error: error.clone(),
            });
        }
        answer
    }

    fn note_written(&self) {
        if self.health.failing().take().is_some() {
            tracing::info!("the catalog can be written again");
        }
    }

    /// Puts what nobody else writes with the same bytes; one whose answer was lost finds itself.
    pub(super) async fn put_once(&self, path: &str, bytes: Bytes) -> Result<bool> {
        let put = self.store.put_new(path, bytes.clone()).await;
        // A disk that failed is believed: what can be read may never have reached it.
        let may_be_there = match &put {
            Ok(is_new) => !is_new,
            Err(error) => matches!(error.kind(), ErrorKind::Storage { retryable: true }),
        };
        let put = match may_be_there {
            true => {
                let there = self.store.read(path).await;
                match there.is_ok_and(|there| there == bytes) {
                    true => Ok(true),
                    false => put,
                }
            }
            false => put,
        };
        let put = self.noted(put)?;
        if put {
            self.note_written();
        }
        Ok(put)
    }

    /// Writes a small file, and removes it, to see whether what is written lasts.
    ///
    /// # Errors
    /// Whatever stands in the way of writing.
    pub async fn try_writing(&self) -> Result<()> {
        // By its name it is swept as a tile that nobody has, if it stays.
        let grid = GridId::try_random()?;
        let path = format!("{TILES}/{grid}-0-0-{}.arrow", unique()?);
        let catalog = self.clone();
        // Not to be left half way.
        let tried = tokio::spawn(async move {
            catalog.put_once(&path, Bytes::from_static(&PROBE)).await?;
            if let Err(error) = catalog.store.remove(&path).await {
                tracing::debug!(path, %error, "a file that was written to see whether it lasts stays");
            }
            Ok(())
        });
        tried.await.map_err(|error| {
            Error::internal("a task that wrote to the catalog ended").with_source(error)
        })?
    }

    /// Tries to write where the last write failed, unless that was done within `pause` or is under way.
    pub async fn try_again(&self, pause: Duration) {
        let Ok(mut tried) = self.health.tried.try_lock() else {
            return;
        };
        let is_early = tried.is_some_and(|at| at.elapsed() < pause);
        if is_early || self.failing().is_none() {
            return;
        }
        if let Err(error) = self.try_writing().await {
            tracing::debug!(%error, "the catalog still cannot be written");
        }
        *tried = Some(Instant::now());
    }
}

//! What is wrong with a catalog at this moment.
//!
//! Comes in: tables that cannot be had, writes that failed or succeeded. Goes out: which tables are left out, whose names nobody takes meanwhile, and whether what is written lasts. Never here: what is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::Catalog;
use super::paths::{MANIFESTS, TILES, is_tile, probe, unique};
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
    /// By part of the catalog, since the first write to it that failed, until one succeeds; the error is that of the last one.
    failing: Mutex<BTreeMap<&'static str, Fault>>,
    num_failed: AtomicU64,
    /// When it was last tried whether it may be written again; held meanwhile.
    tried: tokio::sync::Mutex<Option<Instant>>,
}

impl Health {
    fn damaged(&self) -> MutexGuard<'_, BTreeMap<String, Fault>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<&'static str, Fault>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a table is left out, or keeps the catalog from being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A catalog of this process alone, which is not opened.
    Closed,
    /// One of this process alone, without the table until it is opened again.
    Own,
    /// One of several processes, each of which looks again and again.
    Shared,
}

/// What can be done about a table that cannot be had; nothing of ours where the place does not answer, but to leave the table out.
fn remedy(kind: ErrorKind, manifest: &str, place: Place) -> Option<String> {
    let away = format!("move its manifest {manifest} away");
    let cure = match (kind, place) {
        (ErrorKind::InvalidData | ErrorKind::NotFound, Place::Shared) => format!(
            "put the file back as it was; or {away}: then the table is what it was before, as long as its manifest of then is there, and gone without one"
        ),
        (ErrorKind::InvalidData | ErrorKind::NotFound, Place::Own) => {
            format!("put the file back as it was, or {away}, which gives the table up")
        }
        (ErrorKind::InvalidData | ErrorKind::NotFound, Place::Closed) => {
            "put the file back as it was".to_owned()
        }
        (ErrorKind::PermissionDenied, _) => {
            "give the right to read it to the user that the server runs as".to_owned()
        }
        (ErrorKind::Unsupported, _) => {
            "a later version of partgrid wrote it: use that one".to_owned()
        }
        (_, Place::Closed) => "see that it can be read".to_owned(),
        _ => return None,
    };
    let skip = "start with the setting server.skip_damaged = true, which leaves the table out and its files alone";
    Some(match place {
        Place::Shared => cure,
        Place::Own => format!("{cure}; and start the server again"),
        Place::Closed if matches!(kind, ErrorKind::InvalidData | ErrorKind::NotFound) => {
            format!("{cure}; or {skip}; or {away}, which gives the table up")
        }
        Place::Closed => format!("{cure}; or {skip}"),
    })
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
        let error = self.remedied(error, name, path);
        if !self.skips_damaged && !self.is_shared() {
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
    pub(super) fn remedied(&self, error: Error, name: &str, path: &str) -> Error {
        let place = match (self.is_shared(), self.skips_damaged) {
            (true, _) => Place::Shared,
            (false, true) => Place::Own,
            (false, false) => Place::Closed,
        };
        let manifest = format!("{}/{path}", self.place());
        let remedy = remedy(error.kind(), &manifest, place);
        let error = error.with_context("table", name);
        match remedy {
            Some(remedy) => error.with_hint(remedy),
            None => error,
        }
    }

    /// Says of a name that its table cannot be had; of one of which that is known, why now.
    pub(super) fn mark_damaged(&self, name: &str, error: Error) {
        let mut damaged = self.health.damaged();
        if let Some(known) = damaged.get_mut(name) {
            known.error = error;
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

    /// The write that failed since which none to the same part has succeeded: what is asked to be durable is not at this moment. Its error is that of the latest.
    #[must_use]
    pub fn failing(&self) -> Option<Fault> {
        let failing = self.health.failing();
        failing.values().min_by_key(|fault| fault.since).cloned()
    }

    /// How many writes have failed since it was opened.
    #[must_use]
    pub fn num_failed_writes(&self) -> u64 {
        self.health.num_failed.load(Ordering::Relaxed)
    }

    /// Takes note of how a part of the catalog answered; gives the answer. That something was read proves nothing.
    pub(super) fn noted<T>(&self, part: &'static str, answer: Result<T>) -> Result<T> {
        let Err(error) = &answer else {
            return answer;
        };
        if is_of_place(error) {
            self.health.num_failed.fetch_add(1, Ordering::Relaxed);
            let mut failing = self.health.failing();
            if failing.is_empty() {
                tracing::error!(%error, "the catalog cannot be written: nothing is durable until it can");
            }
            let fault = failing
                .entry(part)
                .or_insert_with(|| Fault::new(error.clone()));
            fault.error = error.clone();
        }
        answer
    }

    /// That one part can be written says nothing of the other.
    fn note_written(&self, part: &'static str) {
        let mut failing = self.health.failing();
        if failing.remove(part).is_some() && failing.is_empty() {
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
        let part = match path.starts_with(TILES) {
            true => TILES,
            false => MANIFESTS,
        };
        let put = self.noted(part, put)?;
        if put {
            self.note_written(part);
        }
        Ok(put)
    }

    /// Writes a small file beside the tiles and one beside the manifests, and removes them, to see whether what is written lasts.
    ///
    /// # Errors
    /// Whatever stands in the way of writing.
    pub async fn try_writing(&self) -> Result<()> {
        // By their names they are swept, if they stay: one is a tile that nobody has, the other no manifest.
        let grid = GridId::try_random()?;
        let paths = [
            format!("{TILES}/{grid}-0-0-{}.arrow", unique()?),
            probe(&unique()?),
        ];
        let catalog = self.clone();
        // Not to be left half way.
        let tried = tokio::spawn(async move {
            for path in paths {
                catalog.put_once(&path, Bytes::from_static(&PROBE)).await?;
                if let Err(error) = catalog.store.remove(&path).await {
                    tracing::debug!(path, %error, "a file that was written to see whether it lasts stays");
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_fits_what_is_wrong_and_where() {
        let said = |kind, place| remedy(kind, "grids/a/1.json", place).unwrap_or_default();
        for kind in [ErrorKind::InvalidData, ErrorKind::NotFound] {
            for place in [Place::Closed, Place::Own, Place::Shared] {
                let said = said(kind, place);
                assert!(said.contains("as it was"), "{said}");
                assert!(said.contains("grids/a/1.json away"), "{said}");
                assert_eq!(said.contains("gives the table up"), place != Place::Shared);
                assert_eq!(said.contains("skip_damaged"), place == Place::Closed);
                assert_eq!(said.contains("start the server again"), place == Place::Own);
            }
        }
        let failed = ErrorKind::Storage { retryable: false };
        for kind in [failed, ErrorKind::PermissionDenied, ErrorKind::Unsupported] {
            for place in [Place::Closed, Place::Own, Place::Shared] {
                let said = said(kind, place);
                assert!(
                    !said.contains("away") && !said.contains("as it was"),
                    "{said}"
                );
            }
        }
        assert!(said(ErrorKind::PermissionDenied, Place::Own).contains("right to read"));
        assert!(said(ErrorKind::Unsupported, Place::Shared).contains("later version"));
        assert_eq!(said(failed, Place::Shared), "");
    }

    #[test]
    fn a_catalog_without_its_folder_of_manifests_cannot_be_written() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let url = folder.path().to_str().unwrap();
            let catalog = Catalog::open(url).await.unwrap();
            catalog.try_writing().await.unwrap();
            let manifests = folder.path().join(MANIFESTS);
            std::fs::remove_dir(&manifests).unwrap();
            std::fs::write(&manifests, "no folder").unwrap();
            for _ in 0..2 {
                assert!(catalog.try_writing().await.is_err());
                assert!(catalog.failing().is_some());
            }
            // That tiles can be written says nothing of manifests.
            let tile = format!("{TILES}/x");
            assert!(catalog.put_once(&tile, Bytes::new()).await.unwrap());
            assert!(catalog.failing().is_some());
            std::fs::remove_file(&manifests).unwrap();
            std::fs::create_dir(&manifests).unwrap();
            catalog.try_writing().await.unwrap();
            assert!(catalog.failing().is_none());
            assert!(catalog.store.list(MANIFESTS).await.unwrap().is_empty());
        });
    }
}

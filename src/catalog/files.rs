//! The files of tiles, as long as somebody needs them.
//!
//! Comes in: which names have which files, and tiles over files as they come and go. Goes out: files and kept batches are removed once no manifest names them and nobody holds a tile over them: queries that run
//! finish with what they began with. Only where nobody else writes; an object store is left alone. Never here: manifests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle as Runtime;

use super::manifest::Contents;
use super::store::Store;
use super::tile::TileCache;

/// Who needs a file.
#[derive(Debug, Default)]
struct Needed {
    /// Tiles over it, in grids and in plans.
    holders: u64,
    /// Names whose manifests have it.
    names: u64,
}

#[derive(Debug, Default)]
struct Known {
    files: HashMap<Arc<str>, Needed>,
    /// The files of each name.
    named: HashMap<String, Vec<Arc<str>>>,
}

/// The files of a catalog.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) store: Arc<dyn Store>,
    pub(super) cache: TileCache,
    /// Where files are removed: nobody waits for that.
    runtime: Option<Runtime>,
    known: Mutex<Known>,
}

/// Keeps a file until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    files: Arc<Files>,
    path: Arc<str>,
}

impl Held {
    pub(super) fn files(&self) -> &Arc<Files> {
        &self.files
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.files.change(&self.path, |needed| {
            needed.holders = needed.holders.saturating_sub(1);
        });
    }
}

impl Files {
    /// Made on the runtime that shall remove them.
    pub(super) fn new(store: Arc<dyn Store>, cache: TileCache) -> Arc<Self> {
        Arc::new(Self {
            store,
            cache,
            runtime: Runtime::try_current().ok(),
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file for a tile.
    pub(super) fn hold(self: &Arc<Self>, path: &str) -> Held {
        let path: Arc<str> = Arc::from(path);
        self.change(&path, |needed| needed.holders += 1);
        Held {
            files: Arc::clone(self),
            path,
        }
    }

    /// A name has these files now, durably; `None` for a name that was dropped.
    pub(super) fn name(&self, name: &str, contents: Option<&Contents>) {
        let paths = contents.into_iter().flat_map(|contents| &contents.tiles);
        let paths: Vec<Arc<str>> = paths.map(|tile| Arc::from(tile.path.as_str())).collect();
        for path in &paths {
            self.change(path, |needed| needed.names += 1);
        }
        let before = match paths.is_empty() {
            true => self.known().named.remove(name),
            false => self.known().named.insert(name.to_owned(), paths),
        };
        for path in before.into_iter().flatten() {
            self.change(&path, |needed| {
                needed.names = needed.names.saturating_sub(1);
            });
        }
    }

    /// Whether it knows files of a name.
    pub(super) fn has_of(&self, name: &str) -> bool {
        self.known().named.contains_key(name)
    }

    /// Whether names have all files of a grid.
    pub(super) fn are_named(&self, contents: &Contents) -> bool {
        let known = self.known();
        let mut files = contents.tiles.iter();
        files.all(|tile| {
            let needed = known.files.get(tile.path.as_str());
            needed.is_some_and(|needed| needed.names > 0)
        })
    }

    /// Leaves files alone as long as the process lives: a manifest that nobody knows of may name them.
    pub(super) fn leave(&self, contents: &Contents) {
        self.leave_files(contents.tiles.iter().map(|tile| tile.path.as_str()));
    }

    /// The same of files that a manifest may name that cannot be read.
    pub(super) fn leave_files<'a>(&self, paths: impl Iterator<Item = &'a str>) {
        for path in paths {
            self.change(&Arc::from(path), |needed| needed.names += 1);
        }
    }

    /// Forgets kept batches of files that are gone.
    pub(super) fn tidy(&self) {
        self.cache.run_pending_tasks();
    }

    /// Changes who needs a file; removes it when nobody does.
    fn change(&self, path: &Arc<str>, how: impl FnOnce(&mut Needed)) {
        let mut known = self.known();
        let needed = known.files.entry(Arc::clone(path)).or_default();
        how(needed);
        if needed.holders > 0 || needed.names > 0 {
            return;
        }
        known.files.remove(path);
        drop(known);
        self.cache.invalidate(path.as_ref());
        let Some(runtime) = self.runtime.as_ref().filter(|_| self.store.is_ours_alone()) else {
            return;
        };
        let (store, path) = (Arc::clone(&self.store), Arc::clone(path));
        // What cannot be removed now is removed at the next start.
        runtime.spawn(async move {
            if let Err(error) = store.remove(&path).await {
                tracing::debug!(path = path.as_ref(), %error, "the file of a tile stays");
            }
        });
    }
}

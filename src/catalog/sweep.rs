//! What was left in a catalog of this process alone.
//!
//! Comes in: a catalog that is opened, tables that are dropped. Goes out: the same without files of tiles that no manifest names, without manifests that count no more, and without those that say that a table was dropped, a day later:
//! nobody counts on their numbers. These go while the catalog is open, too: a server that makes and drops tables all the time has no more of them from year to year. Where other processes have the catalog, too, these stay: whoever goes by the number of a name that is used anew from 1 would take another table for the one it knows. Never here: what runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::Catalog;
use super::paths::{MANIFESTS, TILES, is_tile, name_of, number_of};
use super::store::Listed;
use crate::error::Result;

/// How long it is written that a table was dropped: what was removed before that is gone for good by then, also after a loss of power.
const STAYS: Duration = Duration::from_secs(24 * 60 * 60);

/// How many of those are looked at each time that a table is dropped.
const AT_ONCE: usize = 16;

/// The manifests that say that a table was dropped, oldest first.
#[derive(Debug, Default)]
pub(super) struct Dropped(Mutex<VecDeque<(SystemTime, String)>>);

impl Dropped {
    fn known(&self) -> MutexGuard<'_, VecDeque<(SystemTime, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One was written at a time.
    pub(super) fn add(&self, path: String, written: SystemTime) {
        self.known().push_back((written, path));
    }

    /// Those that were written long enough before a moment.
    fn take_old(&self, now: SystemTime) -> Vec<String> {
        let mut known = self.known();
        let old = known
            .iter()
            .take_while(|(written, _)| is_old(*written, now));
        let number = old.count().min(AT_ONCE);
        known.drain(..number).map(|(_, path)| path).collect()
    }
}

impl Catalog {
    /// Removes what said that tables were dropped a day before a moment. What cannot be removed now is removed at the next start.
    pub(super) async fn forget_dropped(&self, now: SystemTime) {
        let _alone = self.writing.lock().await;
        for path in self.dropped.take_old(now) {
            if let Err(error) = self.forget(&path).await {
                tracing::debug!(path, %error, "what says that a table was dropped stays");
            }
        }
    }

    /// Removes the manifest of a dropped name with its folder, unless there is another one, which counts since, or would count again.
    async fn forget(&self, path: &str) -> Result<()> {
        let Some((folder, _)) = path.rsplit_once('/') else {
            return Ok(());
        };
        let listed = self.store.list(folder).await?;
        if listed.iter().any(|file| file.path != path) {
            return Ok(());
        }
        self.store.remove(path).await?;
        if let Some(name) = name_of(path) {
            self.known().remove(&name);
        }
        self.store.remove_folder(folder).await
    }

    /// Removes files of tiles that no manifest names, and manifests that are not the latest of their name, or say that there is nothing under it.
    pub(super) async fn sweep(&self) -> Result<()> {
        let latest = self.latest().await?;
        let (mut wanted, mut dropped) = (BTreeSet::new(), BTreeSet::new());
        for (name, (_, path)) in &latest {
            // A damaged manifest is said when grids are asked for; until then nothing is removed. Nor where one stands in the place of another.
            let Ok(contents) = self.contents(name, path).await else {
                return Ok(());
            };
            match contents {
                Some(contents) => wanted.extend(contents.tiles.into_iter().map(|tile| tile.path)),
                None => {
                    dropped.insert(path);
                }
            }
        }
        let current: BTreeSet<&String> = latest.values().map(|(_, path)| path).collect();
        let manifests = self.store.list(MANIFESTS).await?.into_iter();
        let manifests = manifests
            .filter(|file| number_of(&file.path).is_some() && name_of(&file.path).is_some());
        let manifests: Vec<Listed> = manifests.collect();
        let (alone, now) = (alone(&manifests), SystemTime::now());
        let mut stay = Vec::new();
        for Listed { path, written, .. } in &manifests {
            // The last one of a name goes once there is no other that would count again.
            let is_dropped = dropped.contains(path);
            let is_over = is_dropped && alone.contains(path.as_str()) && is_old(*written, now);
            if is_over || !current.contains(path) {
                self.store.remove(path).await?;
            } else if is_dropped {
                stay.push((*written, path.clone()));
            }
        }
        stay.sort_unstable();
        for (written, path) in stay {
            self.dropped.add(path, written);
        }
        for Listed { path, .. } in self.store.list(TILES).await? {
            if is_tile(&path) && !wanted.contains(&path) {
                self.store.remove(&path).await?;
            }
        }
        Ok(())
    }
}

/// Manifests without others of their names.
fn alone(manifests: &[Listed]) -> BTreeSet<&str> {
    let mut of_names: BTreeMap<Option<String>, Vec<&str>> = BTreeMap::new();
    for file in manifests {
        let of_name = of_names.entry(name_of(&file.path)).or_default();
        of_name.push(&file.path);
    }
    let alone = of_names.into_values().filter(|of_name| of_name.len() == 1);
    alone.flatten().collect()
}

fn is_old(written: SystemTime, now: SystemTime) -> bool {
    let age = now.duration_since(written);
    age.is_ok_and(|age| age >= STAYS)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::grid::PartitionGrid;

    fn empty() -> Arc<PartitionGrid> {
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        Arc::new(PartitionGrid::try_from_batches(schema, &[]).unwrap())
    }

    async fn opened(folder: &Path) -> Catalog {
        Catalog::open(folder.to_str().unwrap()).await.unwrap()
    }

    #[test]
    fn what_says_that_a_table_was_dropped_goes_after_a_day() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let catalog = opened(folder.path()).await;
            for name in ["kept", "dropped"] {
                catalog.keep(name, &empty()).await.unwrap();
            }
            catalog.drop_grid("dropped").await.unwrap();
            catalog.close();
            let of_name = folder.path().join(MANIFESTS).join("dropped");
            let manifest = of_name.join("00000000000000000002.json");
            opened(folder.path()).await.close();
            assert!(manifest.is_file());
            let ago = SystemTime::now() - 2 * STAYS;
            File::options()
                .write(true)
                .open(&manifest)
                .and_then(|file| file.set_modified(ago))
                .unwrap();
            opened(folder.path()).await.close();
            assert!(!manifest.exists());
            let catalog = opened(folder.path()).await;
            assert!(!of_name.exists());
            catalog.keep("dropped", &empty()).await.unwrap();
            catalog.close();
            let grids = opened(folder.path()).await.grids().await.unwrap();
            assert_eq!(grids.into_keys().collect::<Vec<_>>(), ["dropped", "kept"]);
        });
    }

    #[test]
    fn it_goes_while_the_catalog_is_open() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let catalog = opened(folder.path()).await;
            let names = ["gone", "again", "left"];
            for name in names {
                catalog.keep(name, &empty()).await.unwrap();
                catalog.drop_grid(name).await.unwrap();
            }
            catalog.close();
            // Also what was said before a start.
            let catalog = opened(folder.path()).await;
            let of_name = |name: &str| folder.path().join(MANIFESTS).join(name);
            catalog.keep("again", &empty()).await.unwrap();
            catalog.keep("late", &empty()).await.unwrap();
            catalog.drop_grid("late").await.unwrap();
            // An old manifest that could not be removed would count again.
            let old = of_name("left").join("00000000000000000001.json");
            File::create(&old).unwrap();
            catalog.forget_dropped(SystemTime::now()).await;
            assert!(of_name("gone").is_dir());
            let later = SystemTime::now() + STAYS + Duration::from_secs(1);
            catalog.forget_dropped(later).await;
            let there = |name| (name, of_name(name).is_dir());
            let all = ["gone", "late", "again", "left"].map(there);
            assert_eq!(
                all,
                [
                    ("gone", false),
                    ("late", false),
                    ("again", true),
                    ("left", true)
                ]
            );
            // Who drops a name that nobody has writes nothing.
            catalog.drop_grid("gone").await.unwrap();
            catalog.drop_grid(&"long".repeat(100)).await.unwrap();
            assert!(!of_name("gone").exists());
            catalog.keep("gone", &empty()).await.unwrap();
            std::fs::remove_file(&old).unwrap();
            catalog.close();
            let grids = opened(folder.path()).await.grids().await.unwrap();
            assert_eq!(grids.into_keys().collect::<Vec<_>>(), ["again", "gone"]);
        });
    }
}

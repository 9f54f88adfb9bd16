//! What was left in a catalog of this process alone.
//!
//! Comes in: a catalog that is opened. Goes out: the same without files of tiles that no manifest names, without manifests that count no more, and without those that say that a table was dropped, a day later:
//! nobody counts on their numbers. Where other processes have the catalog, too, these stay: whoever goes by the number of a name that is used anew from 1 would take another table for the one it knows. Never here: what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::Catalog;
use super::paths::{MANIFESTS, TILES, is_tile, name_of, number_of};
use super::store::Listed;
use crate::error::Result;

/// How long it is written that a table was dropped: what was removed before that is gone for good by then, also after a loss of power.
const STAYS: Duration = Duration::from_secs(24 * 60 * 60);

impl Catalog {
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
        let alone = alone(&manifests);
        for file in &manifests {
            let path = &file.path;
            // The last one of a name goes once there is no other that would count again.
            let is_over = dropped.contains(path) && alone.contains(path.as_str()) && is_old(file);
            if is_over || !current.contains(path) {
                self.store.remove(path).await?;
            }
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

fn is_old(file: &Listed) -> bool {
    let age = SystemTime::now().duration_since(file.written);
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
}

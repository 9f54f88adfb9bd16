//! Tiles that are brought into the memory of this process to stay.
//!
//! Comes in: parts of which this member is to have copies, each with a member that has it. Goes out: the same rows and statistics in the same cuts, in memory here (or over files, `files.rs`), told of as copies; tile by tile, part by part, in the
//! background, so that neither looks nor statements wait for them. Tiles of a process on this host are mapped: then the copy is the segment, which stays when that process ends. Never here: which parts
//! (`copies.rs`).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::try_join;

use crate::cluster::Cluster;
use crate::cluster::members::Member;
use crate::cluster::members::channel::Reach;
use crate::cluster::tile::MemberTile;
use crate::cluster::tile::outline::{Access, There};
use crate::cluster::tile::owner::member_tile;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::GridPart;
use crate::grid::{GridBuilder, MemoryTile, PartitionGrid, Tile};
use crate::share::{Heard, publish};

/// How long one tile may take.
const TILE: Duration = Duration::from_secs(120);

/// What is being copied.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Copying {
    is_on: Arc<AtomicBool>,
    /// Why parts could not be copied, by their ids, as it was said last.
    pub(in crate::cluster) said: Mutex<HashMap<Vec<u8>, String>>,
}

/// The right to copy, which only one has at a time.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Copying {
    fn turn(&self) -> Option<Turn> {
        let was_on = self.is_on.swap(true, Ordering::AcqRel);
        (!was_on).then(|| Turn(Arc::clone(&self.is_on)))
    }

    /// Says why a part could not be copied; what stays as it is once.
    pub(in crate::cluster) fn say(&self, part: &GridPart, error: &Error) {
        let text = error.to_string();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(&part.id) != Some(&text) {
            tracing::warn!(grid = part.name, number = part.number, %error, "a part could not be copied, it is tried again");
            said.insert(part.id.clone(), text);
        }
    }

    /// Forgets what was said of parts that are nowhere any more.
    pub(in crate::cluster) fn say_only(&self, there: &HashSet<&[u8]>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|id, _| there.contains(id.as_slice()));
    }

    fn done(&self, part: &GridPart) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.remove(&part.id);
    }
}

impl Cluster {
    /// Begins to copy these parts, each from its member, unless others are being copied; what is missing then is asked for with the next look.
    pub(in crate::cluster) fn copy(&self, wishes: Vec<(GridPart, Member)>) {
        if wishes.is_empty() {
            return;
        }
        let Some(turn) = self.copying.turn() else {
            return;
        };
        let (cluster, reach) = (Weak::clone(&self.own), Arc::clone(&self.reach));
        self.runtime.spawn(async move {
            let _turn = turn;
            for (part, member) in wishes {
                if cluster
                    .upgrade()
                    .is_some_and(|own| own.parts().refuses(&part))
                {
                    continue;
                }
                let copied = Box::pin(copied(&part, &member, &reach, &cluster)).await;
                let Some(cluster) = cluster.upgrade() else {
                    return;
                };
                match copied {
                    Ok(grid) => cluster.keep_copy(part, grid),
                    Err(error) => cluster.copying.say(&part, &error),
                }
            }
        });
    }

    fn keep_copy(&self, part: GridPart, grid: PartitionGrid) {
        self.copying.done(&part);
        let grid = Arc::new(grid);
        publish(&grid);
        let (number, bytes) = (part.number, grid.memory_bytes());
        let copy = GridPart {
            is_copy: true,
            ..part
        };
        let name = copy.name.clone();
        if self.parts().add_copy(copy, grid) {
            tracing::info!(
                grid = name,
                number,
                bytes,
                "this member has a copy of a part"
            );
        }
    }
}

/// A part of another member, in memory here, or over the files that all reach.
async fn copied(
    part: &GridPart,
    member: &Member,
    reach: &Arc<Reach>,
    cluster: &Weak<Cluster>,
) -> Result<PartitionGrid> {
    let client = reach.client(member.uri()).await?;
    let (described, told) = try_join!(client.part(part), client.part_statistics(part))?;
    let heard = Heard::read(&told, described.schema(), described.rows().num_intervals())?;
    let there = There {
        uri: member.uri(),
        table: &part.name,
        access: Access::default(),
    };
    let there = MemberTile::of_part(&described, heard, there, reach)?;
    if part.is_read_again() {
        let told = client.part_files(part).await?;
        let ends = || Error::new(ErrorKind::Cancelled, "this member ends");
        return cluster
            .upgrade()
            .ok_or_else(ends)?
            .over_files(&there, &told);
    }
    let (rows, columns) = (there.rows().clone(), there.columns().clone());
    let mut builder = GridBuilder::try_new(Arc::clone(there.schema()), rows, columns)?;
    for (position, tile) in there.geometry().positions().zip(there.tiles()) {
        if cluster.strong_count() == 0 {
            return Err(Error::new(ErrorKind::Cancelled, "this member ends"));
        }
        let tile = brought(tile).await;
        let tile = tile.map_err(|error| error.with_position(&position))?;
        builder.set(&position, tile)?;
    }
    builder.build()
}

/// A tile with the same values and statistics in the memory of this process.
///
/// # Errors
/// Whatever stands in the way of reading it; `PartitionLost` when it does not come in time.
pub(in crate::cluster) async fn brought(tile: &Tile) -> Result<Tile> {
    let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
    let bringing = async {
        match member_tile(tile) {
            Some(there) => there.fetch_to_stay(&columns).await,
            None => tile.data().fetch(&columns).await,
        }
    };
    let bringing = tokio::time::timeout(TILE, bringing).await;
    let batch = bringing.map_err(|_| {
        let text = format!("the tile did not come within {} seconds", TILE.as_secs());
        Error::new(ErrorKind::PartitionLost, text).with_hint(
            "the member that has it may hang, or the network be slow: look whether it answers (`/readyz`, its log), and do it again",
        )
    })??;
    let data = MemoryTile::try_new(&batch)?;
    let known = columns.iter();
    let known = known.map(|column| tile.known_statistics(*column).cloned());
    Ok(Tile::with_statistics(Arc::new(data), known))
}

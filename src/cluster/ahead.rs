//! Tiles of the catalog that are read before anybody asks for them.
//!
//! Comes in: the members of a moment, the grids of the session. Goes out: the tiles of the shared catalog that placement gives this member, or of which it is to have a copy, in its memory, as far as there is room:
//! when a member is lost, those who are next have them already, or read them at once. Never here: tiles that members contribute (`copies.rs`), files outside of the catalog.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use super::Cluster;
use super::leaf::seats;
use super::members::Members;
use super::placement::owners;
use crate::catalog::Catalog;
use crate::grid::{GridId, PartitionGrid};

/// What is read ahead, and what was looked at last.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// How many members are to have each tile; none are read ahead with 0.
    replicas: usize,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    members: Option<Arc<Members>>,
    grids: Vec<GridId>,
    reading: Option<AbortHandle>,
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl Ahead {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            replicas,
            last: Mutex::default(),
        }
    }
}

/// What one member reads ahead.
struct Reading {
    catalog: Catalog,
    members: Arc<Members>,
    grids: Vec<Arc<PartitionGrid>>,
    replicas: usize,
}

impl Cluster {
    /// Begins to read what this member is to have, if the members or the grids are others than before.
    pub(super) fn read_ahead(&self) {
        let replicas = self.ahead.replicas;
        let Some(catalog) = self.anywhere.catalog.as_ref().filter(|_| replicas > 0) else {
            return;
        };
        let tables = self.session.tables().into_iter();
        let grids = tables.filter_map(|name| self.session.grid(&name).ok());
        let grids: Vec<Arc<PartitionGrid>> = grids.collect();
        let ids: Vec<GridId> = grids.iter().map(|grid| grid.id()).collect();
        let members = self.members();
        let last = self.ahead.last.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        if last.grids == ids && last.members.as_ref() == Some(&members) {
            return;
        }
        let reading = Reading {
            catalog: catalog.clone(),
            members: Arc::clone(&members),
            grids,
            replicas,
        };
        let reading = self.runtime.spawn(reading.read()).abort_handle();
        // The one before goes by what is no more.
        *last = Last {
            members: Some(members),
            grids: ids,
            reading: Some(reading),
        };
    }
}

impl Reading {
    async fn read(self) {
        let seats = seats(&self.members, self.members.len());
        let mut room = self.catalog.kept_bytes();
        let grids = self.grids.iter();
        for grid in grids.filter(|grid| self.catalog.holds(grid)) {
            for row_band in 0..grid.rows().num_intervals() {
                let owners = owners(grid.id().bits(), row_band as u64, &seats, self.replicas);
                // This process is the first of its members.
                if !owners.contains(&0) {
                    continue;
                }
                for tile in grid.row_band(row_band) {
                    let bytes = tile.data().memory_bytes();
                    let Some(left) = room.checked_sub(bytes) else {
                        tracing::info!(grid = %grid.id(), row_band, "there is no room to read more of the catalog ahead");
                        return;
                    };
                    room = left;
                    let columns: Vec<usize> = (0..tile.data().schema().fields().len()).collect();
                    if tile.data().is_lazy()
                        && let Err(error) = tile.data().fetch(&columns).await
                    {
                        // Whoever asks for it is told.
                        tracing::debug!(grid = %grid.id(), row_band, %error, "a tile could not be read ahead");
                    }
                }
            }
        }
    }
}

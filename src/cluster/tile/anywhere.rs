//! Tiles that every member can read.
//!
//! Comes in: the catalog that the members share, the places that all of them reach, tiles. Goes out: whether it matters who reads a tile. What anybody can read is dealt out by a function of the members
//! (`placement/mod.rs`), so that the same member reads it again and has it in memory by then, and another one where that member is gone. Never here: reading.

use std::collections::HashMap;

use crate::catalog::Catalog;
use crate::cluster::placement::placed::Placed;
use crate::grid::{PartitionGrid, Tile};
use crate::load::{is_below, source_place, task_place};

/// What all members reach.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Anywhere {
    /// Of which each member says that it has the same one.
    pub(in crate::cluster) catalog: Option<Catalog>,
    /// Folders and URLs.
    pub(in crate::cluster) places: Vec<String>,
    /// Who reads what of it.
    pub(in crate::cluster) placed: Placed,
}

impl Anywhere {
    pub(in crate::cluster) fn new(catalog: Option<Catalog>, places: Vec<String>) -> Self {
        Self {
            catalog: catalog.filter(Catalog::is_shared),
            places,
            placed: Placed::default(),
        }
    }

    pub(in crate::cluster) fn looker(&self) -> Looker<'_> {
        Looker {
            anywhere: self,
            files: HashMap::new(),
            place: task_place,
        }
    }

    /// One that looks from where tiles came that this process has in memory, too.
    pub(in crate::cluster) fn looker_at_sources(&self) -> Looker<'_> {
        Looker {
            place: source_place,
            ..self.looker()
        }
    }

    /// Whether there is anything that all members reach.
    pub(in crate::cluster) fn is_any(&self) -> bool {
        self.catalog.is_some() || !self.places.is_empty()
    }

    /// Whether a grid has a tile that every member can read.
    pub(in crate::cluster) fn has_any(&self, grid: &PartitionGrid) -> bool {
        let mut looker = self.looker();
        self.is_any() && grid.tiles().iter().any(|tile| looker.has(tile))
    }

    /// Whether all tiles of a grid are such.
    pub(in crate::cluster) fn has_all(&self, grid: &PartitionGrid) -> bool {
        let mut looker = self.looker();
        grid.tiles().iter().all(|tile| looker.has(tile))
    }
}

/// Looks at many tiles, at each file once.
pub(in crate::cluster) struct Looker<'a> {
    anywhere: &'a Anywhere,
    files: HashMap<(u128, usize), bool>,
    /// The file of a tile.
    place: fn(&Tile) -> Option<(u128, usize)>,
}

impl Looker<'_> {
    /// Whether every member can read it.
    pub(in crate::cluster) fn has(&mut self, tile: &Tile) -> bool {
        let catalog = self.anywhere.catalog.as_ref();
        let is_kept = catalog.is_some_and(|catalog| catalog.kept_file(tile).is_some());
        is_kept || self.has_file(tile)
    }

    /// Whether it is of a file that every member reaches.
    pub(in crate::cluster) fn has_file(&mut self, tile: &Tile) -> bool {
        let places = &self.anywhere.places;
        match (self.place)(tile).filter(|_| !places.is_empty()) {
            None => false,
            Some(file) => *self
                .files
                .entry(file)
                .or_insert_with(|| is_below(tile, places)),
        }
    }
}

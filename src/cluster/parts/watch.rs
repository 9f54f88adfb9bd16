//! Seeing that parts of a grid change.
//!
//! Comes in: the name of a grid, by whoever does something with its parts that takes a while. Goes out: whether parts of it were contributed or withdrawn here meanwhile. Nothing is kept of names that nobody looks at. Never here:
//! the parts (`parts/mod.rs`).

use super::Parts;
use crate::cluster::Cluster;

/// How often parts of a grid were contributed and withdrawn here since somebody looks, and how many look.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Watched {
    num_changes: u64,
    num_watches: usize,
}

/// Sees, as long as it is there, whether parts of a grid are contributed or withdrawn here.
pub(in crate::cluster) struct Watch<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    num_changes: u64,
}

impl Watched {
    pub(in crate::cluster) fn add(&mut self) {
        self.num_changes += 1;
    }
}

impl Watch<'_> {
    /// The name of the grid.
    pub(in crate::cluster) fn name(&self) -> &str {
        self.name
    }

    /// Whether any was since it began.
    pub(in crate::cluster) fn has_seen_any(&self, parts: &Parts) -> bool {
        let watched = parts.watched.get(self.name);
        watched.is_none_or(|watched| watched.num_changes != self.num_changes)
    }

    /// The same, for those who have no parts in hand.
    pub(in crate::cluster) fn has_seen(&self) -> bool {
        self.has_seen_any(&self.cluster.parts())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut parts = self.cluster.parts();
        if let Some(watched) = parts.watched.get_mut(self.name) {
            watched.num_watches -= 1;
            if watched.num_watches == 0 {
                parts.watched.remove(self.name);
            }
        }
    }
}

impl Cluster {
    /// Begins to see whether parts of a grid are contributed or withdrawn here.
    pub(in crate::cluster) fn watch<'a>(&'a self, name: &'a str) -> Watch<'a> {
        let mut parts = self.parts();
        let watched = parts.watched.entry(name.to_owned()).or_default();
        watched.num_watches += 1;
        Watch {
            cluster: self,
            name,
            num_changes: watched.num_changes,
        }
    }
}

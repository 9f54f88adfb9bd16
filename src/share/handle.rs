//! What crosses process borders instead of data: the name of a tile.
//!
//! Comes in: grid, position, owner. Goes out: a [`Handle`], plain data that any binding can write and read; the [`Incarnation`] that tells one life of a
//! process from another. Never here: references to data.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::error::{Error, Result};
use crate::grid::GridId;
use crate::location::Location;

/// The name of one tile: good in every process, opened where the tile is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The grid.
    pub grid: GridId,
    /// The position in the grid.
    pub position: Vec<usize>,
    /// The life of the process that made the handle.
    pub incarnation: Incarnation,
    /// Where that process is.
    pub owner: Location,
}

/// With what the names of sockets begin.
pub(super) const SOCKET_PREFIX: &str = "partgrid-";

/// The random name of one life of a process. Process ids come again, these do not; a forked child has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation(u128);

/// The incarnation of this process with the process id for which it was drawn. After a fork the id differs, and the next caller draws anew.
static CURRENT: ArcSwapOption<(u32, Incarnation)> = ArcSwapOption::const_empty();

impl Incarnation {
    /// That of this process.
    ///
    /// # Errors
    /// `Internal` when the operating system gives no random bytes.
    pub fn current() -> Result<Self> {
        let process = std::process::id();
        let known = CURRENT.load();
        if let Some((_, incarnation)) = known.as_deref().filter(|(owner, _)| *owner == process) {
            return Ok(*incarnation);
        }
        let drawn = Arc::new((process, Self::try_random()?));
        // Two threads may draw at once: the first to store wins, the other takes what it finds.
        let before = CURRENT.compare_and_swap(&known, Some(Arc::clone(&drawn)));
        match before.as_deref() {
            Some((owner, incarnation)) if *owner == process => Ok(*incarnation),
            _ => Ok(drawn.1),
        }
    }

    /// The incarnation with the given 128 bits, as read from a handle.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0
    }

    /// The name under which the process can be reached on its host; everybody can see it.
    pub(super) fn socket_name(self) -> String {
        format!("{SOCKET_PREFIX}{:016x}", self.0 >> 64)
    }

    /// The half that is not in the name: whoever knows it is the process, or was given a handle.
    pub(super) fn proof(self) -> u64 {
        let [half @ .., _, _, _, _, _, _, _, _] = self.0.to_le_bytes();
        u64::from_le_bytes(half)
    }

    fn try_random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::internal("the operating system gave no random bytes").with_source(error)
        })?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

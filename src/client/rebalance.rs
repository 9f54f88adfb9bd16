//! Rows of a grid of all members, dealt out anew.
//!
//! Comes in: the name of a grid of a cluster. Goes out: what a member says that it moved. Never here: who gets what (`cluster`).

use prost::Message;

use super::connection::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{Named, RebalanceRequest, RebalanceResult};

/// What became of the tiles of a grid whose rows were dealt out anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rebalanced {
    /// Bytes of the tiles that other members have now.
    pub moved_bytes: u64,
    /// How many these are; 0 when nothing had to move.
    pub moved_tiles: u64,
    /// How many stayed where they were.
    pub kept_tiles: u64,
}

impl From<RebalanceResult> for Rebalanced {
    fn from(told: RebalanceResult) -> Self {
        Self {
            moved_bytes: told.moved_bytes,
            moved_tiles: told.moved_tiles,
            kept_tiles: told.kept_tiles,
        }
    }
}

impl Client {
    /// Has the server, a member of a cluster, spread the row bands of a grid of all over the members that are there now, but those `without` which the grid is to be, by their URIs, and waits. Rows keep their order; statements go on meanwhile.
    ///
    /// # Errors
    /// `PermissionDenied` for a token that may not do all with all grids, `InvalidArgument` when it is to be without who is no member or without all of them, `NotFound` when the server is no member or has no such grid of all; whatever stands in the way of moving tiles, and then the grid is as
    /// it was.
    pub async fn rebalance(&self, name: &str, without: &[String]) -> Result<Rebalanced> {
        let (name, without) = (name.to_owned(), without.to_vec());
        let wanted = RebalanceRequest { name, without };
        let told = self.act("Rebalance", wanted.to_bytes()).await?;
        let told = told
            .first()
            .map(|told| RebalanceResult::decode(told.as_ref()));
        match told {
            Some(Ok(told)) => Ok(told.into()),
            _ => {
                let text = "the server says what it moved in words that are not ours";
                Err(Error::new(ErrorKind::Protocol, text))
            }
        }
    }
}

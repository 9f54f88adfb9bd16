//! What is known of a tile of another member before it is read.
//!
//! Comes in: a handle, columns, number of rows, where the owner answers, how the tile may be had. Goes out: that, and the errors that say that it is not to be had, which name the grid of all and the member. Never here: having it (`tile/mod.rs`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::error::{Error, ErrorKind};
use crate::share::Handle;

/// What can be done once nobody has a tile.
pub(in crate::cluster) const BACK: &str = "the statement can be asked again once the member is back, or its part was contributed again; with replicas others have copies";

/// What can be done once a grid has gone.
pub(in crate::cluster) const AGAIN: &str = "the grid was withdrawn, replaced or rebalanced meanwhile: ask the statement again, which then reads what has its name";

/// What is known of a tile of another member.
pub(in crate::cluster) struct Outline {
    pub(in crate::cluster) handle: Handle,
    /// Where its owner answers; empty if nobody knows.
    pub(in crate::cluster) uri: Arc<str>,
    /// Where its owner answered as long as it was a member, for errors; empty where `uri` says it, or nobody knows.
    pub(in crate::cluster) was: Arc<str>,
    /// The name of the grid of all, for errors; empty if nobody knows.
    pub(in crate::cluster) table: Arc<str>,
    pub(in crate::cluster) schema: SchemaRef,
    pub(in crate::cluster) num_rows: u64,
    pub(in crate::cluster) memory_bytes: u64,
    pub(in crate::cluster) access: Access,
}

/// How this process may have tiles of another member.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cluster) struct Access {
    /// Whether they are never fetched.
    pub(in crate::cluster) forbids_fetching: bool,
    /// Whether they are on this host, and their memory is mapped for statements over little data.
    pub(in crate::cluster) is_near: bool,
}

/// Whose a part is.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster) struct There<'a> {
    /// Where its member answers.
    pub(in crate::cluster) uri: &'a str,
    /// The grid of all that it is a part of.
    pub(in crate::cluster) table: &'a str,
    pub(in crate::cluster) access: Access,
}

impl Outline {
    /// Where its owner answers, or did as long as it was a member; empty if nobody knows.
    pub(in crate::cluster) fn member(&self) -> &str {
        match self.uri.is_empty() {
            true => &self.was,
            false => &self.uri,
        }
    }

    /// The tile is not to be had. Its position is that in the part of its owner, unless whoever reads a grid of all names it by that one.
    pub(in crate::cluster) fn lost(&self, what: &str, remedy: &str) -> Error {
        let handle = &self.handle;
        let text = format!("{what}: {}, grid {}", handle.owner, handle.grid);
        let lost = Error::new(ErrorKind::PartitionLost, text).with_hint(remedy);
        self.named(lost).with_position(&handle.position)
    }

    /// An error about it, with the grid of all and the member, where these are known.
    pub(in crate::cluster) fn named(&self, mut error: Error) -> Error {
        for (name, known) in [("table", &*self.table), ("member", self.member())] {
            if !known.is_empty() {
                error = error.with_context(name, known);
            }
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;
    use crate::grid::GridId;
    use crate::location::Location;
    use crate::share::Incarnation;

    fn outline(uri: &str, was: &str) -> Outline {
        Outline {
            handle: Handle {
                grid: GridId::from_bits(1),
                position: vec![0, 0],
                incarnation: Incarnation::from_bits(2),
                owner: Location::here(),
            },
            uri: Arc::from(uri),
            was: Arc::from(was),
            table: Arc::from("sales"),
            schema: Arc::new(Schema::empty()),
            num_rows: 1,
            memory_bytes: 1,
            access: Access::default(),
        }
    }

    #[test]
    fn a_tile_that_is_lost_is_named_by_table_member_and_one_position() {
        for (uri, was) in [("grpc://db1:8815", ""), ("", "grpc://db1:8815")] {
            let lost = outline(uri, was).lost("it is gone", BACK);
            assert_eq!(lost.kind(), ErrorKind::PartitionLost);
            let text = lost.with_position(&[7, 0]).to_string();
            assert!(
                text.contains("(table: sales, member: grpc://db1:8815, position: (7, 0))\nhint: "),
                "{text}"
            );
        }
    }

    #[test]
    fn a_member_that_nobody_knows_is_not_named() {
        let text = outline("", "").lost("it is gone", BACK).to_string();
        assert!(text.contains("(table: sales, position: (0, 0))"), "{text}");
    }
}

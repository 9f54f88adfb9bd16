//! Whose tiles are lost.
//!
//! Comes in: the members of each moment, and those with which a look was done. Goes out: whether the tiles of a life are to be had no more, for those who watch: its process is no member any more, and a look since then has put nothing in
//! the place of its tiles (`gather.rs`). Never here: asking anybody, refusing to read a tile (`tile/mod.rs`).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::Members;
use crate::share::Incarnation;

/// The members as the tiles of others know them.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Lives {
    /// Those of this moment.
    now: ArcSwapOption<Members>,
    /// Those with which the last look was done: until the next one nobody knows what takes the place of one that went.
    looked_at: ArcSwapOption<Members>,
}

impl Lives {
    /// These are the members from now on.
    pub(in crate::cluster) fn are(&self, members: &Arc<Members>) {
        self.now.store(Some(Arc::clone(members)));
    }

    /// Grids are made of what these have.
    pub(in crate::cluster) fn were_looked_at(&self, members: Arc<Members>) {
        self.looked_at.store(Some(members));
    }

    /// Whether a life is that of no member at this moment.
    pub(in crate::cluster) fn is_nobody(&self, life: Incarnation) -> bool {
        is_none_of(&self.now, life)
    }

    /// Whether the tiles that this life had are lost, if a grid is still made of them.
    pub(in crate::cluster) fn is_lost(&self, life: Incarnation) -> bool {
        self.is_nobody(life) && is_none_of(&self.looked_at, life)
    }
}

fn is_none_of(members: &ArcSwapOption<Members>, life: Incarnation) -> bool {
    let members = members.load();
    let known = members.as_ref();
    known.is_some_and(|members| members.number_of(life).is_none())
}

#[cfg(test)]
mod tests {
    use super::super::Member;
    use super::*;
    use crate::cluster::scale;
    use crate::cluster::{Cluster, ClusterOptions};
    use crate::query::{Session, SessionOptions};

    #[test]
    fn tiles_are_lost_once_a_look_was_done_without_their_member() {
        let lives = Lives::default();
        let own = Member::here("grpc://127.0.0.1:1").unwrap();
        let both = Arc::new(scale::members(&own, 2));
        let alone = Arc::new(Members::alone(own));
        let [mine, other] = [0, 1].map(|number| both.iter().nth(number).unwrap().incarnation());
        let lost = || [mine, other].map(|life| lives.is_lost(life));
        // Nobody knows of any members.
        assert_eq!(lost(), [false, false]);
        lives.are(&both);
        lives.were_looked_at(Arc::clone(&both));
        assert_eq!(lost(), [false, false]);
        // It went; a copy of what it had may be found.
        lives.are(&alone);
        assert_eq!(lost(), [false, false]);
        lives.were_looked_at(Arc::clone(&alone));
        assert_eq!(lost(), [false, true]);
        // Who comes is there at once.
        lives.are(&both);
        assert_eq!(lost(), [false, false]);
    }

    #[tokio::test]
    async fn tiles_of_a_member_that_went_say_that_they_are_lost() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let options = ClusterOptions::default();
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let members = scale::members(cluster.members().own(), 3);
        let grid = scale::grid_at(&cluster.reach, &members, &[1, 2, 2]);
        let lost = || -> Vec<bool> {
            let tiles = grid.tiles().iter();
            tiles.map(|tile| tile.data().is_lost()).collect()
        };
        cluster.set_members(members.iter().cloned());
        cluster.reach.lives.were_looked_at(cluster.members());
        assert_eq!(lost(), [false, false, false]);
        cluster.set_members(members.iter().take(2).cloned());
        assert_eq!(lost(), [false, false, false]);
        cluster.reach.lives.were_looked_at(cluster.members());
        assert_eq!(lost(), [false, true, true]);
    }
}

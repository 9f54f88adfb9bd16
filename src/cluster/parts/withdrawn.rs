//! What is to be had here no more.
//!
//! Comes in: names of grids that are withdrawn or dropped at this member, what members say of their parts. Goes out: which copies are not to be made here, and which grids of others are not to come up here, until
//! something of them is contributed anew; what whoever asks for such a grid is told. Never here: what others have, parts of names that nobody withdrew.

use std::collections::{BTreeMap, HashSet};

use super::copies::{Choice, Deal, Told};
use super::{Made, Parts};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::flight::messages::GridPart;
use crate::share::Incarnation;

/// What was withdrawn here, as long as others have it.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Withdrawn {
    /// The parts of which there may be copies, as members said, by their grids and the ids of their originals.
    heard: HashSet<(String, Vec<u8>)>,
    /// Those of grids that were withdrawn: they are not fetched again, and not kept where that was under way.
    refused: HashSet<(String, Vec<u8>)>,
    /// The ids of the originals of all parts of grids that were withdrawn or dropped, as they were known here.
    gone: BTreeMap<String, HashSet<Vec<u8>>>,
}

impl Withdrawn {
    /// Whether a part was there when its grid was withdrawn.
    fn refuses(&self, part: &GridPart) -> bool {
        self.refused.contains(&(part.name.clone(), part.id.clone()))
    }

    /// Whether a grid of parts with these ids is one that was withdrawn: it has none that was contributed since.
    pub(in crate::cluster) fn is_all<'a>(
        &self,
        name: &str,
        mut ids: impl Iterator<Item = &'a Vec<u8>>,
    ) -> bool {
        let gone = self.gone.get(name);
        gone.is_some_and(|gone| ids.all(|id| gone.contains(id)))
    }

    /// Remembers of which parts there may be copies. Where these are all (`are_all`), those of before are nowhere any more.
    pub(in crate::cluster) fn hear(&mut self, there: HashSet<(String, Vec<u8>)>, are_all: bool) {
        match are_all {
            true => {
                self.refused.retain(|part| there.contains(part));
                self.heard = there;
            }
            false => self.heard.extend(there),
        }
    }

    /// Forgets the grids of which nobody has any part that was withdrawn; `there` are the ids of all parts that members have.
    pub(in crate::cluster) fn remember_only(&mut self, there: &HashSet<&[u8]>) {
        let is_there = |id: &Vec<u8>| there.contains(id.as_slice());
        self.gone.retain(|_, ids| ids.iter().any(is_there));
    }

    /// What whoever asks for a grid is told of which these parts count, if it was dropped or withdrawn here and they are there; `None` for any other.
    pub(in crate::cluster) fn dropped(&self, name: &str, choice: &Choice) -> Option<Error> {
        let parts = choice.deals.values();
        let ids = parts.flat_map(|dealt| dealt.parts.values().map(|told| &told.part.id));
        let mut ids = ids.peekable();
        ids.peek()?;
        self.is_all(name, ids).then(|| dropped_here(name))
    }

    /// Something was contributed here to a grid: it may come up, and copies of it may.
    pub(in crate::cluster) fn take_part_again(&mut self, name: &str) {
        self.refused.retain(|(known, _)| known != name);
        self.gone.remove(name);
    }
}

impl Parts {
    /// Whether a part was there when its grid was withdrawn here.
    pub(in crate::cluster) fn refuses(&self, part: &GridPart) -> bool {
        self.withdrawn.refuses(part)
    }

    /// Takes the parts of a grid away, refuses copies of those that others have, and remembers of which parts the grid was; says whether there were any here.
    pub(in crate::cluster) fn withdraw(&mut self, name: &str) -> bool {
        self.has_changed(name);
        let Withdrawn {
            heard,
            refused,
            gone,
        } = &mut self.withdrawn;
        let others = heard.iter().filter(|(known, _)| known == name);
        refused.extend(others.cloned());
        let made = self.made.get(name).into_iter();
        let mut ids: HashSet<Vec<u8>> = made
            .flat_map(|made| made.of.iter().map(|(id, _)| id.clone()))
            .collect();
        let before = self.own.len() + self.copies.len();
        self.own.retain(|place, (part, _)| {
            let is_other = place.name != name;
            if !is_other {
                ids.insert(part.id.clone());
            }
            is_other
        });
        self.copies.retain(|place, (part, _)| {
            let is_other = place.name != name;
            if !is_other {
                ids.insert(part.id.clone());
                refused.insert((part.name.clone(), part.id.clone()));
            }
            is_other
        });
        if !ids.is_empty() {
            gone.entry(name.to_owned()).or_default().extend(ids);
        }
        before != self.own.len() + self.copies.len()
    }
}

impl Cluster {
    /// Takes the parts of a grid away that this process has, copies among them, and the grid of all from this member: also where others have all its parts it does not come up here again, until one of its parts is
    /// contributed anew, here or elsewhere, or the grid is rebalanced. Says whether there was anything.
    #[must_use]
    pub fn withdraw(&self, name: &str) -> bool {
        let members = self.members();
        let own = members.own().incarnation();
        let is_other = |life: Incarnation| life != own && members.number_of(life).is_some();
        let mut parts = self.parts();
        let made = parts.made.get(name);
        let are_elsewhere =
            made.is_some_and(|made| made.of.iter().any(|(_, life)| is_other(*life)));
        let told = are_elsewhere.then(|| dropped_here(name));
        let had_parts = parts.withdraw(name);
        self.unmake(&mut parts, name, told.as_ref()) || had_parts
    }

    /// Takes note of the grids of all that a statement here has dropped, or put something else in the place of: they do not come up here again either until something of them is contributed anew, or they are
    /// rebalanced. So do what members told of the deals whose place they took, which are there for a while. What this member has of them it goes on to have, for the others.
    pub(in crate::cluster) fn heed_drops(
        &self,
        parts: &mut Parts,
        told: &BTreeMap<String, Vec<Told>>,
    ) {
        let Parts {
            made, withdrawn, ..
        } = parts;
        made.retain(|name, made| {
            let is_ours = !self.was_dropped(name, Some(&*made));
            if !is_ours {
                let before = told.get(name).into_iter().flatten();
                let before = before.filter(|told| Deal::of(&told.part) < made.deal);
                let before = before.map(|told| told.part.id.clone());
                let ids = made.of.iter().map(|(id, _)| id.clone()).chain(before);
                withdrawn.gone.entry(name.clone()).or_default().extend(ids);
            }
            is_ours
        });
    }

    /// Takes note that the name of a grid is about to be taken away here, which only the next look sees ([`Cluster::heed_drops`]). Gives what whoever asks for it is told from then on, if it is one of all: its parts stay
    /// where they are. Nobody else may give names meanwhile.
    pub(in crate::cluster) fn heed_drop(&self, name: &str) -> Option<Error> {
        let mut parts = self.parts();
        parts.made.get_mut(name)?.is_dropped = true;
        Some(dropped_here(name))
    }

    /// Whether a grid that was put under its name is no more there.
    pub(in crate::cluster) fn was_dropped(&self, name: &str, made: Option<&Made>) -> bool {
        made.is_some_and(|made| {
            let grid = self.session.grid(name);
            made.is_dropped || !grid.is_ok_and(|grid| grid.id() == made.id)
        })
    }

    /// Takes the grid of all from this member, if it is there and ours, and has whoever asks for it from then on told this, if anything.
    pub(in crate::cluster) fn unmake(
        &self,
        parts: &mut Parts,
        name: &str,
        told: Option<&Error>,
    ) -> bool {
        let Some(made) = parts.made.remove(name) else {
            return false;
        };
        let grid = self.session.grid(name);
        let is_ours = grid.is_ok_and(|grid| grid.id() == made.id);
        is_ours && self.session.deregister_telling(name, told)
    }
}

/// What whoever asks for a grid is told that was dropped or withdrawn here.
fn dropped_here(name: &str) -> Error {
    let text = format!(
        "no table `{name}`: it was dropped or withdrawn at this member, and members have parts of it"
    );
    Error::not_found(text).with_hint(
        "ask another member, or contribute one of its parts anew, which brings it back here",
    )
}

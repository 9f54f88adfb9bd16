//! Which parts serve a grid, and who is to have copies of them.
//!
//! Comes in: what the members of one moment said of their parts. Goes out: the parts that together are the grid, the original of each where it is there; those of which this member is to have a copy and has none,
//! and those of its copies that nobody needs. A function of just these, and of members by their lives: whoever heard the same gets the same answer, so that nobody has to be told. Never here: asking, fetching, dropping.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use twox_hash::XxHash64;

use crate::cluster::members::{Member, Members};
use crate::cluster::placement::leaf::seats_of_lives;
use crate::cluster::placement::owners;
use crate::error::{Error, Result};
use crate::flight::messages::GridPart;
use crate::share::Incarnation;

/// How the rows of a grid are dealt out to parts: as they were contributed (the least), or as somebody dealt them out anew later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::cluster) struct Deal {
    pub(in crate::cluster) generation: u64,
    pub(in crate::cluster) id: u128,
}

impl Deal {
    pub(in crate::cluster) fn of(part: &GridPart) -> Self {
        Self {
            generation: part.generation,
            id: bits(&part.deal),
        }
    }
}

fn bits(bytes: &[u8]) -> u128 {
    bytes.try_into().map_or(0, u128::from_le_bytes)
}

/// What says that two grids have the same rows in the same order, however they are dealt out.
pub(in crate::cluster) fn data_of<'a>(parts: impl IntoIterator<Item = &'a GridPart>) -> u128 {
    let mut ids = Vec::new();
    for part in parts {
        if part.generation > 0 {
            return bits(&part.data);
        }
        ids.extend_from_slice(&part.id);
    }
    let half = |seed| u128::from(XxHash64::oneshot(seed, &ids));
    (half(0) << 64) | half(1)
}

/// A part, and the number of the member that has it.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Told {
    pub(in crate::cluster) part: GridPart,
    pub(in crate::cluster) at: usize,
}

/// What the members said that they have of one grid.
pub(in crate::cluster) struct Survey<'a> {
    pub(in crate::cluster) members: &'a Members,
    /// Those that did not answer.
    pub(in crate::cluster) silent: &'a HashSet<Incarnation>,
    pub(in crate::cluster) name: &'a str,
    pub(in crate::cluster) told: &'a [Told],
}

/// The parts of one deal, each once: its original, or the copy that stands for it.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Dealt {
    /// How many parts there are.
    pub(in crate::cluster) of: u64,
    pub(in crate::cluster) parts: BTreeMap<u64, Told>,
}

impl Dealt {
    fn is_complete(&self) -> bool {
        self.of > 0 && self.parts.len() as u64 == self.of
    }
}

/// The parts of a grid that count.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Choice {
    pub(in crate::cluster) deals: BTreeMap<Deal, Dealt>,
    /// Why the parts of a deal do not count, of which nobody knows whom to believe; of several the first.
    conflict: Option<Error>,
}

impl Choice {
    /// The newest deal that has all its parts; a conflict in another deal is none of it.
    ///
    /// # Errors
    /// `InvalidArgument` when none has, and two members have the original of one part of a deal, or do not agree on how many there are.
    pub(in crate::cluster) fn serving(&self) -> Result<Option<(Deal, &Dealt)>> {
        let mut deals = self.deals.iter().rev();
        match deals.find(|(_, dealt)| dealt.is_complete()) {
            Some((deal, dealt)) => Ok(Some((*deal, dealt))),
            None => self.conflict.clone().map_or(Ok(None), Err),
        }
    }

    /// The deal that serves, if there is one.
    pub(in crate::cluster) fn serving_deal(&self) -> Option<Deal> {
        self.serving().ok().flatten().map(|(deal, _)| deal)
    }

    /// Whether nobody has any part.
    pub(in crate::cluster) fn is_empty(&self) -> bool {
        let mut deals = self.deals.values();
        self.conflict.is_none() && deals.all(|dealt| dealt.parts.is_empty())
    }

    fn part(&self, part: &GridPart) -> Option<&Told> {
        self.deals.get(&Deal::of(part))?.parts.get(&part.number)
    }
}

impl Survey<'_> {
    /// The parts that count.
    pub(in crate::cluster) fn choice(&self) -> Choice {
        let originals = self.originals();
        let mut deals: BTreeMap<Deal, (Vec<&Told>, Vec<&Told>)> = BTreeMap::new();
        for told in self.told {
            let (of_deal, copies) = deals.entry(Deal::of(&told.part)).or_default();
            match told.part.is_copy {
                false => of_deal.push(told),
                true if !self.is_void(&told.part, &originals) => copies.push(told),
                true => {}
            }
        }
        let mut choice = Choice::default();
        for (deal, (mut originals, copies)) in deals {
            originals.sort_by_key(|told| told.part.number);
            if let Err(error) = check_numbers(&originals, self) {
                choice.conflict.get_or_insert(error);
                continue;
            }
            let dealt = self.dealt(&originals, &copies);
            choice.deals.insert(deal, dealt);
        }
        choice
    }

    fn dealt(&self, originals: &[&Told], copies: &[&Told]) -> Dealt {
        let youngest = copies.iter().max_by_key(|told| told.part.since);
        let of = originals.first().or(youngest);
        let of = of.map_or(0, |told| told.part.of);
        let parts = originals.iter().map(|told| (told.part.number, *told));
        let mut parts: BTreeMap<u64, &Told> = parts.collect();
        for copy in copies.iter().filter(|told| told.part.of == of) {
            let known = parts.get(&copy.part.number);
            if known.is_none_or(|known| known.part.is_copy && self.is_before(copy, known)) {
                parts.insert(copy.part.number, copy);
            }
        }
        let parts = parts.into_iter().filter(|(number, _)| *number < of);
        let parts = parts.map(|(number, told)| (number, told.clone()));
        Dealt {
            of,
            parts: parts.collect(),
        }
    }

    /// Whether one copy counts before another one of the same part: that of the younger original; of two of one original that which placement names first.
    fn is_before(&self, one: &Told, other: &Told) -> bool {
        let key = |told: &Told| (Reverse(told.part.since), told.part.id.clone());
        let order = key(one).cmp(&key(other));
        order.then_with(|| {
            let order = self.order(one.part.number);
            let rank = |told: &Told| order.iter().position(|at| *at == told.at);
            rank(one).cmp(&rank(other))
        }) == std::cmp::Ordering::Less
    }

    /// The members in the order in which they get copies of a part.
    fn order(&self, number: u64) -> Vec<usize> {
        let most = self.members.len();
        let seed = |seed| u128::from(XxHash64::oneshot(seed, self.name.as_bytes()));
        let grid = (seed(0) << 64) | seed(1);
        owners(grid, number, &seats_of_lives(self.members), most)
    }

    /// The members that are to have a part: that of the original, if it is there, then others.
    fn holders(&self, told: &Told) -> Vec<usize> {
        let origin = match told.part.is_copy {
            false => Some(told.at),
            true => self.origin(&told.part),
        };
        let others = self.order(told.part.number).into_iter();
        let others = others.filter(|at| Some(*at) != origin);
        let all = origin.into_iter().chain(others);
        all.take(told.part.num_holders() as usize).collect()
    }

    /// The member of the original, if it is one at this moment.
    fn origin(&self, part: &GridPart) -> Option<usize> {
        let origin = Incarnation::from_bits(bits(&part.origin));
        self.members.number_of(origin)
    }

    fn originals(&self) -> HashSet<(usize, Key<'_>)> {
        let originals = self.told.iter().filter(|told| !told.part.is_copy);
        originals.map(|told| (told.at, key(&told.part))).collect()
    }

    /// Whether the member of the original of a copy is there and has it no more: it was withdrawn, or another one took its place.
    fn is_void(&self, copy: &GridPart, originals: &HashSet<(usize, Key<'_>)>) -> bool {
        self.origin(copy).is_some_and(|at| {
            let life = self.members.iter().nth(at).map(Member::incarnation);
            let has_answered = life.is_some_and(|life| !self.silent.contains(&life));
            has_answered && !originals.contains(&(at, key(copy)))
        })
    }

    /// The parts of which this member is to have a copy, and has none. Parts that were dealt out anew are copied once all of them are there: it may never be so.
    pub(in crate::cluster) fn wishes(&self, choice: &Choice) -> Vec<Told> {
        let from = choice.serving_deal().unwrap_or_default();
        let own: HashSet<Key<'_>> = self.own().map(|told| key(&told.part)).collect();
        let deals = choice.deals.range(from..);
        let deals = deals.filter(|(deal, dealt)| deal.generation == 0 || dealt.is_complete());
        let parts = deals.flat_map(|(_, dealt)| dealt.parts.values());
        let wanted = parts.filter(|told| {
            let is_copied = told.part.num_holders() > 1 && !own.contains(&key(&told.part));
            is_copied && self.holders(told).contains(&0)
        });
        wanted.cloned().collect()
    }

    /// What this member said; it is always the first.
    fn own(&self) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(|told| told.at == 0)
    }

    /// The copies of this member that nobody needs: those whose originals were withdrawn or replaced, and those that enough others have.
    pub(in crate::cluster) fn surplus(&self, choice: &Choice) -> Vec<GridPart> {
        let copies = self.own().filter(|told| told.part.is_copy);
        let copies: Vec<&Told> = copies.collect();
        if copies.is_empty() {
            return Vec::new();
        }
        let originals = self.originals();
        let mut youngest: BTreeMap<Deal, &Told> = BTreeMap::new();
        for told in self.told.iter().filter(|told| !told.part.is_copy) {
            let known = youngest.entry(Deal::of(&told.part)).or_insert(told);
            if known.part.since < told.part.since {
                *known = told;
            }
        }
        let all = self.told.iter().map(|told| (told.at, key(&told.part)));
        let all: HashSet<_> = all.collect();
        let surplus = copies.into_iter().filter(|copy| {
            let is_replaced = youngest.get(&Deal::of(&copy.part)).is_some_and(|told| {
                // It was contributed anew since in another number of parts.
                told.part.of != copy.part.of && told.part.since > copy.part.since
            });
            if is_replaced || self.is_void(&copy.part, &originals) {
                return true;
            }
            let Some(chosen) = choice.part(&copy.part) else {
                return false;
            };
            let holders = self.holders(chosen);
            let has = |at: &usize| all.contains(&(*at, key(&copy.part)));
            chosen.part.id != copy.part.id || !holders.contains(&0) && holders.iter().all(has)
        });
        surplus.map(|told| told.part.clone()).collect()
    }
}

/// Which part of a grid it is, and the id of the original.
type Key<'a> = (Deal, u64, &'a [u8]);

fn key(part: &GridPart) -> Key<'_> {
    (Deal::of(part), part.number, &part.id)
}

/// # Errors
/// `InvalidArgument` when two members have the same part, or do not agree on how many there are: nobody knows which of them to believe.
fn check_numbers(parts: &[&Told], survey: &Survey<'_>) -> Result<()> {
    let Survey { members, name, .. } = survey;
    let uri = |told: &Told| members.iter().nth(told.at).map_or("", Member::uri);
    for pair in parts.windows(2) {
        let [one, other] = pair else {
            continue;
        };
        let (at, at_other) = (uri(one), uri(other));
        let (one, other) = (&one.part, &other.part);
        if one.of != other.of {
            let text = format!(
                "the members do not agree on how many parts the grid has: {} at {at}, {} at {at_other}",
                one.of, other.of
            );
            return Err(
                Error::invalid_argument(text).with_hint("contribute all parts with the same `of`")
            );
        }
        if one.number == other.number {
            let text = format!("two members have part {}: {at} and {at_other}", one.number);
            let hint = format!("withdraw one of them: withdraw({name:?}) at its member, or end it");
            return Err(Error::invalid_argument(text).with_hint(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    /// Members, each of which knows the others by addresses that nobody else knows them by.
    fn members(own: u8, lives: &[u8]) -> Members {
        let member = |life: &u8| {
            let uri = match *life == own {
                true => format!("grpc://m{life}:1"),
                false => format!("grpc://192.0.2.{life}:{own}"),
            };
            let life = Incarnation::from_bits(u128::from(*life));
            Member::try_new(&uri, life, Location::here()).unwrap()
        };
        Members::of(member(&own), lives.iter().map(member))
    }

    /// A part of one, whose original has this life and is the first, the second and so on of its member.
    fn part((origin, since): (u8, u64), replicas: u32, is_copy: bool) -> GridPart {
        GridPart {
            name: "sales".to_owned(),
            of: 1,
            id: vec![origin, u8::try_from(since).unwrap()],
            replicas,
            is_copy,
            origin: u128::from(origin).to_le_bytes().to_vec(),
            since,
            ..GridPart::default()
        }
    }

    /// What member `own` makes of what each said: the member that serves, whether it wishes a copy, and whether its own is surplus.
    fn seen(
        own: u8,
        (lives, silent): (&[u8], &[u8]),
        said: &[(u8, GridPart)],
    ) -> (Option<u8>, bool, bool) {
        let members = members(own, lives);
        let life = |life: &u8| Incarnation::from_bits(u128::from(*life));
        let silent = silent.iter().map(life).collect();
        let told = said.iter().filter_map(|(at, part)| {
            let at = members.number_of(life(at))?;
            Some(Told {
                part: part.clone(),
                at,
            })
        });
        let told: Vec<Told> = told.collect();
        let survey = Survey {
            members: &members,
            silent: &silent,
            name: "sales",
            told: &told,
        };
        let choice = survey.choice();
        let serves = choice.serving().unwrap().map(|(_, dealt)| {
            let told = &dealt.parts[&0];
            let member = members.iter().nth(told.at).unwrap();
            u8::try_from(member.incarnation().bits()).unwrap()
        });
        let wishes = !survey.wishes(&choice).is_empty();
        (serves, wishes, !survey.surplus(&choice).is_empty())
    }

    /// The members that wish a copy.
    fn wish(lives: &[u8], said: &[(u8, GridPart)]) -> Vec<u8> {
        let wishes = |own: &&u8| seen(**own, (lives, &[]), said).1;
        lives.iter().filter(wishes).copied().collect()
    }

    #[test]
    fn as_many_members_wish_copies_as_are_missing() {
        let lives = [1, 2, 3, 4, 5];
        let original = (2, part((2, 1), 3, false));
        let first = wish(&lives, std::slice::from_ref(&original));
        assert_eq!(first.len(), 2);
        assert!(!first.contains(&2));
        let copies = first.iter().map(|at| (*at, part((2, 1), 3, true)));
        let said: Vec<_> = copies.clone().chain([original]).collect();
        assert!(wish(&lives, &said).is_empty());
        // Without the original there is one more, and who has one keeps it.
        let left: Vec<u8> = lives.into_iter().filter(|life| *life != 2).collect();
        let said: Vec<_> = copies.collect();
        let more = wish(&left, &said);
        assert_eq!(more.len(), 1);
        for own in first {
            let (serves, _, is_surplus) = seen(own, (&left, &[]), &said);
            assert!(serves.is_some() && !is_surplus);
        }
    }

    #[test]
    fn the_original_serves_where_it_is_there_and_else_the_same_copy_for_all() {
        let lives = [1, 2, 3];
        let copies = [(1, part((2, 1), 3, true)), (3, part((2, 1), 3, true))];
        let original = (2, part((2, 1), 3, false));
        let all: Vec<_> = copies.iter().cloned().chain([original]).collect();
        let mut without = HashSet::new();
        for own in lives {
            assert_eq!(seen(own, (&lives, &[]), &all).0, Some(2));
            // Silent is not gone: its copies serve, and stay.
            let (serves, _, is_surplus) = seen(own, (&lives, &[2]), &copies);
            without.insert(serves);
            assert!(!is_surplus);
        }
        assert!(without.len() == 1 && !without.contains(&None));
    }

    #[test]
    fn copies_of_what_was_withdrawn_or_replaced_are_surplus_and_serve_nobody() {
        let copy = (1, part((2, 1), 2, true));
        let (serves, _, is_surplus) = seen(1, (&[1, 2], &[]), std::slice::from_ref(&copy));
        assert_eq!((serves, is_surplus), (None, true));
        // The member was started again, and has the part with other data.
        let newer = (3, part((3, 2), 2, false));
        let (serves, _, is_surplus) = seen(1, (&[1, 3], &[]), &[copy.clone(), newer]);
        assert_eq!((serves, is_surplus), (Some(3), true));
        // Of copies of two originals that are gone the younger counts.
        let younger = (3, part((4, 5), 2, true));
        let (serves, _, is_surplus) = seen(1, (&[1, 3], &[]), &[copy, younger]);
        assert_eq!((serves, is_surplus), (Some(3), true));
    }

    #[test]
    fn a_copy_more_than_wanted_is_dropped_once_the_others_have_theirs() {
        let lives = [1, 2, 3, 4];
        let original = (4, part((4, 1), 2, false));
        let holder = wish(&lives, std::slice::from_ref(&original))[0];
        let other = if holder == 1 { 2 } else { 1 };
        let copy = |at| (at, part((4, 1), 2, true));
        let said = [original.clone(), copy(other)];
        assert!(!seen(other, (&lives, &[]), &said).2);
        let said = [original, copy(other), copy(holder)];
        assert!(seen(other, (&lives, &[]), &said).2);
        assert!(!seen(holder, (&lives, &[]), &said).2);
    }

    #[test]
    fn the_newest_deal_with_all_parts_serves() {
        let old = (1, part((1, 1), 1, false));
        let half = [old.clone(), anew(1, 2, 1)];
        assert_eq!(seen(1, (&[1, 2], &[]), &half).0, Some(1));
        let whole = [old, anew(0, 2, 1), anew(1, 1, 1)];
        assert_eq!(seen(1, (&[1, 2], &[]), &whole).0, Some(2));
    }

    #[test]
    fn two_originals_of_one_part_are_refused_whatever_the_copies_are() {
        let members = members(1, &[1, 2]);
        let told = [(0, 1), (1, 2)].map(|(at, life)| Told {
            part: part((life, 1), 2, false),
            at,
        });
        let survey = Survey {
            members: &members,
            silent: &HashSet::new(),
            name: "sales",
            told: &told,
        };
        let choice = survey.choice();
        let text = choice.serving().unwrap_err().to_string();
        assert!(text.contains("two members have part 0"), "{text}");
    }

    /// Part `number` of two of a grid that was dealt out anew once.
    fn anew(number: u64, at: u8, replicas: u32) -> (u8, GridPart) {
        let anew = GridPart {
            number,
            of: 2,
            generation: 1,
            deal: vec![7; 16],
            ..part((at, 9), replicas, false)
        };
        (at, anew)
    }

    #[test]
    fn a_conflict_in_a_deal_that_does_not_serve_stands_in_the_way_of_none() {
        let twice = [1, 3].map(|at| (at, part((at, 1), 1, false)));
        let new = [anew(0, 2, 1), anew(1, 1, 1)];
        let said: Vec<_> = twice.into_iter().chain(new).collect();
        assert_eq!(seen(3, (&[1, 2, 3], &[]), &said).0, Some(2));
    }

    #[test]
    fn parts_that_were_dealt_out_anew_are_copied_once_all_are_there() {
        let lives = [1, 2];
        let old = (1, part((1, 1), 1, false));
        let half = [old.clone(), anew(0, 2, 2)];
        assert!(wish(&lives, &half).is_empty());
        let whole = [old, anew(0, 2, 2), anew(1, 1, 2)];
        assert_eq!(wish(&lives, &whole), lives);
    }
}

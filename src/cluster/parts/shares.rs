//! To whom row bands go when they are dealt out anew.
//!
//! Comes in: the bytes of each row band, the number of the member that has it, the weight of each member. Goes out: runs of row bands that follow one another, each with the member that is to have it. Members that
//! have more than their share give row bands from the end of what they have to those that have least, as long as they keep no less than these; no row band moves twice, and none that need not. Members that are to have none give all
//! that they have. Never here: moving.

use std::collections::HashMap;
use std::ops::Range;

/// Row bands that follow one another, for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct Run {
    /// The number of the member that has them from now on.
    pub(in crate::cluster) to: usize,
    pub(in crate::cluster) row_bands: Range<usize>,
}

/// A member while row bands are dealt out.
struct Holder {
    bytes: u64,
    weight: u64,
    /// What it may still give: its own row bands, the last one last.
    own: Vec<usize>,
    has_given: bool,
    has_received: bool,
}

impl Holder {
    /// Whether it has less than another one, each by its weight, if it gets and the other gives so many bytes.
    fn compared(&self, gets: u64, other: &Self, gives: u64) -> std::cmp::Ordering {
        let load = |bytes: u64, weight: u64| u128::from(bytes) * u128::from(weight.max(1));
        let (own, others) = (
            self.bytes.saturating_add(gets),
            other.bytes.saturating_sub(gives),
        );
        load(own, other.weight).cmp(&load(others, self.weight))
    }
}

/// The same, where members that `leave` are to have nothing. There must be one that stays.
pub(in crate::cluster) fn dealt_without(
    bands: &[(u64, usize)],
    weights: &[u64],
    leave: &[bool],
) -> Vec<usize> {
    if !leave.contains(&true) {
        return dealt(bands, weights);
    }
    let numbers = weights.iter().enumerate().zip(leave);
    let staying = numbers.filter(|(_, leaves)| !**leaves);
    let (stay, weights): (Vec<usize>, Vec<u64>) = staying
        .map(|((number, weight), _)| (number, *weight))
        .unzip();
    let places: HashMap<usize, usize> = stay.iter().copied().zip(0..).collect();
    let bands: Vec<(u64, Option<usize>)> = bands
        .iter()
        .map(|(bytes, at)| (*bytes, places.get(at).copied()))
        .collect();
    let dealt = dealt(&taken_over(&bands, &weights), &weights);
    let numbers = dealt.iter().filter_map(|place| stay.get(*place).copied());
    numbers.collect()
}

/// The row bands with members for those that have none: each such member gets as many bytes as it takes that all have the same by their weights, of row bands that follow one another.
fn taken_over(bands: &[(u64, Option<usize>)], weights: &[u64]) -> Vec<(u64, usize)> {
    let mut has: Vec<u128> = vec![0; weights.len()];
    for (bytes, at) in bands {
        if let Some(has) = at.and_then(|at| has.get_mut(at)) {
            *has += u128::from(*bytes);
        }
    }
    let mut gets: Vec<u128> = vec![0; weights.len()];
    let left = || bands.iter().filter(|(_, at)| at.is_none());
    for (bytes, _) in left() {
        // By crosswise products: who has least for its weight.
        let least = has
            .iter()
            .zip(weights)
            .enumerate()
            .min_by(|(_, one), (_, other)| {
                let load = |has: u128, weight: u64| has.saturating_mul(u128::from(weight.max(1)));
                load(*one.0, *other.1).cmp(&load(*other.0, *one.1))
            });
        let Some(at) = least.map(|(at, _)| at) else {
            break;
        };
        for of in [&mut has, &mut gets] {
            if let Some(of) = of.get_mut(at) {
                *of += u128::from(*bytes);
            }
        }
    }
    // Where what each gets ends, among all that is left.
    let ends = gets.iter().scan(0_u128, |end, gets| {
        *end += gets;
        Some(*end)
    });
    let ends: Vec<u128> = ends.collect();
    let last = gets.iter().rposition(|gets| *gets > 0).unwrap_or_default();
    let mut start = 0_u128;
    let taken = bands.iter().map(|(bytes, at)| {
        let at = at.unwrap_or_else(|| {
            let middle = start + u128::from(*bytes) / 2;
            start += u128::from(*bytes);
            ends.partition_point(|end| *end <= middle).min(last)
        });
        (*bytes, at)
    });
    taken.collect()
}

/// The member of each row band, once they are dealt out: `bands` has the bytes of each and the number of the member that has it.
pub(in crate::cluster) fn dealt(bands: &[(u64, usize)], weights: &[u64]) -> Vec<usize> {
    let mut dealt: Vec<usize> = bands.iter().map(|(_, at)| *at).collect();
    let holders = weights.iter().map(|weight| Holder {
        bytes: 0,
        weight: *weight,
        own: Vec::new(),
        has_given: false,
        has_received: false,
    });
    let mut holders: Vec<Holder> = holders.collect();
    for (row_band, (bytes, at)) in bands.iter().enumerate() {
        if let Some(holder) = holders.get_mut(*at) {
            holder.bytes = holder.bytes.saturating_add(*bytes);
            holder.own.push(row_band);
        }
    }
    while let Some((from, to)) = pair(&holders) {
        let row_band = holders.get_mut(from).and_then(|from| from.own.pop());
        let bytes = row_band
            .and_then(|row_band| bands.get(row_band))
            .map(|(bytes, _)| *bytes);
        let (Some(row_band), Some(bytes)) = (row_band, bytes) else {
            break;
        };
        let (Some(giver), Some(receiver)) = (holders.get(from), holders.get(to)) else {
            break;
        };
        // Who gives keeps no less than who receives has then.
        if bytes == 0 || receiver.compared(bytes, giver, bytes).is_gt() {
            continue;
        }
        if let Some(place) = dealt.get_mut(row_band) {
            *place = to;
        }
        if let Some(giver) = holders.get_mut(from) {
            giver.bytes = giver.bytes.saturating_sub(bytes);
            giver.has_given = true;
        }
        if let Some(receiver) = holders.get_mut(to) {
            receiver.bytes = receiver.bytes.saturating_add(bytes);
            receiver.has_received = true;
        }
    }
    dealt
}

/// The member that has most and may give, and the one that has least and may receive.
fn pair(holders: &[Holder]) -> Option<(usize, usize)> {
    let each = || holders.iter().enumerate();
    let givers = each().filter(|(_, holder)| !holder.has_received && !holder.own.is_empty());
    // Of equals the first.
    let (from, _) = givers
        .rev()
        .max_by(|(_, one), (_, other)| one.compared(0, other, 0))?;
    let receivers = each().filter(|(at, holder)| !holder.has_given && *at != from);
    let (to, _) = receivers.min_by(|(_, one), (_, other)| one.compared(0, other, 0))?;
    Some((from, to))
}

/// The row bands of equal members in a row, as runs.
pub(in crate::cluster) fn runs(dealt: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (row_band, to) in dealt.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.to == *to => run.row_bands.end = row_band + 1,
            _ => runs.push(Run {
                to: *to,
                row_bands: row_band..row_band + 1,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of each member, before and after.
    fn loads(bands: &[(u64, usize)], dealt: &[usize], members: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut before, mut after) = (vec![0; members], vec![0; members]);
        for ((bytes, at), to) in bands.iter().zip(dealt) {
            before[*at] += bytes;
            after[*to] += bytes;
        }
        (before, after)
    }

    /// Some members, and row bands of them.
    fn placed(most_bytes: u64) -> impl Strategy<Value = (usize, Vec<(u64, usize)>)> {
        (1..7_usize).prop_flat_map(move |members| {
            let band = (1..=most_bytes, 0..members);
            (Just(members), prop::collection::vec(band, 0..60))
        })
    }

    proptest! {
        #[test]
        fn of_equal_row_bands_the_fewest_move((members, bands) in placed(1)) {
            let dealt = dealt(&bands, &vec![1; members]);
            let (before, after) = loads(&bands, &dealt, members);
            let (least, most) = (bands.len() / members, bands.len().div_ceil(members));
            for load in &after {
                prop_assert!((least as u64..=most as u64).contains(load), "{after:?}");
            }
            let over: u64 = before.iter().map(|load| load.saturating_sub(most as u64)).sum();
            let under: u64 = before.iter().map(|load| (least as u64).saturating_sub(*load)).sum();
            let moved = bands.iter().zip(&dealt).filter(|((_, at), to)| at != *to).count();
            prop_assert_eq!(moved as u64, over.max(under));
        }

        #[test]
        fn who_gives_keeps_no_less_than_who_receives_has_and_receives_nothing(
            (members, bands) in placed(1000),
        ) {
            let dealt = dealt(&bands, &vec![1; members]);
            let (before, after) = loads(&bands, &dealt, members);
            let moved = || bands.iter().zip(&dealt).filter(|((_, at), to)| at != *to);
            for ((_, from), to) in moved() {
                prop_assert!(after[*from] < before[*from] && after[*to] > before[*to]);
                prop_assert!(moved().all(|((_, giver), receiver)| receiver != from && giver != to));
            }
            prop_assert!(after.iter().max() <= before.iter().max());
            let square = |loads: &[u64]| loads.iter().map(|load| load * load).sum::<u64>();
            prop_assert!(square(&after) <= square(&before));
        }

        #[test]
        fn runs_have_every_row_band_once_and_in_order(dealt in prop::collection::vec(0..4_usize, 0..60)) {
            let runs = runs(&dealt);
            let again = runs.iter().flat_map(|run| run.row_bands.clone().map(move |_| run.to));
            prop_assert_eq!(again.collect::<Vec<_>>(), dealt);
            let mut next = 0;
            for pair in runs.windows(2) {
                prop_assert!(pair[0].to != pair[1].to);
            }
            for run in runs {
                prop_assert_eq!(run.row_bands.start, next);
                prop_assert!(!run.row_bands.is_empty());
                next = run.row_bands.end;
            }
        }
    }

    proptest! {
        #[test]
        fn who_leaves_has_nothing_and_the_others_what_they_would_have_been_dealt(
            (members, bands) in placed(1000),
            leave in prop::collection::vec(any::<bool>(), 7),
            stays: prop::sample::Index,
        ) {
            let mut leave = leave[..members].to_vec();
            leave[stays.index(members)] = false;
            let weights = vec![1; members];
            let dealt = dealt_without(&bands, &weights, &leave);
            prop_assert_eq!(dealt.len(), bands.len());
            prop_assert!(dealt.iter().all(|to| !leave[*to]));
            let (_, after) = loads(&bands, &dealt, members);
            let all = bands.iter().map(|(bytes, _)| bytes).sum::<u64>();
            prop_assert_eq!(after.iter().sum::<u64>(), all);
            if leave.contains(&true) {
                // Nobody has more than an even share and two row bands, but who had more before.
                let stay = leave.iter().filter(|leaves| !**leaves).count() as u64;
                let (before, _) = loads(&bands, &dealt, members);
                let share = all / stay;
                for (member, load) in after.iter().enumerate() {
                    prop_assert!(*load <= before[member].max(share + 2 * 1000), "{after:?}");
                }
            } else {
                prop_assert_eq!(dealt, super::dealt(&bands, &weights));
            }
        }
    }

    #[test]
    fn what_a_member_leaves_goes_to_the_others_in_pieces_that_follow_one_another() {
        let bands: Vec<(u64, usize)> = (0..12).map(|band| (10, band / 4)).collect();
        let leaves = [false, true, false];
        let dealt = dealt_without(&bands, &[1, 1, 1], &leaves);
        assert_eq!(dealt, [0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2]);
        // By their weights: two thirds for the last.
        let dealt = dealt_without(&bands, &[1, 1, 2], &leaves);
        assert_eq!(dealt, [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2]);
        // One is left for all; of row bands without bytes as well.
        let dealt = dealt_without(&bands, &[1, 1, 1], &[true, true, false]);
        assert_eq!(dealt, [2; 12]);
        let empty = [(0, 0), (0, 1), (0, 2)];
        assert_eq!(dealt_without(&empty, &[1, 1, 1], &leaves), [0, 0, 2]);
        // Who has nothing leaves nothing.
        let others = [(10, 0), (10, 2)];
        assert_eq!(dealt_without(&others, &[1, 1, 1], &leaves), [0, 2]);
    }

    #[test]
    fn a_member_that_comes_gets_the_ends() {
        let bands = [(10, 0), (10, 0), (10, 0), (10, 1), (10, 1), (10, 1)];
        assert_eq!(dealt(&bands, &[1, 1, 1]), [0, 0, 2, 1, 1, 2]);
        assert_eq!(runs(&[0, 0, 2, 1, 1, 2]).len(), 4);
        // With twice the weight it gets half.
        let bands: Vec<(u64, usize)> = (0..8).map(|band| (10, band / 4)).collect();
        assert_eq!(dealt(&bands, &[1, 1, 2]), [0, 0, 2, 2, 1, 1, 2, 2]);
    }

    #[test]
    fn nothing_moves_without_need() {
        assert_eq!(dealt(&[(10, 0), (10, 1)], &[1, 1]), [0, 1]);
        assert_eq!(dealt(&[(10, 0), (10, 1)], &[1, 1, 1]), [0, 1]);
        assert_eq!(dealt(&[(10, 0)], &[1, 1]), [0]);
        assert_eq!(dealt(&[(0, 0), (0, 0)], &[1, 1]), [0, 0]);
        // The last one is too large, the one before is not.
        assert_eq!(dealt(&[(10, 0), (290, 0)], &[1, 1]), [1, 0]);
        assert!(dealt(&[], &[1]).is_empty());
    }
}

//! Who has how much of the memory of a run, and who may have more.
//!
//! Comes in: bytes that operators take and give back. Goes out: whether there is room for more. Never here: limits of sessions and callers (`bounds.rs`).

use std::collections::HashMap;

use datafusion::execution::memory_pool::MemoryConsumer;

/// Operators that lend have so much for themselves, where their equal parts are not less: what is less is of more use than a file of it.
const OWN_BYTES: usize = 16 << 20;

/// What the operator does with its part of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It cannot spill.
    Needs,
    /// It can spill, and may use all of its part: a sort takes what there is room for, and does with less.
    Spills,
    /// It can spill, and needs what it holds: groups, and rows on their way to them. The first step of GROUP BY holds little where the last one holds all.
    Lends,
}

/// An operator, as the pool knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operator {
    number: usize,
    kind: Kind,
}

impl Operator {
    pub(super) fn of(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        let kind = match consumer.can_spill() {
            false => Kind::Needs,
            true if name.contains("Aggregate") || name.starts_with("RepartitionExec") => {
                Kind::Lends
            }
            true => Kind::Spills,
        };
        Self {
            number: consumer.id(),
            kind,
        }
    }
}

/// The memory of a run by its operators.
///
/// Those that can spill share three quarters of it in equal parts. The rest is for what cannot spill: without it, sorts that have taken all would leave nothing to merge with, and a query that spills could not finish. Of its
/// part an operator that lends has half for itself; the other halves are for those of them who come first.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// What operators that can spill have, by their number.
    spilling: HashMap<usize, (Kind, usize)>,
    spilling_bytes: usize,
    other_bytes: usize,
    /// The most that both were together.
    peak_bytes: usize,
}

impl Shares {
    pub(super) fn begin(&mut self, operator: Operator) {
        if operator.kind != Kind::Needs {
            let none = (operator.kind, 0);
            self.spilling.entry(operator.number).or_insert(none);
        }
    }

    pub(super) fn end(&mut self, operator: Operator) {
        self.spilling.remove(&operator.number);
    }

    pub(super) fn add(&mut self, operator: Operator, bytes: usize) {
        match self.spilling.get_mut(&operator.number) {
            Some((_, has)) => {
                *has += bytes;
                self.spilling_bytes += bytes;
            }
            None => self.other_bytes += bytes,
        }
        self.peak_bytes = self.peak_bytes.max(self.used());
    }

    pub(super) fn take(&mut self, operator: Operator, bytes: usize) {
        match self.spilling.get_mut(&operator.number) {
            Some((_, has)) => {
                *has = has.saturating_sub(bytes);
                self.spilling_bytes = self.spilling_bytes.saturating_sub(bytes);
            }
            None => self.other_bytes = self.other_bytes.saturating_sub(bytes),
        }
    }

    pub(super) fn used(&self) -> usize {
        self.spilling_bytes.saturating_add(self.other_bytes)
    }

    pub(super) fn peak(&self) -> usize {
        self.peak_bytes
    }

    /// Whether an operator, of which one reservation has so many bytes, may have so many more in it within a limit.
    pub(super) fn has_room(
        &self,
        limit: usize,
        operator: Operator,
        (has, more): (usize, usize),
    ) -> bool {
        if operator.kind == Kind::Needs {
            return self.used().saturating_add(more) <= limit;
        }
        let all = limit
            .saturating_sub(self.other_bytes)
            .min(limit - limit / 4);
        let equal = all / self.spilling.len().max(1);
        let wanted = has.saturating_add(more);
        match operator.kind {
            Kind::Lends => {
                let own = (equal / 2).max(equal.min(OWN_BYTES));
                // What it merges of files has room beside what it holds, as of any operator.
                wanted <= own || self.may_borrow(equal - own, own, operator, more)
            }
            _ => wanted <= equal,
        }
    }

    /// Whether one of those that lend, each of them so much and having so much for itself, may have more in all.
    fn may_borrow(&self, lent: usize, own: usize, operator: Operator, more: usize) -> bool {
        let all = self.spilling.get(&operator.number);
        let wanted = all.map_or(0, |(_, bytes)| *bytes).saturating_add(more);
        let (mut to_borrow, mut borrowed) = (0_usize, 0_usize);
        for (number, (kind, bytes)) in &self.spilling {
            if *kind == Kind::Lends {
                to_borrow += lent;
                let is_other = *number != operator.number;
                borrowed += bytes.saturating_sub(own) * usize::from(is_other);
            }
        }
        borrowed.saturating_add(wanted.saturating_sub(own)) <= to_borrow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn operators(kinds: &[Kind]) -> (Shares, Vec<Operator>) {
        let mut shares = Shares::default();
        let operators = kinds.iter().enumerate();
        let operators = operators.map(|(number, kind)| Operator {
            number,
            kind: *kind,
        });
        let operators: Vec<Operator> = operators.collect();
        operators
            .iter()
            .for_each(|operator| shares.begin(*operator));
        (shares, operators)
    }

    fn has(shares: &Shares, operator: Operator) -> usize {
        let found = shares.spilling.get(&operator.number);
        found.map_or(0, |(_, bytes)| *bytes)
    }

    /// The most that an operator may have, in MiB.
    fn most(shares: &Shares, limit: usize, operator: Operator) -> usize {
        let has = has(shares, operator);
        let mut more = (0..=limit / MIB).rev().map(|more| more * MIB);
        let may = more.find(|more| shares.has_room(limit, operator, (has, *more)));
        (has + may.unwrap_or_default()) / MIB
    }

    #[test]
    fn who_comes_first_has_more_and_the_others_half_of_their_part() {
        let (mut shares, operators) = operators(&[Kind::Lends; 4]);
        let limit = 1600 * MIB;
        // 1200 for four: 150 each, and 600 for who comes first.
        let [first, second, third, _] = operators[..] else {
            panic!("there are four")
        };
        assert_eq!(most(&shares, limit, first), 750);
        shares.add(first, 750 * MIB);
        assert_eq!(most(&shares, limit, second), 150);
        shares.take(first, 400 * MIB);
        assert_eq!(most(&shares, limit, second), 550);
        shares.add(second, 150 * MIB);
        shares.take(first, 350 * MIB);
        shares.end(first);
        // 200 each of three, and 600 for who comes first.
        assert_eq!(most(&shares, limit, third), 800);
        assert_eq!(shares.used(), 150 * MIB);
        assert_eq!(shares.peak(), 750 * MIB);
    }

    #[test]
    fn who_borrows_has_what_all_its_reservations_have() {
        let (mut shares, operators) = operators(&[Kind::Lends; 4]);
        let limit = 1600 * MIB;
        shares.add(operators[0], 700 * MIB);
        assert!(shares.has_room(limit, operators[0], (700 * MIB, 50 * MIB)));
        assert!(!shares.has_room(limit, operators[0], (700 * MIB, 51 * MIB)));
        // Another reservation has nothing yet: there is room for what is its own, and no more.
        assert!(shares.has_room(limit, operators[0], (0, 150 * MIB)));
        assert!(!shares.has_room(limit, operators[0], (0, 151 * MIB)));
    }

    #[test]
    fn sorts_have_their_part_whatever_groups_borrow() {
        let (mut shares, operators) =
            operators(&[Kind::Spills, Kind::Lends, Kind::Lends, Kind::Spills]);
        let limit = 1600 * MIB;
        let [sort, groups, others, other_sort] = operators[..] else {
            panic!("there are four")
        };
        assert_eq!(most(&shares, limit, sort), 300);
        // Half of both parts, and the half that is its own.
        assert_eq!(most(&shares, limit, groups), 450);
        shares.add(groups, 450 * MIB);
        assert_eq!(most(&shares, limit, others), 150);
        for sort in [sort, other_sort] {
            assert_eq!(most(&shares, limit, sort), 300);
            shares.add(sort, 300 * MIB);
        }
        shares.add(others, 150 * MIB);
        assert_eq!(shares.used(), 1200 * MIB);
    }

    #[test]
    fn all_have_their_part_at_once_and_together_no_more_than_there_is() {
        for (limit, kinds) in [
            (1600 * MIB, vec![Kind::Lends; 4]),
            (100 * MIB, vec![Kind::Lends; 8]),
            (700 * MIB, vec![Kind::Lends; 6]),
            (700 * MIB, [[Kind::Lends; 3], [Kind::Spills; 3]].concat()),
            (3 * MIB, vec![Kind::Lends]),
        ] {
            let (mut shares, operators) = operators(&kinds);
            let (budget, count) = (limit - limit / 4, kinds.len());
            // Each takes as much as it may, in turns.
            let mut has_more = true;
            while has_more {
                has_more = false;
                for operator in &operators {
                    let has = has(&shares, *operator);
                    if shares.has_room(limit, *operator, (has, MIB)) {
                        shares.add(*operator, MIB);
                        has_more = true;
                    }
                }
            }
            assert!(shares.used() <= budget, "{limit} {count}");
            assert!(shares.used() + count * MIB >= budget, "{limit} {count}");
            let least = shares.spilling.values().map(|(_, bytes)| *bytes).min();
            assert!(
                least.unwrap_or_default() + MIB >= budget / count,
                "{limit} {count}"
            );
        }
    }

    #[test]
    fn small_parts_are_equal() {
        let (mut shares, operators) = operators(&[Kind::Lends; 4]);
        let limit = 60 * MIB;
        assert_eq!(most(&shares, limit, operators[0]), 11);
        let other = Operator {
            number: 9,
            kind: Kind::Needs,
        };
        assert!(shares.has_room(limit, other, (0, limit)));
        shares.add(other, 40 * MIB);
        assert_eq!(most(&shares, limit, operators[0]), 5);
        assert!(!shares.has_room(limit, other, (40 * MIB, 21 * MIB)));
        assert_eq!(shares.peak(), 40 * MIB);
    }

    #[test]
    fn operators_are_known_by_their_names() {
        for (name, can_spill, kind) in [
            ("PartialHashAggregateStream[0]", true, Kind::Lends),
            ("RepartitionExec[1]", true, Kind::Lends),
            ("ExternalSorter[0]", true, Kind::Spills),
            ("PackedSortExec", true, Kind::Spills),
            ("HashJoinInput", false, Kind::Needs),
        ] {
            let consumer = MemoryConsumer::new(name).with_can_spill(can_spill);
            assert_eq!(Operator::of(&consumer).kind, kind, "{name}");
        }
    }
}

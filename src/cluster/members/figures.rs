//! What members do and have at the moment, as they tell each other.
//!
//! Comes in: what this member counts of itself, and what each other one says beside its parts, look by look. Goes out: the same, for those who ask and those who watch. It is no part of [`Members`](crate::cluster::Members): no plan goes by
//! it, and nothing is let go of when it changes. Never here: counting.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::flight::messages::MemberFigures;
use crate::share::Incarnation;

/// How long counts what a member has said. A look may wait ten seconds for somebody who hangs.
const FRESH: Duration = Duration::from_secs(15);

/// How long is told what was counted, at least: each of the others asks once a second.
const COUNTED: Duration = Duration::from_millis(500);

/// And at least so many times as long as counting took: of millions of tiles it takes seconds.
const TIMES: u32 = 50;

/// The figures of a moment.
type Then = (MemberFigures, Instant);

/// What was counted last, and said last.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Figures {
    /// With the moment until which it is told.
    own: Mutex<Option<Then>>,
    /// One counts at a time.
    counting: Mutex<()>,
    others: Mutex<HashMap<Incarnation, Then>>,
}

impl Figures {
    /// What others have said.
    fn others(&self) -> MutexGuard<'_, HashMap<Incarnation, Then>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what does not count any more. It goes through what all have said: once in a look, not for each member.
    pub(in crate::cluster) fn let_go_of_old(&self, now: Instant) {
        self.others().retain(|_, (_, then)| is_fresh(*then, now));
    }

    /// Remembers what a member says of itself, if it says anything.
    pub(in crate::cluster) fn hear(
        &self,
        member: Incarnation,
        told: Option<MemberFigures>,
        now: Instant,
    ) {
        let mut others = self.others();
        match told {
            Some(told) => others.insert(member, (told, now)),
            None => others.remove(&member),
        };
    }

    fn of(&self, member: Incarnation, now: Instant) -> Option<MemberFigures> {
        let (told, then) = *self.others().get(&member)?;
        is_fresh(then, now).then_some(told)
    }

    fn told(&self) -> MutexGuard<'_, Option<Then>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted here a moment ago, or is now; while somebody else counts, what was counted before.
    fn own(&self, now: Instant, count: impl FnOnce() -> MemberFigures) -> MemberFigures {
        let last = *self.told();
        let turn = self.counting.try_lock();
        match last {
            Some((told, until)) if now < until || turn.is_err() => told,
            _ => {
                let told = count();
                let kept = COUNTED.max(now.elapsed() * TIMES);
                *self.told() = Some((told, now + kept));
                told
            }
        }
    }
}

/// Whether what was said then still counts.
fn is_fresh(then: Instant, now: Instant) -> bool {
    now.saturating_duration_since(then) < FRESH
}

impl Cluster {
    /// What another member said of itself within the last seconds.
    pub(crate) fn figures_of(&self, member: Incarnation) -> Option<MemberFigures> {
        self.figures.of(member, Instant::now())
    }

    /// What this member tells the others of itself. It is counted twice a second at most, however many ask, and less often where that takes long.
    pub(crate) fn own_figures(&self, count: impl FnOnce() -> MemberFigures) -> MemberFigures {
        self.figures.own(Instant::now(), count)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::flight::messages::{GridPart, GridParts};

    fn figures(num_queries: u64) -> MemberFigures {
        MemberFigures {
            num_queries,
            ..MemberFigures::default()
        }
    }

    #[test]
    fn what_a_member_said_counts_until_it_says_otherwise_or_nothing_any_more() {
        let said = Figures::default();
        let (member, other) = (Incarnation::from_bits(7), Incarnation::from_bits(8));
        let now = Instant::now();
        assert_eq!(said.of(member, now), None);
        said.hear(member, Some(figures(1)), now);
        said.hear(other, Some(figures(0)), now);
        let later = now + FRESH / 2;
        said.hear(member, Some(figures(2)), later);
        assert_eq!(said.of(member, later), Some(figures(2)));
        // That nothing runs there is another thing than that nobody knows.
        assert_eq!(said.of(other, later), Some(figures(0)));
        assert_eq!(said.of(other, now + FRESH), None);
        said.hear(member, None, later);
        assert_eq!(said.of(member, later), None);
        // Nothing is kept of those who have gone.
        assert_eq!(said.others().len(), 1);
        said.let_go_of_old(later + FRESH);
        assert_eq!(said.others().len(), 0);
    }

    #[test]
    fn many_who_ask_at_once_have_it_counted_once() {
        let told = Figures::default();
        let now = Instant::now();
        assert_eq!(told.own(now, || figures(1)), figures(1));
        assert_eq!(told.own(now + COUNTED / 2, || figures(2)), figures(1));
        assert_eq!(told.own(now + COUNTED, || figures(3)), figures(3));
        assert_eq!(told.own(now + COUNTED * 3 / 2, || figures(4)), figures(3));
    }

    #[test]
    fn while_one_counts_others_are_told_what_was_before() {
        let told = Figures::default();
        let now = Instant::now();
        told.own(now, || figures(1));
        let later = now + COUNTED;
        let inner = || {
            assert_eq!(told.own(later, || figures(3)), figures(1));
            figures(2)
        };
        assert_eq!(told.own(later, inner), figures(2));
    }

    #[test]
    fn what_takes_long_to_count_is_counted_seldom() {
        let told = Figures::default();
        let (now, took) = (Instant::now(), Duration::from_millis(30));
        let slow = || {
            std::thread::sleep(took);
            figures(1)
        };
        told.own(now, slow);
        let later = now + took * (TIMES - 1);
        assert_eq!(told.own(later, || figures(2)), figures(1));
    }

    #[test]
    fn members_of_before_say_nothing_and_skip_what_is_said() {
        /// The parts as members of before tell and read them.
        #[derive(Clone, PartialEq, Message)]
        struct Before {
            #[prost(message, repeated, tag = "1")]
            parts: Vec<GridPart>,
        }
        let parts = vec![GridPart {
            name: "sales".to_owned(),
            of: 1,
            ..GridPart::default()
        }];
        let now = GridParts {
            parts: parts.clone(),
            figures: Some(figures(0)),
        };
        let bytes = now.encode_to_vec();
        assert_eq!(GridParts::decode(bytes.as_slice()).unwrap(), now);
        let before = Before { parts };
        assert_eq!(Before::decode(bytes.as_slice()).unwrap(), before);
        let heard = GridParts::decode(before.encode_to_vec().as_slice()).unwrap();
        assert_eq!((heard.parts, heard.figures), (before.parts, None));
    }
}

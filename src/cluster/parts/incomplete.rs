//! Grids of which parts are missing, or contradict each other.
//!
//! Comes in: look by look, which parts of a grid count, and what came of putting it under its name. Goes out: what is wrong with it and what can be done, for whoever asks for the grid (`query`) or misses a tile of it (`tile/mod.rs`), and for those who watch, with the time since
//! when it is so, which is that of the first look that saw it; a line in the log, once as long as it is so. Never here: which parts count (`copies.rs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::copies::{Choice, Told};
use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind, Result};

/// So many parts that are missing are named.
const MOST_NAMED: usize = 5;

/// What is wrong as long as it is, with a grid or with the list of members.
#[derive(Debug, Clone)]
pub(crate) struct Lacking {
    pub(crate) since: SystemTime,
    pub(crate) error: Error,
}

/// What is wrong with grids, by their names, as the last look saw it.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Incomplete(Mutex<BTreeMap<String, Lacking>>);

impl Incomplete {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Lacking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a grid, and what can be done, in one line; `None` where nothing is known to be.
    pub(in crate::cluster) fn remedy(&self, name: &str) -> Option<String> {
        let known = self.known();
        let error = &known.get(name)?.error;
        Some(match error.hint() {
            Some(hint) => format!("{}; {hint}", error.message()),
            None => error.message().to_owned(),
        })
    }

    /// Takes note of what is wrong now; gives what of it is new, and nothing where all is as it was.
    fn look<'a>(&self, now: &'a BTreeMap<String, Error>) -> Option<Vec<&'a Error>> {
        let at = SystemTime::now();
        let mut known = self.known();
        let since = |name: &str, error: &Error| {
            let lacking = known.get(name)?;
            let is_same = lacking.error.to_string() == error.to_string();
            is_same.then_some(lacking.since)
        };
        let new = now.iter();
        let new = new.filter(|(name, error)| since(name, error).is_none());
        let new: Vec<&Error> = new.map(|(_, error)| error).collect();
        if new.is_empty() && now.len() == known.len() {
            return None;
        }
        let all = now.iter().map(|(name, error)| {
            let lacking = Lacking {
                since: since(name, error).unwrap_or(at),
                error: error.clone(),
            };
            (name.clone(), lacking)
        });
        let all = all.collect();
        *known = all;
        Some(new)
    }
}

impl Choice {
    /// Which parts are missing of the deal of which most are there; `None` where nobody has any, and where none is.
    fn missing(&self) -> Option<Error> {
        let deals = self.deals.iter();
        let deals = deals.filter(|(_, dealt)| !dealt.parts.is_empty());
        let (deal, dealt) = deals.max_by_key(|(deal, dealt)| (dealt.parts.len(), **deal))?;
        let (of, num_there) = (dealt.of, dealt.parts.len() as u64);
        let num_missing = of.checked_sub(num_there).filter(|number| *number > 0)?;
        let missing = (0..of).filter(|number| !dealt.parts.contains_key(number));
        let missing: Vec<u64> = missing.take(MOST_NAMED).collect();
        let (is, parts, are) = (
            if num_there == 1 { "is" } else { "are" },
            if num_missing == 1 { "part" } else { "parts" },
            if num_missing == 1 { "is" } else { "are" },
        );
        let named = listed(&missing, num_missing - missing.len() as u64);
        let text =
            format!("{num_there} of the {of} parts {is} there; {parts} {named} {are} missing");
        let first = missing.first().copied().unwrap_or_default();
        let hint = match deal.generation {
            0 => format!(
                "whoever has its rows contributes it: contribute(name, grid, part={first}, of={of}), or partgrid serve --part {first}/{of}; who has done so must be in the list of members, and answer"
            ),
            _ => "the grid was rebalanced, so that nobody can contribute a part of it alone: see that all members are there, or withdraw it at all of them and contribute all its parts".to_owned(),
        };
        Some(Error::not_found(text).with_hint(hint))
    }
}

/// Numbers in words, with how many more there are.
fn listed(numbers: &[u64], more: u64) -> String {
    let mut words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

impl Cluster {
    /// What is wrong with the parts of a grid, of which these count, where that came of putting it under its name; `None` where nothing is, and for one that was withdrawn here.
    pub(in crate::cluster) fn lacking(
        &self,
        name: &str,
        choice: &Choice,
        made: &Result<()>,
    ) -> Option<Error> {
        let error = match made {
            // What else stands in the way is none of the parts.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => error.clone(),
            Ok(()) if choice.serving_deal().is_none() => {
                self.listed.and_same_process(choice.missing()?)
            }
            _ => return None,
        };
        let parts = choice.deals.values();
        let ids = parts.flat_map(|dealt| dealt.parts.values().map(|told| &told.part.id));
        if made.is_ok() && self.parts().withdrawn.is_all(name, ids) {
            return None;
        }
        let text = format!("grid '{name}': {}", error.message());
        Some(error.with_message(text))
    }

    /// Takes note of what is wrong with grids now, and has whoever asks for one of them told so; whoever asks for one of those that were dropped here is told that, which is nothing wrong. Members said this of
    /// their parts, of which these count.
    pub(in crate::cluster) fn lack(
        &self,
        now: &BTreeMap<String, Error>,
        said: &BTreeMap<String, Vec<Told>>,
        choices: &BTreeMap<&str, Choice>,
    ) {
        for error in self.reach.incomplete.look(now).unwrap_or_default() {
            let text = "a grid of the cluster is not there, or not whole";
            match error.kind() {
                // Parts come one after the other.
                ErrorKind::NotFound => tracing::info!(%error, "{text}"),
                _ => tracing::warn!(%error, "{text}"),
            }
        }
        // Also those that were dropped since the look began: whoever drops one, or withdraws it, has said so before this, or says it afterwards.
        let mut parts = self.parts();
        self.heed_drops(&mut parts, said);
        let dropped = choices.iter().filter_map(|(name, choice)| {
            let error = parts.withdrawn.dropped(name, choice)?;
            Some(((*name).to_owned(), error))
        });
        let mut told: BTreeMap<String, Error> = dropped.collect();
        told.extend(now.clone());
        self.session.lack(&told);
    }

    /// Whether an error of a look is one of a grid, which is in the log.
    pub(in crate::cluster) fn has_said(&self, error: &Error) -> bool {
        let known = self.reach.incomplete.known();
        let mut known = known.values();
        known.any(|lacking| lacking.error.message().ends_with(error.message()))
    }

    /// What is wrong with grids of all members, by their names, as long as it is.
    pub(crate) fn incomplete(&self) -> BTreeMap<String, Lacking> {
        self.reach.incomplete.known().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::copies::{Deal, Dealt};
    use super::*;
    use crate::flight::messages::GridPart;

    /// What is said where these parts are there.
    fn said(of: u64, numbers: &[u64], generation: u64) -> Option<Error> {
        let parts = numbers.iter().map(|number| {
            let part = GridPart {
                number: *number,
                of,
                ..GridPart::default()
            };
            (*number, Told { part, at: 0 })
        });
        let dealt = Dealt {
            of,
            parts: parts.collect(),
        };
        let deal = Deal {
            generation,
            ..Deal::default()
        };
        let mut choice = Choice::default();
        choice.deals.insert(deal, dealt);
        choice.missing()
    }

    #[test]
    fn parts_that_are_missing_are_named() {
        let text = |of, numbers: &[u64]| said(of, numbers, 0).unwrap().message().to_owned();
        assert_eq!(
            text(2, &[0]),
            "1 of the 2 parts is there; part 1 is missing"
        );
        assert_eq!(
            text(5, &[0, 2, 3]),
            "3 of the 5 parts are there; parts 1 and 4 are missing"
        );
        assert_eq!(
            text(100, &[1]),
            "1 of the 100 parts is there; parts 0, 2, 3, 4, 5 and 94 more are missing"
        );
        assert!(said(2, &[0, 1], 0).is_none());
        assert!(said(2, &[], 0).is_none());
    }

    #[test]
    fn the_remedy_names_the_call() {
        let hint = |generation| {
            let error = said(3, &[0, 2], generation).unwrap();
            error.hint().unwrap().to_owned()
        };
        assert!(hint(0).contains("part=1, of=3"));
        assert!(hint(1).contains("rebalanced"));
    }

    #[test]
    fn who_misses_a_tile_is_told_what_is_wrong_with_its_grid_and_no_other() {
        let incomplete = Incomplete::default();
        let error = said(3, &[0, 2], 0).unwrap();
        incomplete.look(&BTreeMap::from([("sales".to_owned(), error)]));
        let remedy = incomplete.remedy("sales").unwrap();
        assert!(
            remedy.starts_with("2 of the 3 parts are there; part 1 is missing; whoever has"),
            "{remedy}"
        );
        assert_eq!(incomplete.remedy("other"), None);
        // Of a tile whose grid nobody knows.
        assert_eq!(incomplete.remedy(""), None);
    }

    #[test]
    fn what_is_wrong_is_new_once_as_long_as_it_is_so() {
        let incomplete = Incomplete::default();
        let look = |texts: &[&str]| {
            let now = texts.iter().map(|text| ((*text).to_owned(), text));
            let now = now.map(|(name, text)| (name, Error::not_found(*text)));
            let now: BTreeMap<String, Error> = now.collect();
            incomplete.look(&now).map(|new| new.len())
        };
        assert_eq!(look(&[]), None);
        assert_eq!(look(&["a"]), Some(1));
        let since = || incomplete.known().get("a").map(|lacking| lacking.since);
        let first = since();
        assert_eq!(look(&["a"]), None);
        assert_eq!(look(&["a", "b"]), Some(1));
        assert_eq!(since(), first);
        assert_eq!(look(&["b"]), Some(0));
        assert_eq!(look(&["b"]), None);
        // In other words it is something else.
        let now = BTreeMap::from([("b".to_owned(), Error::not_found("other"))]);
        assert_eq!(incomplete.look(&now).map(|new| new.len()), Some(1));
    }
}

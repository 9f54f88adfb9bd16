//! What is wrong with the list of members.
//!
//! Comes in: look by look, the list, or why it cannot be read, who of it is there, and why the others are not. Goes out: those that are away now, with the reason; why there is no list, and who the members are meanwhile; that it does not name this server; warnings in the log, of each address and of each thing that is
//! wrong with it once as long as it is so: nobody would see otherwise that a name is misspelt, or that this server is a member for itself alone. Never here: the list (`join.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures::future::join_all;

use super::Member;
use super::channel::AGAIN;
use super::join::SILENT;
use crate::client::misunderstood;
use crate::cluster::parts::incomplete::Lacking;
use crate::cluster::{Cluster, TLS};
use crate::error::{Error, ErrorKind};
use crate::share::Incarnation;

/// How it ends what is said of servers of one process: a member is known by the life of its process.
const OF_THEIR_OWN: &str = "members are processes of their own";

/// In how many looks in a row a list does not name this server when that is said. Whoever comes may write itself down only then.
const LOOKS: u32 = 3;

/// What was wrong with it in the last look.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Listed(Mutex<Wrong>);

#[derive(Debug, Default)]
struct Wrong {
    /// Those who do not take part.
    away: BTreeMap<String, Reason>,
    /// Why it cannot be read.
    unread: Option<Lacking>,
    /// How many looks there were in a row with a list that does not name this server.
    num_without_own: u32,
    /// That it does not name this server, once that stays so.
    without_own: Option<Lacking>,
}

/// Why somebody does not take part.
#[derive(Debug)]
struct Reason {
    kind: ErrorKind,
    /// These may be others each time.
    words: String,
    /// What can be done, if that was found out.
    remedy: Option<String>,
}

impl Reason {
    fn of(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            words: error.message().to_owned(),
            remedy: error.hint().map(str::to_owned),
        }
    }

    /// Whether it is no news.
    fn covers(&self, error: &Error) -> bool {
        let is_told = error.hint().is_none() || error.hint() == self.remedy.as_deref();
        self.kind == error.kind() && is_told
    }

    fn told(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.words),
            None => self.words.clone(),
        }
    }
}

/// What is said of a list that cannot be read: with whom this member goes on.
pub(in crate::cluster) fn meanwhile(error: Error, is_alone: bool) -> Error {
    let members = match is_alone {
        true => "this member is alone until the list can be read",
        false => {
            "those that it named last are members as long as they answer, until it can be read"
        }
    };
    let text = format!("{}; {members}", error.message());
    error.with_message(text)
}

/// One server of each process, this one of its own process; the others, with why they are none. Who tells the same URI is the same server, by another of its addresses.
pub(in crate::cluster) fn one_of_each_process(
    own: &Member,
    mut there: Vec<Member>,
) -> (Vec<Member>, Vec<(String, Error)>) {
    // As members are counted.
    there.sort_by(|one, other| one.url().cmp(other.url()));
    let mut first: HashMap<Incarnation, String> = HashMap::new();
    first.insert(own.incarnation(), own.name().to_owned());
    let mut others = Vec::new();
    there.retain(|member| {
        let life = member.incarnation();
        let counts = first
            .entry(life)
            .or_insert_with(|| member.name().to_owned());
        let is_it = counts.as_str() == member.name();
        if !is_it {
            let process = match life == own.incarnation() {
                true => "this same process".to_owned(),
                false => format!("the same process as {counts}"),
            };
            let text = format!("{} is a server of {process}; {OF_THEIR_OWN}", member.uri());
            let error = Error::invalid_argument(text);
            let hint =
                "start each member in a process of its own: partgrid serve, or a program for each";
            others.push((member.uri().to_owned(), error.with_hint(hint)));
        }
        is_it
    });
    (there, others)
}

/// What is said of a list that does not name this server.
fn without(own: &Member) -> Error {
    let text = format!(
        "the list of members does not name this server, {}: those who go by the same list do not count it as a member",
        own.uri()
    );
    Error::invalid_argument(text).with_hint(
        "add its address to the list (cluster.join, or --join), or stop it if it is to be no member any more",
    )
}

impl Listed {
    fn wrong(&self) -> MutexGuard<'_, Wrong> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who do not take part, in the order of their URIs, with the reason in words.
    fn away(&self) -> Vec<(String, String)> {
        let wrong = self.wrong();
        let away = wrong.away.iter();
        away.map(|(uri, reason)| (uri.clone(), reason.told()))
            .collect()
    }

    /// The same who are away, with what can be done. Whether one side speaks TLS and the other does not is found out of those of whom something else was said in the look before, since it may take seconds.
    pub(in crate::cluster) async fn explained(
        &self,
        away: Vec<(String, Error)>,
    ) -> Vec<(String, Error)> {
        let known = |uri: &str, error: &Error| {
            let wrong = self.wrong();
            let known = wrong.away.get(uri);
            let known = known.filter(|reason| reason.words == error.message());
            known.map(|reason| reason.remedy.clone())
        };
        let explained = away.into_iter().map(|(uri, error)| {
            let known = known(&uri, &error);
            async move {
                let remedy = match known {
                    Some(known) => known,
                    None => remedy(&uri, &error).await,
                };
                let error = match remedy {
                    Some(remedy) => error.with_hint(remedy),
                    None => error.without_hint(),
                };
                (uri, error)
            }
        });
        join_all(explained).await
    }

    /// Takes note of why the list cannot be read in this look, or that it can be.
    pub(in crate::cluster) fn note_unread(&self, error: Option<&Error>) {
        let mut wrong = self.wrong();
        let before = wrong.unread.take();
        wrong.unread = error.map(|error| {
            let text = error.to_string();
            let same = before.filter(|before| before.error.to_string() == text);
            same.unwrap_or_else(|| Lacking {
                since: SystemTime::now(),
                error: error.clone(),
            })
        });
    }

    /// What is wrong with a grid of which parts are missing, with the servers whose parts do not count since another one of their process is a member, if there are such.
    pub(in crate::cluster) fn and_same_process(&self, error: Error) -> Error {
        let wrong = self.wrong();
        let mut away = wrong.away.values();
        let Some(same) = away.find(|reason| reason.words.ends_with(OF_THEIR_OWN)) else {
            return error;
        };
        let same = same.told();
        let hint = match error.hint() {
            Some(hint) => format!("{same}; {hint}"),
            None => same,
        };
        error.with_hint(hint)
    }

    /// Says what is wrong since this look.
    pub(in crate::cluster) fn look(
        &self,
        own: &Member,
        uris: &[String],
        there: &[Member],
        away: &[(String, Error)],
    ) {
        for error in self.newly_away(away) {
            tracing::warn!(%error, "a member that is listed does not take part");
        }
        if self.is_without_own(own, uris, there) {
            tracing::warn!(
                own = own.uri(),
                list = ?uris,
                "the list of members does not name this server: those who go by the same list do not count it as a member"
            );
        }
    }

    /// Why those do not take part of whom that was not so, or for other reasons, in the look before.
    fn newly_away<'a>(&self, away: &'a [(String, Error)]) -> Vec<&'a Error> {
        let mut wrong = self.wrong();
        let is_known = |uri: &str, error: &Error| {
            let known = wrong.away.get(uri);
            known.is_some_and(|reason| reason.covers(error))
        };
        let new = away.iter().filter(|(uri, error)| !is_known(uri, error));
        let new = new.map(|(_, error)| error).collect();
        let now = away
            .iter()
            .map(|(uri, error)| (uri.clone(), Reason::of(error)));
        wrong.away = now.collect();
        new
    }

    /// Whether it is to be logged that this server is not in the list, which is told as long as it is so. One that names nobody is that of a member that is alone, or is still to be written.
    fn is_without_own(&self, own: &Member, uris: &[String], there: &[Member]) -> bool {
        let is_named = uris.iter().any(|uri| own.is_at(uri));
        // It may be named by another of its addresses.
        let is_own = |member: &Member| member.incarnation() == own.incarnation();
        let is_listed = uris.is_empty() || is_named || there.iter().any(is_own);
        let mut wrong = self.wrong();
        if is_listed {
            wrong.num_without_own = 0;
            wrong.without_own = None;
            return false;
        }
        wrong.num_without_own = wrong.num_without_own.saturating_add(1);
        let is_news = wrong.num_without_own == LOOKS;
        if is_news {
            wrong.without_own = Some(Lacking {
                since: SystemTime::now(),
                error: without(own),
            });
        }
        is_news
    }
}

/// What can be done that somebody is there who is not.
async fn remedy(uri: &str, error: &Error) -> Option<String> {
    let remedy = error.hint().filter(|hint| *hint != AGAIN);
    if remedy.is_some() || error.message().contains(SILENT) {
        return remedy.map(str::to_owned);
    }
    let (scheme, authority) = uri.split_once("://")?;
    let is_tls = format!("{scheme}://") == TLS;
    misunderstood(error.message(), authority, is_tls).await
}

impl Cluster {
    /// Why the list of members cannot be read, and who the members are meanwhile, as long as it is so.
    pub(crate) fn unread_list(&self) -> Option<Lacking> {
        self.listed.wrong().unread.clone()
    }

    /// That the list of members does not name this server, as long as it is so.
    pub(crate) fn list_without_own(&self) -> Option<Lacking> {
        self.listed.wrong().without_own.clone()
    }

    /// The URIs that the list of members names and that are no members, as the last look saw it, each with the reason. Whoever says who is away, or how many, goes by these.
    #[must_use]
    pub fn away(&self) -> Vec<(String, String)> {
        let members = self.members();
        // One may come meanwhile.
        let there: HashSet<&str> = members.iter().map(Member::uri).collect();
        let away = self.listed.away().into_iter();
        // Its own address is that of one who is there, wherever it leads.
        away.filter(|(uri, _)| !there.contains(uri.as_str()) && !members.own().is_at(uri))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    fn away(uri: &str, error: Error) -> (String, Error) {
        (uri.to_owned(), error)
    }

    fn lost(text: &str) -> Error {
        Error::new(ErrorKind::WorkerLost, text)
    }

    #[test]
    fn why_somebody_does_not_take_part_is_said_once_as_long_as_it_is_so() {
        let listed = Listed::default();
        let new = |away: &[(String, Error)]| -> Vec<String> {
            let new = listed.newly_away(away);
            new.iter().map(ToString::to_string).collect()
        };
        let refused = || away("grpc://a:1", lost("refused"));
        assert_eq!(new(&[refused()]).len(), 1);
        // In other words.
        assert!(new(&[away("grpc://a:1", lost("silent"))]).is_empty());
        let told = |uri: &str, why: &str| (uri.to_owned(), why.to_owned());
        assert_eq!(listed.away(), [told("grpc://a:1", "silent")]);
        let other = away("grpc://b:1", lost("refused"));
        assert_eq!(new(&[refused(), other]).len(), 1);
        assert_eq!(listed.away().len(), 2);
        // What can be done about it is news, and stands beside the reason.
        let speaks = || away("grpc://a:1", lost("no frame").with_hint("it speaks TLS"));
        assert_eq!(new(&[speaks()]).len(), 1);
        assert!(new(&[speaks()]).is_empty());
        let told = (
            "grpc://a:1".to_owned(),
            "no frame; it speaks TLS".to_owned(),
        );
        assert_eq!(listed.away(), [told]);
        // Somebody answers there, who is no member.
        let other = || away("grpc://a:1", Error::unsupported("no member"));
        assert_eq!(new(&[other()]), [other().1.to_string()]);
        // It was there meanwhile.
        assert!(new(&[]).is_empty());
        assert_eq!(new(&[other()]).len(), 1);
    }

    #[test]
    fn a_list_that_cannot_be_read_says_who_the_members_are_meanwhile() {
        let said = |is_alone: bool| {
            let error = Error::invalid_argument("a line is wrong").with_file("/run/members");
            meanwhile(error, is_alone).to_string()
        };
        let alone =
            "a line is wrong; this member is alone until the list can be read (file: /run/members)";
        assert_eq!(said(true), alone);
        assert!(said(false).contains("those that it named last are members"));
        let listed = Listed::default();
        let since = |error: Option<Error>| {
            listed.note_unread(error.as_ref());
            let wrong = listed.wrong();
            wrong.unread.as_ref().map(|unread| unread.since)
        };
        let first = since(Some(lost("gone")));
        assert!(first.is_some());
        assert_eq!(since(Some(lost("gone"))), first);
        assert_ne!(since(Some(lost("torn"))), first);
        assert_eq!(since(None), None);
    }

    #[test]
    fn of_servers_of_one_process_one_is_a_member_and_the_others_are_told_why() {
        let server = |uri: &str, life: u128| {
            Member::try_new(uri, Incarnation::from_bits(life), Location::here()).unwrap()
        };
        let own = server("grpc://a:2", 1);
        let there = vec![
            server("grpc://c:2", 3),
            own.clone(),
            server("grpc://a:1", 1),
            server("grpc://c:1", 3),
            // By another of its addresses.
            server("grpc://192.0.2.1:2", 1).with_name(own.name()),
            server("grpc://b:1", 2),
        ];
        let (there, others) = one_of_each_process(&own, there);
        let there: Vec<&str> = there.iter().map(Member::uri).collect();
        assert_eq!(
            there,
            [
                "grpc://192.0.2.1:2",
                "grpc://a:2",
                "grpc://b:1",
                "grpc://c:1"
            ]
        );
        let said: Vec<&str> = others.iter().map(|(_, error)| error.message()).collect();
        assert_eq!(
            said,
            [
                "grpc://a:1 is a server of this same process; members are processes of their own",
                "grpc://c:2 is a server of the same process as grpc://c:1; members are processes of their own",
            ]
        );
        let listed = Listed::default();
        let missing = || lost("1 of the 2 parts is there").with_hint("contribute it");
        let hint = |error: Error| error.hint().map(str::to_owned).unwrap_or_default();
        assert_eq!(hint(listed.and_same_process(missing())), "contribute it");
        listed.newly_away(&others);
        let told = hint(listed.and_same_process(missing()));
        assert!(told.starts_with(said[0]), "{told}");
        assert!(told.ends_with("; contribute it"), "{told}");
    }

    #[test]
    fn a_list_without_this_server_is_said_once_when_it_stays_so() {
        let member = |uri: &str, life: u128| {
            Member::try_new(uri, Incarnation::from_bits(life), Location::here()).unwrap()
        };
        let (own, other) = (member("grpc://a:1", 1), member("grpc://b:1", 2));
        let listed = Listed::default();
        let said = |uris: &[&str], there: &[Member]| {
            let uris: Vec<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
            listed.is_without_own(&own, &uris, there)
        };
        let without = || said(&["grpc://b:1"], std::slice::from_ref(&other));
        let in_a_row = || [(); 5].map(|()| without());
        assert_eq!(in_a_row(), [false, false, true, false, false]);
        // By its own address, also if that does not answer; by another one; in no list at all.
        let told = || listed.wrong().without_own.as_ref().map(|told| told.since);
        let since = told();
        assert!(since.is_some());
        assert_eq!((in_a_row(), told()), ([false; 5], since));
        assert!(!said(&["grpc://b:1", "grpc://a:1"], &[]));
        assert_eq!(told(), None);
        assert_eq!(in_a_row(), [false, false, true, false, false]);
        assert!(!said(&["grpc://c:1"], &[member("grpc://c:1", 1)]));
        assert!(!said(&[], &[]));
        assert_eq!(in_a_row(), [false, false, true, false, false]);
    }
}

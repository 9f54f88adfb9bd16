//! Who there is.
//!
//! Comes in: URIs and incarnations. Goes out: [`Members`], a picture of one moment that never changes, so that all of a query goes by the same one. Read on in `join.rs` (finding them) with `listed.rs` (what is wrong with the list),
//! `channel.rs` (reaching them), `there.rs` (as long as a statement runs), `lives.rs` (whose tiles are lost), `tell.rs` (that the catalog has changed) with `silent.rs` (who did not answer lately), `figures.rs` (what they do, for those
//! who watch). Never here: finding out who is alive.

pub(super) mod channel;
pub(super) mod figures;
pub(super) mod join;
pub(super) mod listed;
pub(super) mod lives;
pub(super) mod silent;
pub(super) mod tell;
pub(super) mod there;

use std::collections::{HashMap, HashSet};

use twox_hash::XxHash64;
use url::{Host, Url};

use super::plan::allowed::Cores;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::share::Incarnation;

/// A process of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where others reach it, as clients write it: `grpc://` or `grpc+tls://`, with host and port.
    uri: String,
    /// The same for HTTP/2. All URLs of members are made in one place, since the engine compares them.
    url: Url,
    /// How it names itself: others may reach it by other addresses, which do not tell what it is to have.
    name: String,
    incarnation: Incarnation,
    location: Location,
    /// 0 if nobody knows.
    memory_bytes: u64,
    cores: Cores,
}

impl Member {
    /// The member with this life.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no URI of a server.
    pub fn try_new(uri: &str, incarnation: Incarnation, location: Location) -> Result<Self> {
        let wrong = || {
            Error::invalid_argument(format!(
                "the URI of a member must be grpc://HOST:PORT or grpc+tls://HOST:PORT, got {uri:?}"
            ))
        };
        let url = url_of(uri).ok_or_else(wrong)?;
        if url.port_or_known_default().is_none() || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        Ok(Self {
            uri: uri.to_owned(),
            url,
            name: uri.to_owned(),
            incarnation,
            location,
            memory_bytes: 0,
            cores: Cores::default(),
        })
    }

    /// The same member, with so much memory for queries.
    #[must_use]
    pub fn with_memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// The same member, which may use these cores.
    pub(super) fn with_cores(mut self, cores: Cores) -> Self {
        self.cores = cores;
        self
    }

    /// The same member, which says of itself that its URI is this one.
    pub(super) fn with_name(mut self, uri: &str) -> Self {
        uri.clone_into(&mut self.name);
        self
    }

    /// This process.
    ///
    /// # Errors
    /// As [`Member::try_new`]; `Internal` when the operating system gives no random bytes.
    pub fn here(uri: &str) -> Result<Self> {
        let here = Self::try_new(uri, Incarnation::current()?, Location::here())?;
        Ok(here.with_cores(Cores::here()))
    }

    /// Where clients and other members reach it.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The URI that it tells of itself, which is the same for whoever asks, and in its next life: by it placement knows the member.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its address stands for all addresses of a host, which nobody can reach.
    pub(super) fn is_anywhere(&self) -> bool {
        match self.url.host() {
            Some(Host::Ipv4(address)) => address.is_unspecified(),
            Some(Host::Ipv6(address)) => address.is_unspecified(),
            Some(Host::Domain(_)) | None => false,
        }
    }

    /// Whether a URI is its own, however it is written.
    pub(super) fn is_at(&self, uri: &str) -> bool {
        url_of(uri).is_some_and(|url| url == self.url)
    }

    /// The same, as the engine names it.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The URI of a member at a URL, for those who read of it.
    pub(super) fn uri_of(url: &Url) -> String {
        let host = url.host_str().unwrap_or_default();
        let (scheme, port) = match (url.scheme(), url.port_or_known_default()) {
            ("https", port) => ("grpc+tls", port),
            (_, port) => ("grpc", port),
        };
        match port {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }
    }

    /// The random name of its life.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its host and process.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its memory for queries, in bytes; 0 if nobody knows.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The cores that it may use.
    pub(super) fn cores(&self) -> Cores {
        self.cores
    }
}

/// What a URI of a server is for HTTP/2, if it is one.
fn url_of(uri: &str) -> Option<Url> {
    let address = match (uri.strip_prefix("grpc://"), uri.strip_prefix("grpc+tls://")) {
        (Some(rest), _) => format!("http://{rest}"),
        (_, Some(rest)) => format!("https://{rest}"),
        _ => return None,
    };
    Url::parse(&address).ok()
}

/// All members at one moment, as this process counts them: itself first, then the others in the order of their URIs, from its own on. A plan of fewer tasks than members has the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    own: Member,
    others: Vec<Member>,
    /// How placement knows each, in the order of [`Members::iter`].
    names: Vec<String>,
    /// Their incarnations as texts, in the same order.
    lives: Vec<String>,
    /// The number of each life, in the same order.
    numbers: HashMap<Incarnation, usize>,
    /// One number for all of their lives.
    digest: u64,
}

impl Members {
    /// What each is to have beside the others: by its memory in MiB, if all said how much they have; else all the same.
    #[must_use]
    pub fn weights(&self) -> Vec<u64> {
        let are_known = self.iter().all(|member| member.memory_bytes() > 0);
        let weight = |member: &Member| match are_known {
            true => (member.memory_bytes() >> 20).max(1),
            false => 1,
        };
        self.iter().map(weight).collect()
    }

    /// One member.
    #[must_use]
    pub fn alone(own: Member) -> Self {
        Self::of(own, Vec::new())
    }

    /// This process and others; of two with one URI, or one life, the first counts.
    #[must_use]
    pub fn of(own: Member, others: impl IntoIterator<Item = Member>) -> Self {
        let mut others: Vec<Member> = others
            .into_iter()
            // It may be listed by another of its addresses.
            .filter(|member| member.url != own.url && member.incarnation != own.incarnation)
            .collect();
        others.sort_by(|one, other| one.url.cmp(&other.url));
        others.dedup_by(|one, other| one.url == other.url);
        let mut seen = HashSet::new();
        others.retain(|member| seen.insert(member.incarnation));
        let after = others.partition_point(|member| member.url < own.url);
        others.rotate_left(after);
        let all = || std::iter::once(&own).chain(&others);
        let lives: Vec<String> = all().map(|member| member.incarnation.to_string()).collect();
        let numbers = all().map(|member| member.incarnation).zip(0..).collect();
        Self {
            numbers,
            names: names(&own, &others),
            digest: XxHash64::oneshot(0, lives.concat().as_bytes()),
            lives,
            own,
            others,
        }
    }

    /// This process.
    #[must_use]
    pub fn own(&self) -> &Member {
        &self.own
    }

    /// All, this process first.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.own).chain(&self.others)
    }

    /// The names by which placement knows them, the same at all members: the URI that each tells of itself.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The names of what they have in memory now, and have no more when they are started again: their lives.
    pub(super) fn lives(&self) -> impl Iterator<Item = &str> {
        self.lives.iter().map(String::as_str)
    }

    /// A number that others than these have not: of other lives, or of more or fewer.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always this process")]
    pub fn len(&self) -> usize {
        self.others.len() + 1
    }

    /// Whether all are on the host of this process.
    pub(super) fn are_on_one_host(&self) -> bool {
        let here = self.own.location().host();
        self.others
            .iter()
            .all(|member| member.location().host() == here)
    }

    /// The number of the member with this life, in the order of [`Members::iter`].
    #[must_use]
    pub fn number_of(&self, incarnation: Incarnation) -> Option<usize> {
        self.numbers.get(&incarnation).copied()
    }
}

/// The names of members. Of those that tell one URI, which may be that of a proxy for clients, the lives tell them apart.
fn names(own: &Member, others: &[Member]) -> Vec<String> {
    let all = || std::iter::once(own).chain(others);
    let mut told: HashMap<&str, usize> = HashMap::new();
    for member in all() {
        *told.entry(member.name()).or_default() += 1;
    }
    let names = all().map(|member| match told.get(member.name()) {
        Some(2..) => format!("{} {}", member.name(), member.incarnation()),
        _ => member.name().to_owned(),
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(uri: &str, life: u128) -> Member {
        Member::try_new(uri, Incarnation::from_bits(life), Location::here()).unwrap()
    }

    #[test]
    fn members_come_from_this_one_on_and_each_life_once() {
        let all = ["grpc://a:1", "grpc://b:1", "grpc://c:1"];
        let all = all.iter().zip(1..).map(|(uri, life)| member(uri, life));
        let all: Vec<Member> = all
            .chain([member("grpc://d:1", 1), member("grpc://a:1", 9)])
            .collect();
        let members = Members::of(all[1].clone(), all.clone());
        let uris: Vec<&str> = members.iter().map(Member::uri).collect();
        assert_eq!(uris, ["grpc://b:1", "grpc://c:1", "grpc://a:1"]);
        assert_eq!(members.number_of(Incarnation::from_bits(1)), Some(2));
        assert_eq!(members.number_of(Incarnation::from_bits(7)), None);
    }

    #[test]
    fn a_digest_is_that_of_lives() {
        let of = |lives: [u128; 2]| {
            let [own, other] = lives;
            Members::of(member("grpc://a:1", own), [member("grpc://b:1", other)]).digest()
        };
        assert_eq!(of([1, 2]), of([1, 2]));
        // One was started again at the same address.
        assert_ne!(of([1, 2]), of([1, 3]));
        let alone = Members::alone(member("grpc://a:1", 1));
        assert_ne!(alone.digest(), of([1, 2]));
    }

    #[test]
    fn names_are_what_members_tell_however_they_are_reached() {
        let told = ["grpc://a:1", "grpc://b:1", "grpc://c:1"];
        let seen_by = |own: usize, told: [&str; 3]| {
            let all = (0..3).map(|at| {
                let uri = match at == own {
                    true => told[at].to_owned(),
                    false => format!("grpc://192.0.2.{}:{own}", at + 1),
                };
                member(&uri, at as u128 + 1).with_name(told[at])
            });
            let all: Vec<Member> = all.collect();
            let members = Members::of(all[own].clone(), all);
            let names = members.iter().zip(members.names());
            let mut names: Vec<_> = names
                .map(|(member, name)| (member.incarnation().bits(), name.to_owned()))
                .collect();
            names.sort_unstable();
            names
        };
        let names = seen_by(0, told);
        assert!(names.iter().map(|(_, name)| name).eq(told));
        assert_eq!((&seen_by(1, told), &seen_by(2, told)), (&names, &names));
        // One URI for all of them.
        let shared = ["grpc://proxy:1", "grpc://proxy:1", "grpc://c:1"];
        let names = seen_by(0, shared);
        assert_ne!(names[0].1, names[1].1);
        assert_eq!(names[2].1, "grpc://c:1");
        assert_eq!(seen_by(2, shared), names);
    }

    #[test]
    fn a_member_is_named_as_people_write_it() {
        for uri in ["grpc://host:80", "grpc+tls://host:443", "grpc://[::1]:7001"] {
            assert_eq!(Member::uri_of(member(uri, 1).url()), uri);
        }
    }

    #[test]
    fn an_address_is_that_of_a_member_however_it_is_written() {
        let own = member("grpc://db1:80", 1);
        for uri in ["grpc://db1:80", "grpc://DB1:80", "grpc://db1"] {
            assert!(own.is_at(uri), "{uri}");
        }
        for uri in [
            "grpc+tls://db1:80",
            "grpc://db1:81",
            "grpc://db2:80",
            "db1:80",
            "",
        ] {
            assert!(!own.is_at(uri), "{uri}");
        }
    }

    #[test]
    fn ports_that_a_scheme_implies_are_ports() {
        assert!(
            Member::try_new(
                "grpc+tls://host:443",
                Incarnation::from_bits(1),
                Location::here()
            )
            .is_ok()
        );
        assert!(
            Member::try_new(
                "grpc://host:80",
                Incarnation::from_bits(1),
                Location::here()
            )
            .is_ok()
        );
        for uri in ["http://host:1", "grpc://", "host:1"] {
            assert!(
                Member::try_new(uri, Incarnation::from_bits(1), Location::here()).is_err(),
                "{uri}"
            );
        }
    }
}

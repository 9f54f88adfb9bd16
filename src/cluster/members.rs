//! Who there is.
//!
//! Comes in: URIs and incarnations. Goes out: [`Members`], a picture of one moment that never changes, so that all of a query goes by the same one. Never here: finding out who is alive.

use std::collections::HashSet;

use url::{Host, Url};

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
    incarnation: Incarnation,
    location: Location,
    /// 0 if nobody knows.
    memory_bytes: u64,
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
        let address = match (uri.strip_prefix("grpc://"), uri.strip_prefix("grpc+tls://")) {
            (Some(rest), _) => format!("http://{rest}"),
            (_, Some(rest)) => format!("https://{rest}"),
            _ => return Err(wrong()),
        };
        let url = Url::parse(&address).map_err(|_| wrong())?;
        if url.port_or_known_default().is_none() || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        Ok(Self {
            uri: uri.to_owned(),
            url,
            incarnation,
            location,
            memory_bytes: 0,
        })
    }

    /// The same member, with so much memory for queries.
    #[must_use]
    pub fn with_memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// This process.
    ///
    /// # Errors
    /// As [`Member::try_new`]; `Internal` when the operating system gives no random bytes.
    pub fn here(uri: &str) -> Result<Self> {
        Self::try_new(uri, Incarnation::current()?, Location::here())
    }

    /// Where clients and other members reach it.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Whether its address stands for all addresses of a host, which nobody can reach.
    pub(super) fn is_anywhere(&self) -> bool {
        match self.url.host() {
            Some(Host::Ipv4(address)) => address.is_unspecified(),
            Some(Host::Ipv6(address)) => address.is_unspecified(),
            Some(Host::Domain(_)) | None => false,
        }
    }

    /// The same, as the engine names it.
    pub(super) fn url(&self) -> &Url {
        &self.url
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
}

/// All members at one moment, as this process counts them: itself first, then the others in the order of their URIs, from its own on. A plan of fewer tasks than members has the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    own: Member,
    others: Vec<Member>,
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
        let others = Vec::new();
        Self { own, others }
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
        Self { own, others }
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

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always this process")]
    pub fn len(&self) -> usize {
        self.others.len() + 1
    }

    /// The number of the member with this life, in the order of [`Members::iter`].
    #[must_use]
    pub fn number_of(&self, incarnation: Incarnation) -> Option<usize> {
        self.iter()
            .position(|member| member.incarnation == incarnation)
    }
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

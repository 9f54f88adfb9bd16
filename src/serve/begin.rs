//! What a server needs to begin, and what whoever starts it should know.
//!
//! Comes in: options; a server that listens. Goes out: the first that stands in the way, before grids are loaded: files of tokens and certificates, ports, the token that members show, and those whom they trust; warnings. Never here: what options mean (`options.rs`).

use std::net::SocketAddr;
#[cfg(feature = "distributed")]
use std::time::SystemTime;

use tokio::net::TcpSocket;
#[cfg(feature = "distributed")]
use tonic::metadata::{Ascii, MetadataValue};

use super::options::{ServerOptions, TokenSource};
use super::service::Service;
#[cfg(feature = "distributed")]
use crate::cluster::Join;
use crate::error::{Error, Result};
use crate::serve::door::auth::Tokens;
#[cfg(feature = "distributed")]
use crate::serve::door::auth::{Presented, token_of};
use crate::serve::door::listen::cannot_listen;
use crate::serve::door::tls::Tls;
#[cfg(feature = "distributed")]
use crate::serve::door::tls::names_but;

/// What is said where the address is that of all interfaces and nobody said what other hosts call it.
const NO_LOCATION: &str = "the server listens at all interfaces and was not told what other hosts call it (server.advertised): answers name no location, and are to be fetched on the connection that asked";

/// How to come by a token that members can show each other.
#[cfg(feature = "distributed")]
const MAKE: &str = "`partgrid token members --scope admin --add-to FILE` makes one; the token that it prints goes into the file of cluster.token of all members";

impl TokenSource {
    /// The tokens, at least one.
    ///
    /// # Errors
    /// As [`Tokens::read`]; `InvalidArgument` where there is none.
    pub(super) fn read(&self) -> Result<Tokens> {
        let tokens = match self {
            Self::Given(tokens) => tokens.clone(),
            Self::File(path) => Tokens::read(path)?,
        };
        if !tokens.is_empty() {
            return Ok(tokens);
        }
        let text = "a server that asks for tokens must have at least one, got none";
        let error = Error::invalid_argument(text)
            .with_hint("make one with `partgrid token NAME --add-to FILE`");
        Err(match self {
            Self::Given(_) => error,
            Self::File(path) => error.with_file(path.display().to_string()),
        })
    }
}

impl ServerOptions {
    /// As [`ServerOptions::check`]; and sees that files of tokens and certificates can be read, and ports be had: for those who have yet to load grids, which may take long.
    ///
    /// # Errors
    /// As [`Server::start`](super::Server::start).
    pub fn check_start(&self) -> Result<()> {
        self.check()?;
        if let Some(source) = &self.tokens {
            let tokens = source.read()?;
            self.check_shown(&tokens)?;
        }
        #[cfg(feature = "distributed")]
        if let Some(cluster) = &self.cluster {
            cluster.read_ca()?;
        }
        if let Some(files) = &self.tls {
            drop(Tls::read(files.clone())?);
        }
        let addresses = [Some(self.address), self.http_address];
        addresses.into_iter().flatten().try_for_each(check_free)
    }

    /// As [`check_shown`].
    #[cfg(feature = "distributed")]
    pub(super) fn check_shown(&self, tokens: &Tokens) -> Result<()> {
        match &self.cluster {
            Some(cluster) => check_shown(cluster.client.bearer()?.now().as_ref(), tokens),
            None => Ok(()),
        }
    }

    #[cfg(not(feature = "distributed"))]
    pub(super) fn check_shown(&self, _: &Tokens) -> Result<()> {
        Ok(())
    }
}

/// Refuses what a member shows if it would not let it in at members that have the same tokens. One that is not among them may be good elsewhere.
///
/// # Errors
/// `InvalidArgument` for a token with which one may not do all.
#[cfg(feature = "distributed")]
pub(super) fn check_shown(shown: Option<&MetadataValue<Ascii>>, tokens: &Tokens) -> Result<()> {
    let token = shown.and_then(|shown| shown.to_str().ok());
    let Some(token) = token.and_then(token_of) else {
        return Ok(());
    };
    let caller = match tokens.look_up(&token, SystemTime::now()) {
        Presented::Good(caller) => caller,
        Presented::Expired => {
            let text =
                "members must show a token that is good (cluster.token), got one that has expired";
            return Err(Error::invalid_argument(text).with_hint(MAKE));
        }
        Presented::Unknown => return Ok(()),
    };
    if super::member::check(&caller).is_ok() {
        return Ok(());
    }
    let some = caller.patterns().map_or("", |_| " for some grids");
    let text = format!(
        "members must show a token with the scope `admin` for all grids (cluster.token), the token `{}` has `{}`{some}",
        caller.name(),
        caller.scope()
    );
    Err(Error::invalid_argument(text).with_hint(MAKE))
}

/// Sees that nobody else listens there, without listening itself: nobody is to knock in vain.
fn check_free(address: SocketAddr) -> Result<()> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)
    });
    bound.map_err(|error| cannot_listen(address, &error))
}

/// What whoever starts a server should know.
pub(super) fn warnings(service: &Service, options: &ServerOptions) -> Vec<String> {
    let unnamed = service.location().is_none().then(|| NO_LOCATION.to_owned());
    unnamed
        .into_iter()
        .chain(misnamed(service, options))
        .chain(unshown(service, options))
        .chain(hidden(service, options))
        .collect()
}

/// That tables of the catalog are not to be seen, since grids that the server was started with have their names.
fn hidden(service: &Service, options: &ServerOptions) -> Vec<String> {
    let Some(catalog) = &service.catalog else {
        return Vec::new();
    };
    let names = options.own_grids().iter().map(|(name, _)| name);
    let names = names.filter(|name| catalog.has(name));
    let said = names.map(|name| {
        format!(
            "the grid {name:?} that the server was started with hides the table {name:?} of the catalog {}, which stays there unseen: give the grid another name, or start without it",
            catalog.place()
        )
    });
    said.collect()
}

/// That other members that ask for the same tokens will not let this one in.
#[cfg(feature = "distributed")]
fn unshown(service: &Service, options: &ServerOptions) -> Option<String> {
    let (cluster, _) = (options.cluster.as_ref()?, options.tokens.as_ref()?);
    let own = service.uri().split_once("://")?.1;
    let is_alone = match cluster.join.as_ref()? {
        Join::List(list) => list.iter().all(|uri| uri.ends_with(own)),
        Join::File(_) | Join::Dns(..) => false,
    };
    // Files are read before.
    let shown = cluster.client.bearer().ok()?;
    (shown.now().is_none() && !is_alone).then(|| {
        format!(
            "this member asks for tokens and shows the others none, so that those refuse it that ask for them as well: say the file of the token with cluster.token (`--set cluster.token=FILE`); {MAKE}"
        )
    })
}

#[cfg(not(feature = "distributed"))]
fn unshown(_: &Service, _: &ServerOptions) -> Option<String> {
    None
}

/// That other members will not believe that this one is the one that they look for.
#[cfg(feature = "distributed")]
fn misnamed(service: &Service, options: &ServerOptions) -> Option<String> {
    let (cluster, files) = (options.cluster.as_ref()?, options.tls.as_ref()?);
    let (wanted, remedy) = match &cluster.join {
        // What DNS gives are addresses; the certificates are for the name.
        Some(Join::Dns(name, _)) => (name.clone(), "join by a name that it has"),
        _ => (
            host_of(service.uri())?,
            "say server.advertised with a name that it has",
        ),
    };
    let names = match names_but(files, &wanted)?.join(", ") {
        none if none.is_empty() => "no name".to_owned(),
        names => names,
    };
    let file = files.certificate.display();
    Some(format!(
        "members that know this one as {wanted} refuse it: they look for that in its certificate {file}, which is for {names}; put {wanted} into it (subjectAltName), or {remedy}"
    ))
}

#[cfg(not(feature = "distributed"))]
fn misnamed(_: &Service, _: &ServerOptions) -> Option<String> {
    None
}

/// The host of the URI of a server.
#[cfg(feature = "distributed")]
fn host_of(uri: &str) -> Option<String> {
    let (_, authority) = uri.split_once("://")?;
    let url = url::Url::parse(&format!("https://{authority}")).ok()?;
    Some(match url.host()? {
        url::Host::Domain(name) => name.to_owned(),
        url::Host::Ipv4(address) => address.to_string(),
        url::Host::Ipv6(address) => address.to_string(),
    })
}

#[cfg(all(test, feature = "distributed"))]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cluster::ClusterOptions;
    use crate::error::ErrorKind;
    use crate::serve::door::auth::{Scope, new_token};

    #[test]
    fn hosts_are_as_certificates_have_them() {
        for (uri, host) in [
            ("grpc+tls://db1:8815", "db1"),
            ("grpc+tls://127.0.0.1:1", "127.0.0.1"),
            ("grpc+tls://[::1]:1", "::1"),
        ] {
            assert_eq!(host_of(uri).as_deref(), Some(host));
        }
    }

    #[test]
    fn a_member_whose_own_server_would_not_let_it_in_does_not_start() {
        let entry = |scope, grids: &[String]| new_token("m", scope, grids, None).unwrap();
        let checked = |(token, entry): (String, String)| {
            let tokens = Tokens::parse(&entry).unwrap();
            let cluster = ClusterOptions::default().with_token(&token);
            let options = ServerOptions::default().with_cluster(cluster);
            options.check_shown(&tokens)
        };
        assert!(checked(entry(Scope::Admin, &[])).is_ok());
        for (scope, grids, has) in [
            (Scope::Write, vec![], "has `write`"),
            (
                Scope::Admin,
                vec!["a*".to_owned()],
                "has `admin` for some grids",
            ),
        ] {
            let error = checked(entry(scope, &grids)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().ends_with(has), "{error}");
        }
        // One that shows none may be a member of those that ask for none.
        let (_, entries) = entry(Scope::Admin, &[]);
        let tokens = Tokens::parse(&entries).unwrap();
        let options = ServerOptions::default().with_cluster(ClusterOptions::default());
        assert!(options.check_shown(&tokens).is_ok());
        let valid_for = Some(std::time::Duration::ZERO);
        let expired = new_token("m", Scope::Admin, &[], valid_for).unwrap();
        let error = checked(expired).unwrap_err();
        assert!(error.message().ends_with("has expired"), "{error}");
        // It may be good at others.
        let (token, _) = entry(Scope::Read, &[]);
        let (_, other) = entry(Scope::Admin, &[]);
        assert!(checked((token, other)).is_ok());
    }

    #[test]
    fn what_is_missing_is_said_before_anything_is_loaded() {
        let absent = PathBuf::from("/no/such/tokens");
        let options = ServerOptions::default().with_token_file(absent);
        assert_eq!(
            options.check_start().unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let options = ServerOptions::default().with_address(address);
        let error = options.check_start().unwrap_err();
        assert!(error.message().contains("cannot listen"), "{error}");
    }
}

//! How a server is set up.
//!
//! Comes in: addresses, grids, tokens, certificates, limits. Goes out: the same, checked: what would let strangers in is refused. Never here: where the settings were written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::accounts::CallerLimits;
use crate::catalog::Catalog;
#[cfg(feature = "distributed")]
use crate::cluster::ClusterOptions;
use crate::error::{Error, Result};
use crate::grid::PartitionGrid;
use crate::load::LoadOptions;
use crate::memory::default_memory_limit_bytes;
use crate::query::max_threads;
use crate::serve::door::auth::Tokens;
use crate::serve::door::tls::TlsFiles;

/// What clients may use. All are bounds of the server, whoever calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one message of rows that comes in.
    pub message_bytes: usize,
    /// How long a query may take, waiting for its turn included.
    pub query_time: Duration,
    /// What one query may use of memory.
    pub query_memory_bytes: usize,
    /// What all queries together may use, and what clients are sending.
    pub memory_bytes: usize,
    /// What the files that queries spill to may have together.
    pub spill_bytes: u64,
    /// What grids may have in memory, when a client makes another one.
    pub grid_bytes: u64,
    /// How many queries run at once; others wait.
    pub queries: usize,
    /// How many wait for their turn before others are refused.
    pub waiting: usize,
    /// The most bytes of one answer, as they lie in memory.
    pub answer_bytes: u64,
    /// The most rows of one answer.
    pub answer_rows: u64,
    /// The most bytes of one upload, as they lie in memory.
    pub upload_bytes: u64,
    /// How many connections there may be.
    pub connections: usize,
    /// How long nothing may come on a connection, not even what its client says by itself when it is asked whether it is there; and how long a request may take to come in.
    pub silence: Duration,
}

/// The longest silence that can be waited for.
const MOST_SILENCE: Duration = Duration::from_hours(24);

/// Clients send messages of about half as many bytes.
const LEAST_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        let memory_bytes = default_memory_limit_bytes();
        Self {
            message_bytes: 16 * 1024 * 1024,
            query_time: Duration::from_secs(60),
            query_memory_bytes: (memory_bytes / 4).clamp(1, 1 << 30),
            memory_bytes,
            spill_bytes: 4 << 30,
            grid_bytes: memory_bytes as u64,
            queries: 2 * max_threads(),
            waiting: 1024,
            answer_bytes: 4 << 30,
            answer_rows: u64::MAX,
            upload_bytes: 4 << 30,
            connections: 1024,
            silence: Duration::from_secs(30),
        }
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let all = [
            ("message_bytes", self.message_bytes as u64),
            ("query_memory_bytes", self.query_memory_bytes as u64),
            ("memory_bytes", self.memory_bytes as u64),
            ("queries", self.queries as u64),
            ("spill_bytes", self.spill_bytes),
            ("grid_bytes", self.grid_bytes),
            ("answer_bytes", self.answer_bytes),
            ("answer_rows", self.answer_rows),
            ("upload_bytes", self.upload_bytes),
            ("connections", self.connections as u64),
        ];
        match all.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(Error::invalid_argument(format!(
                "limits.{name} must be at least 1, got 0"
            ))),
            None if self.message_bytes < LEAST_MESSAGE_BYTES => {
                Err(Error::invalid_argument(format!(
                    "limits.message must be at least {LEAST_MESSAGE_BYTES} bytes, got {}",
                    self.message_bytes
                )))
            }
            None if self.connections > Semaphore::MAX_PERMITS => {
                Err(Error::invalid_argument(format!(
                    "limits.connections must be at most {}, got {}",
                    Semaphore::MAX_PERMITS,
                    self.connections
                )))
            }
            None if self.query_time.is_zero() => Err(Error::invalid_argument(
                "limits.query_time must be more than 0 seconds",
            )),
            None if self.silence.is_zero() || self.silence > MOST_SILENCE => {
                Err(Error::invalid_argument(format!(
                    "limits.silence must be more than 0 seconds and at most a day, got {}",
                    self.silence.as_secs_f64()
                )))
            }
            None => Ok(()),
        }
    }
}

/// Everything that a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub(super) address: SocketAddr,
    pub(super) http_address: Option<SocketAddr>,
    pub(super) advertised: Option<String>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) tokens: Option<TokenSource>,
    pub(super) is_insecure: bool,
    pub(super) limits: Limits,
    pub(super) caller_limits: CallerLimits,
    pub(super) threads: Option<usize>,
    pub(super) spill_to: Option<PathBuf>,
    pub(super) catalog: Option<String>,
    pub(super) skips_damaged: bool,
    pub(super) load_from: Vec<String>,
    pub(super) grids: Vec<(String, Arc<PartitionGrid>)>,
    #[cfg(feature = "distributed")]
    pub(super) cluster: Option<ClusterOptions>,
    #[cfg(feature = "distributed")]
    pub(super) part: Option<(usize, usize)>,
}

/// Where tokens come from.
#[derive(Debug, Clone)]
pub(super) enum TokenSource {
    /// A file, which is read again when the server is told to.
    File(PathBuf),
    Given(Tokens),
}

impl Default for ServerOptions {
    fn default() -> Self {
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self {
            address: loopback,
            http_address: Some(loopback),
            advertised: None,
            tls: None,
            tokens: None,
            is_insecure: false,
            limits: Limits::default(),
            caller_limits: CallerLimits::default(),
            threads: None,
            spill_to: None,
            catalog: None,
            skips_damaged: false,
            load_from: Vec::new(),
            grids: Vec::new(),
            #[cfg(feature = "distributed")]
            cluster: None,
            #[cfg(feature = "distributed")]
            part: None,
        }
    }
}

impl ServerOptions {
    /// Where Flight listens; port 0 takes a free one. By default a free port of 127.0.0.1.
    #[must_use]
    pub fn with_address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Where the status page and the metrics are; `None` for nowhere. By default a free port of 127.0.0.1.
    #[must_use]
    pub fn with_http_address(mut self, address: Option<SocketAddr>) -> Self {
        self.http_address = address;
        self
    }

    /// The URI that clients are told, where it is another than that of the address: behind a proxy, or when the address is that of all interfaces.
    #[must_use]
    pub fn with_advertised(mut self, uri: impl Into<String>) -> Self {
        self.advertised = Some(uri.into());
        self
    }

    /// Encrypts all ports with this certificate.
    #[must_use]
    pub fn with_tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Asks every caller, on every port, for one of these tokens.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(TokenSource::Given(tokens));
        self
    }

    /// As [`ServerOptions::with_tokens`], with those of a file (see [`Tokens::read`]), which [`Server::reload`](super::Server::reload) reads again.
    #[must_use]
    pub fn with_token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tokens = Some(TokenSource::File(path.into()));
        self
    }

    /// Allows addresses other than loopback without TLS and tokens: whoever reaches the port can then read, write and drop everything.
    #[must_use]
    pub fn with_insecure(mut self, is_insecure: bool) -> Self {
        self.is_insecure = is_insecure;
        self
    }

    /// What clients may use.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What the bearer of one token may use, where the token does not say it.
    #[must_use]
    pub fn with_caller_limits(mut self, limits: CallerLimits) -> Self {
        self.caller_limits = limits;
        self
    }

    /// On how many threads queries run.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// The folder in which queries make their temporary files.
    #[must_use]
    pub fn with_spill_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill_to = Some(folder.into());
        self
    }

    /// Where grids that clients make are kept: a folder, or the URL of an object store. What is there is served from the start. Without it, they are gone when the server ends.
    #[must_use]
    pub fn with_catalog(mut self, url: impl Into<String>) -> Self {
        self.catalog = Some(url.into());
        self
    }

    /// Leaves tables of the catalog out that are damaged, with their files as they are, in place of not starting. A catalog that several servers may have does so in any case.
    #[must_use]
    pub fn with_skip_damaged(mut self, skips_damaged: bool) -> Self {
        self.skips_damaged = skips_damaged;
        self
    }

    /// The folders and URLs below which clients with the right to write may have files loaded; none by default.
    #[must_use]
    pub fn with_load_from(mut self, places: Vec<String>) -> Self {
        self.load_from = places;
        self
    }

    /// A grid that the server has from the start; it is not kept in the catalog.
    #[must_use]
    pub fn with_grid(mut self, name: impl Into<String>, grid: Arc<PartitionGrid>) -> Self {
        self.grids.push((name.into(), grid));
        self
    }

    /// Makes the server a member of a cluster, so far the only one; see [`Server::cluster`](super::Server::cluster). Members must show tokens with which one may do all.
    #[cfg(feature = "distributed")]
    #[must_use]
    pub fn with_cluster(mut self, options: ClusterOptions) -> Self {
        self.cluster = Some(options);
        self
    }

    /// The grids that the server has from the start are part `number` of the `of` parts of grids of all members.
    #[cfg(feature = "distributed")]
    #[must_use]
    pub fn with_part(mut self, number: usize, of: usize) -> Self {
        self.part = Some((number, of));
        self
    }

    /// The grids that it has from the start and that are no parts of others.
    pub(super) fn own_grids(&self) -> &[(String, Arc<PartitionGrid>)] {
        #[cfg(feature = "distributed")]
        if self.part.is_some() {
            return &[];
        }
        &self.grids
    }

    /// How grids for this server are to be loaded: those that are parts of grids of all members know from which files they come, so that other members can read them again.
    #[must_use]
    pub fn load_options(&self) -> LoadOptions {
        let wanted = LoadOptions::default();
        #[cfg(feature = "distributed")]
        let wanted = wanted.with_files_remembered(self.part.is_some());
        wanted
    }

    /// Refuses a part of nothing: only what is there from the start is a part.
    ///
    /// # Errors
    /// `InvalidArgument` with the remedy.
    #[cfg(feature = "distributed")]
    pub(super) fn check_part(&self) -> Result<()> {
        let Some((number, of)) = self.part.filter(|_| self.grids.is_empty()) else {
            return Ok(());
        };
        let text = format!(
            "part {number} of {of} (cluster.part, or --part) is that of the grids which the server has from the start, got none"
        );
        Err(Error::invalid_argument(text).with_hint(
            "name what it is a part of (--grid NAME=PATH, or grids= in Python), or leave the part out; a program says it of each grid: server.contribute(name, data, part=…, of=…)",
        ))
    }

    /// Refuses a member that nobody could reach, and parts of no member.
    #[cfg(feature = "distributed")]
    fn check_member(&self) -> Result<()> {
        if self.cluster.is_none() {
            if self.part.is_none() {
                return Ok(());
            }
            let text = "only a member of a cluster has parts of grids of all members";
            return Err(Error::invalid_argument(text)
                .with_hint("say where the members are: cluster.join, or --join"));
        }
        if let Some(cluster) = &self.cluster {
            cluster.check()?;
        }
        let scheme = match self.tls {
            Some(_) => "grpc+tls",
            None => "grpc",
        };
        let listening = format!("{scheme}://{}", self.address);
        let uri = self.advertised.as_ref().unwrap_or(&listening);
        crate::cluster::own_member(uri).map(drop)
    }

    /// Refuses a status page at the port of Flight SQL.
    fn check_ports(&self) -> Result<()> {
        let (flight, http) = match self.http_address {
            Some(http) if http.port() != 0 && http.port() == self.address.port() => {
                (self.address, http)
            }
            _ => return Ok(()),
        };
        // All addresses of IPv6 are also those of IPv4.
        let is_all = |one: SocketAddr, other: SocketAddr| {
            one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
        };
        if flight.ip() != http.ip() && !is_all(flight, http) && !is_all(http, flight) {
            return Ok(());
        }
        let text = format!(
            "server.address and server.http must have ports of their own, got {flight} and {http}"
        );
        Err(Error::invalid_argument(text).with_hint(
            "say another port for one of them (`--address`, `--http`), or `--http off` for no status page",
        ))
    }

    /// Refuses what cannot work, and what would let strangers in: as [`Server::start`](super::Server::start) does, for those who have yet to load grids.
    ///
    /// # Errors
    /// `InvalidArgument` with the remedy.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        self.caller_limits.check()?;
        if self.tokens.is_none() && self.caller_limits != CallerLimits::default() {
            let text = "limits of tokens (auth.queries, auth.memory, auth.answer) are for servers that ask for tokens";
            return Err(Error::invalid_argument(text)
                .with_hint("name a file of tokens, or bound all callers together: limits.queries, limits.memory, limits.answer"));
        }
        if let Some(place) = &self.catalog {
            Catalog::check_place(place)?;
        }
        self.check_ports()?;
        let addresses = [Some(self.address), self.http_address];
        for address in addresses.into_iter().flatten() {
            let is_safe = self.tls.is_some() && self.tokens.is_some();
            if address.ip().is_loopback() || is_safe || self.is_insecure {
                continue;
            }
            let missing = match (&self.tls, &self.tokens) {
                (None, None) => "TLS and tokens",
                (None, Some(_)) => "TLS",
                _ => "tokens",
            };
            let text = format!(
                "an address other than loopback needs TLS and tokens, got {address} without {missing}"
            );
            return Err(Error::invalid_argument(text).with_hint(
                "give it a certificate with its key and a file of tokens (tls= and tokens=; `--tls-certificate`, `--tls-key`, `--tokens`), listen at 127.0.0.1, or allow it with insecure=True (`--insecure`)",
            ));
        }
        #[cfg(feature = "distributed")]
        self.check_member()?;
        Ok(())
    }
}

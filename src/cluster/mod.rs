//! 4. The same plan on many processes.
//!
//! Comes in: a session, the members of a cluster, grids whose tiles they have. Goes out: plans of which each member runs the part over its own tiles, and a service that runs such parts here. The engine
//! is datafusion-distributed: it cuts plans into stages, sends them and moves rows between them; what is here tells it where the tiles are. Read on in `members/` (who there is, how they are reached, what
//! they do), `parts/` (what each has of grids of all, and its copies), `placement/` (who is to have which row bands, and reads which), `tile/` (tiles of others), `spread/` (a plan that is spread when it
//! runs), `plan/` (how it is changed before and after it is cut), `codec/` (how a scan travels), `worker/` (parts of plans of others), `write/` (loads by all). Never here: a scheduler, a shuffle, consensus.

mod codec;
#[cfg(test)]
mod hostile;
mod look;
#[cfg(test)]
mod looks;
mod members;
mod parts;
mod placement;
mod plan;
#[cfg(test)]
mod scale;
mod spread;
mod tile;
mod worker;
mod write;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use datafusion::execution::SessionState;
use tokio::runtime::Handle;

pub use members::join::Join;
pub use members::{Member, Members};
pub(crate) use parts::tell_sample;
pub use parts::{PartOf, of_parts};
pub use placement::{Seat, owner, owners};
pub use tile::MemberTile;
pub use tile::near::NEAR_BYTES;
pub(crate) use tile::owner::BandThere;
pub(crate) use worker::guarded::{Admit, GrpcService};
pub(crate) use write::Writing;

use codec::tiles::TileCodec;
use members::channel::Reach;
use members::figures::Figures;
use members::listed::{Listed, meanwhile, one_of_each_process};
use members::silent::Silent;
use parts::copying::Copying;
use parts::{MOST_REPLICAS, Parts};
use spread::stops::Stops;
use tile::ahead::Ahead;
use tile::anywhere::Anywhere;
use tile::near::Near;
use worker::guarded::Guarded;
use worker::held::Held;

use crate::catalog::Catalog;
use crate::client::ClientOptions;
use crate::error::{Error, Result};
use crate::query::{Session, Spread};

/// How often a member looks who else there is, and what they have.
const LOOK: Duration = Duration::from_secs(1);

/// With what the URI of a member begins that is reached over TLS.
const TLS: &str = "grpc+tls://";

/// How members find each other and speak.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Where the addresses of members are written; `None` for those that [`Cluster::set_members`] names.
    pub join: Option<Join>,
    /// What members show each other, and whom they trust.
    pub client: ClientOptions,
    /// Whether parts of plans that want tiles of other members fail with `NotLocal`, instead of fetching them.
    pub forbids_fetching: bool,
    /// How many bytes of other members on its host the member that was asked reads in a statement that it runs alone, over their memory, which it maps: no part of it is sent then ([`NEAR_BYTES`] is what servers are started with). 0
    /// spreads all statements over tiles of others.
    pub near_bytes: u64,
    /// Folders and URLs whose files every member reads alike: lazy tiles of files below them are read by the member where placement puts them, and by no other.
    pub shared: Vec<String>,
    /// Whether the tiles of that catalog, and of lazy grids of those files, are read into memory by the members where placement puts them as soon as the members and the grids are known, instead of on first use.
    pub is_eager: bool,
    /// How many members have each tile that is read so, and each part that a server contributes at its start; `None` for one.
    pub replicas: Option<usize>,
    /// The catalog that every member has; one that only this process can have counts for nothing.
    pub catalog: Option<Catalog>,
}

impl ClusterOptions {
    /// Refuses what no cluster can do.
    ///
    /// # Errors
    /// `InvalidArgument` for other copies than 1 to 16.
    pub fn check(&self) -> Result<()> {
        match self.replicas {
            Some(replicas) if !(1..=MOST_REPLICAS).contains(&replicas) => {
                let text = format!("cluster.replicas must be 1 to {MOST_REPLICAS}, got {replicas}");
                Err(Error::invalid_argument(text).with_hint(
                    "1 keeps a part only where it was contributed; where there are fewer members than that, all have it",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The token that members show each other; it must be one for all grids, with which one may do all.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.client = self.client.with_token(token);
        self
    }

    /// The same in a file, which [`Server::reload`](crate::serve::Server::reload) reads again.
    ///
    /// # Errors
    /// As [`ClientOptions::with_token_file`].
    pub fn with_token_file(mut self, path: &str) -> Result<Self> {
        self.client = self.client.with_token_file(path)?;
        Ok(self)
    }

    /// Whether members show their token also without TLS to members on other hosts.
    #[must_use]
    pub fn with_insecure(mut self, is_insecure: bool) -> Self {
        self.client = self.client.with_insecure(is_insecure);
        self
    }

    /// A file of those who vouch for members, in PEM; without it those that the system trusts.
    #[must_use]
    pub fn with_ca(mut self, path: &str) -> Self {
        self.client = self.client.with_ca(path);
        self
    }

    /// Reads that file, if there is one: members go by what it holds now, until it is read again.
    ///
    /// # Errors
    /// As [`ClientOptions::read_ca`].
    pub fn read_ca(&self) -> Result<()> {
        read_ca(&self.client)
    }

    /// Files of the certificate and the key that members show each other, in PEM (mutual TLS).
    #[must_use]
    pub fn with_identity(mut self, certificate: &str, key: &str) -> Self {
        self.client = self.client.with_identity(certificate, key);
        self
    }
}

/// One process as a member of a cluster: it plans statements for all, and runs parts of the plans of others. As long as it is there, the session spreads plans over grids of several members.
pub struct Cluster {
    /// Itself, for what goes on in the background as long as it is there.
    own: Weak<Self>,
    runtime: Handle,
    /// What runs parts of plans, once there is a service for them.
    work: OnceLock<Handle>,
    session: Session,
    reach: Arc<Reach>,
    stops: Stops,
    held: Held,
    members: ArcSwap<Members>,
    worker: datafusion_distributed::Worker,
    join: ArcSwapOption<Join>,
    /// The URIs that were written there when they could be read last.
    last: Mutex<Option<Vec<String>>>,
    /// What cuts plans, once there was one.
    planning: OnceLock<SessionState>,
    forbids_fetching: bool,
    near: Near,
    anywhere: Arc<Anywhere>,
    parts: Mutex<Parts>,
    copying: Copying,
    ahead: Ahead,
    /// One deals rows out anew at a time.
    rebalancing: tokio::sync::Mutex<()>,
    /// What is wrong with the list of members, as the last look saw it.
    listed: Listed,
    /// Who did not take in a change of the catalog a moment ago.
    silent: Arc<Silent>,
    /// What members do and have, for those who watch.
    figures: Figures,
    /// One looks who there is at a time, which takes seconds while somebody hangs; with when the last look began.
    finding: tokio::sync::Mutex<Option<Instant>>,
    /// Whether somebody did hang at the last look.
    hangs: AtomicBool,
    /// One looks what these have at a time.
    looking: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cluster")
            .field("members", &self.members())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Makes this process, which others reach at `uri` (`grpc://` or `grpc+tls://`, with host and port), a member. Looks for others on the tokio runtime of the caller, for as long as it is there.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no such URI and as [`ClusterOptions::check`], as [`ClusterOptions::read_ca`], `Internal` when the operating system gives no random bytes.
    pub fn start(session: &Session, uri: &str, options: ClusterOptions) -> Result<Arc<Self>> {
        options.check()?;
        options.read_ca()?;
        let own = own_member(uri)?.with_memory_bytes(session.memory_limit_bytes() as u64);
        let client = match &options.join {
            // What DNS gives are addresses; certificates are for the name. Without TLS there are none.
            Some(Join::Dns(name, _)) if uri.starts_with(TLS) => {
                options.client.with_server_name(name.clone())
            }
            _ => options.client,
        };
        if let Some(Join::File(path)) = &options.join
            && !path.exists()
        {
            tracing::warn!(file = %path.display(), "the list of members is not there: this member is alone until it is");
        }
        let reach = Arc::new(Reach::new(client, Handle::current()));
        let (stops, held) = (Stops::default(), Held::default());
        let anywhere = Arc::new(Anywhere::new(options.catalog, options.shared));
        let cluster = Arc::new_cyclic(|cluster| Self {
            own: Weak::clone(cluster),
            runtime: Handle::current(),
            work: OnceLock::new(),
            worker: worker::worker(session, &reach, &anywhere, &stops, &held)
                .with_version(members::join::introduction(&own)),
            session: session.clone(),
            reach,
            stops,
            held,
            members: ArcSwap::from_pointee(Members::alone(own)),
            join: ArcSwapOption::new(options.join.map(Arc::new)),
            last: Mutex::default(),
            planning: OnceLock::new(),
            forbids_fetching: options.forbids_fetching,
            near: Near::new(options.near_bytes),
            anywhere,
            parts: Mutex::default(),
            copying: Copying::default(),
            ahead: Ahead::new(match options.is_eager {
                true => options.replicas.unwrap_or(1),
                false => 0,
            }),
            rebalancing: tokio::sync::Mutex::default(),
            listed: Listed::default(),
            silent: Arc::default(),
            figures: Figures::default(),
            finding: tokio::sync::Mutex::default(),
            hangs: AtomicBool::default(),
            looking: tokio::sync::Mutex::default(),
        });
        let spread: Arc<dyn Spread> = Arc::clone(&cluster) as _;
        session.spread_by(Arc::downgrade(&spread));
        tokio::spawn(look(Arc::downgrade(&cluster)));
        Ok(cluster)
    }

    /// This process and all others, from now on; queries that run keep to those with which they began. This process is added if it is not among them.
    pub fn set_members(&self, others: impl IntoIterator<Item = Member>) {
        let before = self.members();
        let now = Members::of(before.own().clone(), others);
        if *before != now {
            let uris: Vec<&str> = now.iter().map(Member::uri).collect();
            tracing::info!(members = ?uris, "the members of the cluster are others than before");
            // Who comes back is reached anew; statements that run keep what they have.
            self.reach.keep_only(&now);
            let now = Arc::new(now);
            self.members.store(Arc::clone(&now));
            self.reach.lives.are(&now);
            self.let_go_of_gone(&now);
            self.tell_those_who_came(&before, &now);
        }
    }

    /// Who there is at this moment.
    #[must_use]
    pub fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// Looks for members elsewhere from now on.
    pub fn join(&self, members: Join) {
        *self.last() = None;
        self.join.store(Some(Arc::new(members)));
    }

    fn last(&self) -> MutexGuard<'_, Option<Vec<String>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks now who else there is, and which grids have all their parts; else this is done every second. While the list of members cannot be read, is gone or names nobody any more, or their name is not looked up, those that were there last are looked at: who is lost is so then, too.
    ///
    /// # Errors
    /// Whatever stands in the way of reading the list of members, or of asking them what they have.
    pub async fn refresh(&self) -> Result<()> {
        let mut last = self.finding.lock().await;
        self.look_now(&mut last).await
    }

    async fn look_now(&self, last: &mut Option<Instant>) -> Result<()> {
        *last = Some(Instant::now());
        let (are_all, unread) = match self.join.load_full() {
            Some(join) => self.find_members(&join).await,
            None => (true, None),
        };
        let _turn_to_look = self.looking.lock().await;
        let members = self.members();
        let gathered = self.gather(&members, are_all).await;
        self.reach.lives.were_looked_at(members);
        unread.map_or(gathered, Err)
    }

    /// Finds those whom a list names. Gives whether all of them are there, and why the list could not be read, if it could not: then those are looked at whom it named last, and without any all stay as they were.
    async fn find_members(&self, join: &Join) -> (bool, Option<Error>) {
        let is_tls = self.members().own().uri().starts_with(TLS);
        let known = self.last().clone();
        let written = join.uris(is_tls).await;
        let written = written.and_then(|uris| join.still(uris, known.as_deref()));
        let (uris, unread) = match written {
            Ok(uris) => (Some(self.last().insert(uris).clone()), None),
            Err(error) => {
                let error = meanwhile(error, self.members().len() == 1);
                (known, Some(error))
            }
        };
        let absent = match uris.as_deref() {
            Some([]) => join.absent().await,
            _ => None,
        };
        let absent = absent.map(|error| meanwhile(error, true));
        self.listed.note_unread(unread.as_ref().or(absent.as_ref()));
        let Some(uris) = uris else {
            return (false, unread);
        };
        let (there, away) = members::join::alive(&self.reach, &uris).await;
        let hangs = away
            .iter()
            .any(|(_, error)| members::join::is_silent(error));
        self.hangs.store(hangs, Ordering::Relaxed);
        let mut away = self.listed.explained(away).await;
        let members = self.members();
        let (there, of_one_process) = one_of_each_process(members.own(), there);
        away.extend(of_one_process);
        // Its own address may not lead here: that of a proxy, or one that only others reach.
        let mut others = away.iter().filter(|(uri, _)| !members.own().is_at(uri));
        let are_all = others.next().is_none() && unread.is_none();
        self.listed.look(members.own(), &uris, &there, &away);
        self.set_members(there);
        (are_all, unread)
    }

    /// Looks what these members have, of which others may be left out.
    async fn look_at(&self, members: &Members) -> Result<()> {
        let _turn = self.looking.lock().await;
        self.gather(members, false).await
    }

    /// Reads the file again of those who vouch for members, if there is one. Connections that are open stay.
    ///
    /// # Errors
    /// As [`ClusterOptions::read_ca`]; members go by what it held before then.
    pub fn read_ca_again(&self) -> Result<()> {
        read_ca(self.reach.options())
    }

    /// What this member shows the others, and whom it trusts.
    pub(crate) fn client_options(&self) -> &ClientOptions {
        self.reach.options()
    }

    /// How many parts of statements this process holds for members, of its own and of others. Those of a statement that is over are let go of within seconds.
    #[must_use]
    pub fn num_parts_held(&self) -> usize {
        self.held.number()
    }

    /// What writes tiles down for these members, and reads them.
    fn tile_codec(&self, members: Option<&Arc<Members>>) -> TileCodec {
        TileCodec {
            reach: Arc::clone(&self.reach),
            members: members.map(Arc::clone),
            forbids_fetching: self.forbids_fetching,
            anywhere: Arc::clone(&self.anywhere),
            names_sources: false,
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What runs parts of plans of others on `work`, for a server of gRPC; `admit` says who may send them, by the header that they show.
    pub(crate) fn service(&self, admit: Admit, work: Handle) -> impl GrpcService + use<> {
        let inner = self.worker.clone().into_worker_server();
        let work = self.work.get_or_init(|| work).clone();
        Guarded {
            inner,
            admit,
            work,
            stops: self.stops.clone(),
        }
    }
}

/// Reads whom members are to trust.
fn read_ca(client: &ClientOptions) -> Result<()> {
    let read = client.read_ca();
    read.map_err(|error| error.with_context("setting", "cluster.ca"))
}

/// This process as a member that others reach at a URI.
///
/// # Errors
/// As [`Cluster::start`].
pub(crate) fn own_member(uri: &str) -> Result<Member> {
    let own = Member::here(uri)?;
    if own.is_anywhere() {
        let text =
            format!("a member of a cluster needs an address at which others reach it, got {uri}");
        return Err(Error::invalid_argument(text).with_hint(
            "name it with server.advertised, such as grpc+tls://HOST:PORT, or listen at one address",
        ));
    }
    Ok(own)
}

/// Looks again and again, as long as the member is there.
async fn look(cluster: Weak<Cluster>) {
    let (mut said, mut held) = (String::new(), String::new());
    let mut freeing = tokio::spawn(async {});
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        // The engine takes its time, however long ago a statement was over.
        if cluster.held.number() > 0 {
            let done = worker::let_go(&cluster.worker, cluster.members().own()).await;
            // Threads that run parts may be busy for long, and nobody waits for them here.
            if freeing.is_finished() {
                let work = cluster.work.get().unwrap_or(&cluster.runtime).clone();
                freeing = tokio::spawn(worker::free(work));
            }
            let now = done.err().map(|error| error.to_string());
            if let Some(error) = news(&mut held, now) {
                tracing::warn!(error, "parts of statements that are over may hold memory");
            }
        }
        let now = cluster.refresh().await.err();
        // What is wrong with a grid is in the log by then.
        let now = now.filter(|error| !cluster.has_said(error));
        let now = now.map(|error| error.to_string());
        cluster.read_ahead();
        cluster.let_go_of_unread();
        if let Some(error) = news(&mut said, now) {
            tracing::warn!(error, "the cluster could not be looked over");
        }
    }
}

/// What is wrong now and was not before: what stays wrong is said once.
fn news(said: &mut String, now: Option<String>) -> Option<&str> {
    let now = now.unwrap_or_default();
    let is_new = !now.is_empty() && now != *said;
    *said = now;
    is_new.then_some(said.as_str())
}

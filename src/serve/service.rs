//! What all requests share: grids, sessions, what is kept for callers.
//!
//! Comes in: options. Goes out: the state of a server, and the door that every request goes through. Never here: protocols.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::accounts::Accounts;
use super::jobs::Jobs;
use super::keeps::Keeps;
use super::options::{Limits, ServerOptions, TokenSource};
use super::sessions::ClientSessions;
use super::shared::Looks;
use crate::catalog::Catalog;
#[cfg(feature = "distributed")]
use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::{REQUEST, TOKEN_EXPIRED, TOKEN_UNKNOWN, status_of};
use crate::grid::PartitionGrid;
use crate::location::Locality;
use crate::query::{LimitNames, QueryOptions, Session, SessionOptions, Statements, max_threads};
use crate::serve::door::auth::{Caller, Presented, Scope, Tokens, token_of};
use crate::serve::door::call::{Call, CallBounds, Endpoints, RecentErrors};
use crate::serve::door::tls::Tls;
use crate::serve::queries::answers::Answers;
use crate::serve::queries::rows::Room;
use crate::serve::queries::running::Running;
use crate::serve::receive::again;
use crate::serve::watch::counts::{By, Times};
use crate::share::copied_bytes;

/// Why somebody is not let in.
const REASONS: [&str; 3] = [NO_TOKEN, EXPIRED, UNKNOWN];
const NO_TOKEN: &str = "missing";
const EXPIRED: &str = "expired";
const UNKNOWN: &str = "unknown";

/// What is said to those who want something new of a server that stops.
const STOPPING: &str = "the server is stopping: what runs may finish, nothing new begins\nhint: try again once it is back";

/// What the limits of queries are called in the settings.
const LIMIT_NAMES: LimitNames = LimitNames {
    timeout: "limits.query_time",
    query_memory: "limits.query_memory",
    memory: "limits.memory",
};

/// How often memory is given back.
const TIDY: Duration = Duration::from_secs(2);

/// The state of a server.
pub(super) struct Service {
    /// Sees all grids.
    pub(super) session: Session,
    /// Of callers that see some, by their names.
    pub(super) seeing: Mutex<HashMap<Arc<str>, (Caller, Session)>>,
    pub(super) token_source: Option<TokenSource>,
    /// `None` when everybody may come in.
    pub(super) tokens: ArcSwapOption<Tokens>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) limits: Limits,
    pub(super) accounts: Accounts,
    pub(super) answers: Answers,
    pub(super) running: Arc<Running>,
    pub(super) client_sessions: ClientSessions,
    pub(super) catalog: Option<Catalog>,
    /// At what others have changed in it.
    pub(super) looks: Looks,
    pub(super) jobs: Jobs,
    /// The places that clients may have loaded from.
    pub(super) load_from: Vec<String>,
    pub(super) errors: Arc<RecentErrors>,
    pub(super) begun: (Instant, SystemTime),
    /// Set once the server takes nobody new in.
    pub(super) is_stopping: AtomicBool,
    pub(super) threads: usize,
    /// Where clients reach it.
    pub(super) uri: OnceLock<String>,
    /// Set where that is the address of all interfaces, which means nothing to another host.
    pub(super) is_anywhere: AtomicBool,
    /// This server as a member, once its URI is known.
    #[cfg(feature = "distributed")]
    pub(super) cluster: OnceLock<Arc<Cluster>>,
    /// Where queries and loads run: not on the threads that speak with clients.
    pub(super) work: Handle,
    /// Bytes of what clients sent and that is no grid yet.
    pub(super) held: Arc<AtomicU64>,
    /// All that ever came.
    pub(super) uploaded_bytes: Counter,
    /// Permits for connections of Flight, and of the page: those that rest there keep no query out.
    pub(super) flight_door: Arc<Semaphore>,
    pub(super) http_door: Arc<Semaphore>,
    /// How often somebody was not let in, by reason.
    pub(super) refused: By,
    /// How many loads have ended, by how they did.
    pub(super) loads: By,
    /// How long answers of DoGet took, to their last byte.
    pub(super) gets: Times,
}

/// What queries of all clients together may have.
fn session_options(options: &ServerOptions) -> SessionOptions {
    let limits = &options.limits;
    let mut session = SessionOptions::default()
        .with_memory_limit_bytes(limits.memory_bytes)
        .with_query_memory_limit_bytes(limits.query_memory_bytes.min(limits.memory_bytes))
        .with_spill_limit_bytes(limits.spill_bytes)
        .with_timeout(limits.query_time)
        .with_max_queries(limits.queries)
        .with_max_waiting(limits.waiting)
        .with_limit_names(LIMIT_NAMES)
        .with_runtime(Handle::current());
    if let Some(threads) = options.threads {
        session = session.with_threads(threads);
    }
    if let Some(folder) = &options.spill_to {
        session = session.with_spill_to(folder);
    }
    session
}

impl Service {
    /// Sets it up.
    ///
    /// # Errors
    /// As the checks of the options; whatever stands in the way of reading tokens and certificates.
    pub(super) async fn start(options: &ServerOptions) -> Result<Arc<Self>> {
        options.check()?;
        #[cfg(feature = "distributed")]
        options.check_part()?;
        let limits = options.limits.clone();
        let session = session_options(options);
        let service = Arc::new(Self {
            session: Session::try_new(&session)?,
            seeing: Mutex::default(),
            token_source: options.tokens.clone(),
            tokens: ArcSwapOption::empty(),
            tls: match &options.tls {
                Some(files) => Some(Arc::new(Tls::read(files.clone())?)),
                None => None,
            },
            flight_door: Arc::new(Semaphore::new(limits.connections)),
            http_door: Arc::new(Semaphore::new(limits.connections)),
            limits,
            accounts: Accounts::new(options.caller_limits),
            answers: Answers::new(),
            running: Arc::default(),
            client_sessions: ClientSessions::new(),
            catalog: match &options.catalog {
                Some(url) => {
                    let catalog = Catalog::open(url).await?;
                    Some(catalog.with_skip_damaged(options.skips_damaged))
                }
                None => None,
            },
            looks: Looks::default(),
            jobs: Jobs::default(),
            load_from: options.load_from.clone(),
            errors: Arc::default(),
            begun: (Instant::now(), SystemTime::now()),
            is_stopping: AtomicBool::new(false),
            threads: options.threads.unwrap_or_else(max_threads),
            uri: OnceLock::new(),
            is_anywhere: AtomicBool::new(false),
            #[cfg(feature = "distributed")]
            cluster: OnceLock::new(),
            work: Handle::current(),
            held: Arc::default(),
            uploaded_bytes: Counter::default(),
            refused: By::of("reason", &REASONS),
            loads: By::of("state", &["done", "failed", "cancelled"]),
            gets: Times::default(),
        });
        service.read_tokens()?;
        if let Some(tokens) = service.tokens.load_full() {
            options.check_shown(&tokens)?;
        }
        service.name_grids(options).await?;
        Ok(service)
    }

    /// Names what the catalog has and what the server was given; from then on it keeps what is named.
    async fn name_grids(self: &Arc<Self>, options: &ServerOptions) -> Result<()> {
        if let Some(catalog) = &self.catalog {
            for (name, grid) in catalog.grids().await? {
                self.session.register(&name, grid)?;
            }
            crate::serve::watch::health::leave_out(self);
        }
        self.watch();
        let keeps = Keeps(Arc::downgrade(self));
        self.session.keep_with(Arc::new(keeps));
        for (name, grid) in options.own_grids() {
            crate::serve::receive::ingest::check_name(name)?;
            crate::serve::watch::health::check_whole(self, name)?;
            self.session.register(name, Arc::clone(grid))?;
        }
        Ok(())
    }

    /// Begins what is done now and then, as long as the service is there.
    fn watch(self: &Arc<Self>) {
        tokio::spawn(tidy(Arc::downgrade(self)));
        tokio::spawn(super::shared::look(Arc::downgrade(self)));
    }

    /// # Errors
    /// `ResourcesExhausted` when the grids of the server, with what is copied of them for others, would have more bytes in memory than they may.
    pub(super) fn check_room(&self, name: &str, grid: &PartitionGrid) -> Result<()> {
        let session = &self.session;
        let others = session.tables().into_iter().filter(|known| known != name);
        let others = others.filter_map(|known| session.grid(&known).ok());
        let bytes: u64 = others.map(|grid| here_bytes(&grid)).sum();
        let (more, most) = (here_bytes(grid), self.limits.grid_bytes);
        let copied = copied_bytes();
        if bytes.saturating_add(more).saturating_add(copied) <= most {
            return Ok(());
        }
        let copies = match copied {
            0 => String::new(),
            _ => format!(", copies that processes of this host read {copied}"),
        };
        let text = format!(
            "the grids of the server may have {most} bytes in memory, they have {bytes}{copies}, and this one {more}"
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("drop grids, or ask the administrator to raise limits.grids"))
    }

    /// Whether a grid outlives the server.
    pub(super) fn is_kept(&self, grid: &PartitionGrid) -> bool {
        let catalog = self.catalog.as_ref();
        catalog.is_some_and(|catalog| catalog.holds(grid))
    }

    /// What it does, in a word.
    pub(super) fn state(&self) -> &'static str {
        match self.is_stopping.load(Ordering::Acquire) {
            false => "serving",
            true => "stopping",
        }
    }

    /// # Errors
    /// `Unavailable` for a call that begins something, once the server stops.
    pub(super) fn check_serving(&self, call: &Call) -> std::result::Result<(), Status> {
        if !self.is_stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        let kind = ErrorKind::Storage { retryable: true };
        Err(status_of(kind, STOPPING, &call.request))
    }

    /// Ends all that runs, since the server ends, and lets go of the answers that are kept.
    pub(super) fn cancel_all(&self) {
        self.errors.is_ending.store(true, Ordering::Release);
        self.running.cancel_all();
        self.jobs.cancel_all();
        self.answers.cancel_all();
    }

    /// What is said to a request of somebody that is no message of its method, or does not come as it should.
    pub(super) fn unread(&self, caller: Caller, request: Option<&str>, error: &Error) -> Status {
        Call::new(caller, request, None, Arc::clone(&self.errors)).status(error)
    }

    /// Whether everybody may come in.
    pub(super) fn is_open(&self) -> bool {
        self.tokens.load().is_none()
    }

    /// Who comes with this header.
    ///
    /// # Errors
    /// What to say to those who may not come in.
    pub(super) fn admit(&self, header: Option<&str>) -> std::result::Result<Caller, &'static str> {
        let tokens = self.tokens.load();
        let Some(tokens) = tokens.as_ref() else {
            return Ok(Caller::anonymous());
        };
        let Some(token) = header.and_then(token_of) else {
            self.refused.count(NO_TOKEN);
            return Err(
                "a token is needed: send it as `authorization: Bearer TOKEN`, or as the password",
            );
        };
        match tokens.look_up(&token, SystemTime::now()) {
            Presented::Good(caller) => Ok(caller),
            Presented::Expired => {
                self.refused.count(EXPIRED);
                Err(TOKEN_EXPIRED)
            }
            Presented::Unknown => {
                self.refused.count(UNKNOWN);
                Err(TOKEN_UNKNOWN)
            }
        }
    }

    /// Who makes a request of gRPC, to which method. Nothing of the body was read before somebody was let in (`door/get.rs`).
    ///
    /// # Errors
    /// `Unauthenticated` for those who may not come in.
    pub(super) fn call(
        &self,
        method: &'static str,
        metadata: &MetadataMap,
    ) -> std::result::Result<Call, Status> {
        let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
        let caller = self
            .admit(text("authorization"))
            .map_err(|why| Status::new(Code::Unauthenticated, why))?;
        let session = self.client_sessions.named(text("cookie"));
        let errors = Arc::clone(&self.errors);
        let call = Call::new(caller, text(REQUEST), session, errors);
        let mut call = call.of_method(method, metadata);
        call.bounds = CallBounds::of(metadata).map_err(|error| call.status(&error))?;
        call.endpoints = Endpoints::of(metadata).map_err(|error| call.status(&error))?;
        call.load_id = again::said(metadata).map_err(|error| call.status(&error))?;
        Ok(call)
    }

    /// The session with what a caller may see.
    ///
    /// # Errors
    /// As [`Session::seeing`].
    pub(super) fn session_of(&self, caller: &Caller) -> Result<Session> {
        let Some(patterns) = caller.patterns() else {
            return Ok(self.session.clone());
        };
        let mut seeing = self.seeing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, session)) = seeing.get(caller.name())
            && known == caller
        {
            return Ok(session.clone());
        }
        let may_see = move |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let session = self.session.seeing(may_see)?;
        let known = (caller.clone(), session.clone());
        seeing.insert(Arc::clone(caller.name()), known);
        Ok(session)
    }

    /// What statements of a caller may do, and use.
    pub(super) fn query_options(&self, call: &Call) -> QueryOptions {
        let may = match call.caller.scope() {
            Scope::Read => Statements::Read,
            Scope::Write | Scope::Admin => Statements::Tables,
        };
        let chosen = self.client_sessions.options(call);
        // Clients are told nothing of them.
        let mut options = QueryOptions::default()
            .with_statements(may)
            .with_allowance(self.accounts.of(&call.caller).allowance)
            .without_counts();
        // Who wants no less than the server allows has the limits of its session, which it is told.
        let (said, most) = (call.bounds, &self.limits);
        let timeout = said.timeout.or(chosen.timeout);
        if let Some(timeout) = timeout.filter(|timeout| *timeout < most.query_time) {
            options = options.with_timeout(timeout);
        }
        let bytes = said.memory_limit_bytes.or(chosen.memory_limit_bytes);
        if let Some(bytes) = bytes.filter(|bytes| *bytes < most.query_memory_bytes) {
            options = options.with_memory_limit_bytes(bytes);
        }
        options
    }

    /// What an answer to a caller may have.
    pub(super) fn room(&self, caller: &Caller) -> Room {
        let own = self.accounts.of(caller).limits.answer_bytes;
        Room::of(&self.limits, own)
    }

    /// How many endpoints an answer to a call has.
    pub(super) fn endpoints(&self, call: &Call) -> Endpoints {
        let chosen = || self.client_sessions.options(call).endpoints;
        call.endpoints.unwrap_or_else(chosen)
    }

    /// A grid that the caller may see, by name.
    ///
    /// # Errors
    /// `NotFound` with the names that the caller may see, as for one that does not exist; `Query` for a view, which has no grid.
    pub(super) fn grid(&self, caller: &Caller, name: &str) -> Result<Arc<PartitionGrid>> {
        self.session_of(caller)?.grid(name)
    }

    /// Where clients reach it.
    pub(super) fn uri(&self) -> &str {
        self.uri.get().map_or("", String::as_str)
    }

    /// The same for clients of any host, if it knows.
    pub(super) fn location(&self) -> Option<&str> {
        let is_anywhere = self.is_anywhere.load(Ordering::Acquire);
        (!is_anywhere).then(|| self.uri())
    }
}

/// Gives back memory now and then, as long as the server is there: what has expired is only then forgotten when somebody asks.
async fn tidy(service: Weak<Service>) {
    loop {
        tokio::time::sleep(TIDY).await;
        let Some(service) = service.upgrade() else {
            return;
        };
        service.answers.tidy();
        if let Some(catalog) = &service.catalog {
            catalog.tidy();
        }
    }
}

/// Bytes of the tiles of a grid that lie in memory; those that are still in files are not read to know.
pub(super) fn here_bytes(grid: &PartitionGrid) -> u64 {
    let here = grid.tiles().iter().filter(|tile| !tile.data().is_lazy());
    // Memory that another member shares is its own.
    let here = here.filter(|tile| {
        let mut places = tile.locations().into_iter();
        tile.data().locality() != Locality::Shared || places.any(|place| place.is_here())
    });
    here.map(|tile| tile.data().memory_bytes()).sum()
}

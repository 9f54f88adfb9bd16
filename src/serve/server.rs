//! A server: ports that listen, until it is told to stop.
//!
//! Comes in: options. Goes out: a [`Server`], whose addresses are known once it is there. Never here: what is answered.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::begin::warnings;
use super::flight::Flight;
use super::options::ServerOptions;
use super::service::Service;
#[cfg(feature = "distributed")]
use crate::cluster::{Cluster, ClusterOptions, PartOf};
use crate::error::{Error, Result};
use crate::grid::PartitionGrid;
use crate::query::Session;
use crate::serve::door::get::Methods;
use crate::serve::door::listen::{Listening, Phase, bind, connections};
use crate::serve::door::speak::{Allowed, speak};
use crate::serve::door::tls::Speaks;
use crate::still::{self, TakesPart};

/// Threads that speak with clients.
const TALKING_THREADS: usize = 2;

/// How long clients may take to hear that what they wait for was ended with the server.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Streams of one connection.
const MAX_STREAMS: u32 = 128;

/// Those of a member: the parts of all plans between two members share one connection, and a part that waits for a stream may keep those from ending that have one.
#[cfg(feature = "distributed")]
const MAX_MEMBER_STREAMS: u32 = 65_536;

/// A server that runs. Dropping it stops it at once; [`Server::shutdown`] lets what runs finish.
pub struct Server {
    service: Arc<Service>,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    warnings: Vec<String>,
    stop: watch::Sender<Phase>,
    /// Taken by whoever stops it first: what answers, and what accepts.
    tasks: Mutex<Tasks>,
    _talk: Talking,
}

/// What runs on the threads that speak with clients.
#[derive(Default)]
struct Tasks {
    /// Waited for when the server stops.
    answering: Vec<JoinHandle<()>>,
    /// Done once nobody can knock any more.
    accepting: Vec<JoinHandle<()>>,
}

/// The threads that speak with clients: queries that keep all others busy do not keep them from being heard, stopped and told that their time is over.
struct Talking {
    runtime: Option<Runtime>,
    _takes_part: TakesPart,
}

impl Talking {
    fn start() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(TALKING_THREADS).enable_all();
        let started = still::start(&mut builder, "partgrid-serve");
        let (runtime, takes_part) = started.map_err(|error| {
            Error::internal("the threads of the server did not start").with_source(error)
        })?;
        Ok(Self {
            runtime: Some(runtime),
            _takes_part: takes_part,
        })
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        // It may be dropped on a thread that must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    /// Options to start from.
    #[must_use]
    pub fn builder() -> ServerOptions {
        ServerOptions::default()
    }

    /// Starts a server on the tokio runtime of the caller. It listens once this returns.
    ///
    /// # Errors
    /// `InvalidArgument` for options that would let strangers in, `Storage` when an address cannot be had, and whatever stands in the way of reading tokens and certificates.
    pub async fn start(options: &ServerOptions) -> Result<Self> {
        let service = Service::start(options).await?;
        let (stop, stopped) = watch::channel(Phase::Serving);
        let talk = Talking::start()?;
        let opening = open(Arc::clone(&service), options.clone(), stopped);
        let opened = talk.runtime.as_ref().map(|runtime| runtime.spawn(opening));
        let opened = opened.ok_or_else(|| Error::internal("the server has no threads"))?;
        let opened = opened.await.map_err(|error| {
            Error::internal("the server could not open its ports").with_source(error)
        })?;
        let (address, http_address, tasks) = opened?;
        let warnings = warnings(&service, options);
        for warning in &warnings {
            tracing::warn!(uri = service.uri(), "{warning}");
        }
        let http_at = http_address.map(tracing::field::display);
        tracing::info!(uri = service.uri(), http_address = http_at, "serving");
        Ok(Self {
            service,
            address,
            http_address,
            warnings,
            stop,
            tasks: Mutex::new(tasks),
            _talk: talk,
        })
    }

    /// Where clients reach it: `grpc://` or `grpc+tls://`, with host and port.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.service.uri()
    }

    /// What whoever starts it should know: that it listens at all interfaces and was not told what clients of other hosts call it; that other members of its cluster will not believe its certificate; that its grids hide tables of the catalog.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where Flight listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the status page is: `http://` or `https://`, with host and port; `None` when it is off.
    #[must_use]
    pub fn http_uri(&self) -> Option<String> {
        let scheme = if self.service.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let address = self.http_address?;
        Some(format!("{scheme}://{address}"))
    }

    /// The grids and views of the server, and queries over them without going through a port.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.service.session
    }

    /// Puts a grid under a name, in place of one that had it. Nothing is copied.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no grid may have; `InvalidData` for that of a table of the catalog that is damaged.
    pub fn register(&self, name: &str, grid: Arc<PartitionGrid>) -> Result<()> {
        crate::serve::receive::ingest::check_name(name)?;
        crate::serve::watch::health::check_whole(&self.service, name)?;
        self.service.session.register(name, grid)
    }

    /// Whether other servers may have the same catalog.
    #[must_use]
    pub fn shares_catalog(&self) -> bool {
        let catalog = self.service.catalog.as_ref();
        catalog.is_some_and(crate::catalog::Catalog::is_shared)
    }

    /// Looks now what others have changed in a catalog that they share; else this is done every few seconds.
    ///
    /// # Errors
    /// As of the catalog.
    pub async fn look_at_catalog(&self) -> Result<()> {
        super::shared::take_in(&self.service).await
    }

    /// This server as a member of a cluster, if it is one.
    #[cfg(feature = "distributed")]
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.service.cluster.get()
    }

    /// Reads the files of tokens and certificates again, that of the token that members show each other, and that of those who vouch for members. Connections that are open stay; what cannot be read, or would be refused at a start, leaves that of
    /// before in use.
    ///
    /// # Errors
    /// Whatever stands in the way.
    pub fn reload(&self) -> Result<()> {
        self.service.reload()
    }

    fn tasks(&self) -> Tasks {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut tasks)
    }

    /// Nobody is heard any more, and another server may have the catalog.
    fn end(&self) {
        self.stop.send_replace(Phase::Ended);
        if let Some(catalog) = &self.service.catalog {
            catalog.close();
        }
    }

    /// Takes no more connections and begins nothing new, lets what runs finish within the time, then ends it and tells those who wait for it: on connections on which somebody asks after a load or an answer, until they have heard its end.
    /// A query whose rows are kept for nobody who is still there is ended at once. Does nothing the second time.
    pub async fn shutdown(&self, within: Duration) {
        self.service.is_stopping.store(true, Ordering::Release);
        self.stop.send_if_modified(|phase| {
            let is_serving = *phase == Phase::Serving;
            *phase = (*phase).max(Phase::Stopping);
            is_serving
        });
        let Tasks {
            answering,
            accepting,
        } = self.tasks();
        let aborts: Vec<_> = answering.iter().map(JoinHandle::abort_handle).collect();
        let mut done = pin!(async {
            drop(futures::future::join_all(answering).await);
            // A load goes on without the client that began it.
            self.service.jobs.ended().await;
        });
        if tokio::time::timeout(within, &mut done).await.is_err() {
            self.service.cancel_all();
            // Clients are told that their queries were ended; those who do not listen are not waited for.
            if tokio::time::timeout(LAST_WORDS, done).await.is_err() {
                aborts.iter().for_each(tokio::task::AbortHandle::abort);
            }
        }
        self.end();
        self.service.cancel_all();
        drop(futures::future::join_all(accepting).await);
        tracing::info!("stopped");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.service.cancel_all();
        self.tasks().answering.iter().for_each(JoinHandle::abort);
        self.end();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Server({})", self.uri())
    }
}

/// The addresses of the ports, and what answers there.
type Opened = (SocketAddr, Option<SocketAddr>, Tasks);

/// Opens the ports, on the runtime that speaks with clients.
async fn open(
    service: Arc<Service>,
    options: ServerOptions,
    stopped: watch::Receiver<Phase>,
) -> Result<Opened> {
    let listener = bind(options.address).await?;
    let address = listener.local_addr().map_err(no_address)?;
    let uri = named(&service, &options, address);
    #[cfg(feature = "distributed")]
    if let Some(cluster) = options.cluster.clone() {
        let catalog = service.catalog.clone();
        let replicas = cluster.replicas.unwrap_or(1);
        let cluster = Cluster::start(&service.session, uri, ClusterOptions { catalog, ..cluster })?;
        if let Some((number, of)) = options.part {
            let part = PartOf::new(number, of).with_replicas(replicas);
            for (name, grid) in &options.grids {
                cluster.contribute(name, Arc::clone(grid), part)?;
            }
        }
        service.cluster.get_or_init(|| cluster);
    }
    #[cfg(not(feature = "distributed"))]
    let _ = uri;
    let tls = || service.tls.clone();
    let door = Arc::clone(&service.flight_door);
    let (incoming, accepting) = connections(listener, tls(), Speaks::Flight, door, stopped.clone());
    let answering = flight(Arc::clone(&service), incoming, stopped.clone());
    let mut tasks = Tasks {
        answering: vec![tokio::spawn(answering)],
        accepting: vec![accepting],
    };
    let mut http_address = None;
    if let Some(wanted) = options.http_address {
        let listener = bind(wanted).await?;
        let address = listener.local_addr().map_err(no_address)?;
        http_address = Some(address);
        let door = Arc::clone(&service.http_door);
        let (connections, accepting) =
            connections(listener, tls(), Speaks::Http, door, stopped.clone());
        tasks.accepting.push(accepting);
        let listening = Listening {
            connections,
            address,
        };
        // It is not waited for: it ends when all else has.
        tokio::spawn(crate::serve::watch::http::serve(
            Arc::clone(&service),
            listening,
            stopped,
        ));
    }
    Ok((address, http_address, tasks))
}

/// Where clients reach it, which they are told from now on.
fn named<'a>(service: &'a Service, options: &ServerOptions, address: SocketAddr) -> &'a str {
    let scheme = if service.tls.is_some() {
        "grpc+tls"
    } else {
        "grpc"
    };
    let is_anywhere = options.advertised.is_none() && address.ip().is_unspecified();
    service.is_anywhere.store(is_anywhere, Ordering::Release);
    let uri = options.advertised.clone();
    let uri = uri.unwrap_or_else(|| format!("{scheme}://{address}"));
    service.uri.get_or_init(|| uri)
}

fn no_address(error: std::io::Error) -> Error {
    Error::internal("a socket that listens has no address").with_source(error)
}

async fn flight(
    service: Arc<Service>,
    incoming: crate::serve::door::listen::Connections,
    mut stopped: watch::Receiver<Phase>,
) {
    let (message_bytes, silence) = (service.limits.message_bytes, service.limits.silence);
    #[cfg(feature = "distributed")]
    let parts = super::member::parts_of_plans(&service);
    let methods = Methods::new(Flight(service), message_bytes);
    #[cfg(feature = "distributed")]
    let (methods, streams) = match parts {
        Some(parts) => (methods.with(parts), MAX_MEMBER_STREAMS),
        None => (methods, MAX_STREAMS),
    };
    #[cfg(not(feature = "distributed"))]
    let streams = MAX_STREAMS;
    let stop = async move {
        // The sender is gone only when the server is.
        drop(stopped.wait_for(|phase| *phase > Phase::Serving).await);
    };
    speak(methods, Allowed { streams, silence }, incoming, stop).await;
}

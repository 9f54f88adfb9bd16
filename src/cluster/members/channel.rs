//! How members are reached.
//!
//! Comes in: URIs and URLs of members, what to show them. Goes out: channels for parts of plans, and clients for tiles, each made once and kept; what small tiles gave is kept with them. A member that does not answer is an error within seconds.
//! Never here: who is a member.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, Worker, WorkerChannel,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower::ServiceExt;
use url::Url;

use super::lives::Lives;
use super::silent::Silent;
use super::{Member, Members};
use crate::client::{Client, ClientOptions, Waits};
use crate::cluster::parts::incomplete::Incomplete;
use crate::cluster::spread::here::{Here, Rows, Told, num_operators, to_the_end};
use crate::cluster::tile::near::Mapped;
use crate::cluster::tile::small::SmallTiles;
use crate::error::{Error, ErrorKind, Result, causes, chain};
use crate::query::traveling;

/// How long a member may take to answer a knock.
const CONNECT: Duration = Duration::from_secs(2);

/// A connection on which nothing comes is asked so often whether anybody is there, and given up when nobody says so in that time. With a last look whether the member is there (`join.rs`), before a statement begins anew or
/// ends, these are 10 seconds.
const ASK: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The same where members ask each other for tiles, for what they have, and in loads. There a member may take longer to answer a knock.
const WAITS: Waits = Waits {
    knock: Duration::from_secs(5),
    ask: ASK,
    patience: KEEP_ALIVE,
};

/// Bytes that may be under way unread, of a stream. Of the connection as many as HTTP/2 can count: all plans between two members share it, and streams that nobody reads for a while must not keep others from going on,
/// for which they may be waiting.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// What can be done by those whose statement needs a member that does not answer.
pub(in crate::cluster) const AGAIN: &str =
    "the statement can be asked again once the member is back, or gone from the list of members";

/// What is said where a member does not let this one in.
const REFUSED: &str = "the file of cluster.token of this member must hold a token with the scope `admin` for all grids that the other one has in its file of tokens (auth.tokens)";

/// Connections to members.
pub(in crate::cluster) struct Reach {
    /// Carries them. Its threads run no parts of plans, which may keep all others busy while a connection breaks.
    runtime: Handle,
    options: ClientOptions,
    channels: Mutex<HashMap<Url, BoxCloneSyncChannel>>,
    clients: Mutex<HashMap<String, Client>>,
    pub(in crate::cluster) small: SmallTiles,
    /// How many tiles of members on this host are mapped.
    pub(in crate::cluster) near: Mapped,
    /// Whose tiles are lost.
    pub(in crate::cluster) lives: Lives,
    /// Owners of tiles on this host that were waited for in vain where their tiles were to be fetched.
    pub(in crate::cluster) silent: Silent,
    /// What is wrong with grids, as the last look saw it: whoever misses a tile is told.
    pub(in crate::cluster) incomplete: Incomplete,
}

impl fmt::Debug for Reach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reach")
    }
}

impl Reach {
    pub(in crate::cluster) fn new(options: ClientOptions, runtime: Handle) -> Self {
        Self {
            runtime,
            options: options.with_waits(WAITS),
            channels: Mutex::default(),
            clients: Mutex::default(),
            small: SmallTiles::new(),
            near: Mapped::default(),
            lives: Lives::default(),
            silent: Silent::default(),
            incomplete: Incomplete::default(),
        }
    }

    /// What this process shows members, and whom it trusts.
    pub(in crate::cluster) fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Lets go of the connections to all but these members.
    pub(in crate::cluster) fn keep_only(&self, members: &Members) {
        let urls: HashSet<&Url> = members.iter().map(Member::url).collect();
        let uris: HashSet<&str> = members.iter().map(Member::uri).collect();
        known(&self.channels).retain(|url, _| urls.contains(url));
        known(&self.clients).retain(|uri, _| uris.contains(uri.as_str()));
    }

    /// A client of the server of a member.
    ///
    /// # Errors
    /// As [`Client::connect`]; `WorkerLost` when this process is no member any more.
    pub(in crate::cluster) async fn client(&self, uri: &str) -> Result<Client> {
        if let Some(client) = known(&self.clients).get(uri) {
            return Ok(client.clone());
        }
        let (to, options) = (uri.to_owned(), self.options.clone());
        let connecting = async move { Box::pin(Client::connect(&to, &options)).await };
        let client = self.runtime.spawn(connecting).await.map_err(ended)??;
        let mut known = known(&self.clients);
        Ok(known.entry(uri.to_owned()).or_insert(client).clone())
    }

    /// Whether there is a connection for such clients already.
    pub(in crate::cluster) fn has_client(&self, uri: &str) -> bool {
        known(&self.clients).contains_key(uri)
    }

    #[cfg(test)]
    pub(in crate::cluster) async fn open(&self, url: &Url) -> Result<()> {
        self.channel(url).await.map(drop)
    }

    #[cfg(test)]
    pub(in crate::cluster) fn num_channels(&self) -> usize {
        known(&self.channels).len()
    }

    /// Sees that nobody on the way to a member can read the token, whoever named the member: a list, or a part of a plan.
    ///
    /// # Errors
    /// `InvalidArgument` with the remedy.
    fn check_token(&self, url: &Url) -> Result<()> {
        let (host, is_tls) = (url.host_str().unwrap_or_default(), url.scheme() == "https");
        if !self.options.shows_token_openly(host, is_tls) {
            return Ok(());
        }
        let text =
            "members must show their token to other hosts over TLS, this one is named without";
        let error = Error::invalid_argument(text).with_context("member", Member::uri_of(url));
        Err(error.with_hint(
            "give all members certificates (tls.certificate, tls.key, cluster.ca) and list them as grpc+tls://HOST:PORT; where nobody else is on the way, allow it with insecure=True (`--insecure`, server.insecure)",
        ))
    }

    async fn channel(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        if let Some(channel) = known(&self.channels).get(url) {
            return Ok(channel.clone());
        }
        self.check_token(url)?;
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| Error::internal(format!("the URL of a member is none: {error}")))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ASK)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let endpoint = match url.scheme() {
            "https" => endpoint
                .tls_config(self.options.tls()?)
                .map_err(|error| Error::invalid_data(format!("TLS cannot be set up: {error}")))?,
            _ => endpoint,
        };
        let connecting = self.runtime.spawn(async move { endpoint.connect().await });
        let channel = connecting.await.map_err(ended)?;
        let channel = channel.map_err(|error| lost(url, &chain(&error)))?;
        let bearer = self.options.bearer()?;
        let channel = channel.map_request(move |mut request: http::Request<tonic::body::Body>| {
            let token = bearer.now();
            if let Some(token) = token.as_ref().and_then(|token| token.to_str().ok())
                && let Ok(mut value) = http::HeaderValue::from_str(token)
            {
                value.set_sensitive(true);
                request
                    .headers_mut()
                    .insert(http::header::AUTHORIZATION, value);
            }
            request
        });
        let channel = BoxCloneSyncChannel::new(channel);
        let mut known = known(&self.channels);
        Ok(known.entry(url.clone()).or_insert(channel).clone())
    }
}

fn known<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody carries connections any more.
fn ended(_: JoinError) -> Error {
    let text = "the server that is a member of the cluster was closed";
    Error::new(ErrorKind::WorkerLost, text)
}

/// A member does not answer.
pub(in crate::cluster) fn lost(url: &Url, why: &str) -> Error {
    let text = format!("a member of the cluster does not answer: {why}");
    let remedy = match why.contains("certificate not valid for name") {
        true => {
            "list the member by a name of its certificate, or give it one that has the name of the list"
        }
        false => AGAIN,
    };
    Error::new(ErrorKind::WorkerLost, text)
        .with_context("member", Member::uri_of(url))
        .with_hint(remedy)
}

/// A server of gRPC answers that knows nothing of members.
fn no_member(url: &Url) -> Error {
    Error::unsupported("what answers there is no member of a cluster")
        .with_context("member", url.to_string())
        .with_hint("list the address at which a member answers (`partgrid serve --join`), or take this one out of the list")
}

/// What a connection says that broke off.
fn why(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => chain(source),
        None => status.message().to_owned(),
    }
}

/// Reaches members for the engine.
pub(in crate::cluster) struct Resolver {
    reach: Arc<Reach>,
    unsent: Unsent,
    /// What runs parts in this process, and its URL.
    here: Option<(Url, Worker)>,
}

impl Resolver {
    /// For a statement, and the error of the first part that could not be sent: the engine itself says so after the last row, which then never comes.
    pub(in crate::cluster) fn of_statement(
        reach: Arc<Reach>,
        here: (Url, Worker),
    ) -> (Self, oneshot::Receiver<DataFusionError>) {
        let (sender, error) = oneshot::channel();
        let resolver = Self {
            unsent: Unsent(Arc::new(Mutex::new(Some(sender)))),
            here: Some(here),
            ..Self::of_part(reach)
        };
        (resolver, error)
    }

    /// Whom to tell that the statement cannot go on.
    pub(in crate::cluster) fn unsent(&self) -> Unsent {
        self.unsent.clone()
    }

    /// For a part, which asks other members for rows and sends nothing. It goes wherever the part says, and not only to whom this process counts as members: each member may list the others by other addresses, and who has just
    /// joined is not known to all at the same moment, so that parts of honest statements would be refused. Whoever sends parts has a token for everything already; the token of this process goes to nobody in clear text
    /// ([`Reach::check_token`]), and over TLS to those alone whom the CA of the members vouches for.
    pub(in crate::cluster) fn of_part(reach: Arc<Reach>) -> Self {
        Self {
            reach,
            unsent: Unsent::default(),
            here: None,
        }
    }
}

/// Whom to tell of the first part that could not be sent, or of a member that is not there any more.
#[derive(Clone, Default)]
pub(in crate::cluster) struct Unsent(Arc<Mutex<Option<oneshot::Sender<DataFusionError>>>>);

impl Unsent {
    /// Tells it, and gives it back.
    pub(in crate::cluster) fn tell(&self, error: DataFusionError) -> DataFusionError {
        let error = Arc::new(error);
        if let Some(sender) = known(&self.0).take() {
            // Nobody listens any more when the statement is over.
            drop(sender.send(DataFusionError::Shared(Arc::clone(&error))));
        }
        DataFusionError::Shared(error)
    }
}

#[async_trait]
impl ChannelResolver for Resolver {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> std::result::Result<Box<dyn WorkerChannel>, DataFusionError> {
        if let Some((own, worker)) = &self.here
            && own == url
        {
            return Ok(Box::new(Here(worker.clone())));
        }
        let channel = self.reach.channel(url).await;
        let channel = channel.map_err(|error| self.unsent.tell(traveling(error)))?;
        let inner = create_worker_client(channel);
        let url = Arc::new(url.clone());
        let unsent = self.unsent.clone();
        Ok(Box::new(Named { inner, url, unsent }))
    }
}

/// A channel whose errors say which member does not answer.
struct Named {
    inner: Box<dyn WorkerChannel>,
    url: Arc<Url>,
    unsent: Unsent,
}

impl Named {
    /// The error, in our words if it is one of the connection.
    fn named(&self) -> impl Fn(DataFusionError) -> DataFusionError + Send + use<> {
        let url = Arc::clone(&self.url);
        move |error| match status_within(&error) {
            None => error,
            Some(status) => match status.code() {
                Code::Unauthenticated | Code::PermissionDenied => {
                    let text = format!("a member of the cluster refuses: {}", status.message());
                    let error = Error::new(ErrorKind::PermissionDenied, text);
                    let error = error.with_context("member", Member::uri_of(&url));
                    traveling(error.with_hint(REFUSED))
                }
                _ => traveling(lost(&url, &why(status))),
            },
        }
    }
}

/// The answer of gRPC, if it was no error of the engine.
fn status_within(error: &DataFusionError) -> Option<&Status> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

#[async_trait]
impl WorkerChannel for Named {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Told, DataFusionError> {
        let num_operators = num_operators(&request);
        let inner = self.inner.as_mut();
        let told = inner.coordinator_channel(headers, request, messages, metrics, context);
        let told = told.await.map_err(self.named());
        let told = told.map_err(|error| self.unsent.tell(error))?;
        let told = told.map_err(self.named()).boxed();
        Ok(to_the_end(told, num_operators))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<Rows>, DataFusionError> {
        let inner = self.inner.as_mut();
        let rows = inner.execute_task(headers, request, metrics, context);
        let rows = rows.await.map_err(self.named())?;
        let named = rows
            .into_iter()
            .map(|rows| rows.map_err(self.named()).boxed());
        Ok(named.collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        let info = self.inner.get_worker_info(request).await;
        info.map_err(|error| match status_within(&error).map(Status::code) {
            // Whatever it is, it is there.
            Some(Code::Unimplemented) => traveling(no_member(&self.url)),
            _ => self.named()(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_would_be_shown_the_token_in_clear_text_is_not_asked() {
        let url = Url::parse("http://192.0.2.1:7001").unwrap();
        let options = ClientOptions::default().with_token("secret");
        let reach = Arc::new(Reach::new(options, Handle::current()));
        let error = reach.open(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("grpc://192.0.2.1:7001") && text.contains("hint: give all members"));
        assert!(!text.contains("secret"), "{text}");
        // Nor by a part that names it.
        let resolver = Resolver::of_part(Arc::clone(&reach));
        let refused = resolver.get_worker_client_for_url(&url).await.err();
        let refused = Error::from(refused.unwrap());
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert_eq!(reach.num_channels(), 0);
    }

    #[test]
    fn who_does_not_answer_is_named_as_clients_write_it() {
        let url = Url::parse("https://db1.example.com:8815/").unwrap();
        let error = lost(&url, "it said nothing");
        assert_eq!(
            error.context("member"),
            Some("grpc+tls://db1.example.com:8815")
        );
        assert!(!error.to_string().contains("http"), "{error}");
    }

    #[tokio::test]
    async fn a_member_of_this_machine_is_shown_the_token() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = ClientOptions::default().with_token("secret");
        let reach = Reach::new(options, Handle::current());
        reach.open(&Url::parse(&url).unwrap()).await.unwrap();
        assert_eq!(reach.num_channels(), 1);
    }
}

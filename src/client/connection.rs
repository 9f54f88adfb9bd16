//! A connection to a server of Flight SQL.
//!
//! Comes in: a URI (`address.rs`), a token, certificates. Goes out: questions and their answers; what the server says is wrong comes as our errors. Never here: what tiles do.

use std::error::Error as _;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, Result as ActionResult,
    Ticket,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::address::{Address, Waits, endpoint, error_at, silent};
use super::describe::{self, Described};
use super::options::{Bearer, ClientOptions, QueryBounds};
use super::session;
use crate::error::{Error, Result};
use crate::flight::{Bounds, Decoded, Decoder, schema_of};
use crate::grid::PartitionGrid;

/// The largest message that is taken.
const MAX_MESSAGE_BYTES: usize = 256 * 1024 * 1024;

/// Puts the token and the bounds of queries on each call.
#[derive(Clone)]
struct Shows {
    token: Bearer,
    bounds: QueryBounds,
}

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        if let Some(token) = self.token.now() {
            request.metadata_mut().insert("authorization", token);
        }
        self.bounds.put_on(request.metadata_mut());
        Ok(request)
    }
}

type Service = FlightServiceClient<InterceptedService<Channel, Shows>>;

/// A server, seen from a client. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Client {
    uri: Arc<str>,
    waits: Waits,
    channel: Channel,
    shows: Shows,
    service: Service,
    /// Whether the server is known to take bounds of queries.
    takes_bounds: Arc<AtomicBool>,
}

/// What speaks on a channel, and shows this with each call.
fn service_on(channel: &Channel, shows: &Shows) -> Service {
    FlightServiceClient::with_interceptor(channel.clone(), shows.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(usize::MAX)
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Client({})", self.uri)
    }
}

impl Client {
    /// Connects to `grpc://host:port`, or to `grpc+tls://host:port` with TLS. Needs a tokio runtime, which carries the connection.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no such URI, for one that contradicts what the options say of TLS, for bounds that the server does not take, for a token that would go to another host without TLS, and for certificates without TLS; `Storage` when nobody answers there within 10
    /// seconds, or its certificate is not trusted.
    pub async fn connect(uri: &str, options: &ClientOptions) -> Result<Self> {
        options.bounds.check()?;
        let settled = options.settled(uri)?;
        let uri = settled.as_ref();
        let address = Address::of(uri)?;
        options.check_token(&address)?;
        options.check_tls(&address)?;
        let shows = Shows {
            token: options.bearer()?,
            bounds: options.bounds,
        };
        let endpoint = endpoint(&address, options)?;
        let opening = async {
            let opened = endpoint.connect().await;
            let channel = opened.map_err(|error| address.unreachable(&error))?;
            let client = Self {
                uri: Arc::from(uri),
                waits: options.waits,
                service: service_on(&channel, &shows),
                channel,
                shows,
                takes_bounds: Arc::default(),
            };
            let knocked = client.knock(&options.bounds).await;
            Ok((client, knocked))
        };
        let knock = options.waits.knock;
        let opened = tokio::time::timeout(knock, Box::pin(opening)).await;
        let (client, knocked) = opened.unwrap_or_else(|_| Err(silent(uri, knock)))?;
        match knocked {
            Ok(()) => Ok(client),
            Err(error) => Err(address.unanswered(error).await),
        }
    }

    /// Sees that somebody answers: that a connection was taken says only that there is a system. What the server does not know of the bounds is said now, not with the first query.
    async fn knock(&self, bounds: &QueryBounds) -> Result<()> {
        if *bounds != QueryBounds::default() {
            return self.check_bounds(bounds).await;
        }
        match self.service.clone().list_actions(Empty {}).await {
            Err(status) if status.source().is_some() => Err(self.failed(&status)),
            // Whatever it says, somebody is there.
            _ => Ok(()),
        }
    }

    /// Sees that the server takes bounds of queries, unless that is known.
    async fn check_bounds(&self, bounds: &QueryBounds) -> Result<()> {
        if !self.takes_bounds.load(Ordering::Acquire) {
            session::check(self, bounds).await?;
            self.takes_bounds.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The same connection for queries of which each may take so long, and use so many bytes of the server's memory, in place of what the connection says of that; the server may allow less.
    ///
    /// # Errors
    /// `InvalidArgument` for bounds that nothing can keep to, and where the server takes none; whatever else it says.
    pub async fn within(
        &self,
        timeout: Option<Duration>,
        memory_limit_bytes: Option<u64>,
    ) -> Result<Self> {
        let own = self.shows.bounds;
        let bounds = QueryBounds {
            timeout: timeout.or(own.timeout),
            memory_limit_bytes: memory_limit_bytes.or(own.memory_limit_bytes),
        };
        if bounds == own {
            return Ok(self.clone());
        }
        bounds.check()?;
        self.check_bounds(&bounds).await?;
        let token = self.shows.token.clone();
        let shows = Shows { token, bounds };
        Ok(Self {
            service: service_on(&self.channel, &shows),
            shows,
            ..self.clone()
        })
    }

    /// The error that a status of this connection says.
    fn failed(&self, status: &Status) -> Error {
        error_at(&self.uri, self.waits, status)
    }

    /// Where the server is.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The names of the grids that the caller may see, sorted.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn grids(&self) -> Result<Vec<String>> {
        let listed = self.service.clone().list_flights(Criteria::default()).await;
        let infos = listed.map_err(|status| self.failed(&status))?.into_inner();
        let infos: Vec<FlightInfo> = infos
            .try_collect()
            .await
            .map_err(|status| self.failed(&status))?;
        let mut names: Vec<String> = infos
            .into_iter()
            .filter_map(|info| info.flight_descriptor?.path.into_iter().next())
            .collect();
        names.sort();
        Ok(names)
    }

    /// A grid of the server: its tiles are fetched when they are read, mapped where they can be. It is a picture of this moment: when the server replaces the grid, its tiles are lost.
    ///
    /// # Errors
    /// `NotFound` when the server has no such grid for this caller, `Query` for a view, which has no tiles; `Protocol` when it is no server of partgrid.
    pub async fn grid(&self, name: &str) -> Result<PartitionGrid> {
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        let info = self.info(descriptor).await?;
        let described = Described::read(&info.app_metadata)?;
        describe::grid(self, described, schema_of(&info.schema)?)
    }

    /// What the server gives for a descriptor.
    ///
    /// # Errors
    /// Whatever the server says.
    pub(super) async fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        let info = self.service.clone().get_flight_info(descriptor).await;
        Ok(info.map_err(|status| self.failed(&status))?.into_inner())
    }

    /// The batches of a ticket.
    ///
    /// # Errors
    /// Whatever the server says; `InvalidData` and `Protocol` for what is no Arrow stream.
    pub(super) async fn fetch(
        &self,
        ticket: impl Into<bytes::Bytes>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let ticket = Ticket::new(ticket.into());
        let answer = self.service.clone().do_get(ticket).await;
        let messages = answer.map_err(|status| self.failed(&status))?.into_inner();
        Ok(batches(self.clone(), messages).boxed())
    }

    /// Sends messages; gives what the server says to them once it has done all.
    pub(super) fn put(
        &self,
        messages: BoxStream<'static, FlightData>,
    ) -> BoxFuture<'static, Result<Vec<bytes::Bytes>>> {
        let client = self.clone();
        let sending = async move {
            let answers = client.service.clone().do_put(Outgoing(messages)).await;
            let answers = answers
                .map_err(|status| client.failed(&status))?
                .into_inner();
            let answers: std::result::Result<Vec<_>, Status> = answers.try_collect().await;
            let answers = answers.map_err(|status| client.failed(&status))?;
            let told = answers.into_iter().map(|answer| answer.app_metadata);
            Ok(told.collect())
        };
        sending.boxed()
    }

    /// The bodies of the results of an action.
    ///
    /// # Errors
    /// Whatever the server says.
    pub(super) async fn act(&self, name: &str, body: Vec<u8>) -> Result<Vec<bytes::Bytes>> {
        self.act_as(Action::new(name, body)).await
    }

    /// As [`Client::act`].
    pub(super) async fn act_as(&self, action: Action) -> Result<Vec<bytes::Bytes>> {
        let answer = self.service.clone().do_action(action).await;
        let results = answer.map_err(|status| self.failed(&status))?.into_inner();
        let results: Vec<ActionResult> = results
            .try_collect()
            .await
            .map_err(|status| self.failed(&status))?;
        Ok(results.into_iter().map(|result| result.body).collect())
    }
}

/// Messages of a server -> batches. The server is trusted no more than a client.
fn batches(
    client: Client,
    messages: tonic::Streaming<FlightData>,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    let bounds = Bounds {
        max_unpacked_bytes: MAX_MESSAGE_BYTES as u64 * 16,
        ..Bounds::default()
    };
    stream::try_unfold(
        (client, messages, Decoder::new(bounds)),
        |(client, mut messages, mut decoder)| async {
            loop {
                let message = messages
                    .message()
                    .await
                    .map_err(|status| client.failed(&status))?;
                let Some(message) = message else {
                    return Ok(None);
                };
                if let Decoded::Batch(batch) = decoder.take(message)? {
                    return Ok(Some((batch, (client, messages, decoder))));
                }
            }
        },
    )
}

/// Messages on their way out, as a type with a name: the compiler cannot show that a request of boxed streams may be sent.
struct Outgoing(BoxStream<'static, FlightData>);

impl futures::Stream for Outgoing {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        self.0.poll_next_unpin(context)
    }
}

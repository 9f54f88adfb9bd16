//! A connection to a server of Flight SQL.
//!
//! Comes in: a URI, a token, certificates. Goes out: questions and their answers; what the server says is wrong comes as our errors. Never here: what tiles do.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{
    Action, Criteria, FlightData, FlightDescriptor, FlightInfo, Result as ActionResult, Ticket,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::describe::{self, Described};
use super::options::{ClientOptions, QueryBounds};
use super::session;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::{Bounds, Decoded, Decoder, error_of};
use crate::grid::PartitionGrid;

/// How long a server may take to answer a knock.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection on which nothing comes is asked whether anybody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Bytes that may be under way unread, of a stream and of the connection.
const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;

/// The largest message that is taken.
const MAX_MESSAGE_BYTES: usize = 256 * 1024 * 1024;

/// Puts the token and the bounds of queries on each call.
#[derive(Clone)]
struct Shows {
    token: Option<MetadataValue<Ascii>>,
    bounds: QueryBounds,
}

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
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
    service: Service,
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
    /// `InvalidArgument` for what is no such URI and for bounds that the server does not take, `Storage` when nobody answers there or its certificate is not trusted.
    pub async fn connect(uri: &str, options: &ClientOptions) -> Result<Self> {
        let (address, is_tls) = address_of(uri)?;
        let shows = Shows {
            token: options.bearer()?,
            bounds: options.bounds,
        };
        let endpoint = Endpoint::from_shared(address).map_err(|error| {
            Error::invalid_argument(format!(
                "the URI of the server is none: {error}, got {uri:?}"
            ))
        })?;
        let mut endpoint = endpoint
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .tcp_nodelay(true);
        if is_tls {
            let configured = endpoint.tls_config(options.tls()?);
            endpoint = configured.map_err(|error| {
                Error::invalid_data(format!("TLS cannot be set up: {}", chain(&error)))
            })?;
        }
        let channel = endpoint.connect().await.map_err(|error| {
            let text = format!("no server answers at {uri}: {}", chain(&error));
            let error = Error::new(ErrorKind::Storage { retryable: true }, text);
            match is_tls {
                true => error.with_hint("the server may speak without TLS (grpc://), or its certificate may not be trusted: name its CA"),
                false => error.with_hint("start one with `partgrid serve`; a server with a certificate is at grpc+tls://"),
            }
        })?;
        let service = FlightServiceClient::with_interceptor(channel, shows)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(usize::MAX);
        let client = Self {
            uri: Arc::from(uri),
            service,
        };
        // What the server does not know is said now, not with the first query.
        session::check(&client, &options.bounds).await?;
        Ok(client)
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
        let infos = listed.map_err(|status| error_of(&status))?.into_inner();
        let infos: Vec<FlightInfo> = infos
            .try_collect()
            .await
            .map_err(|status| error_of(&status))?;
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
    /// `Query` when the server has no such grid for this caller; `Protocol` when it is no server of partgrid.
    pub async fn grid(&self, name: &str) -> Result<PartitionGrid> {
        let descriptor = FlightDescriptor::new_path(vec![name.to_owned()]);
        let info = self.info(descriptor).await?;
        let described = Described::read(&info.app_metadata)?;
        let schema = info.try_decode_schema().map_err(Error::from)?;
        describe::grid(self, described, Arc::new(schema))
    }

    /// What the server gives for a descriptor.
    ///
    /// # Errors
    /// Whatever the server says.
    pub(super) async fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        let info = self.service.clone().get_flight_info(descriptor).await;
        Ok(info.map_err(|status| error_of(&status))?.into_inner())
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
        let messages = answer.map_err(|status| error_of(&status))?.into_inner();
        Ok(batches(messages).boxed())
    }

    /// Sends messages; gives what the server says to them once it has done all.
    pub(super) fn put(
        &self,
        messages: BoxStream<'static, FlightData>,
    ) -> BoxFuture<'static, Result<Vec<bytes::Bytes>>> {
        let mut service = self.service.clone();
        let sending = async move {
            let answers = service.do_put(Outgoing(messages)).await;
            let answers = answers.map_err(|status| error_of(&status))?.into_inner();
            let answers: std::result::Result<Vec<_>, Status> = answers.try_collect().await;
            let answers = answers.map_err(|status| error_of(&status))?;
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
        let results = answer.map_err(|status| error_of(&status))?.into_inner();
        let results: Vec<ActionResult> = results
            .try_collect()
            .await
            .map_err(|status| error_of(&status))?;
        Ok(results.into_iter().map(|result| result.body).collect())
    }
}

/// Messages of a server -> batches. The server is trusted no more than a client.
fn batches(
    messages: tonic::Streaming<FlightData>,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    let bounds = Bounds {
        max_unpacked_bytes: MAX_MESSAGE_BYTES as u64 * 16,
        ..Bounds::default()
    };
    stream::try_unfold(
        (messages, Decoder::new(bounds)),
        |(mut messages, mut decoder)| async {
            loop {
                let message = messages
                    .message()
                    .await
                    .map_err(|status| error_of(&status))?;
                let Some(message) = message else {
                    return Ok(None);
                };
                if let Decoded::Batch(batch) = decoder.take(message)? {
                    return Ok(Some((batch, (messages, decoder))));
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

/// The address as HTTP says it, and whether it is over TLS.
fn address_of(uri: &str) -> Result<(String, bool)> {
    let wrong = || {
        Error::invalid_argument(format!(
            "the URI of a server must read like grpc://host:port or grpc+tls://host:port, got {uri:?}"
        ))
    };
    let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
    let rest = rest.trim_end_matches('/');
    let port = rest.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        return Err(wrong());
    }
    match scheme {
        "grpc" | "grpc+tcp" => Ok((format!("http://{rest}"), false)),
        "grpc+tls" => Ok((format!("https://{rest}"), true)),
        _ => Err(wrong()),
    }
}

/// What an error and those behind it say.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

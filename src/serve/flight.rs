//! What the methods of Arrow Flight do.
//!
//! Comes in: requests of gRPC (`methods.rs`). Goes out: what the part that knows does with them: `sql/` for commands of Flight SQL, `tiles.rs` for grids by name, `actions.rs` for actions. Each request goes through
//! the door first. Never here: what a command means.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, SchemaResult, Ticket,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use prost::Message;
use prost_types::Timestamp;
use tonic::{Request, Response, Status, Streaming};

use super::service::Service;
use super::{actions, sql, tiles};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{Named, PartTicket, PollCommand, TileTicket};
use crate::flight::{Compression, encoded, schema_bytes};
use crate::serve::door::call::{Call, Endpoints, message};
use crate::serve::queries::answers::{Answer, KEPT_FOR};
use crate::serve::queries::poll::Polled;
use crate::serve::queries::rows::{Rows, rows};
use crate::serve::receive::put;
use crate::serve::receive::visit::Visit;
use crate::serve::watch::counts::Timer;

/// An endpoint with this location can be fetched on the connection that it came on.
const SAME_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// The largest command, ticket or body of an action that is looked at.
pub(super) const MAX_COMMAND_BYTES: usize = 1024 * 1024;

/// What to do instead of sending a large one.
pub(super) const IN_ROWS: &str = "rows, and values of parameters, are sent as such, by DoPut; of a FlightInfo one endpoint says all";

/// What a method answers.
pub(super) type Outcome<T> = std::result::Result<Response<T>, Status>;

/// Flight over the state of a server.
#[derive(Clone)]
pub(super) struct Flight(pub(super) Arc<Service>);

impl Flight {
    /// Who shows a good token, as bearer or as password, gets it back as bearer.
    pub(super) fn shaken(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::HandshakeStream>> {
        Box::pin(async move {
            self.0.call("Handshake", request.metadata())?;
            let header = request.metadata().get("authorization");
            let header = header.and_then(|value| value.to_str().ok());
            let token = header.and_then(crate::serve::door::auth::token_of);
            let answer = HandshakeResponse {
                protocol_version: 0,
                payload: token.clone().unwrap_or_default().into_bytes().into(),
            };
            let mut response: Response<<Self as FlightService>::HandshakeStream> =
                Response::new(stream::iter([Ok(answer)]).boxed());
            if let Some(bearer) = token.and_then(|token| format!("Bearer {token}").parse().ok()) {
                response.metadata_mut().insert("authorization", bearer);
            }
            Ok(response)
        })
    }

    pub(super) fn listed(
        &self,
        request: Request<Criteria>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::ListFlightsStream>> {
        Box::pin(async move {
            let call = self.0.call("ListFlights", request.metadata())?;
            let pattern = request.into_inner().expression;
            call.answer(async {
                let infos = tiles::list(&self.0, &call, &pattern)?;
                Ok(stream::iter(infos.into_iter().map(Ok)).boxed())
            })
            .await
        })
    }

    pub(super) fn described(
        &self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'_, Outcome<FlightInfo>> {
        Box::pin(async move {
            let call = self.0.call("GetFlightInfo", request.metadata())?;
            self.0.check_serving(&call)?;
            let descriptor = request.into_inner();
            call.answer(self.info(&call, descriptor)).await
        })
    }

    pub(super) fn polled(
        &self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'_, Outcome<PollInfo>> {
        Box::pin(async move {
            let call = self.0.call("PollFlightInfo", request.metadata())?;
            let call = call.on(request.extensions());
            let descriptor = request.into_inner();
            if !is_asked_after(&descriptor) {
                self.0.check_serving(&call)?;
            }
            call.answer(self.poll(&call, descriptor)).await
        })
    }

    pub(super) fn schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'_, Outcome<SchemaResult>> {
        Box::pin(async move {
            let call = self.0.call("GetSchema", request.metadata())?;
            let descriptor = request.into_inner();
            call.answer(async {
                let schema = match path_of(&descriptor)? {
                    Some(name) => schema_bytes(self.0.grid(&call.caller, &name)?.schema())?,
                    None => sql::schema(&self.0, &call, &command_of(&descriptor)?).await?,
                };
                Ok(SchemaResult { schema })
            })
            .await
        })
    }

    pub(super) fn got(
        &self,
        request: Request<Ticket>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::DoGetStream>> {
        Box::pin(async move {
            let call = self.0.call("DoGet", request.metadata())?;
            let call = call.on(request.extensions());
            let timer = self.0.gets.begin();
            let ticket = request.into_inner().ticket;
            let rows = call.answer(self.rows(&call, &ticket)).await?;
            Ok(rows.map(|rows| self.sent(call, rows, timer)))
        })
    }

    pub(super) fn taken(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::DoPutStream>> {
        Box::pin(async move {
            let call = self.0.call("DoPut", request.metadata())?;
            self.0.check_serving(&call)?;
            let call = call.on(request.extensions());
            let way = put::Way::of(request.extensions());
            let messages = request.into_inner();
            call.answer(put::put(&self.0, &call, messages, way)).await
        })
    }

    pub(super) fn exchanged(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::DoExchangeStream>> {
        Box::pin(async move {
            let call = self.0.call("DoExchange", request.metadata())?;
            let text = "the server has no exchanges: upload by DoPut, fetch by DoGet";
            Err(call.status(&Error::unsupported(text)))
        })
    }

    pub(super) fn done(
        &self,
        request: Request<Action>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::DoActionStream>> {
        Box::pin(async move {
            let call = self.0.call("DoAction", request.metadata())?;
            let call = call.on(request.extensions());
            let action = request.into_inner();
            if actions::begins(&action) {
                self.0.check_serving(&call)?;
            }
            actions::act(&self.0, &call, action).await
        })
    }

    pub(super) fn actions(
        &self,
        request: Request<Empty>,
    ) -> BoxFuture<'_, Outcome<<Self as FlightService>::ListActionsStream>> {
        Box::pin(async move {
            let call = self.0.call("ListActions", request.metadata())?;
            call.answer(async { Ok(stream::iter(actions::known().into_iter().map(Ok)).boxed()) })
                .await
        })
    }

    async fn info(&self, call: &Call, descriptor: FlightDescriptor) -> Result<FlightInfo> {
        if let Some(name) = path_of(&descriptor)? {
            let grid = self.0.grid(&call.caller, &name)?;
            return tiles::info(&self.0, &name, &grid);
        }
        let command = command_of(&descriptor)?;
        if self.0.endpoints(call) == Endpoints::Parts
            && let Some(polled) = sql::begin(&self.0, call, &command).await?
        {
            return self.in_parts(call, polled, descriptor).await;
        }
        let (ticket, schema) = sql::answer(&self.0, call, command).await?;
        let info = FlightInfo {
            schema: schema_bytes(&schema)?,
            total_records: -1,
            total_bytes: -1,
            ordered: true,
            ..FlightInfo::default()
        };
        let endpoint = endpoint(&self.0, ticket.encode_to_vec(), true);
        Ok(info.with_endpoint(endpoint).with_descriptor(descriptor))
    }

    /// An answer with an endpoint for each of its parts, once all are there.
    async fn in_parts(
        &self,
        call: &Call,
        polled: Arc<Polled>,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let known = polled.ended().await?;
        let kept = Arc::clone(&polled);
        let name = self.0.answers.polled.keep(&call.caller, kept)?;
        let info = FlightInfo {
            schema: schema_bytes(&polled.schema)?,
            total_records: i64::try_from(known.num_rows).unwrap_or(-1),
            total_bytes: i64::try_from(known.num_bytes).unwrap_or(-1),
            ordered: true,
            // Clients may want one endpoint at least.
            endpoint: self.parts(&name, known.num_parts.max(1)),
            ..FlightInfo::default()
        };
        Ok(info.with_descriptor(descriptor))
    }

    /// An endpoint for each part of an answer.
    fn parts(&self, answer: &[u8], num_parts: usize) -> Vec<FlightEndpoint> {
        let parts = (0..num_parts).map(|part| {
            let ticket = PartTicket {
                answer: answer.to_vec(),
                part: u32::try_from(part).unwrap_or(u32::MAX),
            };
            endpoint(&self.0, ticket.to_bytes(), true)
        });
        parts.collect()
    }

    async fn poll(&self, call: &Call, descriptor: FlightDescriptor) -> Result<PollInfo> {
        let any = any_of(&descriptor.cmd)?;
        let (name, polled, is_first) = match PollCommand::from_any(&any)? {
            Some(known) => {
                let polled = self.0.answers.polled.find(&call.caller, &known.answer)?;
                (known.answer, polled, false)
            }
            None => {
                let command = command_of(&descriptor)?;
                let polled = sql::begin(&self.0, call, &command).await?;
                let polled = polled.ok_or_else(no_query)?;
                let kept = Arc::clone(&polled);
                let name = self.0.answers.polled.keep(&call.caller, kept)?;
                (name.to_vec(), polled, true)
            }
        };
        call.asks_after(&polled.life);
        let known = polled.look(!is_first).await?;
        let info = FlightInfo {
            schema: schema_bytes(&polled.schema)?,
            total_records: -1,
            total_bytes: -1,
            ordered: true,
            endpoint: self.parts(&name, known.num_parts),
            ..FlightInfo::default()
        };
        let next = PollCommand { answer: name };
        let next = FlightDescriptor::new_cmd(next.to_bytes());
        Ok(PollInfo {
            info: Some(info.with_descriptor(descriptor)),
            flight_descriptor: (!known.is_done).then_some(next),
            progress: if known.is_done {
                Some(1.0)
            } else {
                known.progress
            },
            expiration_time: Some(expires()),
        })
    }

    /// What a ticket stands for.
    ///
    /// # Errors
    /// `Protocol` for what is no ticket, `NotFound` for one of somebody else.
    pub(super) async fn rows(&self, call: &Call, ticket: &[u8]) -> Result<Rows> {
        let any = any_of(ticket)?;
        if let Some(tile) = TileTicket::from_any(&any)? {
            return tiles::rows(&self.0, call, &tile);
        }
        if let Some(part) = PartTicket::from_any(&any)? {
            let polled = self.0.answers.polled.find(&call.caller, &part.answer)?;
            let batches = polled.part(part.part as usize)?;
            let batches: Vec<_> = batches.iter().cloned().map(Ok).collect();
            // Lasts as long as the rows are sent.
            let sending = Visit::default();
            call.asks_after(&sending);
            let batches = stream::iter(batches).inspect(move |_| {
                let _sending = &sending;
            });
            return Ok(Rows {
                schema: Arc::clone(&polled.schema),
                batches: batches.boxed(),
            });
        }
        let answer = match command(any)? {
            Command::TicketStatementQuery(ticket) => {
                let tickets = &self.0.answers.tickets;
                tickets.find(&call.caller, &ticket.statement_handle)?
            }
            other => Answer::Batch(sql::metadata::batch(&self.0, call, &other).await?),
        };
        let room = self.0.room(&call.caller);
        Ok(rows(answer, &call.caller, &self.0.running, room))
    }

    /// How the bodies of messages are packed for the client.
    pub(super) fn compression(&self, call: &Call) -> Compression {
        self.0.client_sessions.options(call).compression
    }

    /// The messages of batches.
    fn sent(
        &self,
        call: Call,
        rows: Rows,
        timer: Timer,
    ) -> BoxStream<'static, Result<FlightData, Status>> {
        let compression = self.compression(&call);
        let mut messages = match encoded(&rows.schema, rows.batches, compression, None) {
            Ok(messages) => messages,
            Err(error) => return stream::iter([Err(call.status(&error))]).boxed(),
        };
        // What is done while the client reads is part of its request.
        let next = stream::poll_fn(move |context| {
            // It goes with the stream.
            let _timer = &timer;
            let _within = call.span.enter();
            let next = messages.poll_next_unpin(context);
            next.map(|next| next.map(|message| message.map_err(|error| call.status(&error))))
        });
        next.boxed()
    }
}

/// The name that a descriptor gives as path; `None` for a command.
fn path_of(descriptor: &FlightDescriptor) -> Result<Option<String>> {
    use arrow_flight::flight_descriptor::DescriptorType;
    match DescriptorType::try_from(descriptor.r#type) {
        Ok(DescriptorType::Cmd) => Ok(None),
        Ok(DescriptorType::Path) => match descriptor.path.as_slice() {
            [name] => Ok(Some(name.clone())),
            other => Err(protocol(format!(
                "the path of a grid must be its name alone, got {} parts",
                other.len()
            ))),
        },
        _ => Err(protocol(
            "a descriptor must have a path or a command, got neither",
        )),
    }
}

/// Whether a descriptor names an answer that is being made.
fn is_asked_after(descriptor: &FlightDescriptor) -> bool {
    let named = any_of(&descriptor.cmd).and_then(|any| PollCommand::from_any(&any));
    matches!(named, Ok(Some(_)))
}

fn no_query() -> Error {
    let text = "PollFlightInfo takes queries; GetFlightInfo answers everything else at once";
    Error::unsupported(text)
}

fn command_of(descriptor: &FlightDescriptor) -> Result<Command> {
    command(any_of(&descriptor.cmd)?)
}

/// A message that says what it is.
///
/// # Errors
/// `Protocol` for other bytes, `ResourcesExhausted` for too many.
pub(super) fn any_of(bytes: &[u8]) -> Result<Any> {
    check_size(bytes)?;
    message(bytes, "command of Flight SQL, and no ticket of this server")
}

/// # Errors
/// `ResourcesExhausted` for more bytes than a command, a ticket or the body of an action may have: read, they take many times as much memory.
pub(super) fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_COMMAND_BYTES {
        return Ok(());
    }
    let text = format!(
        "a command, a ticket or the body of an action may have {MAX_COMMAND_BYTES} bytes, got {}",
        bytes.len()
    );
    Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(IN_ROWS))
}

/// The command of Flight SQL within it.
///
/// # Errors
/// `Protocol` when the bytes are none.
pub(super) fn command(any: Any) -> Result<Command> {
    if any.type_url.is_empty() {
        return Err(protocol("a command must say what it is, got no type"));
    }
    let name = any.type_url.clone();
    Command::try_from(any).map_err(|error| protocol(format!("the message is no {name}: {error}")))
}

pub(super) fn protocol(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text)
}

/// Where to fetch something; with a time when it is gone, if it is.
pub(super) fn endpoint(service: &Service, ticket: Vec<u8>, expiring: bool) -> FlightEndpoint {
    let mut endpoint = FlightEndpoint::new()
        .with_ticket(Ticket::new(ticket))
        .with_location(SAME_CONNECTION);
    if let Some(uri) = service.location() {
        endpoint = endpoint.with_location(uri);
    }
    match expiring {
        true => endpoint.with_expiration_time(expires()),
        false => endpoint,
    }
}

fn expires() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now() + KEPT_FOR)
}

//! DoGet, without copying what is sent.
//!
//! Comes in: requests of HTTP. Who may not come in is told so before anything of a body is read, whatever the method; the bodies of others are bounded on their way (`arriving.rs`). Goes out: answers of DoGet whose bodies are the buffers of the batches themselves; every other method, and clients that want gRPC to pack what they get, go to tonic,
//! which writes a message into memory of its own before it is sent. Never here: what a ticket stands for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow_flight::Ticket;
use arrow_flight::flight_service_server::FlightServiceServer;
use bytes::{BufMut, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body::Frame;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, DecodeBuf, Decoder, Streaming};
use tonic::codegen::Service as _;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response, header};
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Code, Status};

use super::arriving::{Counted, bounded};
use super::broken::watched;
use super::call::Call;
use super::chunks::{Answer, Chunks};
use super::unread::unreadable;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::{Pieces, REQUEST, pieces};
use crate::serve::flight::{Flight, protocol};
use crate::serve::watch::counts::Timer;

const PUT: &str = "/arrow.flight.protocol.FlightService/DoPut";
const PATH: &str = "/arrow.flight.protocol.FlightService/DoGet";
const PACKED: &str = "grpc-accept-encoding";

/// The numbers of the fields of `FlightData`.
const DATA_HEADER: u32 = 2;
const DATA_BODY: u32 = 1000;

/// Pieces that are smaller are copied together.
const SMALL_BYTES: usize = 4096;

/// What is answered.
#[derive(Clone)]
pub(in crate::serve) struct Methods {
    flight: Flight,
    others: Routes,
    message_bytes: usize,
}

impl Methods {
    /// Takes messages of at most so many bytes.
    pub(in crate::serve) fn new(flight: Flight, message_bytes: usize) -> Self {
        // Clients that know zstd get it; those who send something packed are refused: it would have to be unpacked before it is looked at.
        let service = FlightServiceServer::new(flight.clone())
            .max_decoding_message_size(message_bytes)
            .max_encoding_message_size(usize::MAX)
            .send_compressed(CompressionEncoding::Zstd);
        Self {
            flight,
            others: Routes::new(service),
            message_bytes,
        }
    }

    /// Answers for another service too.
    #[cfg(feature = "distributed")]
    pub(in crate::serve) fn with(self, service: impl crate::cluster::GrpcService) -> Self {
        Self {
            others: self.others.add_service(service),
            ..self
        }
    }

    pub(super) async fn answer(mut self, request: Request<Body>) -> Response<Answer<Sent>> {
        let shown = [header::AUTHORIZATION.as_str(), REQUEST]
            .map(|name| request.headers().get(name).cloned());
        let [token, name] = shown.each_ref().map(|value| value.as_ref()?.to_str().ok());
        let service = &self.flight.0;
        let caller = match service.admit(token) {
            Ok(caller) => caller,
            Err(why) => return refused(Status::new(Code::Unauthenticated, why)),
        };
        let request = match request.uri().path() {
            PUT => watched(request),
            _ => request,
        };
        // What it counts is there until it was answered.
        let (mut request, counted) = bounded(service, &caller, request);
        if request.uri().path() == PATH && !is_packed(request.headers()) {
            return self.get(request, &counted).await.unwrap_or_else(refused);
        }
        request.extensions_mut().insert(counted.clone());
        let Ok(response) = self.others.call(request).await;
        let said = response.extensions().get::<Status>();
        // What we say has the name of its request.
        let said = said.filter(|status| !status.metadata().contains_key(REQUEST));
        match said.and_then(|status| counted.refusal().or_else(|| unreadable(status))) {
            None => response.map(Answer::Whole),
            Some(error) => refused(self.flight.0.unread(caller, name, &error)),
        }
    }

    async fn get(
        self,
        request: Request<Body>,
        counted: &Counted,
    ) -> std::result::Result<Response<Answer<Sent>>, Status> {
        let (parts, body) = request.into_parts();
        let metadata = MetadataMap::from_headers(parts.headers);
        let call = self.flight.0.call("DoGet", &metadata)?;
        let call = call.on(&parts.extensions);
        let timer = self.flight.0.gets.begin();
        let mut tickets = Streaming::new_request(Tickets, body, None, Some(self.message_bytes));
        let ticket = tickets.message().await.map_err(|status| {
            let error = counted.refusal().or_else(|| unreadable(&status));
            error.map_or(status, |error| call.status(&error))
        })?;
        let ticket = ticket.ok_or_else(|| call.status(&protocol("the request has no ticket")))?;
        let rows = call.answer(self.flight.rows(&call, &ticket.ticket)).await?;
        let (metadata, rows, _) = rows.into_parts();
        let compression = self.flight.compression(&call);
        let messages = pieces(&rows.schema, rows.batches, compression);
        let messages = messages.map_err(|error| call.status(&error))?;
        let mut response = Response::new(Answer::Pieces(Sent {
            messages,
            call,
            ended: None,
            _timer: timer,
        }));
        *response.headers_mut() = metadata.into_headers();
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, grpc);
        Ok(response)
    }
}

fn refused(status: Status) -> Response<Answer<Sent>> {
    status.into_http().map(Answer::Whole)
}

/// Whether gRPC packs what comes, or is to pack messages in the way that the server knows.
fn is_packed(headers: &HeaderMap) -> bool {
    if headers
        .get("grpc-encoding")
        .is_some_and(|how| how != "identity")
    {
        return true;
    }
    let known = headers.get(PACKED).and_then(|known| known.to_str().ok());
    known.is_some_and(|known| known.split(',').any(|name| name.trim() == "zstd"))
}

/// Bytes of a request -> a ticket.
struct Tickets;

impl Decoder for Tickets {
    type Item = Ticket;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> std::result::Result<Option<Ticket>, Status> {
        // As the library says it, where it decodes.
        let ticket = Ticket::decode(bytes);
        let ticket = ticket.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        Ok(Some(ticket))
    }
}

/// What a client gets: messages, and at the end how it went.
pub(super) struct Sent {
    messages: BoxStream<'static, Result<Pieces>>,
    call: Call,
    /// Once there are no more messages: what is said behind them, until it was said.
    ended: Option<Option<HeaderMap>>,
    _timer: Timer,
}

impl Sent {
    fn end(&mut self, status: &Status) {
        let mut trailers = HeaderMap::new();
        // What cannot be a header was taken out of its text before.
        drop(status.add_header(&mut trailers));
        self.ended = Some(Some(trailers));
    }
}

impl http_body::Body for Sent {
    type Data = Chunks;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Chunks>, Status>>> {
        loop {
            if let Some(ended) = &mut self.ended {
                let trailers = ended.take().map(|trailers| Ok(Frame::trailers(trailers)));
                return Poll::Ready(trailers);
            }
            let next = {
                // What is done while the client reads is part of its request.
                let span = self.call.span.clone();
                let _within = span.enter();
                ready!(self.messages.poll_next_unpin(context))
            };
            match next.map(|message| message.and_then(framed)) {
                Some(Ok(chunks)) => return Poll::Ready(Some(Ok(Frame::data(chunks)))),
                Some(Err(error)) => {
                    let status = self.call.status(&error);
                    self.end(&status);
                }
                None => self.end(&Status::new(Code::Ok, "")),
            }
        }
    }
}

/// A message as gRPC sends it: five bytes in front, then `FlightData` by hand, since its body is in pieces.
fn framed(message: Pieces) -> Result<Chunks> {
    let (header_len, body_len) = (message.header.len(), message.body_len());
    let field = |number, len: usize| key_len(number) + encoded_len_varint(len as u64) + len;
    let mut len = field(DATA_HEADER, header_len);
    if body_len > 0 {
        len += field(DATA_BODY, body_len);
    }
    let grpc_len = u32::try_from(len).map_err(|_| {
        let text = format!("one row has {len} bytes, a message of gRPC holds 4 GiB");
        Error::new(ErrorKind::ResourcesExhausted, text)
    })?;
    let mut chunks = Chunks::default();
    let mut small = BytesMut::with_capacity(header_len + 64);
    small.put_u8(0);
    small.put_u32(grpc_len);
    encode_key(DATA_HEADER, WireType::LengthDelimited, &mut small);
    encode_varint(header_len as u64, &mut small);
    small.put_slice(&message.header);
    if body_len > 0 {
        encode_key(DATA_BODY, WireType::LengthDelimited, &mut small);
        encode_varint(body_len as u64, &mut small);
    }
    for piece in message.body {
        if piece.len() < SMALL_BYTES {
            small.put_slice(&piece);
            continue;
        }
        chunks.push(small.split().freeze());
        chunks.push(piece);
    }
    chunks.push(small.freeze());
    Ok(chunks)
}

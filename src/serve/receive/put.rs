//! What clients send: rows of new tables, values of parameters, statements that name something.
//!
//! Comes in: the messages of DoPut. Goes out: what was done, once all of it was: a client that goes away in the middle leaves nothing behind. Never here: what a statement may do.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::{
    Command, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult,
};
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::codegen::http::Extensions;
use tonic::{Status, Streaming};

use super::again::Sum;
use super::ingest::{self, Incoming};
use super::upload;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{IngestResult, Named, UploadCommand};
use crate::flight::{ACK, Bounds, Decoded, Decoder, LOAD_ID};
use crate::grid::{LoadMark, slice_bytes};
use crate::query::Parameters;
use crate::serve::door::arriving::Counted;
use crate::serve::door::auth::Scope;
use crate::serve::door::broken::BrokenOff;
use crate::serve::door::call::Call;
use crate::serve::door::unread::unreadable;
use crate::serve::flight::{any_of, command, protocol};
use crate::serve::queries::running::Task;
use crate::serve::service::Service;
use crate::serve::sql::prepared;
use crate::serve::sql::{no_command, task, without_transaction};

/// The most bytes of values for parameters.
const MAX_PARAMETER_BYTES: u64 = 1024 * 1024;

/// What DoPut answers.
pub(super) type Answers = BoxStream<'static, std::result::Result<PutResult, Status>>;

/// How messages come, and why they end, which what reads them does not hear.
pub(in crate::serve) struct Way {
    broken: BrokenOff,
    counted: Option<Counted>,
}

impl Way {
    pub(in crate::serve) fn of(extensions: &Extensions) -> Self {
        Self {
            broken: extensions.get().cloned().unwrap_or_default(),
            counted: extensions.get().cloned(),
        }
    }

    /// Why there are no more messages: they were refused, the client went away, or it sent what gRPC does not take.
    fn ended(&self, status: &Status) -> Error {
        let refused = self.counted.as_ref().and_then(Counted::refusal);
        refused.unwrap_or_else(|| gone(status))
    }
}

/// Does what the first message says with those that follow.
///
/// # Errors
/// Whatever stands in the way; then nothing was done.
pub(in crate::serve) async fn put(
    service: &Service,
    call: &Call,
    messages: Streaming<FlightData>,
    way: Way,
) -> Result<Answers> {
    let (descriptor, mut batches) = Batches::begin(service, messages, way).await?;
    let any = any_of(&descriptor.cmd)?;
    let tile = UploadCommand::from_any(&any)?;
    let command = match tile {
        Some(_) => None,
        None => Some(command(any)?),
    };
    let is_ingest = matches!(command, Some(Command::CommandStatementIngest(_)));
    if call.load_id.is_some() && !is_ingest {
        return Err(without_id());
    }
    if call.acknowledge.is_some() && !is_ingest {
        return Err(without_ack());
    }
    let metadata = match (tile, command) {
        (Some(tile), _) => uploaded(service, call, &tile, &mut batches).await?,
        (None, Some(command)) => done(service, call, command, &mut batches).await?,
        (None, None) => return Err(Error::internal("a command is a tile or one of Flight SQL")),
    };
    let result = PutResult {
        app_metadata: metadata.into(),
    };
    Ok(stream::iter([Ok(result)]).boxed())
}

/// Does what a command of Flight SQL says; gives what is told of it.
async fn done(
    service: &Service,
    call: &Call,
    command: Command,
    batches: &mut Batches,
) -> Result<Vec<u8>> {
    Ok(match command {
        Command::CommandStatementUpdate(update) => {
            without_transaction(update.transaction_id.as_ref())?;
            let text = update.query.as_str().into();
            let task = task(service, call, text, Parameters::default()).await?;
            counted(updated(service, call, task).await?)
        }
        Command::CommandStatementIngest(ingest) => {
            let done = ingested(service, call, ingest, batches).await?;
            done.encode_to_vec()
        }
        Command::CommandPreparedStatementQuery(query) => {
            let handle = query.prepared_statement_handle;
            let values = batches.values().await?;
            prepared::bind(service, call, &handle, &values)?;
            let result = DoPutPreparedStatementResult {
                prepared_statement_handle: Some(handle),
            };
            result.encode_to_vec()
        }
        Command::CommandPreparedStatementUpdate(update) => {
            let handle = update.prepared_statement_handle;
            let statements = &service.answers.statements;
            let values = batches.values().await?;
            if !values.is_empty() {
                prepared::bind(service, call, &handle, &values)?;
            }
            let statement = statements.find(&call.caller, &handle)?;
            let mut sum = 0;
            for task in prepared::tasks(service, call, &statement).await? {
                sum += updated(service, call, task).await?;
            }
            counted(sum)
        }
        Command::CommandStatementSubstraitPlan(_) => {
            let text = "the server takes no plans of Substrait: send SQL";
            return Err(Error::unsupported(text));
        }
        other => return Err(no_command(other.type_url())),
    })
}

/// Puts a tile into a grid under construction.
async fn uploaded(
    service: &Service,
    call: &Call,
    tile: &UploadCommand,
    batches: &mut Batches,
) -> Result<Vec<u8>> {
    call.caller.require(Scope::Write)?;
    let upload = upload::find(service, call, &tile.upload)?;
    let most = service.limits.upload_bytes;
    let (mut all, mut held, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
    while let Some(batch) = batches.next().await? {
        let more = slice_bytes(&batch);
        bytes = bytes.saturating_add(more);
        if bytes > most {
            return Err(too_large("an upload", most));
        }
        held.push(service.hold(&call.caller, more)?);
        all.push(batch);
    }
    let schema = batches.schema()?;
    let number = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let position = [number(tile.row_band), number(tile.column_band)];
    let set = move || upload.set(position, &schema, &all, (held, most));
    let set = tokio::task::spawn_blocking(set).await;
    set.map_err(|error| Error::internal("a thread that joined rows ended").with_source(error))??;
    Ok(Vec::new())
}

/// What else is sent has no id.
fn without_id() -> Error {
    let text = format!("the header {LOAD_ID} goes with rows of a table (ingestion) only");
    Error::unsupported(text)
        .with_hint("an upload says its id when it begins; send other requests without the header")
}

/// What else is sent is not acknowledged in several ways.
fn without_ack() -> Error {
    let text = format!("the header {ACK} goes with rows of a table (ingestion) only");
    Error::unsupported(text).with_hint(
        "an upload says what it waits for when it begins; send other requests without the header",
    )
}

fn counted(record_count: i64) -> Vec<u8> {
    DoPutUpdateResult { record_count }.encode_to_vec()
}

/// Runs a statement for what it does; its rows are dropped. Gives how many rows of tables it wrote: those of a query are none.
async fn updated(service: &Service, call: &Call, task: Task) -> Result<i64> {
    let guard = service.running.begin(&call.caller, &task);
    let batches = task.query.stream();
    let mut batches = batches.inspect_err(|error| guard.end(Some(error)))?;
    loop {
        match batches.try_next().await {
            Ok(Some(batch)) => {
                guard.count(batch.num_rows());
            }
            Ok(None) => break,
            Err(error) => {
                guard.end(Some(&error));
                return Err(error);
            }
        }
    }
    guard.end(None);
    Ok(i64::try_from(task.query.written_rows()).unwrap_or(i64::MAX))
}

async fn ingested(
    service: &Service,
    call: &Call,
    ingest: CommandStatementIngest,
    batches: &mut Batches,
) -> Result<IngestResult> {
    without_transaction(ingest.transaction_id.as_ref())?;
    let target = ingest::Target::of(service, call, &ingest)?;
    target.check(service, call.load_id.as_deref()).await?;
    let mut incoming = Incoming::default();
    let most = service.limits.upload_bytes;
    let mut held = Vec::new();
    let mut sum = call.load_id.as_ref().map(|_| Sum::default());
    while let Some(batch) = batches.next().await? {
        held.push(service.hold(&call.caller, slice_bytes(&batch))?);
        sum = summed(sum, &batch).await?;
        incoming.add(batch, most).await?;
    }
    let schema = batches.schema()?;
    let grid = incoming.grid(schema).await?;
    let num_rows = grid.num_rows();
    let load = call.load_id.clone().zip(sum).map(|(id, mut sum)| {
        sum.add(&[target.mode()]);
        let digest = sum.all();
        LoadMark {
            id,
            digest,
            num_rows,
        }
    });
    ingest::name(service, &target, grid, load).await?;
    Ok(IngestResult {
        record_count: i64::try_from(num_rows).unwrap_or(i64::MAX),
        is_durable: Some(target.is_durable(service)),
    })
}

/// What is sent so far, with a batch; worked out only where somebody may ask for it again.
async fn summed(sum: Option<Sum>, batch: &RecordBatch) -> Result<Option<Sum>> {
    let Some(mut sum) = sum else {
        return Ok(None);
    };
    let batch = batch.clone();
    let summed = tokio::task::spawn_blocking(move || {
        sum.add_batch(&batch)?;
        Ok(Some(sum))
    });
    summed.await.map_err(|error| {
        Error::internal("a thread that looked through rows ended").with_source(error)
    })?
}

/// The batches of the messages of a client.
struct Batches {
    messages: Streaming<FlightData>,
    way: Way,
    first: Option<FlightData>,
    decoder: Decoder,
}

impl Batches {
    /// Reads the first message, which must say what to do.
    async fn begin(
        service: &Service,
        mut messages: Streaming<FlightData>,
        way: Way,
    ) -> Result<(FlightDescriptor, Self)> {
        let first = messages.message().await;
        let first = first.map_err(|status| way.ended(&status))?;
        let mut first = first.ok_or_else(|| {
            protocol("DoPut needs at least one message")
                .with_hint("some drivers send none for a table without rows: CREATE TABLE … AS SELECT … WHERE false makes one")
        })?;
        let descriptor = first.flight_descriptor.take();
        let descriptor = descriptor
            .ok_or_else(|| protocol("the first message of DoPut must have a descriptor"))?;
        let bounds = Bounds {
            max_unpacked_bytes: (service.limits.message_bytes as u64)
                .saturating_mul(64)
                .min(1 << 30),
            ..Bounds::default()
        };
        let batches = Self {
            messages,
            way,
            first: Some(first),
            decoder: Decoder::new(bounds),
        };
        Ok((descriptor, batches))
    }

    /// The next batch; `None` once the client has sent all.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let message = match self.first.take() {
                Some(first) => Some(first),
                None => {
                    let next = self.messages.message().await;
                    next.map_err(|status| self.way.ended(&status))?
                }
            };
            let Some(message) = message else {
                return match self.way.broken.is_so() {
                    true => Err(went_away()),
                    false => Ok(None),
                };
            };
            if let Decoded::Batch(batch) = self.decoder.take(message)? {
                return Ok(Some(batch));
            }
        }
    }

    /// All batches, which are values of parameters.
    async fn values(&mut self) -> Result<Vec<RecordBatch>> {
        let mut all = Vec::new();
        let mut bytes = 0;
        while let Some(batch) = self.next().await? {
            bytes += slice_bytes(&batch);
            if bytes > MAX_PARAMETER_BYTES {
                return Err(too_large("values of parameters", MAX_PARAMETER_BYTES));
            }
            all.push(batch);
        }
        Ok(all)
    }

    fn schema(&self) -> Result<SchemaRef> {
        let schema = self.decoder.schema().cloned();
        schema.ok_or_else(|| protocol("rows must begin with a schema, got none"))
    }
}

fn too_large(what: &str, max_bytes: u64) -> Error {
    let text = format!("{what} may have {max_bytes} bytes, got more");
    Error::new(ErrorKind::ResourcesExhausted, text)
}

/// The client went away, or sent what gRPC does not take.
fn gone(status: &Status) -> Error {
    use tonic::Code;
    if let Some(error) = unreadable(status) {
        return error;
    }
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            Error::new(ErrorKind::ResourcesExhausted, status.message())
                .with_hint("send smaller messages: fewer rows each")
        }
        Code::Internal | Code::InvalidArgument => protocol(status.message()),
        _ => went_away(),
    }
}

fn went_away() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "the client went away before it had sent everything",
    )
}

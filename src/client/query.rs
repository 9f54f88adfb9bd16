//! SQL that a server runs.
//!
//! Comes in: a text, values of its parameters. Goes out: a [`RemoteQuery`], whose rows are fetched when they are asked for. Never here: what statements may do.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery, CommandStatementQuery,
    DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_flight::{CancelFlightInfoRequest, FlightData, FlightDescriptor, FlightInfo};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use prost::Message;

use super::connection::Client;
use super::upload::{body, first};
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{ExplainRequest, Named};
use crate::flight::{Compression, encoded, schema_of};
use crate::query::Parameters;

impl Client {
    /// Plans a statement on the server. A statement that names something does so now.
    ///
    /// # Errors
    /// As [`Session::sql`](crate::query::Session::sql), as the server says.
    pub async fn sql(&self, text: &str) -> Result<RemoteQuery> {
        let command = CommandStatementQuery {
            query: text.to_owned(),
            transaction_id: None,
        };
        let parameters = Parameters::default();
        self.planned(text, parameters, command.as_any()).await
    }

    /// As [`Client::sql`], with values for the parameters of the statement. They never become SQL text.
    ///
    /// # Errors
    /// As [`Session::sql_with`](crate::query::Session::sql_with), as the server says.
    pub async fn sql_with(&self, text: &str, parameters: Parameters) -> Result<RemoteQuery> {
        let Some(values) = row_of(&parameters)? else {
            return self.sql(text).await;
        };
        let request = ActionCreatePreparedStatementRequest {
            query: text.to_owned(),
            transaction_id: None,
        };
        let body = request.as_any().encode_to_vec();
        let created: Any = first(&self.act("CreatePreparedStatement", body).await?)?;
        let created: ActionCreatePreparedStatementResult = unpacked(&created)?;
        let handle = created.prepared_statement_handle;
        let planned = match self.bind(handle.clone(), values).await {
            Ok(command) => Box::pin(self.planned(text, parameters, command)).await,
            Err(error) => Err(error),
        };
        let close = ActionClosePreparedStatementRequest {
            prepared_statement_handle: handle,
        };
        // The server would forget it after a while in any case.
        let closed = self.act("ClosePreparedStatement", close.as_any().encode_to_vec());
        drop(closed.await);
        planned
    }

    /// Binds values to a prepared statement; gives the command that runs it with them.
    async fn bind(&self, handle: Bytes, values: RecordBatch) -> Result<Any> {
        let command = |prepared_statement_handle| CommandPreparedStatementQuery {
            prepared_statement_handle,
        };
        let bytes = command(handle.clone()).as_any().encode_to_vec();
        let messages = encoded(
            &values.schema(),
            stream::iter([Ok(values)]),
            Compression::None,
            Some(FlightDescriptor::new_cmd(bytes)),
        )?;
        let messages: Vec<FlightData> = messages.try_collect().await?;
        let told = self.put(stream::iter(messages).boxed()).await?;
        let told: Option<DoPutPreparedStatementResult> = match told.as_slice() {
            [] => None,
            told => Some(first(told)?),
        };
        // A server may give another name to the statement with values.
        let handle = told
            .and_then(|told| told.prepared_statement_handle)
            .unwrap_or(handle);
        Ok(command(handle).as_any())
    }

    async fn planned(
        &self,
        text: &str,
        parameters: Parameters,
        command: Any,
    ) -> Result<RemoteQuery> {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let info = self.info(descriptor).await?;
        let schema = schema_of(&info.schema)?;
        Ok(RemoteQuery {
            client: self.clone(),
            text: Arc::from(text),
            parameters,
            schema,
            info: Arc::new(info),
        })
    }
}

fn unpacked<M: ProstMessageExt>(any: &Any) -> Result<M> {
    let unpacked = any.unpack::<M>().ok().flatten();
    unpacked.ok_or_else(|| {
        let text = format!(
            "the server answers with {:?}, {} was expected",
            any.type_url,
            M::type_url()
        );
        Error::new(ErrorKind::Protocol, text)
    })
}

/// The values as one row: columns `$name` for values by name, `1`, `2` and so on for those in order. `None` without any.
fn row_of(parameters: &Parameters) -> Result<Option<RecordBatch>> {
    let columns: Vec<(String, ArrayRef)> = match parameters {
        Parameters::InOrder(values) => {
            let numbered = values.iter().enumerate();
            numbered
                .map(|(number, value)| ((number + 1).to_string(), Arc::clone(value)))
                .collect()
        }
        Parameters::ByName(values) => values
            .iter()
            .map(|(name, value)| (format!("${name}"), Arc::clone(value)))
            .collect(),
    };
    if columns.is_empty() {
        return Ok(None);
    }
    let fields = columns
        .iter()
        .map(|(name, value)| Field::new(name, value.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let values = columns.into_iter().map(|(_, value)| value).collect();
    Ok(Some(RecordBatch::try_new(schema, values)?))
}

/// The rows under the columns that the server said before.
///
/// # Errors
/// `InvalidData` when they are others.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    let fitted = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    fitted.map_err(|error| {
        let text = format!("the rows that came have other columns than the server said: {error}");
        Error::invalid_data(text)
    })
}

/// An answer of a server, fetched when it is asked for.
#[derive(Debug, Clone)]
pub struct RemoteQuery {
    client: Client,
    text: Arc<str>,
    parameters: Parameters,
    schema: SchemaRef,
    info: Arc<FlightInfo>,
}

impl RemoteQuery {
    /// The columns of the rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Runs the query on the server, from the start, and fetches its rows as they are found. Dropping the stream stops it there.
    #[must_use]
    pub fn stream(&self) -> BoxStream<'static, Result<RecordBatch>> {
        let client = self.client.clone();
        let endpoints = self.info.endpoint.clone();
        let each = stream::iter(endpoints).then(move |endpoint| {
            let client = client.clone();
            async move {
                let ticket = endpoint.ticket.unwrap_or_default();
                client.fetch(ticket.ticket).await
            }
        });
        let schema = self.schema();
        let fitted = each
            .try_flatten()
            .map(move |batch| fitted(&batch?, &schema));
        fitted.boxed()
    }

    /// All rows.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        self.stream().try_collect().await
    }

    /// The physical plan, as the server says it; with `analyze`, after a run there.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn explain(&self, analyze: bool) -> Result<String> {
        let endpoint = self.info.endpoint.first();
        let ticket = endpoint.and_then(|endpoint| endpoint.ticket.as_ref());
        let request = ExplainRequest {
            ticket: ticket.map_or_else(Vec::new, |ticket| ticket.ticket.to_vec()),
            analyze,
        };
        match self.client.act("Explain", request.to_bytes()).await {
            Ok(told) => String::from_utf8(body(&told)?.to_vec())
                .map_err(|_| Error::invalid_data("the server's plan is no text")),
            // Another server, or nobody asked for the answer for long.
            Err(error) => match error.kind() {
                ErrorKind::Unsupported | ErrorKind::InvalidArgument | ErrorKind::NotFound => {
                    self.explained(analyze).await
                }
                _ => Err(error),
            },
        }
    }

    /// The plan, by SQL.
    async fn explained(&self, analyze: bool) -> Result<String> {
        let verb = match analyze {
            true => "EXPLAIN ANALYZE",
            false => "EXPLAIN",
        };
        let text = format!("{verb} {}", self.text);
        let asked = Box::pin(self.client.sql_with(&text, self.parameters.clone())).await?;
        let batches = asked.collect().await?;
        let mut plan = None;
        for batch in &batches {
            let texts = batch.columns().last();
            let texts = texts.and_then(|column| column.as_any().downcast_ref::<StringArray>());
            let texts = texts.ok_or_else(|| Error::invalid_data("the server's plan is no text"))?;
            plan = texts.iter().flatten().last().map(str::to_owned).or(plan);
        }
        plan.ok_or_else(|| Error::invalid_data("the server gave no plan"))
    }

    /// Ends its runs on the server; it cannot run again.
    ///
    /// # Errors
    /// `NotFound` when it was cancelled already, or nobody asked for it for long.
    pub async fn cancel(&self) -> Result<()> {
        let request = CancelFlightInfoRequest {
            info: Some(self.info.as_ref().clone()),
        };
        let body = request.encode_to_vec();
        self.client.act("CancelFlightInfo", body).await.map(drop)
    }
}

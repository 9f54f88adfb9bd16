//! A query of this process, or of a server.
//!
//! Comes in: either. Goes out: what a `Result` needs of them. Never here: Python objects.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::{Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use partgrid::client::{Client, RemoteQuery};
use partgrid::error::{Error, Result};
use partgrid::query::{Query, QueryMetrics, QueryProgress};

/// The batches of a run. Dropping them stops it.
pub(crate) struct Rows(
    /// Never locked: whoever polls has it alone. A class of Python must be safe to look at from all threads.
    Mutex<BoxStream<'static, Result<RecordBatch>>>,
);

impl Rows {
    fn new(batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static) -> Self {
        Self(Mutex::new(batches.boxed()))
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batches = self.get_mut().0.get_mut();
        batches
            .unwrap_or_else(PoisonError::into_inner)
            .poll_next_unpin(context)
    }
}

/// A query that was planned.
#[derive(Clone)]
pub(crate) enum Asked {
    Here(Query),
    There(Box<There>),
}

/// One of a server.
#[derive(Clone)]
pub(crate) struct There {
    pub(crate) client: Client,
    pub(crate) query: RemoteQuery,
    pub(crate) text: String,
}

impl From<Query> for Asked {
    fn from(query: Query) -> Self {
        Self::Here(query)
    }
}

impl Asked {
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Here(query) => query.schema(),
            Self::There(there) => there.query.schema(),
        }
    }

    /// A run that begins now.
    pub(crate) fn stream(&self) -> Result<Rows> {
        Ok(match self {
            Self::Here(query) => Rows::new(query.stream()?),
            Self::There(there) => Rows::new(there.query.stream()),
        })
    }

    /// A run for a reader who keeps all.
    pub(crate) fn stream_to_keep(&self) -> Result<Rows> {
        Ok(match self {
            Self::Here(query) => Rows::new(query.stream_to_keep()?),
            Self::There(there) => Rows::new(there.query.stream()),
        })
    }

    pub(crate) async fn collect(&self) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Here(query) => query.collect().await,
            Self::There(there) => there.query.collect().await,
        }
    }

    pub(crate) async fn explain(&self, analyze: bool) -> Result<String> {
        match self {
            Self::Here(query) if analyze => query.explain_analyze().await,
            Self::Here(query) => Ok(query.explain()),
            Self::There(there) => there.explain(analyze).await,
        }
    }

    /// Ends its runs.
    pub(crate) async fn cancel(&self) -> Result<()> {
        match self {
            Self::Here(query) => {
                query.cancel();
                Ok(())
            }
            Self::There(there) => there.query.cancel().await,
        }
    }

    /// Of a query of this process.
    pub(crate) fn progress(&self) -> Option<QueryProgress> {
        match self {
            Self::Here(query) => query.progress(),
            Self::There(_) => None,
        }
    }

    /// Of a query of this process.
    pub(crate) fn metrics(&self) -> Option<QueryMetrics> {
        match self {
            Self::Here(query) => query.metrics(),
            Self::There(_) => None,
        }
    }
}

impl There {
    /// The physical plan, as the server says it.
    async fn explain(&self, analyze: bool) -> Result<String> {
        let verb = if analyze {
            "EXPLAIN ANALYZE"
        } else {
            "EXPLAIN"
        };
        let asked = self.client.sql(&format!("{verb} {}", self.text)).await?;
        let batches: Vec<RecordBatch> = asked.stream().try_collect().await?;
        let mut plan = None;
        for batch in &batches {
            let texts = batch.columns().last();
            let texts = texts.and_then(|column| column.as_any().downcast_ref::<StringArray>());
            let texts = texts.ok_or_else(|| Error::invalid_data("the server's plan is no text"))?;
            plan = texts.iter().flatten().last().map(str::to_owned).or(plan);
        }
        plan.ok_or_else(|| Error::invalid_data("the server gave no plan"))
    }
}

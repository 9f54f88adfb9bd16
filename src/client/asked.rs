//! A query of this process, or of a server.
//!
//! Comes in: either. Goes out: what those who read answers need of them. Never here: planning, fetching.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::query::RemoteQuery;
use crate::error::{ErrorKind, Result};
use crate::query::{Query, QueryMetrics, QueryProgress};

/// A query that was planned, here or by a server.
#[derive(Clone)]
pub enum Asked {
    /// By a session of this process.
    Here(Box<Query>),
    /// By a server.
    There(Box<RemoteQuery>),
}

impl From<Query> for Asked {
    fn from(query: Query) -> Self {
        Self::Here(Box::new(query))
    }
}

impl From<RemoteQuery> for Asked {
    fn from(query: RemoteQuery) -> Self {
        Self::There(Box::new(query))
    }
}

impl Asked {
    /// The columns of the rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        match self {
            Self::Here(query) => query.schema(),
            Self::There(query) => query.schema(),
        }
    }

    /// A run that begins now, as [`Query::stream`] and [`RemoteQuery::stream`].
    ///
    /// # Errors
    /// As [`Query::stream`].
    pub fn stream(&self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        Ok(match self {
            Self::Here(query) => query.stream()?.boxed(),
            Self::There(query) => query.stream(),
        })
    }

    /// As [`Asked::stream`], for a reader who keeps all: see [`Query::stream_to_keep`].
    ///
    /// # Errors
    /// As [`Query::stream_to_keep`].
    pub fn stream_to_keep(&self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        Ok(match self {
            Self::Here(query) => query.stream_to_keep()?.boxed(),
            Self::There(query) => query.stream(),
        })
    }

    /// All rows.
    ///
    /// # Errors
    /// Whatever stops it.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        match self {
            Self::Here(query) => query.collect().await,
            Self::There(query) => query.collect().await,
        }
    }

    /// The physical plan; with `analyze`, after a run whose rows are dropped.
    ///
    /// # Errors
    /// Whatever stops the run; whatever a server says.
    pub async fn explain(&self, analyze: bool) -> Result<String> {
        match self {
            Self::Here(query) if analyze => query.explain_analyze().await,
            Self::Here(query) => Ok(query.explain()),
            Self::There(query) => query.explain(analyze).await,
        }
    }

    /// Ends its runs. What a server does not know any more does not run there.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn cancel(&self) -> Result<()> {
        match self {
            Self::Here(query) => {
                query.cancel();
                Ok(())
            }
            Self::There(query) => match query.cancel().await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                ended => ended,
            },
        }
    }

    /// How far the run is that began last; `None` before the first, and for a server's.
    #[must_use]
    pub fn progress(&self) -> Option<QueryProgress> {
        match self {
            Self::Here(query) => query.progress(),
            Self::There(_) => None,
        }
    }

    /// What the run did that began last; `None` before the first, and for a server's.
    #[must_use]
    pub fn metrics(&self) -> Option<QueryMetrics> {
        match self {
            Self::Here(query) => query.metrics(),
            Self::There(_) => None,
        }
    }
}

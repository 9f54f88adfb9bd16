//! Where statements run: a session of this process, or a server.
//!
//! Comes in: either. Goes out: planned statements, and the words that a shell completes. Never here: what is done with answers.

use std::collections::BTreeSet;

use crate::client::{Asked, Client};
use crate::error::Result;
use crate::query::{Session, SessionOptions};

/// Where statements run.
pub(super) enum Engine {
    Here(Box<Session>),
    There(Box<Client>),
}

/// The names that a shell completes, sorted.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) tables: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) functions: Vec<String>,
}

impl Engine {
    /// Plans a statement; one that names something does so now.
    ///
    /// # Errors
    /// As [`Session::sql`].
    pub(super) async fn sql(&self, text: &str) -> Result<Asked> {
        Ok(match self {
            Self::Here(session) => Box::pin(session.sql(text)).await?.into(),
            Self::There(client) => Box::pin(client.sql(text)).await?.into(),
        })
    }

    /// What can be completed now. The functions are those of this version, also of a server.
    ///
    /// # Errors
    /// Whatever a server says.
    pub(super) async fn words(&self) -> Result<Words> {
        match self {
            Self::Here(session) => Ok(words_of(session)),
            Self::There(client) => {
                let served = client.tables(true).await?;
                let (mut tables, mut columns) = (BTreeSet::new(), BTreeSet::new());
                for table in served {
                    tables.insert(table.name);
                    columns.extend(table.columns);
                }
                Ok(Words {
                    tables: tables.into_iter().collect(),
                    columns: columns.into_iter().collect(),
                    // A query for those of the server would wait for its turn behind those of users.
                    functions: Session::try_new(&SessionOptions::default())?.functions(),
                })
            }
        }
    }

    /// Whether progress and metrics are known here.
    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }
}

fn words_of(session: &Session) -> Words {
    let tables = session.tables();
    let grids = tables.iter().filter_map(|name| session.grid(name).ok());
    let mut columns = BTreeSet::new();
    for grid in grids {
        let fields = grid.schema().fields().iter();
        columns.extend(fields.map(|field| field.name().clone()));
    }
    Words {
        tables,
        columns: columns.into_iter().collect(),
        functions: session.functions(),
    }
}

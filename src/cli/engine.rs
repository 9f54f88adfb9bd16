//! Where statements run: a session of this process, or a server.
//!
//! Comes in: either. Goes out: planned statements, and the words that a shell completes. Never here: what is done with answers.

use std::collections::BTreeSet;

use arrow::array::AsArray;

use crate::client::{Asked, Client};
use crate::error::Result;
use crate::query::Session;

/// The names of what a server has.
const COLUMNS: &str =
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'";
const FUNCTIONS: &str = "SELECT DISTINCT routine_name FROM information_schema.routines";

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

    /// What can be completed now.
    ///
    /// # Errors
    /// Whatever a server says.
    pub(super) async fn words(&self) -> Result<Words> {
        match self {
            Self::Here(session) => Ok(words_of(session)),
            Self::There(client) => {
                let [tables, columns] = texts(client, COLUMNS).await?;
                let [functions] = texts(client, FUNCTIONS).await?;
                Ok(Words {
                    tables,
                    columns,
                    functions,
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

/// The texts of the first columns of an answer, each once.
async fn texts<const N: usize>(client: &Client, query: &str) -> Result<[Vec<String>; N]> {
    let mut found: [BTreeSet<String>; N] = std::array::from_fn(|_| BTreeSet::new());
    for batch in client.sql(query).await?.collect().await? {
        for (found, values) in found.iter_mut().zip(batch.columns()) {
            let texts = values.as_string_opt::<i32>().into_iter();
            found.extend(texts.flatten().flatten().map(str::to_owned));
        }
    }
    Ok(found.map(|found| found.into_iter().collect()))
}

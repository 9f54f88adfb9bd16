//! What a server does at this moment.
//!
//! Comes in: nothing. Goes out: its grids, queries and loads, as far as the caller may see them; what runs can be ended. Never here: how it looks.

use serde::Deserialize;

use super::connection::Client;
use super::upload::body;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::messages::{JobName, Named, RunName};

/// A server at one moment, as far as the caller may see it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ServerStatus {
    /// Its grids, by name.
    pub grids: Vec<ServedGrid>,
    /// Grids of all members of a cluster that are not whole, by name; servers of before do not say it.
    #[serde(default)]
    pub incomplete: Vec<IncompleteGrid>,
    /// Queries that run, and of late, the youngest first.
    pub queries: Vec<ServedQuery>,
    /// Loads that run, and of late, the youngest first.
    pub jobs: Vec<ServedJob>,
    /// The server, and those with which it is in a cluster, as it sees them; servers of before do not say it.
    #[serde(default)]
    pub members: Vec<ServedMember>,
    /// Those that the list of members names and that are none, by URI; servers of before do not say it.
    #[serde(default)]
    pub away: Vec<AwayMember>,
    /// What is wrong as long as it is, then what went wrong of late; servers of before do not say it.
    #[serde(default)]
    pub errors: Vec<ServedError>,
}

/// Something that is wrong with a server, or went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedError {
    /// When it was told; of what is wrong as long as it is, since when. As RFC 3339 has it.
    pub time: String,
    /// What is wrong, on one line or several.
    pub message: String,
    /// Whether it is so at this moment.
    #[serde(default)]
    pub standing: bool,
}

/// Somebody whom the list of members of a server names, and who is no member: nobody answers there, or nobody who could be one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AwayMember {
    /// As the list has it.
    pub uri: String,
    /// Why; administrators alone are told.
    pub reason: Option<String>,
}

/// A member of the cluster of a server; the only one, if it is in none. What it does and has is what it said of itself within the last seconds: `None` if it said nothing, as servers of before.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedMember {
    /// Where the server that was asked reaches it.
    pub uri: String,
    /// The address of its host.
    pub host: String,
    /// Its process id.
    pub pid: u64,
    /// `serving` or `stopping`.
    pub state: String,
    /// Whether it is the one that was asked.
    pub is_here: bool,
    /// How many queries run there.
    pub queries: Option<u64>,
    /// How many parts of statements it holds for members.
    pub parts: Option<u64>,
    /// Bytes of its grids in memory.
    pub grid_bytes: Option<u64>,
    /// Bytes that queries, and parts of others, use there, as far as they are counted.
    pub query_bytes: Option<u64>,
    /// Bytes of its process in memory; `None` also where its system does not say it.
    pub resident_bytes: Option<u64>,
}

/// A grid of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedGrid {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its columns.
    pub columns: u64,
    /// Its tiles.
    pub tiles: u64,
    /// Bytes of its tiles in memory.
    pub bytes: u64,
    /// Whether it outlives the server.
    pub durable: bool,
    /// Of how many parts of members it is made; `None` for a grid that is the server's alone, and of servers of before.
    #[serde(default)]
    pub parts: Option<u64>,
    /// Where its tiles are.
    pub localities: Vec<ServedLocality>,
}

/// A grid of all members of a cluster of which parts are missing, or contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IncompleteGrid {
    /// Its name.
    pub name: String,
    /// Whether it is there all the same, as it was when it was whole.
    pub is_there: bool,
    /// What is wrong, with its name: how many parts are there, and which are missing.
    pub message: String,
    /// What can be done.
    pub hint: Option<String>,
}

/// Tiles of a grid that are at one kind of place.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedLocality {
    /// The kind of place, for instance `memory` or `file`.
    pub locality: String,
    /// How many tiles.
    pub tiles: u64,
}

/// A query of a server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ServedQuery {
    /// Its number, in hexadecimal.
    pub id: String,
    /// Whose it is.
    pub caller: String,
    /// Its text, cut where it is long.
    pub sql: String,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// How long it has run, or ran.
    pub elapsed_seconds: f64,
    /// Rows that it has handed on.
    pub rows: u64,
    /// From 0 to 1, where it can be told.
    pub progress: Option<f64>,
}

/// A load of a server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ServedJob {
    /// Its number, in hexadecimal.
    pub id: String,
    /// Whose it is.
    pub caller: String,
    /// The name of the grid that it makes.
    pub name: String,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// How long it has run, or ran.
    pub elapsed_seconds: f64,
    /// Rows that it has read.
    pub rows: u64,
    /// From 0 to 1, where it can be told.
    pub progress: Option<f64>,
    /// Why it failed.
    pub message: String,
}

impl Client {
    /// What the server does, as far as the caller may see it: their own queries and loads, or all for an administrator.
    ///
    /// # Errors
    /// Whatever the server says; `Protocol` when it is no server of partgrid.
    pub async fn status(&self) -> Result<ServerStatus> {
        let told = self.act("Status", Vec::new()).await?;
        serde_json::from_slice(body(&told)?).map_err(|error| {
            let text = format!("the server says what it does in words that are not ours: {error}");
            Error::new(ErrorKind::Protocol, text)
        })
    }

    /// Ends a query, by its number.
    ///
    /// # Errors
    /// `NotFound` when it does not run, or is another's.
    pub async fn cancel_query(&self, id: u64) -> Result<()> {
        let body = RunName { run: id }.to_bytes();
        self.act("CancelRun", body).await.map(drop)
    }

    /// Ends a load, by its number.
    ///
    /// # Errors
    /// `NotFound` when there is none, or it is another's.
    pub async fn cancel_job(&self, id: u64) -> Result<()> {
        let body = JobName::of(id).to_bytes();
        self.act("CancelJob", body).await.map(drop)
    }
}

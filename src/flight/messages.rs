//! Our own messages within Flight: tickets of tiles, uploads, loads.
//!
//! Comes in: names of grids, positions. Goes out: bytes for tickets, commands and actions, each with the name of its type, as Flight SQL does it. Numbers of fields never change their meaning.
//! Never here: Flight SQL itself, sessions (`options.rs`), what the messages do.

use arrow_flight::sql::Any;
use prost::Message;

use crate::error::{Error, Result};
use crate::grid::SortColumn;

/// With what the names of our types begin.
const TYPES: &str = "type.googleapis.com/partgrid.";

/// A message that says what it is.
pub(crate) trait Named: Message + Default {
    /// Its name within `partgrid.`.
    const NAME: &'static str;

    /// As bytes that begin with the name.
    fn to_bytes(&self) -> Vec<u8> {
        let any = Any {
            type_url: format!("{TYPES}{}", Self::NAME),
            value: self.encode_to_vec().into(),
        };
        any.encode_to_vec()
    }

    /// The message, if this is one of them.
    ///
    /// # Errors
    /// `Protocol` when it says so and is not.
    fn from_any(any: &Any) -> Result<Option<Self>> {
        if any.type_url.strip_prefix(TYPES) != Some(Self::NAME) {
            return Ok(None);
        }
        let decoded = Self::decode(any.value.as_ref());
        decoded.map(Some).map_err(|error| torn(Self::NAME, &error))
    }
}

/// Bytes that should be a message.
pub(crate) fn torn(name: &str, error: &prost::DecodeError) -> Error {
    let text = format!("the message is no {name}: {error}");
    Error::new(crate::error::ErrorKind::Protocol, text)
}

/// The ticket of tiles of a grid: whole row bands with some columns, or one tile.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TileTicket {
    /// The 128 bits of the grid's id.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) grid: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) row_band: u64,
    /// All column bands without it.
    #[prost(uint64, optional, tag = "3")]
    pub(crate) column_band: Option<u64>,
    /// Numbers of the columns that are wanted, within the tile or the grid; see `is_projected`.
    #[prost(uint32, repeated, tag = "4")]
    pub(crate) columns: Vec<u32>,
    /// Whether `columns` says which; else all.
    #[prost(bool, tag = "5")]
    pub(crate) is_projected: bool,
    /// The id of the part of the grid that has this row band alone, of which another member knows; empty where there is none.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) part: Vec<u8>,
    /// The number of the row band in that part.
    #[prost(uint64, tag = "7")]
    pub(crate) part_row_band: u64,
}

impl Named for TileTicket {
    const NAME: &'static str = "TileTicket";
}

/// A part of an answer that the server keeps.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartTicket {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) answer: Vec<u8>,
    #[prost(uint32, tag = "2")]
    pub(crate) part: u32,
}

impl Named for PartTicket {
    const NAME: &'static str = "PartTicket";
}

/// Names an answer that is being made, for the next question how far it is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PollCommand {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) answer: Vec<u8>,
}

impl Named for PollCommand {
    const NAME: &'static str = "PollCommand";
}

/// Upload of tiles into a grid under construction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UploadCommand {
    /// The upload, as `BeginUpload` named it.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) upload: Vec<u8>,
    /// The position of the tile that follows.
    #[prost(uint64, tag = "2")]
    pub(crate) row_band: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) column_band: u64,
}

impl Named for UploadCommand {
    const NAME: &'static str = "UploadCommand";
}

/// Begins a grid under construction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BeginUpload {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// The columns, as an Arrow IPC message.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) schema: Vec<u8>,
    #[prost(uint64, repeated, tag = "3")]
    pub(crate) row_cuts: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(crate) column_cuts: Vec<u64>,
    /// Whether a grid of the name is replaced; else its being there is an error.
    #[prost(bool, tag = "5")]
    pub(crate) replace: bool,
    /// What must be so before the grid is acknowledged: `memory`, `durable`, or empty for the most that the server does.
    #[prost(string, tag = "6")]
    pub(crate) acknowledge: String,
    /// What the client calls this upload, so that it may repeat it.
    #[prost(string, tag = "7")]
    pub(crate) load_id: String,
}

impl Named for BeginUpload {
    const NAME: &'static str = "BeginUpload";
}

/// Names an upload: the answer to `BeginUpload`, and what is committed or given up.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Upload {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) upload: Vec<u8>,
}

impl Named for Upload {
    const NAME: &'static str = "Upload";
}

/// What the server promises of what it took.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Acknowledgement {
    /// Whether it outlives the server.
    #[prost(bool, tag = "1")]
    pub(crate) is_durable: bool,
    #[prost(uint64, tag = "2")]
    pub(crate) num_rows: u64,
}

impl Named for Acknowledgement {
    const NAME: &'static str = "Acknowledgement";
}

/// What is said of rows that were ingested: a `DoPutUpdateResult` of Flight SQL with a field of ours, which others skip.
#[cfg(feature = "serve")]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct IngestResult {
    #[prost(int64, tag = "1")]
    pub(crate) record_count: i64,
    /// Whether they outlive the server.
    #[prost(bool, optional, tag = "1000")]
    pub(crate) is_durable: Option<bool>,
}

/// A load that the server is to do.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) sources: Vec<String>,
    #[prost(bool, tag = "3")]
    pub(crate) replace: bool,
    /// All without any.
    #[prost(string, repeated, tag = "4")]
    pub(crate) columns: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) is_lazy: bool,
    /// As the server finds right without it.
    #[prost(uint64, tag = "6")]
    pub(crate) tile_rows: u64,
    #[prost(message, repeated, tag = "7")]
    pub(crate) sort_by: Vec<SortBy>,
    #[prost(bool, tag = "8")]
    pub(crate) no_hive: bool,
    /// The name of a `SchemaEvolution`; `strict` without it.
    #[prost(string, tag = "9")]
    pub(crate) schema_evolution: String,
    #[prost(string, repeated, tag = "10")]
    pub(crate) partition_by: Vec<String>,
    /// As many as tiles of `tile_rows` rows would be without it.
    #[prost(uint64, tag = "11")]
    pub(crate) num_partitions: u64,
    /// What the client calls this load, so that it may repeat it.
    #[prost(string, tag = "12")]
    pub(crate) load_id: String,
}

/// A column to sort by.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SortBy {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(bool, tag = "2")]
    pub(crate) descending: bool,
}

impl From<&SortColumn> for SortBy {
    fn from(column: &SortColumn) -> Self {
        Self {
            name: column.name.clone(),
            descending: column.descending,
        }
    }
}

impl From<SortBy> for SortColumn {
    fn from(column: SortBy) -> Self {
        Self {
            name: column.name,
            descending: column.descending,
        }
    }
}

impl Named for LoadRequest {
    const NAME: &'static str = "LoadRequest";
}

/// Names a load.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobName {
    #[prost(uint64, tag = "1")]
    pub(crate) job: u64,
    /// Who asks how far it is: how long the answer may wait for its end. Servers that do not know it answer at once.
    #[prost(uint64, tag = "2")]
    pub(crate) wait_millis: u64,
}

impl JobName {
    /// The name alone.
    pub(crate) fn of(job: u64) -> Self {
        Self {
            job,
            wait_millis: 0,
        }
    }
}

impl Named for JobName {
    const NAME: &'static str = "JobName";
}

/// Names a query that runs.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RunName {
    #[prost(uint64, tag = "1")]
    pub(crate) run: u64,
}

impl Named for RunName {
    const NAME: &'static str = "RunName";
}

/// A part of a grid of several members.
#[cfg(feature = "distributed")]
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct GridPart {
    /// The name of the grid.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// Which part of it, from 0.
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
    /// How many parts there are.
    #[prost(uint64, tag = "3")]
    pub(crate) of: u64,
    /// The id of the part, 16 bytes; of a copy that of its original.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) id: Vec<u8>,
    /// How many members are to have it.
    #[prost(uint32, tag = "5")]
    pub(crate) replicas: u32,
    /// Whether it is a copy of what another member has, or had.
    #[prost(bool, tag = "6")]
    pub(crate) is_copy: bool,
    /// How often the rows of the grid were dealt out anew.
    #[prost(uint64, tag = "7")]
    pub(crate) generation: u64,
    /// Which time that was, 16 random bytes; empty for generation 0.
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) deal: Vec<u8>,
    /// The grid whose rows were dealt out anew, 16 bytes; empty for generation 0.
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) data: Vec<u8>,
    /// The life of the member of the original, 16 bytes.
    #[prost(bytes = "vec", tag = "10")]
    pub(crate) origin: Vec<u8>,
    /// When that member got it, in microseconds since 1970 by its clock.
    #[prost(uint64, tag = "11")]
    pub(crate) since: u64,
    /// Whether all its tiles are of files that every member of the cluster reaches, or were read from such, so that a copy is but the names of these.
    #[prost(bool, tag = "12")]
    pub(crate) is_of_files: bool,
}

/// How many members know a part of files: each who is lost costs one.
#[cfg(feature = "distributed")]
const KNOW_FILES: u32 = 3;

#[cfg(feature = "distributed")]
impl GridPart {
    /// How many members are to have the part, the one that contributed it among them.
    pub(crate) fn num_holders(&self) -> u32 {
        match self.is_read_again() {
            true => KNOW_FILES,
            false => self.replicas,
        }
    }

    /// Whether copies have no rows: they read them from the files when they stand for a member that was lost.
    pub(crate) fn is_read_again(&self) -> bool {
        self.is_of_files && self.replicas <= 1
    }
}

/// What a server does and has at one moment; the members of a cluster tell it each other for those who watch.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct MemberFigures {
    /// Queries that run there.
    #[prost(uint64, tag = "1")]
    pub(crate) num_queries: u64,
    /// Parts of statements that it holds for members.
    #[prost(uint64, tag = "2")]
    pub(crate) num_parts: u64,
    /// Memory of its grids.
    #[prost(uint64, tag = "3")]
    pub(crate) grid_bytes: u64,
    /// Memory that queries and parts use there, as far as it is counted.
    #[prost(uint64, tag = "4")]
    pub(crate) query_bytes: u64,
    /// Memory of its process, where the system says it.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) resident_bytes: Option<u64>,
}

/// The parts that a member has.
#[cfg(feature = "distributed")]
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct GridParts {
    #[prost(message, repeated, tag = "1")]
    pub(crate) parts: Vec<GridPart>,
    /// What it does beside; members of before do not say it.
    #[prost(message, optional, tag = "2")]
    pub(crate) figures: Option<MemberFigures>,
}

#[cfg(feature = "distributed")]
impl Named for GridPart {
    const NAME: &'static str = "GridPart";
}

/// Has a member deal out the rows of a grid of all anew.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RebalanceRequest {
    /// The name of the grid.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// The URIs of members that are to have nothing of it.
    #[prost(string, repeated, tag = "2")]
    pub(crate) without: Vec<String>,
}

impl Named for RebalanceRequest {
    const NAME: &'static str = "RebalanceRequest";
}

/// What became of the tiles when rows were dealt out anew.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RebalanceResult {
    #[prost(uint64, tag = "1")]
    pub(crate) moved_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) moved_tiles: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) kept_tiles: u64,
}

/// Asks for the plan of a query that was looked up.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExplainRequest {
    /// What its rows are fetched with.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) ticket: Vec<u8>,
    /// Whether to run it, and say what each step counted.
    #[prost(bool, tag = "2")]
    pub(crate) analyze: bool,
}

impl Named for ExplainRequest {
    const NAME: &'static str = "ExplainRequest";
}

/// How far a load is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobProgress {
    /// `running`, `done`, `failed` or `cancelled`.
    #[prost(string, tag = "1")]
    pub(crate) state: String,
    #[prost(uint64, tag = "2")]
    pub(crate) num_rows: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) total_rows: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) num_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) total_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) num_tiles: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) total_tiles: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) elapsed_millis: u64,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) remaining_millis: Option<u64>,
    /// Why it failed.
    #[prost(string, tag = "10")]
    pub(crate) message: String,
    /// The name of the kind of that error, as in statuses.
    #[prost(string, tag = "11")]
    pub(crate) kind: String,
    #[prost(uint64, tag = "12")]
    pub(crate) arranged_rows: u64,
    #[prost(uint64, tag = "13")]
    pub(crate) rows_to_arrange: u64,
    /// The name of the request that began it.
    #[prost(string, tag = "14")]
    pub(crate) request: String,
    /// Whether that error is about a file or a folder, which the message may not name.
    #[prost(bool, tag = "15")]
    pub(crate) is_about_path: bool,
}

impl Named for JobProgress {
    const NAME: &'static str = "JobProgress";
}

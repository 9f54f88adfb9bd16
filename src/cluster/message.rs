//! A scan as it is written down.
//!
//! Comes in: numbers, handles. Goes out: the protocol buffer that crosses process borders. Members of one version speak with each other; the number of the format says so once more. Never here: what the
//! numbers mean to a plan.

use prost::Message;

/// Counts up when the meaning of a message changes.
pub(super) const FORMAT: u32 = 1;

/// A scan of some row bands of a grid.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Scan {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(super) format: u32,
    /// The columns of the column bands that are read, as an IPC message.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) schema: Vec<u8>,
    /// The number of columns of each column band.
    #[prost(uint64, repeated, tag = "3")]
    pub(super) band_columns: Vec<u64>,
    /// The number of rows of each row band.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) band_rows: Vec<u64>,
    /// Grids of processes that have tiles.
    #[prost(message, repeated, tag = "5")]
    pub(super) sources: Vec<Source>,
    /// The tiles: all of the first column band, then all of the second.
    #[prost(message, repeated, tag = "6")]
    pub(super) runs: Vec<Run>,
    /// The columns that come out, by their places in `schema`.
    #[prost(uint32, repeated, tag = "7")]
    pub(super) columns: Vec<u32>,
    /// Conditions over `schema`, each a `PhysicalExprNode`.
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) conditions: Vec<Vec<u8>>,
    /// The most rows of a share.
    #[prost(uint64, optional, tag = "9")]
    pub(super) limit: Option<u64>,
    /// How many shares there are.
    #[prost(uint32, tag = "10")]
    pub(super) num_shares: u32,
    /// The orders that the rows have.
    #[prost(message, repeated, tag = "11")]
    pub(super) orders: Vec<Order>,
    /// Whether tiles of other processes are refused.
    #[prost(bool, tag = "12")]
    pub(super) forbids_fetching: bool,
    /// The grid of all members, for those who read the plan.
    #[prost(bytes = "vec", tag = "13")]
    pub(super) grid: Vec<u8>,
}

/// A grid of a process.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Source {
    /// Its id, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) grid: Vec<u8>,
    /// The life of the process, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) incarnation: Vec<u8>,
    /// Its host.
    #[prost(string, tag = "3")]
    pub(super) host: String,
    /// Its process id.
    #[prost(uint64, tag = "4")]
    pub(super) process: u64,
    /// Where it answers; empty if nobody knows.
    #[prost(string, tag = "5")]
    pub(super) uri: String,
}

/// Tiles of one source, one below the other.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Run {
    /// The place of the source.
    #[prost(uint32, tag = "1")]
    pub(super) source: u32,
    /// The first position along rows, in the grid of the source.
    #[prost(uint64, tag = "2")]
    pub(super) row_band: u64,
    /// The position along columns.
    #[prost(uint64, tag = "3")]
    pub(super) column_band: u64,
    /// The bytes of each tile.
    #[prost(uint64, repeated, tag = "4")]
    pub(super) tile_bytes: Vec<u64>,
}

/// An order of rows.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Order {
    /// The columns that come out, by their places.
    #[prost(uint32, repeated, tag = "1")]
    pub(super) columns: Vec<u32>,
    /// Whether the greatest value comes first, for each.
    #[prost(bool, repeated, tag = "2")]
    pub(super) descending: Vec<bool>,
    /// Whether nulls come first, for each.
    #[prost(bool, repeated, tag = "3")]
    pub(super) nulls_first: Vec<bool>,
}

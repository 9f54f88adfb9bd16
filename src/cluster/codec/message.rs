//! A scan, and tiles, as they are written down.
//!
//! Comes in: numbers, handles, names of files. Goes out: the protocol buffer that crosses process borders. Members of one version speak with each other; the number of the format says so once more. Never here: what the
//! numbers mean to a plan.

use prost::{Enumeration, Message};

use crate::flight::messages::GridPart;
use crate::load::{Arrangement, Cut, Lineage};

/// Counts up when the meaning of a message changes.
pub(in crate::cluster) const FORMAT: u32 = 11;

/// A scan of some row bands of a grid.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Scan {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    /// What is read.
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) tiles: Option<Tiles>,
    /// The columns that come out, by their places in those of the tiles.
    #[prost(uint32, repeated, tag = "3")]
    pub(in crate::cluster) columns: Vec<u32>,
    /// Conditions over the columns of the tiles, each a `PhysicalExprNode`.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(in crate::cluster) conditions: Vec<Vec<u8>>,
    /// The most rows of a share.
    #[prost(uint64, optional, tag = "5")]
    pub(in crate::cluster) limit: Option<u64>,
    /// How many shares there are.
    #[prost(uint32, tag = "6")]
    pub(in crate::cluster) num_shares: u32,
    /// The orders that the rows have.
    #[prost(message, repeated, tag = "7")]
    pub(in crate::cluster) orders: Vec<Order>,
    /// The grid of all members, for those who read the plan.
    #[prost(bytes = "vec", tag = "8")]
    pub(in crate::cluster) grid: Vec<u8>,
    /// Which row bands of that grid these are, for errors: in turns how many of it are none of them, and how many that follow are.
    #[prost(uint64, repeated, tag = "9")]
    pub(in crate::cluster) row_bands: Vec<u64>,
    /// The same of column bands.
    #[prost(uint64, repeated, tag = "10")]
    pub(in crate::cluster) column_bands: Vec<u64>,
    /// Whether keys of dictionaries have 32 bits in the plan, and fewer in the tiles.
    #[prost(bool, tag = "11")]
    pub(in crate::cluster) has_wide_keys: bool,
}

/// A node of one input.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Over {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    /// How its input, a join, looks up: by number instead of by hash.
    #[prost(bool, optional, tag = "2")]
    pub(in crate::cluster) is_by_number: Option<bool>,
    /// What is known of the rows of its input.
    #[prost(message, repeated, tag = "3")]
    pub(in crate::cluster) known: Vec<Equal>,
    /// What the engine does not write down of each window of its input; none of other inputs.
    #[prost(message, repeated, tag = "4")]
    pub(in crate::cluster) windows: Vec<Window>,
    /// Whether lists with long offsets come out as views, or as lists again.
    #[prost(bool, optional, tag = "5")]
    pub(in crate::cluster) are_views: Option<bool>,
}

/// What the engine does not write down of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Window {
    /// Whether its function skips nulls.
    #[prost(bool, tag = "1")]
    pub(in crate::cluster) skips_nulls: bool,
    /// Whether its function runs backwards.
    #[prost(bool, tag = "2")]
    pub(in crate::cluster) is_reversed: bool,
}

/// An operator of ours over two inputs: one of these.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct OverTwo {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) border: Option<Bordered>,
    #[prost(message, optional, tag = "3")]
    pub(in crate::cluster) nearest: Option<NearestRow>,
}

/// Which rows belong to which task.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Bordered {
    /// The place of the column of whole numbers.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) column: u32,
    /// The numbers of each task.
    #[prost(message, repeated, tag = "2")]
    pub(in crate::cluster) spans: Vec<Numbers>,
    /// Before which numbers of each task, 16 bytes each, rows of others lie, or behind all; empty if they lie anywhere.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(in crate::cluster) firsts: Vec<Vec<u8>>,
}

/// Which row of the right input is the nearest one.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct NearestRow {
    /// The places of the columns of the left input: those that are equal, and the one that is compared.
    #[prost(uint32, repeated, tag = "1")]
    pub(in crate::cluster) left: Vec<u32>,
    /// Those of the right input.
    #[prost(uint32, repeated, tag = "2")]
    pub(in crate::cluster) right: Vec<u32>,
    #[prost(bool, tag = "3")]
    pub(in crate::cluster) is_next: bool,
    #[prost(bool, tag = "4")]
    pub(in crate::cluster) is_other: bool,
    #[prost(bool, tag = "5")]
    pub(in crate::cluster) keeps_left: bool,
}

/// The first and the last whole number, 16 bytes each; empty for none.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Numbers {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::cluster) first: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::cluster) last: Vec<u8>,
}

/// What is equal in each row.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Equal {
    /// Columns and fields of columns, as the engine writes them down.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(in crate::cluster) parts: Vec<Vec<u8>>,
    /// Whether all rows of a partition have the same value.
    #[prost(bool, tag = "2")]
    pub(in crate::cluster) is_constant: bool,
    /// And those of all partitions.
    #[prost(bool, tag = "3")]
    pub(in crate::cluster) is_everywhere: bool,
}

/// Some tiles of a grid, as a grid of their own.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Tiles {
    /// The columns, as an IPC message.
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::cluster) schema: Vec<u8>,
    /// The number of columns of each column band.
    #[prost(uint64, repeated, tag = "2")]
    pub(in crate::cluster) band_columns: Vec<u64>,
    /// The number of rows of each row band.
    #[prost(uint64, repeated, tag = "3")]
    pub(in crate::cluster) band_rows: Vec<u64>,
    /// Grids of processes that have tiles.
    #[prost(message, repeated, tag = "4")]
    pub(in crate::cluster) sources: Vec<Source>,
    /// The tiles: all of the first column band, then all of the second.
    #[prost(message, repeated, tag = "5")]
    pub(in crate::cluster) runs: Vec<Run>,
    /// Whether tiles of other processes are refused.
    #[prost(bool, tag = "6")]
    pub(in crate::cluster) forbids_fetching: bool,
    /// What tiles of files are made of.
    #[prost(message, repeated, tag = "7")]
    pub(in crate::cluster) lineages: Vec<Lineage>,
    /// The catalog that has tiles; empty if none has.
    #[prost(string, tag = "8")]
    pub(in crate::cluster) catalog: String,
}

/// A grid of a process.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(in crate::cluster) struct Source {
    /// Its id, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::cluster) grid: Vec<u8>,
    /// The life of the process, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::cluster) incarnation: Vec<u8>,
    /// Its host.
    #[prost(string, tag = "3")]
    pub(in crate::cluster) host: String,
    /// Its process id.
    #[prost(uint64, tag = "4")]
    pub(in crate::cluster) process: u64,
    /// Where it answers; empty if nobody knows.
    #[prost(string, tag = "5")]
    pub(in crate::cluster) uri: String,
    /// The name of the grid of all, for errors; empty if nobody knows.
    #[prost(string, tag = "6")]
    pub(in crate::cluster) table: String,
    /// Where it answered as long as it was a member, for errors; empty if it is one, or nobody knows.
    #[prost(string, tag = "7")]
    pub(in crate::cluster) was: String,
}

/// Where tiles come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(in crate::cluster) enum From {
    /// A process has them.
    Process = 0,
    /// Files that were loaded.
    Files = 1,
    /// The catalog.
    Catalog = 2,
}

/// Tiles of one source, one below the other.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Run {
    #[prost(enumeration = "From", tag = "1")]
    pub(in crate::cluster) from: i32,
    /// The place of the source, or of the lineage.
    #[prost(uint32, tag = "2")]
    pub(in crate::cluster) source: u32,
    /// The first position along rows, in the grid of the source or in the file.
    #[prost(uint64, tag = "3")]
    pub(in crate::cluster) row_band: u64,
    /// The position along columns in the grid of the source, or the first column of the lineage.
    #[prost(uint64, tag = "4")]
    pub(in crate::cluster) column: u64,
    /// The bytes of each tile.
    #[prost(uint64, repeated, tag = "5")]
    pub(in crate::cluster) tile_bytes: Vec<u64>,
    /// The place of the file of the lineage.
    #[prost(uint32, tag = "6")]
    pub(in crate::cluster) file: u32,
    /// The file of each tile in the catalog.
    #[prost(message, repeated, tag = "7")]
    pub(in crate::cluster) kept: Vec<Kept>,
}

/// The file of a tile in the catalog.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::cluster) struct Kept {
    #[prost(string, tag = "1")]
    pub(in crate::cluster) path: String,
    #[prost(uint64, tag = "2")]
    pub(in crate::cluster) bytes: u64,
    #[prost(string, tag = "3")]
    pub(in crate::cluster) checksum: String,
}

/// Tiles that a member is to write into the catalog.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Write {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) tiles: Option<Tiles>,
    /// The grid that they are of, 16 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub(in crate::cluster) grid: Vec<u8>,
    /// Their positions along rows in that grid.
    #[prost(uint64, repeated, tag = "4")]
    pub(in crate::cluster) row_bands: Vec<u64>,
}

/// Tiles of files that a member is to read before anybody asks for them.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct ReadAhead {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) tiles: Option<Tiles>,
}

/// Whether a member has read them.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::cluster) struct HasRead {
    /// Whether it has room for all of them.
    #[prost(bool, tag = "1")]
    pub(in crate::cluster) has_room: bool,
}

/// What a member does in a load in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(in crate::cluster) enum Step {
    /// Tell keys of some rows.
    Keys = 0,
    /// Write the rows of each group apart.
    Scatter = 1,
    /// Bring the rows of a group into order.
    Gather = 2,
}

/// Tiles whose rows a member is to bring into an order.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Arrange {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    #[prost(enumeration = "Step", tag = "2")]
    pub(in crate::cluster) step: i32,
    #[prost(message, optional, tag = "3")]
    pub(in crate::cluster) wanted: Option<Arrangement>,
    /// Tiles of files, or pieces of the catalog.
    #[prost(message, optional, tag = "4")]
    pub(in crate::cluster) tiles: Option<Tiles>,
    /// Their positions along rows in the grid of the load, or the number of the group.
    #[prost(uint64, repeated, tag = "5")]
    pub(in crate::cluster) numbers: Vec<u64>,
    /// The grid that what is written is of, 16 bytes.
    #[prost(bytes = "vec", tag = "6")]
    pub(in crate::cluster) grid: Vec<u8>,
    /// The most keys of a row band.
    #[prost(uint64, tag = "7")]
    pub(in crate::cluster) most_keys: u64,
    /// How many columns each column band has in the end.
    #[prost(uint64, repeated, tag = "8")]
    pub(in crate::cluster) band_columns: Vec<u64>,
}

/// What a member has done of that.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Arranged {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::cluster) keys: Vec<Cut>,
    /// A line for each tile that was written: by row band and group, or by row band of the group and column band.
    #[prost(string, repeated, tag = "2")]
    pub(in crate::cluster) files: Vec<String>,
    /// The rows of each row band of a group.
    #[prost(uint64, repeated, tag = "3")]
    pub(in crate::cluster) lengths: Vec<u64>,
    /// What is known of their values.
    #[prost(bytes = "vec", tag = "4")]
    pub(in crate::cluster) statistics: Vec<u8>,
}

/// What a member has written, a line for each tile.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::cluster) struct Written {
    #[prost(string, repeated, tag = "1")]
    pub(in crate::cluster) files: Vec<String>,
}

/// Row bands that a member is to have from now on, each run of them as a part of a grid of all.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Take {
    /// [`FORMAT`] of who wrote it.
    #[prost(uint32, tag = "1")]
    pub(in crate::cluster) format: u32,
    /// What all the parts have in common.
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) part: Option<GridPart>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::cluster) runs: Vec<TakeRun>,
}

/// Row bands that follow one another.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct TakeRun {
    /// The number of the part.
    #[prost(uint64, tag = "1")]
    pub(in crate::cluster) number: u64,
    #[prost(message, optional, tag = "2")]
    pub(in crate::cluster) tiles: Option<Tiles>,
}

/// An order of rows.
#[derive(Clone, PartialEq, Message)]
pub(in crate::cluster) struct Order {
    /// The columns that come out, by their places.
    #[prost(uint32, repeated, tag = "1")]
    pub(in crate::cluster) columns: Vec<u32>,
    /// Whether the greatest value comes first, for each.
    #[prost(bool, repeated, tag = "2")]
    pub(in crate::cluster) descending: Vec<bool>,
    /// Whether nulls come first, for each.
    #[prost(bool, repeated, tag = "3")]
    pub(in crate::cluster) nulls_first: Vec<bool>,
}

//! What says that a grid is there.
//!
//! Comes in: a grid and the files of its tiles. Goes out: a text that checks itself: JSON, and the checksum of it in front. A manifest that is cut short, damaged or of another format is refused. Never here: writing.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use super::paths::is_tile;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{Axis, GridId, LoadMark, PartitionGrid, RowOrder, SortColumn};
use crate::share::{Heard, ipc};

/// The formats of manifests; others are refused. The second says the order of rows, the third statistics as well, the fourth which loads made the grid.
const FORMATS: [u32; 4] = [1, 2, 3, 4];

/// With what a manifest begins, before its checksum.
const MAGIC: &str = "partgrid manifest ";

/// No grid has so many rows, or bytes.
const MOST: u64 = 1 << 48;

/// The checksum of bytes, as manifests have it.
pub(super) fn checksum(bytes: &[u8]) -> String {
    let mut hasher = XxHash64::default();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// A grid under a name at one time, or that there is none any more.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) number: u64,
    /// `None` says that it was dropped.
    pub(super) contents: Option<Contents>,
}

/// What is read first: the rest may be of another format.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: u32,
    name: String,
    number: u64,
    contents: Option<Contents>,
}

/// What a grid is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    /// The id of the grid: the same data has the same id after a restart.
    id: String,
    /// The columns, as an Arrow IPC file without rows, in base64.
    schema: String,
    row_cuts: Vec<u64>,
    column_cuts: Vec<u64>,
    /// What is known of the order of the rows.
    #[serde(default, skip_serializing_if = "WrittenOrder::is_unknown")]
    order: WrittenOrder,
    /// What is known of the values, as members of a cluster tell each other, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    statistics: String,
    /// The loads that made it and had an id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    loads: Vec<WrittenLoad>,
    pub(super) tiles: Vec<TileFile>,
}

/// [`LoadMark`], as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLoad {
    id: String,
    digest: String,
    rows: u64,
}

impl From<&LoadMark> for WrittenLoad {
    fn from(load: &LoadMark) -> Self {
        Self {
            id: load.id.clone(),
            digest: load.digest.clone(),
            rows: load.num_rows,
        }
    }
}

impl From<&WrittenLoad> for LoadMark {
    fn from(load: &WrittenLoad) -> Self {
        Self {
            id: load.id.clone(),
            digest: load.digest.clone(),
            num_rows: load.rows,
        }
    }
}

/// [`RowOrder`], as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOrder {
    /// Names, and whether the greatest value comes first.
    sorted_by: Vec<(String, bool)>,
    partitioned_by: Vec<String>,
}

impl WrittenOrder {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&RowOrder> for WrittenOrder {
    fn from(order: &RowOrder) -> Self {
        let sorted = order.sorted_by.iter();
        Self {
            sorted_by: sorted
                .map(|column| (column.name.clone(), column.descending))
                .collect(),
            partitioned_by: order.partitioned_by.clone(),
        }
    }
}

impl From<&WrittenOrder> for RowOrder {
    fn from(order: &WrittenOrder) -> Self {
        let sorted = order.sorted_by.iter().cloned();
        Self {
            sorted_by: sorted
                .map(|(name, descending)| SortColumn { name, descending })
                .collect(),
            partitioned_by: order.partitioned_by.clone(),
        }
    }
}

/// The file of a tile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TileFile {
    pub(super) position: Vec<usize>,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) checksum: String,
    pub(super) rows: u64,
    pub(super) memory_bytes: u64,
}

impl TileFile {
    /// The same file at a position.
    pub(super) fn at(mut self, position: &[usize]) -> Self {
        self.position = position.to_vec();
        self
    }
}

/// The geometry of a grid that was kept.
pub(super) struct Outline {
    pub(super) id: GridId,
    pub(super) schema: SchemaRef,
    pub(super) rows: Axis,
    pub(super) columns: Axis,
    pub(super) order: RowOrder,
}

impl Outline {
    /// The columns of the tile at a position.
    pub(super) fn band(&self, position: &[usize]) -> Result<SchemaRef> {
        let band = position
            .get(1)
            .and_then(|band| self.columns.interval(*band));
        let band = band.ok_or_else(|| damaged("it has a tile outside of its cuts"))?;
        let numbers: Vec<usize> = band.filter_map(|at| usize::try_from(at).ok()).collect();
        Ok(Arc::new(self.schema.project(&numbers)?))
    }
}

fn damaged(what: &str) -> Error {
    Error::invalid_data(format!("the manifest is damaged: {what}"))
}

impl Manifest {
    /// As bytes to write.
    ///
    /// # Errors
    /// `Internal` when it cannot be written as JSON.
    pub(super) fn to_bytes(&self) -> Result<Bytes> {
        let [plain, ordered, told, loaded] = FORMATS;
        let written = Written {
            format: match &self.contents {
                Some(contents) if !contents.loads.is_empty() => loaded,
                Some(contents) if !contents.statistics.is_empty() => told,
                Some(contents) if !contents.order.is_unknown() => ordered,
                _ => plain,
            },
            name: self.name.clone(),
            number: self.number,
            contents: self.contents.clone(),
        };
        let json = serde_json::to_string_pretty(&written).map_err(|error| {
            Error::internal("a manifest is not to be written").with_source(error)
        })?;
        let sum = checksum(json.as_bytes());
        Ok(Bytes::from(format!("{MAGIC}{sum}\n{json}")))
    }

    /// Reads it, and sees that nothing is missing.
    ///
    /// # Errors
    /// `InvalidData` for what is no manifest, `Unsupported` for one of a later format.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let rest = text.strip_prefix(MAGIC);
        let rest = rest.ok_or_else(|| damaged("it does not begin as one"))?;
        let (sum, json) = rest
            .split_once('\n')
            .ok_or_else(|| damaged("it is cut short"))?;
        if checksum(json.as_bytes()) != sum {
            return Err(damaged("its checksum is another"));
        }
        let versioned: Versioned =
            serde_json::from_str(json).map_err(|error| damaged(&error.to_string()))?;
        if !FORMATS.contains(&versioned.format) {
            let text = format!(
                "the manifest is of format {}, this version reads {FORMATS:?}",
                versioned.format
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let written: Written =
            serde_json::from_str(json).map_err(|error| damaged(&error.to_string()))?;
        if let Some(contents) = &written.contents {
            contents.check()?;
        }
        Ok(Self {
            name: written.name,
            number: written.number,
            contents: written.contents,
        })
    }
}

impl Contents {
    /// Sees that its files are tiles of this catalog, and as many as its cuts make: a checksum that fits is no proof that we wrote it.
    fn check(&self) -> Result<()> {
        let foreign = self.tiles.iter().find(|tile| !is_tile(&tile.path));
        if let Some(tile) = foreign {
            let text = format!(
                "a tile of it has the path of something else, {:?}",
                tile.path
            );
            return Err(damaged(&text));
        }
        let bands = |cuts: &[u64]| cuts.len().saturating_sub(1);
        let tiles = bands(&self.row_cuts).checked_mul(bands(&self.column_cuts));
        if tiles != Some(self.tiles.len()) {
            return Err(damaged("it has another number of tiles than its cuts make"));
        }
        let sizes = self
            .tiles
            .iter()
            .map(|tile| (tile.bytes, tile.memory_bytes));
        let sum = sizes
            .into_iter()
            .try_fold(0_u64, |sum, (bytes, memory_bytes)| {
                sum.checked_add(bytes)?.checked_add(memory_bytes)
            });
        if sum.is_none_or(|sum| sum > MOST) {
            return Err(damaged("its tiles have more bytes than there can be"));
        }
        match self.row_cuts.last() {
            Some(rows) if *rows > MOST => Err(damaged("it has more rows than there can be")),
            _ => Ok(()),
        }
    }

    /// Those of a grid whose tiles are in these files.
    ///
    /// # Errors
    /// `Unsupported` for columns that Arrow IPC does not hold.
    pub(super) fn of(
        grid: &PartitionGrid,
        tiles: Vec<TileFile>,
        statistics: &[u8],
    ) -> Result<Self> {
        let mut bytes = Vec::new();
        let empty = arrow::array::RecordBatch::new_empty(Arc::clone(grid.schema()));
        ipc::write(&empty, &[], &mut bytes)?;
        Ok(Self {
            id: grid.id().to_string(),
            schema: STANDARD.encode(bytes),
            row_cuts: grid.rows().cuts().to_vec(),
            column_cuts: grid.columns().cuts().to_vec(),
            order: grid.order().into(),
            statistics: STANDARD.encode(statistics),
            loads: grid.loads().iter().map(Into::into).collect(),
            tiles,
        })
    }

    /// The loads that made the grid and had an id.
    pub(super) fn loads(&self) -> Vec<LoadMark> {
        self.loads.iter().map(Into::into).collect()
    }

    /// What is known of the values, if it was written.
    ///
    /// # Errors
    /// `InvalidData` when it is of other columns.
    pub(super) fn statistics(&self, outline: &Outline) -> Result<Option<Heard>> {
        if self.statistics.is_empty() {
            return Ok(None);
        }
        let bytes = STANDARD.decode(&self.statistics);
        let bytes = bytes.map_err(|_| damaged("its statistics are no base64"))?;
        let heard = Heard::read(&bytes, &outline.schema, outline.rows.num_intervals());
        heard
            .map(Some)
            .map_err(|error| damaged(&format!("its statistics: {error}")))
    }

    /// The columns and cuts.
    ///
    /// # Errors
    /// `InvalidData` when they are none.
    pub(super) fn outline(&self) -> Result<Outline> {
        let bytes = STANDARD.decode(&self.schema);
        let bytes = bytes.map_err(|_| damaged("its columns are no base64"))?;
        let schema = ipc::read_schema(&Buffer::from(bytes))
            .map_err(|error| damaged(&format!("its columns: {error}")))?;
        let bits = u128::from_str_radix(&self.id, 16).map_err(|_| damaged("its id"))?;
        let columns = Axis::try_new(self.column_cuts.clone())?;
        if columns.extent() != schema.fields().len() as u64 {
            return Err(damaged("its cuts are of another number of columns"));
        }
        Ok(Outline {
            id: GridId::from_bits(bits),
            schema: Arc::new(schema),
            rows: Axis::try_new(self.row_cuts.clone())?,
            columns,
            order: (&self.order).into(),
        })
    }

    /// Sees that each file is there and as long as it was.
    ///
    /// # Errors
    /// `InvalidData` with the file.
    pub(super) fn check_lengths(&self, lengths: &BTreeMap<String, u64>) -> Result<()> {
        for tile in &self.tiles {
            let text = match lengths.get(&tile.path) {
                Some(length) if *length == tile.bytes => continue,
                Some(length) => format!(
                    "the file of a tile must have {} bytes, it has {length}",
                    tile.bytes
                ),
                None => "the file of a tile is gone".to_owned(),
            };
            return Err(Error::invalid_data(text)
                .with_file(&tile.path)
                .with_position(&tile.position));
        }
        Ok(())
    }
}

//! A tile of which only the outline is here.
//!
//! Comes in: columns, number of rows, locations. Goes out: a tile that says all that and cannot be opened. Never here: data, ways to fetch it.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::grid::tile::TileData;
use crate::location::Location;

/// A tile that another process holds, for instance another rank of an SPMD program, and that cannot be asked for.
#[derive(Debug)]
pub struct AbsentTile {
    schema: SchemaRef,
    num_rows: u64,
    locations: Vec<Location>,
}

impl AbsentTile {
    /// The tile with these columns and so many rows; `locations` may be empty when nobody knows them.
    #[must_use]
    pub fn new(schema: SchemaRef, num_rows: u64, locations: Vec<Location>) -> Self {
        Self {
            schema,
            num_rows,
            locations,
        }
    }
}

#[async_trait]
impl TileData for AbsentTile {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// None of it is here.
    fn memory_bytes(&self) -> u64 {
        0
    }

    fn locations(&self) -> Vec<Location> {
        self.locations.clone()
    }

    fn open(&self) -> Result<RecordBatch> {
        let place = match self.locations.first() {
            Some(location) => location.to_string(),
            None => "another process".to_owned(),
        };
        let text = format!("the tile lives in {place} and cannot be fetched from there");
        Err(Error::new(ErrorKind::NotLocal, text).with_hint("work with it in that process"))
    }
}

//! What a caller can choose about a load.

use crate::error::{Error, Result};

/// Settings of [`load`](super::load).
#[derive(Debug, Clone)]
pub struct LoadOptions {
    columns: Option<Vec<String>>,
    hive_partitioning: bool,
    tile_rows: Option<u64>,
    concurrency: Option<usize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            hive_partitioning: true,
            tile_rows: None,
            concurrency: None,
        }
    }
}

impl LoadOptions {
    /// Loads only these columns, in this order. Without it, all columns of the files, then those of the folder names.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<String>) -> Self {
        self.columns = Some(columns);
        self
    }

    /// Whether folder names such as `month=01` become columns; they do by default.
    #[must_use]
    pub fn with_hive_partitioning(mut self, hive_partitioning: bool) -> Self {
        self.hive_partitioning = hive_partitioning;
        self
    }

    /// About how many rows a tile holds. By default 1,048,576, or fewer so that a tile stays under 128 MiB.
    #[must_use]
    pub fn with_tile_rows(mut self, tile_rows: u64) -> Self {
        self.tile_rows = Some(tile_rows);
        self
    }

    /// How many files or tiles are worked on at once; by default the number of cores.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.tile_rows == Some(0) || self.concurrency == Some(0) {
            return Err(Error::invalid_argument(
                "tile_rows and concurrency must be at least 1, got 0",
            ));
        }
        Ok(())
    }

    pub(super) fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    pub(super) fn hive_partitioning(&self) -> bool {
        self.hive_partitioning
    }

    pub(super) fn tile_rows(&self) -> Option<u64> {
        self.tile_rows
    }

    pub(super) fn concurrency(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.concurrency.unwrap_or_else(cores)
    }
}

//! Stand-in until the loader is merged.
#![allow(missing_docs)]
mod write;
use crate::error::{Error, Result};
use crate::grid::PartitionGrid;
pub use write::write_parquet;

#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    columns: Option<Vec<String>>,
    tile_rows: Option<u64>,
    hive: bool,
}
impl LoadOptions {
    pub fn with_columns(mut self, columns: Vec<String>) -> Self {
        self.columns = Some(columns);
        self
    }
    pub fn with_hive_partitioning(mut self, hive: bool) -> Self {
        self.hive = hive;
        self
    }
    pub fn with_tile_rows(mut self, rows: u64) -> Self {
        self.tile_rows = Some(rows);
        self
    }
}
pub async fn load(sources: &[String], options: &LoadOptions) -> Result<PartitionGrid> {
    let mut batches = Vec::new();
    let mut schema = None;
    for source in sources {
        let file = std::fs::File::open(source).map_err(|error| {
            Error::not_found(format!("no such file: {error}")).with_file(source)
        })?;
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
            .map_err(|error| Error::invalid_data(error.to_string()).with_file(source))?;
        schema = Some(reader.schema().clone());
        let reader = reader
            .with_batch_size(options.tile_rows.unwrap_or(1 << 20) as usize)
            .build()
            .map_err(|error| Error::invalid_data(error.to_string()))?;
        for batch in reader {
            batches.push(batch?);
        }
    }
    let schema = schema.ok_or_else(|| Error::not_found("no file"))?;
    let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(schema.fields().clone()));
    let batches: Result<Vec<_>> = batches
        .into_iter()
        .map(|batch: arrow::array::RecordBatch| Ok(batch.with_schema(schema.clone())?))
        .collect();
    let grid = PartitionGrid::try_from_batches(schema, &batches?)?;
    match &options.columns {
        Some(names) => grid.select(names),
        None => Ok(grid),
    }
}

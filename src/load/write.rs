//! Record batches -> a Parquet file.
//!
//! Comes in: a schema and batches, one after the other. Goes out: bytes, whenever a row group is full, so that no more than one row group is in memory. Never
//! here: where the bytes go.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::{Error, ErrorKind, Result};

/// A row group ends at so many rows or encoded bytes, whichever comes first: about one tile.
const ROW_GROUP_ROWS: usize = 1 << 20;
const ROW_GROUP_BYTES: usize = 128 << 20;

/// Writes the batches as one Parquet file with Zstandard compression and the Arrow schema. The file is whole only when this returns `Ok`.
///
/// # Errors
/// The first error among the batches; `Unsupported` for a type that Parquet has not; `Storage` when `sink` fails.
pub fn write_parquet(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .build();
    let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties));
    let mut writer = writer.map_err(failed)?;
    for batch in batches {
        writer.write(&batch?).map_err(failed)?;
        drain(sink, writer.inner_mut())?;
    }
    writer.finish().map_err(failed)?;
    drain(sink, writer.inner_mut())
}

/// Passes on what is encoded. The writer keeps its own count of bytes, so that the offsets in the footer stay right.
fn drain(sink: &mut dyn Write, bytes: &mut Vec<u8>) -> Result<()> {
    let written = sink.write_all(bytes);
    bytes.clear();
    written.map_err(|error| {
        let kind = ErrorKind::Storage { retryable: false };
        Error::new(
            kind,
            format!("the Parquet file could not be written: {error}"),
        )
        .with_source(error)
    })
}

fn failed(error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::NYI(_) | ParquetError::ArrowError(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    };
    Error::new(
        kind,
        format!("the batches could not be written as Parquet: {error}"),
    )
    .with_source(error)
}

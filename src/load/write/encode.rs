//! Record batches -> a Parquet file.
//!
//! Comes in: a schema and batches, one after the other. Goes out: bytes, whenever a row group is full, so that no more than one row group is in memory. Never
//! here: where the bytes go.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::{Error, ErrorKind, Result};

/// A row group ends at so many rows or encoded bytes, whichever comes first: about one tile.
pub(super) const ROW_GROUP_ROWS: usize = 1 << 20;
pub(super) const ROW_GROUP_BYTES: usize = 128 << 20;

/// How the pages of a file are compressed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileCompression {
    /// Not at all.
    None,
    /// Snappy: fast to read.
    Snappy,
    /// LZ4 without frames.
    Lz4,
    /// Zstandard at its default level: small.
    #[default]
    Zstd,
    /// Gzip: old readers know it.
    Gzip,
    /// Brotli: smallest, slow to write.
    Brotli,
}

impl FileCompression {
    /// The names that [`from_name`](Self::from_name) knows.
    pub const NAMES: [&str; 6] = ["none", "snappy", "lz4", "zstd", "gzip", "brotli"];

    /// The compression of a name.
    ///
    /// # Errors
    /// `InvalidArgument` for another name.
    pub fn from_name(name: &str) -> Result<Self> {
        Ok(match name {
            "none" | "uncompressed" => Self::None,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            "gzip" => Self::Gzip,
            "brotli" => Self::Brotli,
            other => {
                return Err(Error::invalid_argument(format!(
                    "compression must be one of {}, got {other:?}",
                    Self::NAMES.join(", ")
                )));
            }
        })
    }

    fn codec(self) -> Compression {
        match self {
            Self::None => Compression::UNCOMPRESSED,
            Self::Snappy => Compression::SNAPPY,
            Self::Lz4 => Compression::LZ4_RAW,
            Self::Zstd => Compression::ZSTD(ZstdLevel::default()),
            Self::Gzip => Compression::GZIP(GzipLevel::default()),
            Self::Brotli => Compression::BROTLI(BrotliLevel::default()),
        }
    }
}

/// Writes the batches as one Parquet file with the Arrow schema. The file is whole only when this returns `Ok`.
///
/// # Errors
/// The first error among the batches; `Unsupported` for a type that Parquet has not; `Storage` when `sink` fails.
pub fn write_parquet(
    sink: &mut dyn Write,
    schema: &SchemaRef,
    compression: FileCompression,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(compression.codec())
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

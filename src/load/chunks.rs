//! The bytes that one tile needs, under the offsets they have in the file.
//!
//! Comes in: byte ranges. Goes out: a reader for the Parquet decoder that holds just these. Never here: decoding.

use std::ops::Range;

use bytes::{Buf, Bytes};
use object_store::ObjectStore;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::error::from_store;
use super::source::SourceFile;
use crate::error::{Error, Result};

/// Pieces of a file.
#[derive(Debug, Clone)]
pub(super) struct Chunks {
    file_bytes: u64,
    /// By offset, not overlapping.
    pieces: Vec<(u64, Bytes)>,
}

/// Fetches the ranges, which must be sorted and must not overlap.
pub(super) async fn fetch(
    store: &dyn ObjectStore,
    file: &SourceFile,
    ranges: &[Range<u64>],
) -> Result<Chunks> {
    let bytes = store
        .get_ranges(&file.path, ranges)
        .await
        .map_err(|error| from_store(error, &file.name))?;
    for (range, piece) in ranges.iter().zip(&bytes) {
        let wanted = range.end - range.start;
        if piece.len() as u64 != wanted {
            return Err(Error::invalid_data(format!(
                "{wanted} bytes at {} were asked for, got {}",
                range.start,
                piece.len()
            ))
            .with_file(&file.name)
            .with_hint("the file may be changing while it is read"));
        }
    }
    let starts = ranges.iter().map(|range| range.start);
    Ok(Chunks {
        file_bytes: file.size_bytes,
        pieces: starts.zip(bytes).collect(),
    })
}

impl Chunks {
    /// The bytes from `start` to the end of the piece that holds it.
    fn rest(&self, start: u64) -> Result<Bytes, ParquetError> {
        let after = self.pieces.partition_point(|(offset, _)| *offset <= start);
        let piece = after
            .checked_sub(1)
            .and_then(|place| self.pieces.get(place));
        let rest = piece.and_then(|(offset, bytes)| {
            let skip = usize::try_from(start - offset).ok()?;
            (skip <= bytes.len()).then(|| bytes.slice(skip..))
        });
        rest.ok_or_else(|| {
            ParquetError::EOF(format!("offset {start} lies outside the column chunks"))
        })
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let rest = self.rest(start)?;
        Ok(rest.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let rest = self.rest(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} reach past the column chunk"
            )));
        }
        Ok(rest.slice(..length))
    }
}

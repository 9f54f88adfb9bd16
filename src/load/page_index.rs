//! Where each page of a column chunk starts, and what is in it.
//!
//! Comes in: files with filters, their footers. Goes out: the footers with the page indexes of their files. A file without one, or with one that is damaged, is read without: it only
//! saves work. Never here: what is done about it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::error::contained;
use super::footer::Footer;
use super::input::fetch;
use super::source::SourceFile;
use super::thrift::check_struct;
use crate::error::{Error, Result};

/// Row groups of fewer rows have one page for each column, or few. What the fuzzer makes is small.
const WORTHWHILE_ROWS: u64 = if cfg!(fuzzing) { 1 } else { 10_000 };

/// An index that claims more is none.
const MAX_BYTES: u64 = 256 << 20;

/// The footers with the page indexes of those files of which a row group that is kept is worth it.
pub(super) async fn with_page_indexes(
    files: &[SourceFile],
    footers: Vec<Footer>,
    kept: &[Vec<bool>],
    concurrency: usize,
) -> Result<Vec<Footer>> {
    let files = files.iter().cloned().zip(footers).zip(kept.to_vec());
    stream::iter(files)
        .map(|((file, footer), kept)| async move {
            let rows = footer.row_groups.iter().zip(&kept);
            let is_worth_it = |(rows, kept): (&u64, &bool)| *kept && *rows >= WORTHWHILE_ROWS;
            if !rows.into_iter().any(is_worth_it) {
                return Ok(footer);
            }
            let Some(range) = range_of(footer.parquet(), file.size_bytes) else {
                return Ok(footer);
            };
            let bytes = fetch(&file, range.clone()).await?;
            let window = Window {
                start: range.start,
                bytes,
                file_bytes: file.size_bytes,
            };
            let found = contained(&file.name, || Ok(parsed(&footer, &window)));
            Ok::<_, Error>(found.ok().flatten().unwrap_or(footer))
        })
        .buffered(concurrency)
        .try_collect()
        .await
}

/// Where the page indexes of all column chunks lie, if every chunk has one within the file.
fn range_of(metadata: &ParquetMetaData, file_bytes: u64) -> Option<Range<u64>> {
    let groups = metadata.row_groups().iter();
    let chunks = groups.flat_map(RowGroupMetaData::columns);
    let mut whole: Option<Range<u64>> = None;
    for chunk in chunks {
        for part in parts_of(chunk)? {
            whole = Some(match whole {
                None => part,
                Some(whole) => whole.start.min(part.start)..whole.end.max(part.end),
            });
        }
    }
    whole.filter(|range| range.end <= file_bytes && range.end - range.start <= MAX_BYTES)
}

/// The offset index of a chunk, and its column index if it has one.
fn parts_of(chunk: &ColumnChunkMetaData) -> Option<Vec<Range<u64>>> {
    let range = |offset: Option<i64>, length: Option<i32>| {
        let start = u64::try_from(offset?).ok()?;
        let length = u64::try_from(length?).ok()?;
        Some(start..start.checked_add(length)?)
    };
    let offsets = range(chunk.offset_index_offset(), chunk.offset_index_length())?;
    let values = range(chunk.column_index_offset(), chunk.column_index_length());
    Some(values.into_iter().chain([offsets]).collect())
}

fn parsed(footer: &Footer, window: &Window) -> Option<Footer> {
    let metadata = footer.parquet();
    let groups = metadata.row_groups().iter();
    for part in groups
        .flat_map(RowGroupMetaData::columns)
        .flat_map(parts_of)
        .flatten()
    {
        let length = usize::try_from(part.end - part.start).ok()?;
        check_struct(&window.get_bytes(part.start, length).ok()?).ok()?;
    }
    let mut reader = ParquetMetaDataReader::new_with_metadata(ParquetMetaData::clone(metadata))
        .with_page_index_policy(PageIndexPolicy::Optional);
    reader.read_page_indexes(window).ok()?;
    let metadata = reader.finish().ok()?;
    let offsets = metadata.offset_index()?;
    let is_sound = metadata
        .row_groups()
        .iter()
        .zip(offsets)
        .all(|(group, offsets)| {
            let pairs = group.columns().iter().zip(offsets);
            offsets.len() == group.columns().len()
                && pairs
                    .into_iter()
                    .all(|(chunk, index)| is_sound(group, chunk, index))
        });
    if !is_sound || offsets.len() != metadata.num_row_groups() {
        return None;
    }
    let options = ArrowReaderOptions::new().with_schema(Arc::clone(footer.metadata.schema()));
    let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options).ok()?;
    Some(Footer::new(metadata, footer.row_groups.clone()))
}

/// Whether the pages follow each other, within their chunk, and their rows from the first of the row group on.
fn is_sound(
    group: &RowGroupMetaData,
    chunk: &ColumnChunkMetaData,
    index: &OffsetIndexMetaData,
) -> bool {
    let (start, length) = chunk.byte_range();
    let (mut byte, mut row) = (start, None);
    for page in index.page_locations() {
        let (Ok(offset), Ok(size)) = (
            u64::try_from(page.offset),
            u64::try_from(page.compressed_page_size),
        ) else {
            return false;
        };
        let follows = row.map_or(page.first_row_index == 0, |last| {
            page.first_row_index > last
        });
        if offset < byte || size == 0 || !follows {
            return false;
        }
        (byte, row) = (offset.saturating_add(size), Some(page.first_row_index));
    }
    let is_whole = match row {
        Some(last) => last < group.num_rows(),
        None => group.num_rows() == 0,
    };
    is_whole && byte <= start + length
}

/// A part of a file, under the offsets of the file.
struct Window {
    start: u64,
    bytes: Bytes,
    file_bytes: u64,
}

impl Length for Window {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Window {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let end = self.start + self.bytes.len() as u64;
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        Ok(bytes::Buf::reader(self.get_bytes(start, length)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let from = start
            .checked_sub(self.start)
            .and_then(|from| usize::try_from(from).ok());
        let inside = from.filter(|from| {
            let stop = from.checked_add(length);
            stop.is_some_and(|stop| stop <= self.bytes.len())
        });
        let from = inside.ok_or_else(|| ParquetError::EOF("outside the page index".to_owned()))?;
        Ok(self.bytes.slice(from..from + length))
    }
}

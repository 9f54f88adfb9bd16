//! File footers -> row counts, byte ranges, schemas.
//!
//! Comes in: a list of files. Goes out: the checked metadata of each. Never here: pages.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use tokio::runtime::Handle;

use super::cache::FooterCache;
use super::error::{blocking, contained, from_parquet};
use super::input::fetch;
use super::intervals::{of_unit, with_months};
use super::progress::Counters;
use super::source::{Place, SourceFile};
use super::thrift::check_footer;
use super::types;
use super::zones::restored;
use crate::error::{Error, Result};

/// Bytes of length and magic at the end of a file.
const TAIL_BYTES: u64 = 8;

/// Bytes that are read from the end of a file at once; the footers of most files fit.
const FIRST_READ_BYTES: u64 = 64 * 1024;

/// What a footer says, checked against the size of its file.
#[derive(Debug, Clone)]
pub(super) struct Footer {
    pub(super) metadata: ArrowReaderMetadata,
    /// Rows of each row group.
    pub(super) row_groups: Vec<u64>,
    /// The columns, where they are other than the reader says.
    whole: Option<SchemaRef>,
}

impl Footer {
    pub(super) fn new(metadata: ArrowReaderMetadata, row_groups: Vec<u64>) -> Self {
        Self {
            whole: with_months(metadata.schema(), metadata.metadata()),
            metadata,
            row_groups,
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        self.whole
            .as_ref()
            .unwrap_or_else(|| self.metadata.schema())
    }

    /// With what the reader is to give the months of a column that is intervals; nothing where it gives them whole.
    pub(super) fn for_months(
        &self,
        root: usize,
    ) -> parquet::errors::Result<Option<ArrowReaderMetadata>> {
        let read = self.metadata.schema();
        let is_whole = |whole: &SchemaRef| whole.fields().get(root) == read.fields().get(root);
        if self.whole.as_ref().is_none_or(is_whole) {
            return Ok(None);
        }
        let months = of_unit(read, IntervalUnit::YearMonth);
        let options = ArrowReaderOptions::new().with_schema(Arc::new(months));
        ArrowReaderMetadata::try_new(Arc::clone(self.parquet()), options).map(Some)
    }

    fn with_text(self, text: &DataType, file: &SourceFile) -> Result<Self> {
        let read = self.metadata.schema();
        let fields = read.fields().iter().map(|field| {
            let data_type = types::with_text(field.data_type(), text);
            Field::clone(field).with_data_type(data_type)
        });
        let schema =
            Schema::new_with_metadata(fields.collect::<Vec<Field>>(), read.metadata().clone());
        if schema == **read {
            return Ok(self);
        }
        let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(self.parquet()), options);
        let metadata = metadata.map_err(|error| from_parquet(error, &file.name))?;
        Ok(Self::new(metadata, self.row_groups))
    }

    /// About how much memory it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.parquet().memory_size() + self.schema().fields().size()
    }

    pub(super) fn parquet(&self) -> &Arc<ParquetMetaData> {
        self.metadata.metadata()
    }
}

/// The footers of files whose text columns are read as `text`.
pub(super) fn with_text(
    footers: Vec<Footer>,
    text: &DataType,
    files: &[SourceFile],
) -> Result<Vec<Footer>> {
    let pairs = footers.into_iter().zip(files);
    pairs
        .map(|(footer, file)| footer.with_text(text, file))
        .collect()
}

/// Reads all footers, `concurrency` at a time, in the order of the files.
pub(super) async fn read_all(
    files: &[SourceFile],
    concurrency: usize,
    counters: &Counters,
) -> Result<Vec<Footer>> {
    let cache = &FooterCache::of_this_process();
    stream::iter(files.iter().cloned())
        .map(|file| async move {
            if let Some(known) = cache.get(&file) {
                return Ok(known);
            }
            let listed = file.clone();
            let footer = read_anywhere(file).await?;
            cache.keep(&listed, &footer);
            Ok(footer)
        })
        .buffered(concurrency)
        .inspect_ok(|_| counters.num_files.add(1))
        .try_collect()
        .await
}

async fn read_anywhere(file: SourceFile) -> Result<Footer> {
    match &file.place {
        // Nothing in it waits but the file system itself.
        Place::Local(_) => {
            let here = Handle::current();
            blocking(move || here.block_on(read(&file))).await
        }
        Place::Remote { .. } => read(&file).await,
    }
}

async fn read(file: &SourceFile) -> Result<Footer> {
    let size = file.size_bytes;
    if size < TAIL_BYTES + 4 {
        return Err(no_parquet(
            file,
            "it is shorter than the shortest Parquet file",
        ));
    }
    let mut end = fetch(file, size - FIRST_READ_BYTES.min(size)..size).await?;
    let footer_bytes = footer_length(&end, file)?;
    let needed = footer_bytes + TAIL_BYTES;
    if needed + 4 > size {
        return Err(no_parquet(
            file,
            &format!("its footer claims {footer_bytes} bytes, more than the file holds"),
        ));
    }
    if needed > end.len() as u64 {
        end = fetch(file, size - needed..size).await?;
    }
    let start = usize::try_from(end.len() as u64 - needed).unwrap_or(0);
    let stop = start + usize::try_from(footer_bytes).unwrap_or(0);
    parse(&end.slice(start..stop), file)
}

fn footer_length(end: &Bytes, file: &SourceFile) -> Result<u64> {
    match end.as_ref() {
        [.., a, b, c, d, b'P', b'A', b'R', b'1'] => {
            Ok(u64::from(u32::from_le_bytes([*a, *b, *c, *d])))
        }
        [.., b'P', b'A', b'R', b'E'] => Err(Error::unsupported(
            "the file is encrypted, which partgrid cannot read",
        )
        .with_file(&file.name)),
        _ => Err(no_parquet(file, "it does not end with the mark PAR1")),
    }
}

fn no_parquet(file: &SourceFile, why: &str) -> Error {
    Error::invalid_data(format!(
        "the file is truncated or no Parquet file: {why} ({} bytes)",
        file.size_bytes
    ))
    .with_file(&file.name)
    .with_hint("it may not have come whole: copy or write it again, and load only files of Parquet")
}

fn parse(bytes: &Bytes, file: &SourceFile) -> Result<Footer> {
    contained(&file.name, || {
        check_footer(bytes).map_err(|what| {
            Error::invalid_data(format!(
                "the file is damaged: its footer is implausible: {what}"
            ))
            .with_file(&file.name)
        })?;
        let damaged = |error| from_parquet(error, &file.name);
        let metadata = ParquetMetaDataReader::decode_metadata(bytes).map_err(damaged)?;
        let row_groups = checked_row_groups(&metadata, file)?;
        let metadata = Arc::new(metadata);
        let plain = ArrowReaderOptions::new();
        let read = ArrowReaderMetadata::try_new(Arc::clone(&metadata), plain.clone());
        let read = read.map_err(damaged)?;
        let metadata = match restored(read.schema(), &metadata) {
            None => read,
            Some(schema) => ArrowReaderMetadata::try_new(metadata, plain.with_schema(schema))
                .map_err(damaged)?,
        };
        Ok(Footer::new(metadata, row_groups))
    })
}

/// The rows of each row group, after the byte ranges of all column chunks were seen to lie within the file.
fn checked_row_groups(metadata: &ParquetMetaData, file: &SourceFile) -> Result<Vec<u64>> {
    let damaged = |what: String| Error::invalid_data(what).with_file(&file.name);
    let mut rows = Vec::with_capacity(metadata.num_row_groups());
    for (number, group) in metadata.row_groups().iter().enumerate() {
        for (place, chunk) in group.columns().iter().enumerate() {
            let (start, length) = chunk.byte_range();
            if start
                .checked_add(length)
                .is_none_or(|stop| stop > file.size_bytes)
            {
                return Err(damaged(format!(
                    "the file is damaged: column chunk {place} of row group {number} lies at {start} + {length} bytes, past the end ({} bytes)",
                    file.size_bytes
                ))
                .with_column(chunk.column_path().string()));
            }
        }
        let count = u64::try_from(group.num_rows()).map_err(|_| {
            damaged(format!(
                "the file is damaged: row group {number} claims {} rows",
                group.num_rows()
            ))
        })?;
        rows.push(count);
    }
    Ok(rows)
}

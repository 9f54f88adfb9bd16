//! Bloom filters of column chunks -> row groups that cannot hold a wanted value.
//!
//! Comes in: the row groups that statistics keep, the filter; for lazy tiles one chunk and values. Goes out: fewer of them; whether the chunk can hold a value. A filter that is missing or damaged proves nothing. Never here: other statistics.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use futures::{StreamExt, TryStreamExt, stream};
use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::ColumnChunkMetaData;

use super::error::contained;
use super::filter::{Bound, Filter};
use super::footer::Footer;
use super::input::fetch;
use super::source::SourceFile;
use super::thrift::check_struct;
use crate::error::{Error, Result};

/// The largest bitset that the format allows, and its header.
const MAX_BYTES: u64 = (128 << 20) + 64;

/// Row groups that are kept, without those that bloom filters exclude.
pub(super) async fn kept(
    files: &[SourceFile],
    footers: &[Footer],
    kept: Vec<Vec<bool>>,
    filter: &Filter,
    concurrency: usize,
) -> Result<Vec<Vec<bool>>> {
    let files = files.iter().cloned().zip(footers.iter().cloned()).zip(kept);
    stream::iter(files)
        .map(|((file, footer), mut kept)| async move {
            for (number, kept) in kept.iter_mut().enumerate().filter(|(_, kept)| **kept) {
                *kept = can_hold(&file, &footer, number, filter).await?;
            }
            Ok::<_, Error>(kept)
        })
        .buffered(concurrency)
        .try_collect()
        .await
}

/// Whether a row group can hold a row that is wanted: for one of the groups of conditions all are possible.
async fn can_hold(
    file: &SourceFile,
    footer: &Footer,
    row_group: usize,
    filter: &Filter,
) -> Result<bool> {
    for group in filter.groups() {
        let mut possible = true;
        for condition in group.iter().filter(|condition| condition.is_equality()) {
            possible = possible && is_possible(file, footer, row_group, condition).await?;
        }
        if possible {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn is_possible(
    file: &SourceFile,
    footer: &Footer,
    row_group: usize,
    condition: &Bound,
) -> Result<bool> {
    let chunk = chunk_of(footer, row_group, condition.name(), condition.values());
    let Some(chunk) = chunk else {
        return Ok(true);
    };
    let filter = read(file, chunk).await?;
    Ok(filter.is_none_or(|filter| may_hold(&filter, chunk, condition.values())))
}

/// The bloom filter of a column chunk; nothing if there is none that can be read.
pub(super) async fn read(file: &SourceFile, chunk: &ColumnChunkMetaData) -> Result<Option<Sbbf>> {
    let range = |chunk: &ColumnChunkMetaData| {
        let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
        let length = u64::try_from(chunk.bloom_filter_length()?).ok()?;
        let stop = start.checked_add(length)?;
        (stop <= file.size_bytes && length <= MAX_BYTES).then_some(start..stop)
    };
    let Some(range) = range(chunk) else {
        return Ok(None);
    };
    let bytes = fetch(file, range).await?;
    if check_struct(&bytes).is_err() {
        return Ok(None);
    }
    let filter = contained(&file.name, || {
        Sbbf::from_bytes(&bytes).map_err(|error| Error::invalid_data(error.to_string()))
    });
    Ok(filter.ok().filter(|filter| filter.num_blocks() > 0))
}

/// The chunk of a column by its name, if that is flat and of the type of the values.
pub(super) fn chunk_of<'a>(
    footer: &'a Footer,
    row_group: usize,
    name: &str,
    values: &ArrayRef,
) -> Option<&'a ColumnChunkMetaData> {
    let (root, field) = footer.schema().column_with_name(name)?;
    if field.data_type() != values.data_type() {
        return None;
    }
    let schema = footer.parquet().file_metadata().schema_descr();
    let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root)?;
    footer
        .parquet()
        .row_groups()
        .get(row_group)?
        .columns()
        .get(leaf)
}

/// Whether one of the values can be in the chunk of this filter.
pub(super) fn may_hold(filter: &Sbbf, chunk: &ColumnChunkMetaData, values: &ArrayRef) -> bool {
    held(filter, chunk.column_type(), values).unwrap_or(true)
}

/// Whether one of the values can be there; nothing for types whose stored form is not known here.
fn held(filter: &Sbbf, stored: Type, values: &ArrayRef) -> Option<bool> {
    let whole = |values: &ArrayRef| {
        let signed = values.data_type() != &DataType::UInt64;
        let wide = if signed {
            DataType::Int64
        } else {
            DataType::UInt64
        };
        let wide = cast(values, &wide).ok()?;
        Some(match signed {
            true => wide.as_primitive::<Int64Type>().values().to_vec(),
            false => {
                let unsigned = wide.as_primitive::<UInt64Type>().values().iter();
                unsigned.map(|value| value.cast_signed()).collect()
            }
        })
    };
    Some(match (values.data_type(), stored) {
        (data_type, Type::INT64) if data_type.is_integer() => {
            whole(values)?.iter().any(|value| filter.check(value))
        }
        (data_type, Type::INT32) if data_type.is_integer() || data_type == &DataType::Date32 => {
            let narrow = match data_type {
                DataType::Date32 => cast(values, &DataType::Int32).ok()?,
                _ => Arc::clone(values),
            };
            // The lower half is how the format stores unsigned numbers as well.
            let mut values = whole(&narrow)?.into_iter();
            values.any(|value| {
                let [a, b, c, d, ..] = value.to_le_bytes();
                filter.check(&i32::from_le_bytes([a, b, c, d]))
            })
        }
        (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, Type::BYTE_ARRAY) => {
            let texts = cast(values, &DataType::Utf8).ok()?;
            texts
                .as_string::<i32>()
                .iter()
                .flatten()
                .any(|text| filter.check(text))
        }
        _ => return None,
    })
}

//! What pages claim to hold, looked at before the Parquet reader believes it.
//!
//! Comes in: a page as it lies in the file, the column that it is of. Goes out: nothing, or what is implausible about it. Needed because parquet 59 reserves memory for as many values as a dictionary claims to have, and for as many
//! lengths as the encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY claim: that ends the process, and cannot be caught. Never here: values.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::thrift::page_header;

/// The numbers of the encodings in a header.
const BYTE_DELTAS: [i32; 2] = [6, 7];

/// A value of a dictionary takes a bit at least.
const VALUES_PER_BYTE: usize = 8;

type Checked<T> = Result<T, ParquetError>;

/// The column chunks whose pages are read, by one reader.
#[derive(Debug)]
pub(super) struct Claims {
    metadata: Arc<ParquetMetaData>,
    chunks: Vec<Chunk>,
    /// The header that was read last of each: where it starts, and its bytes so far.
    headers: Mutex<Vec<(u64, Vec<u8>)>>,
}

#[derive(Debug)]
struct Chunk {
    bytes: Range<u64>,
    row_group: usize,
    column: usize,
    /// Whether the reader knows where pages are: it asks for them with their headers then, and else for these alone before.
    has_locations: bool,
}

impl Claims {
    /// Those of a column of the schema, which may have several below it, in some row groups.
    pub(super) fn of(
        metadata: &Arc<ParquetMetaData>,
        row_groups: Range<usize>,
        root: usize,
    ) -> Self {
        let schema = metadata.file_metadata().schema_descr();
        let is_below = |column: &usize| schema.get_column_root_idx(*column) == root;
        let columns: Vec<usize> = (0..schema.num_columns()).filter(is_below).collect();
        let groups = metadata.row_groups().iter().enumerate();
        let groups = groups.skip(row_groups.start).take(row_groups.len());
        let locations = metadata.offset_index();
        let chunks = groups.flat_map(|(row_group, group)| {
            let locations = locations.and_then(|groups| groups.get(row_group));
            let has_locations = locations.is_some_and(|columns| !columns.is_empty());
            columns.iter().filter_map(move |column| {
                let (start, length) = group.columns().get(*column)?.byte_range();
                Some(Chunk {
                    bytes: start..start.saturating_add(length),
                    row_group,
                    column: *column,
                    has_locations,
                })
            })
        });
        let chunks: Vec<Chunk> = chunks.collect();
        Self {
            metadata: Arc::clone(metadata),
            headers: Mutex::new(vec![(0, Vec::new()); chunks.len()]),
            chunks,
        }
    }

    fn headers(&self) -> MutexGuard<'_, Vec<(u64, Vec<u8>)>> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunk that has a byte of the file, of those whose pages the reader knows or does not.
    fn chunk(&self, offset: u64, has_locations: bool) -> Option<usize> {
        let has = |chunk: &Chunk| chunk.bytes.contains(&offset);
        let is_so = |chunk: &Chunk| chunk.has_locations == has_locations;
        self.chunks
            .iter()
            .position(|chunk| is_so(chunk) && has(chunk))
    }

    /// Takes note of what was read of a header that starts there.
    pub(super) fn note(&self, start: u64, bytes: &[u8]) {
        let Some(chunk) = self.chunk(start, false) else {
            return;
        };
        if let Some(header) = self.headers().get_mut(chunk) {
            if header.0 != start {
                *header = (start, Vec::new());
            }
            header.1.extend_from_slice(bytes);
        }
    }

    /// The header of a chunk that ends right there.
    fn header_before(&self, chunk: usize, offset: u64) -> Option<Vec<u8>> {
        let mut headers = self.headers();
        let (start, bytes) = headers.get_mut(chunk)?;
        let ends_here = start.saturating_add(bytes.len() as u64) == offset;
        (ends_here && !bytes.is_empty()).then(|| std::mem::take(bytes))
    }

    /// Checks a page whose bytes start there: behind its header, or with it.
    pub(super) fn check(&self, start: u64, bytes: &Bytes) -> Checked<()> {
        let outside = || implausible(format!("offset {start} lies in no column chunk"));
        // A page may be empty, and the last one: its header lies in the chunk.
        let alone = self.chunk(start.saturating_sub(1), false);
        let number = alone.or_else(|| self.chunk(start, true));
        let number = number.ok_or_else(outside)?;
        let header = match alone {
            None => None,
            Some(_) => Some(self.header_before(number, start).ok_or_else(outside)?),
        };
        let said = page_header(header.as_deref().unwrap_or(bytes));
        let said = said.map_err(|what| implausible(format!("the header of a page: {what}")))?;
        let body_bytes = match &header {
            Some(header) if header.len() != said.num_bytes => {
                return Err(implausible("the header of a page ends twice".to_owned()));
            }
            Some(_) => bytes.len(),
            None => bytes.len().saturating_sub(said.num_bytes),
        };
        let most = i64::try_from(body_bytes.saturating_mul(VALUES_PER_BYTE)).unwrap_or(i64::MAX);
        let is_plausible = |values: &i32| (0..=most.max(1)).contains(&i64::from(*values));
        let has_deltas = said.encodings.iter().any(|each| BYTE_DELTAS.contains(each));
        if !has_deltas && said.dictionary_values.iter().all(is_plausible) {
            return Ok(());
        }
        let page = match header {
            None => bytes.clone(),
            Some(header) => Bytes::from([header.as_slice(), bytes].concat()),
        };
        let chunk = self.chunks.get(number).ok_or_else(outside)?;
        let group = self.metadata.row_groups().get(chunk.row_group);
        let column = group.and_then(|group| group.columns().get(chunk.column));
        check_decoded(column.ok_or_else(outside)?, page)
    }
}

fn implausible(what: String) -> ParquetError {
    ParquetError::General(what)
}

/// Checks a single page, out of its compression.
fn check_decoded(column: &ColumnChunkMetaData, page: Bytes) -> Checked<()> {
    let length = i64::try_from(page.len()).unwrap_or(i64::MAX);
    let alone = column
        .clone()
        .into_builder()
        .set_dictionary_page_offset(None)
        .set_data_page_offset(0)
        .set_total_compressed_size(length)
        .build()?;
    let mut reader = SerializedPageReader::new(Arc::new(page), &alone, 0, None)?;
    match reader.get_next_page()? {
        None => Ok(()),
        Some(Page::DictionaryPage {
            buf, num_values, ..
        }) => check_dictionary(&buf, num_values),
        Some(Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding,
            rep_level_encoding,
            ..
        }) => {
            let of = column.column_descr();
            let levels = (of.max_rep_level(), rep_level_encoding);
            let values = behind_levels(&buf, levels, num_values)?;
            let levels = (of.max_def_level(), def_level_encoding);
            let values = behind_levels(values, levels, num_values)?;
            check_values(values, encoding, num_values)
        }
        Some(Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        }) => {
            let levels = rep_levels_byte_len as usize + def_levels_byte_len as usize;
            check_values(behind(&buf, levels)?, encoding, num_values)
        }
    }
}

fn check_dictionary(values: &[u8], num_values: u32) -> Checked<()> {
    let most = values.len().saturating_mul(VALUES_PER_BYTE).max(1);
    if num_values as usize > most {
        let length = values.len();
        let text = format!("a dictionary claims {num_values} values in {length} bytes");
        return Err(implausible(text));
    }
    Ok(())
}

/// The bytes behind so many.
fn behind(bytes: &[u8], count: usize) -> Checked<&[u8]> {
    let short = || implausible("a page is shorter than it claims".to_owned());
    bytes.get(count..).ok_or_else(short)
}

/// The bytes behind the levels of a page of version 1, which are at most so high and encoded like that.
fn behind_levels(
    bytes: &[u8],
    (most, encoding): (i16, Encoding),
    num_values: u32,
) -> Checked<&[u8]> {
    #[expect(deprecated, reason = "files of old writers have it")]
    const BIT_PACKED: Encoding = Encoding::BIT_PACKED;
    if most <= 0 {
        return Ok(bytes);
    }
    match encoding {
        Encoding::RLE => {
            let length = bytes.first_chunk().copied().map_or(0, u32::from_le_bytes);
            behind(behind(bytes, size_of::<u32>())?, length as usize)
        }
        BIT_PACKED => {
            let width = u64::from(i16::BITS - most.leading_zeros());
            let length = (u64::from(num_values) * width).div_ceil(8);
            behind(bytes, usize::try_from(length).unwrap_or(usize::MAX))
        }
        other => Err(implausible(format!("levels cannot be encoded as {other}"))),
    }
}

/// Checks the lengths with which values begin.
fn check_values(values: &[u8], encoding: Encoding, num_values: u32) -> Checked<()> {
    let most = u64::from(num_values);
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => Deltas(values).pass(most),
        Encoding::DELTA_BYTE_ARRAY => {
            let mut deltas = Deltas(values);
            deltas.pass(most)?;
            deltas.pass(most)
        }
        _ => Ok(()),
    }
}

/// Numbers in DELTA_BINARY_PACKED, and what follows.
struct Deltas<'a>(&'a [u8]);

impl Deltas<'_> {
    /// Goes past one run of them, of which there may be so many.
    fn pass(&mut self, most: u64) -> Checked<()> {
        let per_block = self.varint()?;
        let num_parts = self.varint()?;
        let count = self.varint()?;
        let _first = self.varint()?;
        if count > most {
            let text = format!("a page of {most} values claims to have {count} lengths");
            return Err(implausible(text));
        }
        let Some(per_part) = per_block.checked_div(num_parts) else {
            return Err(implausible("a block of lengths has no parts".to_owned()));
        };
        let mut left = count.saturating_sub(1);
        while left > 0 {
            let _least = self.varint()?;
            let widths = self.0;
            self.skip(num_parts)?;
            let num_parts = widths.len() - self.0.len();
            for width in widths.iter().take(num_parts) {
                // The widths of parts that are not needed say nothing.
                if left > 0 {
                    self.skip(u64::from(*width).saturating_mul(per_part) / 8)?;
                    left = left.saturating_sub(per_part);
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, count: u64) -> Checked<()> {
        self.0 = behind(self.0, usize::try_from(count).unwrap_or(usize::MAX))?;
        Ok(())
    }

    fn varint(&mut self) -> Checked<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.0.first().copied();
            let byte = byte.ok_or_else(|| implausible("a page ends too early".to_owned()))?;
            self.skip(1)?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(implausible("a number has more than ten bytes".to_owned()))
    }
}

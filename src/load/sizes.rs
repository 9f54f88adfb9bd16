//! Footers -> how large columns are, in the file and decoded.
//!
//! Comes in: a footer, row groups, a column. Goes out: bytes. What is decoded is an estimate for texts and nested columns. Pure. Never here: what is done about it.

use std::ops::Range;

use parquet::arrow::arrow_reader::RowSelection;
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;

use super::footer::Footer;

/// The size of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sizes {
    /// In memory.
    pub(super) decoded_bytes: u64,
    /// In the file, compressed.
    pub(super) file_bytes: u64,
}

impl Sizes {
    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            decoded_bytes: self.decoded_bytes.saturating_add(other.decoded_bytes),
            file_bytes: self.file_bytes.saturating_add(other.file_bytes),
        }
    }
}

/// The size of the top-level column number `root` in some row groups.
pub(super) fn of_column(footer: &Footer, row_groups: Range<usize>, root: usize) -> Sizes {
    let schema = footer.parquet().file_metadata().schema_descr();
    let groups = footer.parquet().row_groups().get(row_groups);
    let chunks = groups
        .into_iter()
        .flatten()
        .flat_map(|group| group.columns().iter().enumerate());
    let wanted = chunks.filter(|(leaf, _)| schema.get_column_root_idx(*leaf) == root);
    wanted.fold(Sizes::default(), |sum, (_, chunk)| Sizes {
        decoded_bytes: sum.decoded_bytes.saturating_add(decoded_bytes(chunk)),
        file_bytes: sum.file_bytes.saturating_add(chunk.byte_range().1),
    })
}

/// The byte ranges of the chunks of some columns, sorted, each once. With a selection among the rows of the row groups and a page index, only the pages that hold selected rows,
/// and dictionaries.
pub(super) fn byte_ranges(
    footer: &Footer,
    row_groups: Range<usize>,
    roots: &[usize],
    selection: Option<&RowSelection>,
) -> Vec<Range<u64>> {
    let schema = footer.parquet().file_metadata().schema_descr();
    let mut left = selection.cloned();
    let mut ranges = Vec::new();
    for number in row_groups {
        let Some(group) = footer.parquet().row_groups().get(number) else {
            continue;
        };
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let selected = left.as_mut().map(|left| left.split_off(rows));
        let wanted = group.columns().iter().enumerate();
        let wanted = wanted.filter(|(leaf, _)| roots.contains(&schema.get_column_root_idx(*leaf)));
        for (leaf, chunk) in wanted {
            let (start, length) = chunk.byte_range();
            let offsets = footer.parquet().offset_index();
            let index = offsets.and_then(|groups| groups.get(number)?.get(leaf));
            match (&selected, index) {
                (Some(selected), Some(index)) => {
                    let pages = index.page_locations();
                    let first = pages
                        .first()
                        .and_then(|page| u64::try_from(page.offset).ok());
                    // What lies before the first page is the dictionary.
                    ranges.push(start..first.unwrap_or(start));
                    ranges.extend(selected.scan_ranges(pages));
                }
                _ => ranges.push(start..start + length),
            }
        }
    }
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            // Chunks of one file may claim the same bytes; pages follow each other.
            Some(last) if selection.is_some() && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Texts behind a dictionary are larger decoded than uncompressed; newer writers say how large.
fn decoded_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    let values = u64::try_from(chunk.num_values()).unwrap_or(0);
    let uncompressed = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let wide = |bytes: u64| values.saturating_mul(bytes);
    match chunk.column_type() {
        Type::BOOLEAN => values / 8,
        Type::INT32 | Type::FLOAT => wide(4),
        Type::INT64 | Type::DOUBLE | Type::INT96 => wide(8),
        Type::FIXED_LEN_BYTE_ARRAY => {
            wide(u64::try_from(chunk.column_descr().type_length()).unwrap_or(16))
        }
        Type::BYTE_ARRAY => {
            let known = chunk.unencoded_byte_array_data_bytes();
            let text = known.and_then(|bytes| u64::try_from(bytes).ok());
            wide(4).saturating_add(text.unwrap_or(uncompressed))
        }
    }
}

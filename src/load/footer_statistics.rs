//! Footers -> what they say of the values, as far as it can be trusted.
//!
//! Comes in: a footer, a column. Goes out: null counts and bounds for each row group, or exact statistics of a tile that is made of whole row groups. Never here: what is
//! done about it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::compute::{concat, sum};
use arrow::datatypes::Field;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::RowGroupMetaData;

use super::footer::Footer;
use super::layout::{Plan, ReadTask};
use crate::grid::{ColumnStatistics, column_statistics};

/// What is known of a column, one entry for each row group, null where nothing is.
pub(super) struct GroupStatistics {
    pub(super) null_counts: UInt64Array,
    /// Least and greatest values, in the type of the column. They may lie further out than the values.
    pub(super) bounds: Option<(ArrayRef, ArrayRef)>,
    /// Whether the bounds are values of the column.
    pub(super) is_exact: bool,
}

/// The statistics of some row groups for the column `field` of the grid; none where the file has another type.
pub(super) fn of_groups<'a>(
    footer: &'a Footer,
    field: &Field,
    groups: &'a [RowGroupMetaData],
) -> Option<GroupStatistics> {
    let schema = footer.schema();
    let own = schema.field_with_name(field.name()).ok()?;
    if own.data_type() != field.data_type() {
        return None;
    }
    let parquet = footer.parquet().file_metadata().schema_descr();
    let statistics = StatisticsConverter::try_new(field.name(), schema, parquet).ok()?;
    let leaf = statistics.parquet_column_index()?;
    let chunks = || {
        let chunks = groups.iter().filter_map(|group| group.columns().get(leaf));
        chunks.filter_map(|chunk| chunk.statistics())
    };
    // Writers of old compared bytes and unsigned numbers as if they were signed. Bounds of floats leave NaN out, which is greater than everything.
    let is_signed = own.data_type().is_signed_integer() || own.data_type().is_temporal();
    let is_ordered = is_signed || !chunks().any(|chunk| chunk.is_min_max_deprecated());
    let has_bounds = is_ordered && !own.data_type().is_floating();
    let bounds = || {
        let least = statistics.row_group_mins(groups).ok()?;
        Some((least, statistics.row_group_maxes(groups).ok()?))
    };
    Some(GroupStatistics {
        null_counts: statistics.row_group_null_counts(groups).ok()?,
        bounds: has_bounds.then(bounds).flatten(),
        is_exact: chunks().all(|chunk| chunk.min_is_exact() && chunk.max_is_exact()),
    })
}

/// The same for the pages of one row group, with the rows of each page; none without a page index.
pub(super) fn of_pages(
    footer: &Footer,
    field: &Field,
    row_group: usize,
) -> Option<(GroupStatistics, Vec<u64>)> {
    let metadata = footer.parquet();
    let (values, offsets) = (metadata.column_index()?, metadata.offset_index()?);
    let own = footer.schema().field_with_name(field.name()).ok()?;
    if own.data_type() != field.data_type() {
        return None;
    }
    let parquet = metadata.file_metadata().schema_descr();
    let statistics = StatisticsConverter::try_new(field.name(), footer.schema(), parquet).ok()?;
    statistics.parquet_column_index()?;
    let groups = [row_group];
    let rows = statistics.data_page_row_counts(offsets, metadata.row_groups(), &groups);
    let rows: Vec<u64> = rows.ok()??.iter().flatten().collect();
    let bounds = || {
        let least = statistics.data_page_mins(values, offsets, &groups).ok()?;
        let greatest = statistics.data_page_maxes(values, offsets, &groups).ok()?;
        (least.len() == rows.len() && greatest.len() == rows.len()).then_some((least, greatest))
    };
    let nulls = statistics
        .data_page_null_counts(values, offsets, &groups)
        .ok()?;
    let known = GroupStatistics {
        null_counts: if nulls.len() == rows.len() {
            nulls
        } else {
            UInt64Array::new_null(rows.len())
        },
        bounds: (!own.data_type().is_floating()).then(bounds).flatten(),
        is_exact: false,
    };
    Some((known, rows))
}

/// The statistics of a column of a tile that is not read yet, if it is made of whole row groups and their bounds are values.
pub(super) fn statistics(plan: &Plan, task: &ReadTask, column: usize) -> Option<ColumnStatistics> {
    let field = plan.columns.schema.fields().get(column)?;
    let footer = plan.footers.get(task.file)?;
    if let Some(hive) = plan
        .columns
        .origins
        .get(column)?
        .folder(field.name(), footer)
    {
        let value = hive.values.get(task.file)?;
        let of_value = column_statistics(value);
        return Some(ColumnStatistics {
            null_count: of_value.null_count * task.num_rows,
            bounds: of_value.bounds,
            is_ascending: None,
        });
    }
    let groups = footer.parquet().row_groups().get(task.row_groups.clone())?;
    let rows: u64 = footer.row_groups.get(task.row_groups.clone())?.iter().sum();
    if rows != task.num_rows {
        return None;
    }
    let known = of_groups(footer, field, groups)?;
    if known.null_counts.null_count() > 0 {
        return None;
    }
    let null_count = sum(&known.null_counts).unwrap_or(0);
    let is_fixed = field.data_type().is_primitive();
    let unknown = ColumnStatistics {
        null_count,
        bounds: None,
        is_ascending: None,
    };
    if null_count == rows {
        return Some(unknown);
    }
    let (least, greatest) = known.bounds.filter(|_| is_fixed && known.is_exact)?;
    // A row group of nulls has no bounds; any other without them leaves the tile without.
    let full = known
        .null_counts
        .iter()
        .zip(footer.row_groups.get(task.row_groups.clone())?);
    let missing = full.enumerate().any(|(at, (nulls, rows))| {
        nulls != Some(*rows) && (least.is_null(at) || greatest.is_null(at))
    });
    if missing {
        return None;
    }
    let both = concat(&[least.as_ref(), greatest.as_ref()]).ok()?;
    let bounds = column_statistics(&(Arc::clone(&both))).bounds;
    Some(ColumnStatistics { bounds, ..unknown })
}

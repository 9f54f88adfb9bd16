//! What can be told of a row band whose bytes are not here, before all of it is brought.
//!
//! Comes in: conditions, a row band. Goes out: whether a row of it may pass, by the bloom filters of its files; its columns, those that conditions read first and the others only
//! if a row passes. Never here: row bands in memory, statistics (`plan/statistics/prune.rs`).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{Guarantee, LiteralGuarantee};

use super::GridScanExec;
use super::sieve::{Passed, Sieve};
use crate::query::wide_keys::widened;

/// Of so many values a bloom filter that errs once in a hundred times seems to hold one.
const MOST_VALUES: usize = 64;

/// A column of the scan, by number, and the values of which each row that passes has one there.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    column: usize,
    values: ArrayRef,
}

/// What conditions over columns of `schema` want.
pub(super) fn wanted_values(
    conditions: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
) -> Vec<Wanted> {
    let guarantees = conditions.iter().flat_map(LiteralGuarantee::analyze);
    let wanted = guarantees.filter_map(|guarantee| {
        let name = &guarantee.column.name;
        let mut named = schema.fields().iter().enumerate();
        let mut named = named.by_ref().filter(|(_, field)| field.name() == name);
        // Of two columns of one name nobody knows which is meant.
        let (column, field) = named.next().filter(|_| named.next().is_none())?;
        let values = guarantee.literals.into_iter();
        let values: Vec<ScalarValue> = values.filter(|value| !value.is_null()).collect();
        let is_use = guarantee.guarantee == Guarantee::In
            && (1..=MOST_VALUES).contains(&values.len())
            && values
                .iter()
                .all(|value| &value.data_type() == field.data_type());
        let values = is_use.then(|| ScalarValue::iter_to_array(values).ok())??;
        Some(Wanted { column, values })
    });
    wanted.collect()
}

/// Whether a row of a row band may have the values that are wanted.
pub(super) async fn may_hold(
    scan: &GridScanExec,
    row_band: usize,
    wanted: &[Wanted],
) -> Result<bool> {
    for Wanted { column, values } in wanted {
        let origin = scan
            .stitch()
            .origin(scan.facts().grid(), (row_band, *column));
        let Some((tile, local)) = origin else {
            continue;
        };
        let schema = tile.data().schema();
        let own = schema.fields().get(local).map(|field| field.data_type());
        let values = match own {
            Some(own) if own != values.data_type() => &cast(values, own)?,
            _ => values,
        };
        if !tile.data().may_hold(local, values).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The batch of a row band; nothing if no row among `rows` passes, which the columns that conditions read have told.
pub(super) async fn fetch(
    scan: &GridScanExec,
    row_band: usize,
    (sieve, rows, window): (&mut Sieve, Range<usize>, usize),
) -> Result<Option<RecordBatch>> {
    let (stitch, facts) = (scan.stitch(), scan.facts());
    let place = (facts, row_band, scan.tally());
    let mut columns: Vec<Option<ArrayRef>> = vec![None; stitch.num_columns()];
    let first = sieve.columns();
    if !first.is_empty() && first.len() < columns.len() && stitch.is_far(facts, row_band) {
        let is_first = |column: usize| first.binary_search(&column).is_ok();
        stitch.fetch(place, &mut columns, is_first).await?;
        if !any_passes(scan, sieve, &columns, (rows, window))? {
            return Ok(None);
        }
    }
    stitch.fetch(place, &mut columns, |_| true).await?;
    Ok(Some(stitch.batch(facts, row_band, columns)?))
}

/// Whether a row passes, by the columns that are here.
fn any_passes(
    scan: &GridScanExec,
    sieve: &mut Sieve,
    columns: &[Option<ArrayRef>],
    (rows, window): (Range<usize>, usize),
) -> Result<bool> {
    let num_rows = columns.iter().flatten().map(|column| column.len()).next();
    let num_rows = num_rows.unwrap_or(0);
    let fields = scan.wide_schema().fields().iter().zip(columns);
    let fields = fields.map(|(field, column)| match column {
        Some(_) => Arc::clone(field),
        None => Arc::new(Field::new(field.name(), DataType::Null, true)),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let nothing: ArrayRef = Arc::new(NullArray::new(num_rows));
    let columns = columns.iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        let column = column.as_ref().unwrap_or(&nothing);
        widened(column, field.data_type())
    });
    let columns = columns.collect::<crate::error::Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let rows = rows.start..rows.end.min(num_rows);
    for start in rows.clone().step_by(window) {
        scan.check_stop()?;
        let found = sieve.sift(&batch, start..rows.end.min(start + window))?;
        let is_none = matches!(&found, Passed::Rows(rows) if rows.is_empty());
        if !is_none {
            // These rows are tested and counted again when the whole batch is.
            sieve.take_filtered();
            return Ok(true);
        }
    }
    Ok(false)
}

//! The columns that nearest joins compare.
//!
//! Comes in: batches of one side. Goes out: their keys and what is compared, as values of one type each, and which rows have none. Never here: how they are compared.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, cast, filter_record_batch, is_not_null};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::SortField;
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::{Nearest, Pair};
use crate::query::plan::types::bare::values_of;

/// Those of one side: the keys, and behind them what is compared.
pub(super) struct Columns {
    all: Vec<Compared>,
}

/// A column.
struct Compared {
    place: usize,
    /// Of its values, however they are stored.
    kind: DataType,
    options: SortOptions,
}

impl Columns {
    pub(super) fn of(schema: &Schema, nearest: &Nearest, side: fn(&Pair) -> usize) -> Self {
        let columns = nearest.columns(side).into_iter();
        let num_keys = nearest.equal.len();
        let all = columns.enumerate().map(|(number, (place, options))| {
            let kind = values_of(schema.field(place).data_type());
            Compared {
                place,
                kind: match kind {
                    // Of keys that differ there may be more bytes than these types count. The bytes stay where they are.
                    DataType::Utf8 if number < num_keys => DataType::LargeUtf8,
                    DataType::Binary if number < num_keys => DataType::LargeBinary,
                    kind => kind.clone(),
                },
                options,
            }
        });
        Self { all: all.collect() }
    }

    /// How each is sorted.
    pub(super) fn fields(&self) -> Vec<SortField> {
        let all = self.all.iter();
        all.map(|column| SortField::new_with_options(column.kind.clone(), column.options))
            .collect()
    }

    /// A schema of the keys.
    pub(super) fn of_keys(&self) -> Schema {
        let keys = self.all.iter().take(self.all.len().saturating_sub(1));
        let fields = keys.map(|key| Field::new(key.place.to_string(), key.kind.clone(), true));
        Schema::new(fields.collect::<Vec<_>>())
    }

    /// The type of what is compared, and how it is sorted.
    pub(super) fn compared(&self) -> Result<(DataType, SortOptions)> {
        match self.all.last() {
            Some(compared) => Ok((compared.kind.clone(), compared.options)),
            None => internal_err!("a nearest join compares nothing"),
        }
    }

    /// Their values in a batch, in the types by which they are compared.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let values = self.all.iter().map(|compared| {
            let column = batch.column(compared.place);
            match *column.data_type() == compared.kind {
                true => Ok(Arc::clone(column)),
                false => Ok(cast(column, &compared.kind)?),
            }
        });
        values.collect()
    }

    /// The rows that may be near to something.
    pub(super) fn without_nulls(&self, mut batch: RecordBatch) -> Result<RecordBatch> {
        for compared in &self.all {
            let column = batch.column(compared.place);
            if column.logical_null_count() > 0 {
                batch = filter_record_batch(&batch, &is_not_null(column)?)?;
            }
        }
        Ok(batch)
    }
}

/// Rows with a value that is null.
pub(super) fn nulls_of(values: &[ArrayRef]) -> Option<NullBuffer> {
    let nulls = values.iter().fold(None, |nulls, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
    });
    nulls.filter(|nulls| nulls.null_count() > 0)
}

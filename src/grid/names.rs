//! Names of columns that come without them.
//!
//! Comes in: the schema of another library, and names for its columns if somebody gives them. Goes out: the schema with these names, or with numbered ones where no column has a name, as of tables of
//! pylibcudf. Never here: whether names repeat, which `build` refuses.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::{Error, Result};

/// The schema with the given names; without any the same one, unless no column has a name: then they are `column_0`, `column_1` and so on.
///
/// # Errors
/// `InvalidArgument` for another number of names than columns.
pub fn named(schema: &SchemaRef, names: Option<&[String]>) -> Result<SchemaRef> {
    let count = schema.fields().len();
    let is_nameless = schema.fields().iter().all(|field| field.name().is_empty());
    let names = match names {
        Some(names) => {
            check_count(names, count)?;
            names.to_vec()
        }
        None if is_nameless => numbered(count),
        None => return Ok(Arc::clone(schema)),
    };
    let fields = schema.fields().iter().zip(names);
    let fields = fields.map(|(field, name)| Field::clone(field).with_name(name));
    let fields: Vec<Field> = fields.collect();
    let metadata = schema.metadata().clone();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

/// Batches of a schema under the names that [`named`] gives it.
///
/// # Errors
/// As [`named`]; `InvalidArgument` when a batch that gets other names has other columns than the schema.
pub fn named_batches(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    names: Option<&[String]>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let given = schema;
    let schema = named(given, names)?;
    if Arc::ptr_eq(&schema, given) {
        return Ok((schema, batches.to_vec()));
    }
    let batches = batches.iter().map(|batch| {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let renamed = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options);
        renamed.map_err(|error| Error::invalid_argument(error.to_string()).with_source(error))
    });
    let batches = batches.collect::<Result<_>>()?;
    Ok((schema, batches))
}

/// Names for so many columns.
pub(super) fn numbered(count: usize) -> Vec<String> {
    let names = (0..count).map(|number| format!("column_{number}"));
    names.collect()
}

/// Makes sure that there is one name for each of so many columns.
pub(super) fn check_count(names: &[String], count: usize) -> Result<()> {
    if names.len() == count {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "names must have one name for each of the {count} columns, got {}",
        names.len()
    )))
}

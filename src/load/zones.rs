//! Time zones that the Parquet reader drops.
//!
//! Comes in: a footer. Goes out: its Arrow schema with the zones that the writer gave. Parquet has no seconds, so a writer stores `timestamp[s, Europe/Rome]` in
//! milliseconds; the reader of this version then takes the units for a contradiction and says UTC. The instants are right either way. Never here: values.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::size_prefixed_root_as_message;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::ParquetMetaData;

/// `read` with the zones of the writer's schema in its top-level columns; `None` when nothing changes.
pub(super) fn restored(read: &SchemaRef, metadata: &ParquetMetaData) -> Option<SchemaRef> {
    let lost = |field: &Arc<Field>| {
        matches!(
            field.data_type(),
            DataType::Timestamp(TimeUnit::Millisecond, Some(_))
        )
    };
    if !read.fields().iter().any(lost) {
        return None;
    }
    let written = written_schema(metadata)?;
    let mut changed = false;
    let fields = read.fields().iter().map(|field| {
        let other = written.field_with_name(field.name()).ok()?;
        let DataType::Timestamp(TimeUnit::Second, Some(zone)) = other.data_type() else {
            return None;
        };
        changed = true;
        let whole = DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::clone(zone)));
        lost(field).then(|| Arc::new(Field::clone(field).with_data_type(whole)))
    });
    let fields: Vec<Option<Arc<Field>>> = fields.collect();
    let pairs = read.fields().iter().zip(fields);
    let fields: Vec<Arc<Field>> = pairs
        .map(|(field, restored)| restored.unwrap_or_else(|| Arc::clone(field)))
        .collect();
    changed.then(|| Arc::new(Schema::new_with_metadata(fields, read.metadata().clone())))
}

/// The Arrow schema that the writer stored. The caller contains panics: the reader before has decoded the same bytes, so they are sound.
fn written_schema(metadata: &ParquetMetaData) -> Option<Schema> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let entry = pairs
        .iter()
        .find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?;
    let bytes = BASE64_STANDARD.decode(entry.value.as_ref()?).ok()?;
    // A marker of four bytes may stand before the length.
    let bytes = match bytes.as_slice() {
        [0xff, 0xff, 0xff, 0xff, rest @ ..] => rest,
        all => all,
    };
    let message = size_prefixed_root_as_message(bytes).ok()?;
    Some(fb_to_schema(message.header_as_schema()?))
}

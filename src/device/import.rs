//! C structs of another library -> batches of ours.
//!
//! Comes in: an `ArrowArrayStream`, or one `ArrowArray` with its `ArrowSchema`. Goes out: batches over the producer's memory, which is released when the last
//! of them is gone. Never here: a panic; copying of values.
//!
//! Follows <https://arrow.apache.org/docs/format/CDataInterface.html> and <https://arrow.apache.org/docs/format/CStreamInterface.html>. What the structs say
//! of themselves is checked; that their pointers are good is the producer's promise, which nobody can check.

#![expect(
    unsafe_code,
    reason = "calls the C callbacks of a stream and reads its structs"
)]

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;

use crate::device::convert::{convert_fields, empty_fields};
use crate::device::guard::contain;
use crate::device::node::{Node, broken, refused};
use crate::device::on_host::Memory;
use crate::error::{Error, ErrorKind, Result};

/// How deep types may nest; deeper ones could exhaust the stack.
const MAX_DEPTH: usize = 64;

/// The batches of a stream of another library, one at a time, as that library makes them.
#[derive(Debug)]
pub struct ImportedStream {
    stream: FFI_ArrowArrayStream,
    schema: SchemaRef,
    /// Set after the end and after an error; the producer is not asked again.
    finished: bool,
}

/// Takes over a C stream and asks it for its schema.
///
/// # Errors
/// `InvalidData` when the stream was released, lacks a callback, or gives a broken schema; `InvalidArgument` when its items are not structs; else as the
/// producer failed, with the producer's text.
pub fn import_stream(mut stream: FFI_ArrowArrayStream) -> Result<ImportedStream> {
    if stream.release.is_none() {
        return Err(broken("the Arrow C stream was released already"));
    }
    let get_schema = stream.get_schema;
    let get_schema = get_schema.ok_or_else(|| broken("the Arrow C stream lacks `get_schema`"))?;
    if stream.get_next.is_none() {
        return Err(broken("the Arrow C stream lacks `get_next`"));
    }
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: a stream that is not released may be asked by its own callback; `schema` is a place for one struct.
    let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
    if code != 0 {
        return Err(producer_error(&mut stream, code));
    }
    Ok(ImportedStream {
        schema: import_schema(&schema)?,
        stream,
        finished: false,
    })
}

impl ImportedStream {
    /// The columns of every batch.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let get_next = self.stream.get_next;
        let get_next = get_next.ok_or_else(|| broken("the Arrow C stream lacks `get_next`"))?;
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: the stream is not released, as `import_stream` saw and only dropping changes; `array` is a place for one struct.
        let code = unsafe { get_next(&raw mut self.stream, &raw mut array) };
        if code != 0 {
            return Err(producer_error(&mut self.stream, code));
        }
        if array.is_released() {
            return Ok(None);
        }
        to_batch(array, self.schema()).map(Some)
    }
}

impl Iterator for ImportedStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let next = self.read();
        self.finished = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// Takes over a C struct array and makes a batch of it; the columns are its fields.
///
/// # Errors
/// `InvalidArgument` when the array is not a struct, `InvalidData` when the structs contradict themselves or when the struct itself has nulls, which a batch
/// cannot have.
pub fn import_batch(array: FFI_ArrowArray, schema: &FFI_ArrowSchema) -> Result<RecordBatch> {
    to_batch(array, import_schema(schema)?)
}

fn to_batch(array: FFI_ArrowArray, schema: SchemaRef) -> Result<RecordBatch> {
    contain(ErrorKind::InvalidData, "importing an Arrow C array", || {
        let owner = Arc::new(array);
        let node = Node::root(&owner, &Memory::Host)?;
        if node.len() == 0 {
            let columns = match node.expect(1, schema.fields().len()) {
                Ok(()) => empty_fields(&node, schema.fields())?,
                Err(_) => return Ok(RecordBatch::new_empty(schema)),
            };
            let options = RecordBatchOptions::new().with_row_count(Some(0));
            return RecordBatch::try_new_with_options(schema, columns, &options).map_err(refused);
        }
        let columns = convert_fields(&node, schema.fields())?;
        if let Some(nulls) = node.nulls()? {
            let count = nulls.null_count();
            return Err(broken(format!(
                "the rows of a batch cannot be null as a whole, got {count} nulls"
            ))
            .with_hint("push the nulls of the struct down into its fields first"));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(node.len()));
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(refused)
    })
}

pub(super) fn import_schema(schema: &FFI_ArrowSchema) -> Result<SchemaRef> {
    check_schema(schema, 0)?;
    contain(
        ErrorKind::InvalidData,
        "importing an Arrow C schema",
        || {
            if schema.format() != "+s" {
                return Err(Error::invalid_argument(format!(
                    "a batch must be an Arrow C struct array (format '+s'), got format '{}'",
                    schema.format()
                ))
                .with_hint("put the array into a batch or table of one column first"));
            }
            Ok(Arc::new(Schema::try_from(schema).map_err(schema_refused)?))
        },
    )
}

/// A type that Arrow does not know is not the fault of the data.
fn schema_refused(error: arrow::error::ArrowError) -> Error {
    Error::unsupported(error.to_string()).with_source(error)
}

/// Checks counts and pointers before Arrow follows them.
fn check_schema(schema: &FFI_ArrowSchema, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(broken(format!("types may nest at most {MAX_DEPTH} deep")));
    }
    if schema.release.is_none() {
        return Err(broken("the Arrow C schema was released already"));
    }
    if schema.format.is_null() {
        return Err(broken("an Arrow C schema must have a format"));
    }
    let num_children = usize::try_from(schema.n_children);
    let num_children = num_children.map_err(|_| {
        broken(format!(
            "n_children of an Arrow C schema must be 0 or more, got {}",
            schema.n_children
        ))
    })?;
    for index in 0..num_children {
        check_schema(schema_child(schema, index)?, depth + 1)?;
    }
    match schema.dictionary() {
        Some(values) => check_schema(values, depth + 1),
        None => Ok(()),
    }
}

fn schema_child(schema: &FFI_ArrowSchema, index: usize) -> Result<&FFI_ArrowSchema> {
    let absent = || broken(format!("child {index} of an Arrow C schema is absent"));
    if schema.children.is_null() {
        return Err(absent());
    }
    // SAFETY: `children` is not null and has `n_children` entries, of which `index` is one.
    let slot = unsafe { schema.children.add(index) };
    // SAFETY: as above.
    let child = unsafe { slot.read_unaligned() };
    // SAFETY: a child that is not null is an `ArrowSchema` that lives as long as its parent.
    unsafe { child.as_ref() }.ok_or_else(absent)
}

/// The producer's own text, under the kind that fits the error number.
fn producer_error(stream: &mut FFI_ArrowArrayStream, code: c_int) -> Error {
    let text = last_error(stream);
    Error::new(
        kind_of(code),
        text.unwrap_or_else(|| {
            format!("the Arrow C stream failed with error number {code} and no text")
        }),
    )
}

/// What an error number says.
pub(super) fn kind_of(code: c_int) -> ErrorKind {
    // The numbers of ENOMEM, ENOSYS and EIO on Linux.
    match code {
        12 => ErrorKind::ResourcesExhausted,
        38 => ErrorKind::Unsupported,
        5 => ErrorKind::Storage { retryable: false },
        _ => ErrorKind::InvalidData,
    }
}

fn last_error(stream: &mut FFI_ArrowArrayStream) -> Option<String> {
    let get_last_error = stream.get_last_error?;
    // SAFETY: the stream is not released, and its last call failed, as this callback wants.
    let text = unsafe { get_last_error(&raw mut *stream) };
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, hence a text that ends with 0 and stays until the next call.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

//! Batches of ours -> a C stream for another library.
//!
//! Comes in: a schema and an iterator of batches. Goes out: an `ArrowArrayStream` over the same buffers. Never here: a panic that crosses the C callbacks: it
//! becomes an error of the stream.
//!
//! Follows <https://arrow.apache.org/docs/format/CStreamInterface.html>.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::FFI_ArrowArrayStream;

use crate::device::guard::contain;
use crate::error::{Error, ErrorKind, Result};

/// A C stream of the given batches, each of which must have the columns of `schema`. The iterator is asked when the consumer asks, on the consumer's thread.
/// An error or a panic in it becomes the error of the stream (a panic one of kind `Internal`), and the stream ends there.
///
/// # Errors
/// `Unsupported` when the C Data interface cannot carry the schema, for instance a name with a zero byte.
pub fn export_stream<I>(schema: SchemaRef, batches: I) -> Result<FFI_ArrowArrayStream>
where
    I: Iterator<Item = Result<RecordBatch>> + Send + 'static,
{
    // Tried here, where there is somebody to tell: within the callback a panic would end the process.
    contain(ErrorKind::Unsupported, "exporting the schema", || {
        FFI_ArrowSchema::try_from(schema.as_ref())
            .map(drop)
            .map_err(|error| Error::unsupported(error.to_string()).with_source(error))
    })?;
    Ok(FFI_ArrowArrayStream::new(Box::new(Exported {
        schema,
        batches: Some(batches),
    })))
}

struct Exported<I> {
    schema: SchemaRef,
    /// `None` after the end and after an error.
    batches: Option<I>,
}

impl<I: Iterator<Item = Result<RecordBatch>>> Exported<I> {
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batches) = self.batches.as_mut() else {
            return Ok(None);
        };
        let schema = &self.schema;
        contain(ErrorKind::Internal, "making the next batch", || {
            batches
                .next()
                .transpose()?
                .map(|batch| fitted(&batch, schema))
                .transpose()
        })
    }
}

impl<I> Exported<I> {
    /// Drops the iterator. Its destructor runs within a C callback, so a panic in it stays here.
    fn finish(&mut self) {
        let batches = self.batches.take();
        let dropped = contain(ErrorKind::Internal, "ending a stream", || {
            drop(batches);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::error!("{error}");
        }
    }
}

impl<I: Iterator<Item = Result<RecordBatch>>> Iterator for Exported<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.finish();
                None
            }
            Err(error) => {
                self.finish();
                Some(Err(without_zero_bytes(error).into()))
            }
        }
    }
}

impl<I: Iterator<Item = Result<RecordBatch>>> RecordBatchReader for Exported<I> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl<I> Drop for Exported<I> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The batch under the schema that the consumer was told: other types there would make it read the buffers wrongly.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(|error| {
        Error::internal(format!(
            "a batch differs from the schema of its stream: {error}"
        ))
    })
}

/// Error texts cross as C strings, which end at a zero byte; Arrow panics on one.
fn without_zero_bytes(error: Error) -> Error {
    let text = error.to_string();
    if !text.contains('\0') {
        return error;
    }
    Error::new(error.kind(), text.replace('\0', "\u{fffd}")).with_source(error)
}

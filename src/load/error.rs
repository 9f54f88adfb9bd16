//! Errors of the file system and of Parquet -> errors of ours, each with the file's name.

use parquet::errors::ParquetError;

use crate::error::{Error, ErrorKind, Result, causes};
use crate::quiet::quietly;

/// What object_store says of a server that always sends whole files.
const NO_RANGES: &str = "Range request not supported";

/// An error of the object store about `file`.
pub(super) fn from_store(error: object_store::Error, file: &str) -> Error {
    use object_store::Error as Store;
    let (kind, text) = match &error {
        Store::NotFound { .. } => (ErrorKind::NotFound, "no such file or folder".to_owned()),
        Store::Precondition { .. } => (
            ErrorKind::InvalidData,
            "the file changed while it was read: its etag is another one".to_owned(),
        ),
        Store::NotSupported { .. } if error.to_string().contains(NO_RANGES) => {
            return Error::unsupported(error.to_string())
                .with_file(file)
                .with_hint("the server gives no byte ranges: download the file first, and load it from there")
                .with_source(error);
        }
        Store::InvalidPath { .. } => (ErrorKind::InvalidArgument, error.to_string()),
        Store::NotSupported { .. } | Store::NotImplemented { .. } => {
            (ErrorKind::Unsupported, error.to_string())
        }
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
            (ErrorKind::PermissionDenied, "access is refused".to_owned())
        }
        _ => match io_kind(&error) {
            Some(std::io::ErrorKind::PermissionDenied) => {
                (ErrorKind::PermissionDenied, "access is refused".to_owned())
            }
            Some(std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                (ErrorKind::NotFound, "no such file or folder".to_owned())
            }
            Some(std::io::ErrorKind::InvalidFilename) => too_long(),
            _ => (ErrorKind::Storage { retryable: true }, error.to_string()),
        },
    };
    Error::new(kind, text).with_file(file).with_source(error)
}

/// An error of the file system about `file`.
pub(super) fn from_io(error: std::io::Error, file: &str) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, text) = match error.kind() {
        Io::NotFound | Io::NotADirectory => {
            (ErrorKind::NotFound, "no such file or folder".to_owned())
        }
        Io::InvalidFilename => too_long(),
        Io::PermissionDenied => (ErrorKind::PermissionDenied, "access is refused".to_owned()),
        _ => (ErrorKind::Storage { retryable: true }, error.to_string()),
    };
    Error::new(kind, text).with_file(file).with_source(error)
}

/// The file system has no such names at all.
fn too_long() -> (ErrorKind, String) {
    (
        ErrorKind::InvalidArgument,
        "the name is too long".to_owned(),
    )
}

/// Runs work that may block on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a reading thread ended").with_source(error))?
}

/// The kind of the first IO error among the causes.
fn io_kind(error: &object_store::Error) -> Option<std::io::ErrorKind> {
    let found = causes(error).find_map(|cause| cause.downcast_ref::<std::io::Error>());
    found.map(std::io::Error::kind)
}

/// An error of the Parquet reader about `file`.
pub(super) fn from_parquet(error: ParquetError, file: &str) -> Error {
    let (kind, text) = match &error {
        ParquetError::NYI(text) => (ErrorKind::Unsupported, text.clone()),
        ParquetError::General(text) | ParquetError::EOF(text) | ParquetError::ArrowError(text) => {
            (ErrorKind::InvalidData, text.clone())
        }
        other => (ErrorKind::InvalidData, other.to_string()),
    };
    let text = format!("the file is damaged or no Parquet file: {text}");
    Error::new(kind, text).with_file(file).with_source(error)
}

/// Runs a reader of foreign bytes. Parquet and Arrow of this version panic on some broken input; such a panic is an error about the file.
pub(super) fn contained<T>(file: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work, |panic| {
        let text = format!("the file is damaged: its reader gave up with {panic:?}");
        Error::invalid_data(text).with_file(file)
    })
}

/// Runs a writer. Parquet of this version panics on some types that it does not know.
pub(super) fn contained_writer<T>(file: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work, |panic| {
        let text =
            format!("the batches cannot be written as Parquet: the writer gave up with {panic:?}");
        Error::unsupported(text).with_file(file)
    })
}

fn caught<T>(work: impl FnOnce() -> Result<T>, what: impl FnOnce(String) -> Error) -> Result<T> {
    quietly(work).unwrap_or_else(|panic| Err(what(panic)))
}

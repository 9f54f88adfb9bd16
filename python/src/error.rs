//! Core errors -> Python exceptions.
//!
//! Comes in: an [`Error`] of the core. Goes out: the exception class of its kind from `partgrid.errors`, with context and hint. Never here: new errors about data.

use partgrid::error::{Error, ErrorKind};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Context names that the core uses.
const CONTEXT: [&str; 14] = [
    "file",
    "column",
    "position",
    "table",
    "bucket",
    "region",
    "endpoint",
    "container",
    "host",
    "rank",
    "side",
    "dimension",
    "key",
    "rule",
];

/// A core error on its way to Python.
pub(crate) struct Raised(Error);

/// The result of binding functions.
pub(crate) type Outcome<T> = Result<T, Raised>;

impl Raised {
    /// Names the column that it happened in.
    pub(crate) fn in_column(self, name: &str) -> Self {
        Self(self.0.with_column(name))
    }

    /// The core error.
    pub(crate) fn into_core(self) -> Error {
        self.0
    }

    /// Names the rank that it happened at.
    pub(crate) fn at_rank(self, rank: usize) -> Self {
        Self(self.0.with_context("rank", rank.to_string()))
    }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(Error::internal("an exception").with_source(error))
    }
}

impl From<arrow::error::ArrowError> for Raised {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self(error.into())
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        Python::attach(|py| exception(py, &raised.0))
    }
}

/// The exception for a core error. One that began as a Python exception is that exception again.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    began_as(py, error).unwrap_or_else(|| build(py, error).unwrap_or_else(|failure| failure))
}

/// The Python exception that a core error began as.
fn began_as(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let mut cause = std::error::Error::source(error);
    while let Some(current) = cause {
        if let Some(original) = current.downcast_ref::<PyErr>() {
            return Some(original.clone_ref(py));
        }
        cause = current.source();
    }
    None
}

/// A `BufferError`, as consumers of buffers and tensors expect one, unless code in Python raised something else, such as an interrupt.
pub(crate) fn buffer_error(py: Python<'_>, error: &Error) -> PyErr {
    began_as(py, error).unwrap_or_else(|| PyBufferError::new_err(error.to_string()))
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("partgrid.errors")?.getattr(class_name(error))?;
    let context = PyDict::new(py);
    for name in CONTEXT {
        if let Some(value) = error.context(name) {
            context.set_item(name, value)?;
        }
    }
    let retryable = matches!(error.kind(), ErrorKind::Storage { retryable: true });
    let instance = class.call1((error.to_string(), context, error.hint(), retryable))?;
    Ok(PyErr::from_value(instance))
}

fn class_name(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidArgument => "InvalidArgumentError",
        ErrorKind::InvalidData => "InvalidDataError",
        ErrorKind::Protocol => "ProtocolError",
        ErrorKind::NotFound if error.is_about_path() => "PathNotFoundError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::PermissionDenied => "PermissionDeniedError",
        ErrorKind::NotLocal => "NotLocalError",
        ErrorKind::PartitionLost => "PartitionLostError",
        ErrorKind::WorkerLost => "WorkerLostError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::ResourcesExhausted => "ResourcesExhaustedError",
        ErrorKind::Storage { .. } => "StorageError",
        ErrorKind::Query => "QueryError",
        ErrorKind::Cancelled => "CancelledError",
        _ => "InternalError",
    }
}

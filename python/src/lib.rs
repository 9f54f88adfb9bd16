//! The extension module `partgrid._native`.
//!
//! Binding functions convert, release the GIL, call the core, convert. What is decided about data is decided in the core.

#[cfg(unix)]
mod allocator;
mod argument;
mod buffer;
mod capsule;
mod command;
mod convert;
mod distarray;
mod error;
mod filters;
mod grid;
mod job;
mod load;
mod partitioned;
mod query;
mod runtime;
mod schema;
mod stream;
mod tile;
mod wishes;

/// The engine of partgrid. Use the names that the package `partgrid` exports.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::buffer::PySectionBuffer;
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::distarray::{PyDistArray, PySection};
    #[pymodule_export]
    use crate::grid::{PyGrid, from_arrow};
    #[pymodule_export]
    use crate::job::{PyLoadJob, PyLoadProgress};
    #[pymodule_export]
    use crate::load::{load_parquet, read_parquet};
    #[pymodule_export]
    use crate::partitioned::{PyGet, PyHandle, PyPartitioned, from_partitioned};
    #[pymodule_export]
    use crate::query::{PyQuery, PySession, sql};
    #[pymodule_export]
    use crate::schema::PySchema;
    #[pymodule_export]
    use crate::tile::PyTile;

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

//! The extension module `partgrid._native`.
//!
//! Binding functions convert, release the GIL, call the core, convert. What is decided about data is decided in the core.

#[cfg(unix)]
mod allocator;
mod argument;
mod array;
mod buffer;
mod capsule;
mod column;
mod command;
mod connection;
mod convert;
mod device;
mod distarray;
mod dlpack;
mod engine;
mod error;
mod filters;
mod fork;
mod frames;
mod function;
mod grid;
mod index;
mod job;
mod load;
mod metrics;
mod numpy;
mod operators;
mod parameters;
mod partitioned;
mod prepared;
mod query;
mod ranks;
mod result;
mod rows;
mod runtime;
mod schema;
mod serve;
mod share;
mod shown;
mod storage;
mod stream;
mod tile;
mod variables;
mod view;
mod wishes;

/// The engine of partgrid. Use the names that the package `partgrid` exports.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::array::PyArray;
    #[pymodule_export]
    use crate::buffer::{PyExtendedBuffer, buffer_interface, get_buffer, supports};
    #[pymodule_export]
    use crate::column::PyDeviceColumn;
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::connection::{PyConnection, connect};
    #[pymodule_export]
    use crate::distarray::{
        PyDistArray, PyDistribution, PyFinding, PyHaloPlan, PyMap, PyPlan, PySection, PyTransfer,
        block, cyclic, fill_halos, from_distarray, from_parts, from_sections, unstructured,
        validate,
    };
    #[pymodule_export]
    use crate::dlpack::from_dlpack;
    #[pymodule_export]
    use crate::engine::register_copy_engine;
    #[pymodule_export]
    use crate::fork::{forget_threads, go_on, stand_still};
    #[pymodule_export]
    use crate::frames::{from_arrow, from_cells};
    #[pymodule_export]
    use crate::function::PyArguments;
    #[pymodule_export]
    use crate::grid::PyGrid;
    #[pymodule_export]
    use crate::job::{PyLoadJob, PyLoadProgress};
    #[pymodule_export]
    use crate::load::{load_parquet, read_parquet};
    #[pymodule_export]
    use crate::metrics::{PyQueryMetrics, PyQueryProgress};
    #[pymodule_export]
    use crate::numpy::from_numpy;
    #[pymodule_export]
    use crate::partitioned::{PyGet, PyHandle, PyPartitioned, from_partitioned};
    #[pymodule_export]
    use crate::prepared::PyPrepared;
    #[pymodule_export]
    use crate::query::{PySession, sql};
    #[pymodule_export]
    use crate::ranks::{from_ranks, rank_part};
    #[pymodule_export]
    use crate::result::{Kept, PyQuery, PyStream};
    #[pymodule_export]
    use crate::runtime::end_calls;
    #[pymodule_export]
    use crate::schema::PySchema;
    #[pymodule_export]
    use crate::serve::PyServer;
    #[pymodule_export]
    use crate::share::shared_memory;
    #[pymodule_export]
    use crate::storage::{
        PyStorage, empty, empty_like, from_storage, full, full_like, ones, ones_like, zeros,
        zeros_like,
    };
    #[pymodule_export]
    use crate::tile::PyTile;

    // What `partgrid.buffer` has under names of its own.
    #[pymodule_export]
    const BUFFER_DEVICE: i32 = crate::buffer::DEVICE;
    #[pymodule_export]
    const BUFFER_COOKIE: usize = crate::buffer::COOKIE;
    #[pymodule_export]
    const BUFFER_DEVICE_NAME: &str = crate::buffer::DEVICE_TEXT;
    #[pymodule_export]
    const BUFFER_INFO_VERSION: u32 = crate::buffer::INFO_VERSION;
    #[pymodule_export]
    const BUFFER_STRUCT_BYTES: usize = size_of::<crate::buffer::Extended>();
    #[pymodule_export]
    const BUFFER_INFO_BYTES: usize = size_of::<crate::buffer::DeviceInfo>();

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

//! The C interfaces by which other libraries hand over memory, in and out, without copying: Arrow C Data, C Stream and C Device, DLPack, and memory by address.
//!
//! Comes in: the C structs of another library, or batches and numbers of ours. Goes out: batches and columns, or C structs that another library takes. Read on in
//! `import.rs` (stream and batch), `convert.rs` (one C array -> one typed array), `node.rs` (checked access to the C struct), `export.rs`, `abi.rs` and `on_device.rs` (the
//! C Device interface), `dlpack/`, `strided.rs` (memory by address and strides), `guard.rs`. Never here: a panic that crosses a C callback, knowledge of Python.
//!
//! The import is partgrid's own, and not that of arrow 59, because the latter panics on `struct` in `struct` and on lists of structs with an offset, reads
//! other rows of a sparse union with an offset, and refuses strings of length 0 that have no offsets buffer (arrow-rs #9235, #10910).

mod abi;
mod column;
mod convert;
mod count;
#[cfg(feature = "cuda")]
mod cuda;
mod device_batch;
mod device_stream;
pub mod dlpack;
mod engine;
mod export;
mod guard;
mod import;
mod node;
mod on_device;
mod on_host;
mod readable;
mod strided;
mod tile;
mod tree;

pub use abi::{ARROW_DEVICE_CPU, ArrowDeviceArray, ArrowDeviceArrayStream};
pub use column::{DeviceColumn, DeviceNumbers};
pub use device_batch::DeviceBatch;
pub use device_stream::{export_device_batches, read_device_stream};
pub use engine::{CopyEngine, DeviceBuffer, Event, copy_engine, register_copy_engine};
pub use export::export_stream;
pub use import::{ImportedStream, import_batch, import_stream};
pub use on_device::{
    export_device_batch, export_device_stream, import_device_batch, import_device_stream,
};
pub use readable::ReadableTile;
pub use strided::{ElementKind, Strided, import_strided};
pub use tile::{DeviceTile, device_row_bands, grid_to, readable_device, tile_to};

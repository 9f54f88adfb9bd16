//! The Arrow C Data and C Stream interfaces, in and out, without copying.
//!
//! Comes in: the C structs of another library, or batches of ours. Goes out: batches, or C structs that another library takes. Read on in `import.rs` (stream
//! and batch), `convert.rs` (one C array -> one typed array), `node.rs` (checked access to the C struct), `export.rs`, `guard.rs`. Never here: a panic that
//! crosses a C callback, knowledge of Python.
//!
//! The import is partgrid's own, and not that of arrow 59, because the latter panics on `struct` in `struct` and on lists of structs with an offset, reads
//! other rows of a sparse union with an offset, and refuses strings of length 0 that have no offsets buffer (arrow-rs #9235, #10910).

mod convert;
mod export;
mod guard;
mod import;
mod node;

pub use export::export_stream;
pub use import::{ImportedStream, import_batch, import_stream};

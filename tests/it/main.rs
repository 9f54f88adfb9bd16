//! Behaviour of the crate through its public interface; one module for each folder of `src`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::clone_on_ref_ptr,
    clippy::too_many_lines,
    clippy::allow_attributes,
    missing_docs,
    reason = "a test may fail by panicking, and its numbers are small"
)]

#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "distributed")]
mod cluster;
mod columns;
mod counting;
mod device;
mod distarray;
mod grid;
mod harm;
mod load;
mod locality;
mod partitioned;
mod picture;
mod query;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod share;
mod shared_memory;
mod storage;
mod support;

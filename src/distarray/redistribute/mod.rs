//! From one distribution of an array to another: who sends which elements to whom, and the copying of them.
//!
//! Comes in: two [`Distribution`](crate::distarray::Distribution)s of one global shape, later the bytes of their sections. Goes out: a [`Plan`], the bytes of the new sections, messages
//! for others to carry. Read on in `comb.rs` (elements along one dimension), `intersect.rs` (what two index sets share), `links.rs` (which ranks share anything), `dimension.rs`,
//! `plan.rs` and `transfer.rs` (their product), `buffer.rs`, `copy.rs`, `execute.rs` (bytes), `halo.rs` (padding made fresh), `plot.rs`. Never here: communication, Python.

mod buffer;
mod comb;
mod copy;
mod dimension;
mod execute;
mod halo;
mod intersect;
mod links;
mod plan;
mod plot;
mod transfer;

pub use buffer::{Layout, Source, Target};
pub use comb::Comb;
pub use execute::MAX_MESSAGE_BYTES;
pub use halo::{HaloPlan, exchange_halos};
pub use plan::Plan;
pub use transfer::Transfer;

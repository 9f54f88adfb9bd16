//! One entry of "dim_data".
//!
//! Comes in: an axis. Goes out: one [`Dimension`] for each of its intervals. Never here: data; arithmetic within an axis (`grid/axis.rs`).

use crate::grid::Axis;

/// How one dimension is distributed, as one rank sees it (DAP 0.10.0, "The `dim_data`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// "dist_type" `b`: each rank has one block, of any size. A block without elements has start == stop.
    Block {
        /// "size": the number of elements of the whole dimension.
        size: u64,
        /// "proc_grid_size": how many ranks share the dimension.
        proc_grid_size: u64,
        /// "proc_grid_rank": which of them this is.
        proc_grid_rank: u64,
        /// "start": the global index of the first element of the block.
        start: u64,
        /// "stop": one past the global index of the last.
        stop: u64,
    },
}

/// One block for each interval of the axis.
pub(super) fn blocks(axis: &Axis) -> impl Iterator<Item = Dimension> + '_ {
    let count = axis.num_intervals() as u64;
    (0..count)
        .zip(axis.intervals())
        .map(move |(rank, interval)| Dimension::Block {
            size: axis.extent(),
            proc_grid_size: count,
            proc_grid_rank: rank,
            start: interval.start,
            stop: interval.end,
        })
}

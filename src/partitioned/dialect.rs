//! Dictionaries for consumers that do not follow the draft.
//!
//! Comes in: a grid, and what the consumer wants. Goes out: the numbers of a dictionary that it takes, or the reason why it cannot hold the grid: the same on all ranks of an SPMD
//! program. Never here: data. What the consumers do was seen in HeAT 1.8.0 (`ht.from_partitioned`) and xgboost_ray 0.1.19 (`RayDMatrix`), which lightgbm_ray 0.1.9 shares.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::grid::{Axis, ElementType, PartitionGrid};
use crate::partitioned::{Partition, Partitioned, Place};

/// The dictionary that HeAT takes: one partition for each rank, in the order of the ranks, with the rank as its location. A grid of no SPMD program is one of one rank. `element` is the type
/// that the values will have.
///
/// # Errors
/// The same on all ranks: `Unsupported` when the rows do not lie in the order of the ranks, when one of several ranks has all of them (HeAT would wait forever), when the ranks are not
/// known, or when HeAT has no such type.
pub fn describe_for_heat(grid: &PartitionGrid, element: ElementType) -> Result<Partitioned> {
    let (rank, rows) = match (grid.ranks(), grid.rank_rows()?) {
        (Some(ranks), Some(rows)) => (ranks.rank(), rows),
        _ if grid.locals().is_some() => {
            let text = "the grid is part of an SPMD program whose ranks are not known";
            let hint = "make it with pg.engines.mpi.from_local(data, comm)";
            return Err(Error::unsupported(text).with_hint(hint));
        }
        _ => (0, Axis::uncut(grid.num_rows()).intervals().collect()),
    };
    check_element(element, rows.len())?;
    let all = |range: &Range<u64>| range.end - range.start == grid.num_rows();
    if rows.len() > 1
        && grid.num_rows() > 0
        && let Some(owner) = rows.iter().position(all)
    {
        let text = format!(
            "rank {owner} has all rows, which HeAT takes for an array that is not distributed, and then waits forever"
        );
        let hint = "give every rank some rows, or run HeAT on one rank";
        return Err(Error::unsupported(text).with_hint(hint));
    }
    let axis = Axis::try_from_lengths(rows.iter().map(|range| range.end - range.start))?;
    Ok(by_rows(grid, &axis, Some(vec![vec![rank, 0]]), Place::Rank))
}

/// Whether the ranks have as many rows as HeAT itself would give them. HeAT 1.8.0 takes other arrays too, but its `matmul` and `resplit` are wrong or fail for them, also for those that it
/// made itself, unless `balance_()` was called first.
#[must_use]
pub fn is_balanced_for_heat(described: &Partitioned) -> bool {
    let rows = described.shape.first().copied().unwrap_or(0);
    let even = Axis::try_even(rows, described.partitions.len());
    let given = described.partitions.iter().map(Partition::rows);
    even.is_ok_and(|even| even.intervals().eq(given))
}

fn check_element(element: ElementType, num_ranks: usize) -> Result<()> {
    use ElementType::{Float16, UInt16, UInt32, UInt64};
    let (text, hint) = match element {
        UInt16 | UInt32 | UInt64 => (
            format!("HeAT has no arrays of {}", element.name()),
            "dtype=\"int64\" holds the values unless they are very large",
        ),
        Float16 if num_ranks > 1 => (
            "HeAT adds values of float16 wrongly on more than one rank".to_owned(),
            "pass dtype=\"float32\"",
        ),
        _ => return Ok(()),
    };
    Err(Error::unsupported(text).with_hint(hint))
}

/// The dictionary that xgboost_ray and lightgbm_ray take: rows cut only, the address of the node as location. Row bands without rows are left away, since an actor with no others would
/// train on nothing. When there are fewer than `num_actors`, the longest are halved: an actor without a partition would load all of them.
#[must_use]
pub fn describe_for_xgboost_ray(
    grid: &PartitionGrid,
    num_actors: usize,
    node: &str,
) -> Partitioned {
    let axis = grid.rows().refined(num_actors);
    by_rows(grid, &axis, None, |_| Place::Node(node.to_owned()))
}

/// One partition, as wide as the grid, for each interval of `rows`.
fn by_rows(
    grid: &PartitionGrid,
    rows: &Axis,
    locals: Option<Vec<Vec<usize>>>,
    place: impl Fn(usize) -> Place,
) -> Partitioned {
    let width = grid.num_columns() as u64;
    let partitions = rows
        .intervals()
        .enumerate()
        .map(|(number, interval)| Partition {
            position: vec![number, 0],
            start: vec![interval.start, 0],
            shape: vec![interval.end - interval.start, width],
            locations: vec![place(number)],
        });
    Partitioned {
        shape: vec![grid.num_rows(), width],
        partition_tiling: vec![rows.num_intervals(), 1],
        partitions: partitions.collect(),
        locals,
    }
}

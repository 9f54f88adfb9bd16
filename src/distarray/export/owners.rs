//! One section for each rank of a program, instead of one for each tile.
//!
//! Comes in: a grid. Goes out: which row bands each rank has, and the distribution of the rows that this makes: blocks where the rows lie in the order of the ranks, cyclic where even row
//! bands are dealt out in turn, the row numbers themselves otherwise. Never here: values, communication.

use std::ops::Range;
use std::sync::Arc;

use crate::distarray::map::Map;
use crate::error::{Error, Result};
use crate::grid::{Axis, PartitionGrid};

/// Who has which row bands.
pub(super) struct Owners {
    /// How the rows lie on the ranks.
    pub(super) rows: Map,
    /// The row bands of each rank, in order.
    pub(super) bands: Vec<Vec<usize>>,
    /// The rank of this process.
    pub(super) rank: usize,
}

/// The owners of the row bands of a grid; of a grid of no SPMD program one process has all.
///
/// # Errors
/// `Unsupported` when two ranks have tiles of one row band.
pub(super) fn owners(grid: &PartitionGrid) -> Result<Owners> {
    let width = grid.columns().num_intervals().max(1);
    let (rank, num_ranks, tiles) = match grid.ranks() {
        Some(ranks) => (ranks.rank(), ranks.num_ranks(), ranks.owners().to_vec()),
        None => (0, 1, vec![0; grid.tiles().len()]),
    };
    let mut bands: Vec<Vec<usize>> = vec![Vec::new(); num_ranks];
    let mut owners = Vec::with_capacity(grid.rows().num_intervals());
    for (row_band, tiles) in tiles.chunks(width).enumerate() {
        let owner = tiles.first().copied().unwrap_or(0);
        if let Some(column_band) = tiles.iter().position(|other| *other != owner) {
            let text =
                "two ranks have tiles of one row band; one section for each rank wants whole rows";
            return Err(Error::unsupported(text).with_position(&[row_band, column_band]));
        }
        owners.push(owner);
        if let Some(own) = bands.get_mut(owner) {
            own.push(row_band);
        }
    }
    Ok(Owners {
        rows: rows_of(grid.rows(), &owners, &bands)?,
        bands,
        rank,
    })
}

fn rows_of(rows: &Axis, owners: &[usize], bands: &[Vec<usize>]) -> Result<Map> {
    let lengths = |bands: &Vec<usize>| -> u64 {
        let parts = bands.iter().filter_map(|band| rows.interval(*band));
        parts.map(|part| part.end - part.start).sum()
    };
    if owners.is_sorted() {
        return Ok(Map::block(&Axis::try_from_lengths(
            bands.iter().map(lengths),
        )?));
    }
    let length = |part: Range<u64>| part.end - part.start;
    let even = rows.interval(0).map_or(0, length);
    let (last, others) = (rows.num_intervals() - 1, 0..rows.num_intervals() - 1);
    let is_even = others
        .clone()
        .all(|band| rows.interval(band).map(length) == Some(even))
        && rows.interval(last).map_or(0, length) <= even;
    let in_turn = owners
        .iter()
        .enumerate()
        .all(|(band, owner)| band % bands.len() == *owner);
    if even > 0 && is_even && in_turn {
        return Map::try_cyclic(rows.extent(), bands.len(), even);
    }
    let indices = bands.iter().map(|own| -> Arc<[i64]> {
        let parts = own.iter().filter_map(|band| rows.interval(*band)).flatten();
        parts.filter_map(|row| i64::try_from(row).ok()).collect()
    });
    Map::try_unstructured(rows.extent(), indices.collect(), true)
}

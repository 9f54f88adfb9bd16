//! The shape of a grid without its data: one axis for each dimension.
//!
//! Comes in: axes. Goes out: positions, flat indices (row-major) and regions, computed when asked for. Memory is the sum of the cuts, not their product. Never
//! here: arithmetic within one axis (`axis.rs`), tiles, data.

use crate::error::{Error, Result, format_position};
use crate::grid::axis::Axis;
use crate::grid::region::Region;

/// One [`Axis`] for each dimension. The tile at a position is the product of one interval of each axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Geometry {
    axes: Box<[Axis]>,
}

impl Geometry {
    /// The grid that the given axes span; without axes, the grid of one tile and no dimensions.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of tiles does not fit this machine's index type.
    pub fn try_new(axes: impl Into<Box<[Axis]>>) -> Result<Self> {
        let axes = axes.into();
        let count = |product: usize, axis: &Axis| product.checked_mul(axis.num_intervals());
        match axes.iter().try_fold(1_usize, count) {
            Some(_) => Ok(Self { axes }),
            None => Err(Error::invalid_argument(
                "the number of tiles of a grid must fit the index type of this machine",
            )),
        }
    }

    /// The axes, dimension 0 first.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The number of elements along each dimension.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::extent).collect()
    }

    /// The number of tiles along each dimension.
    #[must_use]
    pub fn tiling(&self) -> Vec<usize> {
        self.axes.iter().map(Axis::num_intervals).collect()
    }

    /// The number of tiles.
    #[must_use]
    pub fn num_tiles(&self) -> usize {
        self.axes.iter().map(Axis::num_intervals).product()
    }

    /// The row-major number of a position.
    ///
    /// # Errors
    /// `NotFound` when the position has another number of dimensions or lies outside the grid.
    pub fn flat_index(&self, position: &[usize]) -> Result<usize> {
        let tiling = self.tiling();
        let inside = position.iter().zip(&tiling).all(|(at, count)| at < count);
        if position.len() != tiling.len() || !inside {
            return Err(Error::not_found(format!(
                "no tile at position {}, the grid has {} tiles",
                format_position(position),
                describe_tiling(&tiling)
            )));
        }
        let step = |flat: usize, (at, count): (&usize, &usize)| flat * count + at;
        Ok(position.iter().zip(&tiling).fold(0, step))
    }

    /// The position of a row-major number, or `None` past the last tile.
    #[must_use]
    pub fn position(&self, flat_index: usize) -> Option<Vec<usize>> {
        if flat_index >= self.num_tiles() {
            return None;
        }
        let mut rest = flat_index;
        let mut position = vec![0; self.axes.len()];
        for (at, axis) in position.iter_mut().zip(&self.axes).rev() {
            *at = rest % axis.num_intervals();
            rest /= axis.num_intervals();
        }
        Some(position)
    }

    /// All positions in row-major order.
    pub fn positions(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        (0..self.num_tiles()).filter_map(|flat_index| self.position(flat_index))
    }

    /// Start and shape of the tile at a position.
    ///
    /// # Errors
    /// `NotFound` when the position has another number of dimensions or lies outside the grid.
    pub fn region(&self, position: &[usize]) -> Result<Region> {
        self.flat_index(position)?;
        let pairs = self.axes.iter().zip(position);
        Ok(Region::from_ranges(
            pairs.filter_map(|(axis, at)| axis.interval(*at)),
        ))
    }

    /// The position of the tile that holds the element at global `indices`, and the element's indices within the tile.
    ///
    /// # Errors
    /// `NotFound` when the number of dimensions differs or an index is past its end.
    pub fn locate(&self, indices: &[u64]) -> Result<(Vec<usize>, Vec<u64>)> {
        let pairs = self.axes.iter().zip(indices);
        let found: Option<Vec<(usize, u64)>> =
            pairs.map(|(axis, index)| axis.locate(*index)).collect();
        match found {
            Some(found) if indices.len() == self.axes.len() => Ok(found.into_iter().unzip()),
            _ => Err(Error::not_found(format!(
                "no element at {indices:?}, the shape is {:?}",
                self.shape()
            ))),
        }
    }
}

/// The tiling as text: `12 x 1`.
fn describe_tiling(tiling: &[usize]) -> String {
    let parts: Vec<String> = tiling.iter().map(ToString::to_string).collect();
    parts.join(" x ")
}

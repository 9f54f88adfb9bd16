//! The product of maps: which process of the grid holds which rectangle of indices.
//!
//! Comes in: one [`Map`] for each dimension. Goes out: a [`Distribution`]: coordinates and ranks in row-major order (DAP 0.10.0, 1.4 "process grid"), shapes, places of elements. Never here:
//! arithmetic within a dimension (`map/`), data, communication.

use crate::distarray::dimension::DimData;
use crate::distarray::index_set::Part;
use crate::distarray::map::{Halo, Map, Place};
use crate::distarray::version::Version;
use crate::error::{Error, Result};

/// How an array of any number of dimensions lies on a grid of processes. Without dimensions it is one element on one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    maps: Vec<Map>,
    /// The product of the numbers of grid ranks.
    num_ranks: usize,
}

impl Distribution {
    /// The product of the given maps, dimension 0 first.
    ///
    /// # Errors
    /// `InvalidArgument` when there would be 2^64 ranks or more.
    pub fn try_new(maps: Vec<Map>) -> Result<Self> {
        let counts = maps.iter().map(Map::num_ranks);
        let product = counts
            .clone()
            .try_fold(1_usize, |product, count| product.checked_mul(count));
        let Some(num_ranks) = product else {
            let counts: Vec<usize> = counts.collect();
            return Err(Error::invalid_argument(format!(
                "a process grid must have less than 2^64 ranks, got {counts:?}"
            )));
        };
        Ok(Self { maps, num_ranks })
    }

    /// One map for each dimension.
    #[must_use]
    pub fn maps(&self) -> &[Map] {
        &self.maps
    }

    /// The number of ranks of the whole grid.
    #[must_use]
    pub fn num_ranks(&self) -> usize {
        self.num_ranks
    }

    /// The number of global elements along each dimension.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.maps.iter().map(Map::size).collect()
    }

    /// The grid ranks of a rank, one for each dimension, the last varying fastest; `None` for a rank that does not exist.
    #[must_use]
    pub fn coordinates(&self, rank: usize) -> Option<Vec<usize>> {
        if rank >= self.num_ranks {
            return None;
        }
        let mut rest = rank;
        let mut coordinates = vec![0; self.maps.len()];
        for (map, coordinate) in self.maps.iter().zip(&mut coordinates).rev() {
            *coordinate = rest % map.num_ranks();
            rest /= map.num_ranks();
        }
        Some(coordinates)
    }

    /// The rank at grid ranks; `None` unless there is one for each dimension, and all exist.
    #[must_use]
    pub fn rank(&self, coordinates: &[usize]) -> Option<usize> {
        if coordinates.len() != self.maps.len() {
            return None;
        }
        let mut rank = 0;
        for (map, coordinate) in self.maps.iter().zip(coordinates) {
            if *coordinate >= map.num_ranks() {
                return None;
            }
            rank = rank * map.num_ranks() + coordinate;
        }
        Some(rank)
    }

    /// The rank that owns an element, and its index along each dimension of the buffer there; `None` when it is not in the array.
    #[must_use]
    pub fn locate(&self, index: &[i64]) -> Option<(usize, Vec<usize>)> {
        if index.len() != self.maps.len() {
            return None;
        }
        let places = self.maps.iter().zip(index).map(|(map, at)| map.locate(*at));
        let places: Vec<Place> = places.collect::<Option<_>>()?;
        let coordinates: Vec<usize> = places.iter().map(|place| place.rank).collect();
        let local = places.iter().map(|place| place.local).collect();
        Some((self.rank(&coordinates)?, local))
    }

    /// The extents of the buffer of a rank, halo included; `None` for a rank that does not exist.
    #[must_use]
    pub fn local_shape(&self, rank: usize) -> Option<Vec<u64>> {
        self.each(rank, Map::local_len)
    }

    /// What a rank owns along each dimension; its elements are the product. `None` for a rank that does not exist.
    #[must_use]
    pub fn owned(&self, rank: usize) -> Option<Vec<Part>> {
        self.each(rank, Map::owned)
    }

    /// What the buffer of a rank holds along each dimension, halo included; see [`Map::held`]. `None` for a rank that does not exist.
    #[must_use]
    pub fn held(&self, rank: usize) -> Option<Vec<Vec<Part>>> {
        self.each(rank, Map::held)
    }

    /// The same with padding; `halos` has one for each dimension.
    ///
    /// # Errors
    /// `InvalidArgument` for another number of halos than of dimensions; as of [`Map::try_with_halo`], with the dimension.
    pub fn try_with_halos(&self, halos: &[Halo], version: Version) -> Result<Self> {
        if halos.len() != self.maps.len() {
            return Err(Error::invalid_argument(format!(
                "padding must have a width for each of the {} dimensions, got {}",
                self.maps.len(),
                halos.len()
            )));
        }
        let maps = self.maps.iter().zip(halos).enumerate();
        let maps = maps.map(|(dimension, (map, halo))| {
            if *halo == Halo::default() {
                return Ok(map.clone());
            }
            map.try_with_halo(halo, version)
                .map_err(|error| error.with_context("dimension", dimension.to_string()))
        });
        Self::try_new(maps.collect::<Result<_>>()?)
    }

    /// "dim_data" of a rank, in the words of a version.
    ///
    /// # Errors
    /// As of [`Map::dim_data`], with the dimension.
    pub fn dim_data(&self, rank: usize, version: Version) -> Result<Vec<DimData>> {
        let coordinates = self.coordinates(rank).ok_or_else(|| {
            Error::not_found(format!("no rank {rank}, there are {}", self.num_ranks))
        })?;
        let maps = self.maps.iter().zip(coordinates).enumerate();
        maps.map(|(dimension, (map, rank))| {
            map.dim_data(rank, version)
                .map_err(|error| error.with_context("dimension", dimension.to_string()))
        })
        .collect()
    }

    fn each<T>(&self, rank: usize, ask: impl Fn(&Map, usize) -> Option<T>) -> Option<Vec<T>> {
        let coordinates = self.coordinates(rank)?;
        let asked = self.maps.iter().zip(coordinates);
        asked.map(|(map, rank)| ask(map, rank)).collect()
    }
}

//! A rectangle of the global index space: start and shape.
//!
//! Comes in: start and shape per dimension. Goes out: what two rectangles share, whether one holds another, the pieces of one. Pure. Never here: tiles or data.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};

/// A rectangle of n dimensions: global start indices and the number of elements along each dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    start: Box<[u64]>,
    shape: Box<[u64]>,
}

impl Region {
    /// The rectangle with the given start and shape.
    ///
    /// # Errors
    /// `InvalidArgument` when the two differ in length, or when a stop (start + shape) does not fit 64 bits.
    pub fn try_new(start: impl Into<Box<[u64]>>, shape: impl Into<Box<[u64]>>) -> Result<Self> {
        let (start, shape) = (start.into(), shape.into());
        if start.len() != shape.len() {
            return Err(Error::invalid_argument(format!(
                "start and shape of a region must have one number for each dimension, got {start:?} and {shape:?}"
            )));
        }
        let fits = |(start, length): (&u64, &u64)| start.checked_add(*length).is_some();
        if !start.iter().zip(&shape).all(fits) {
            return Err(Error::invalid_argument(format!(
                "start + shape of a region must be less than 2^64, got {start:?} and {shape:?}"
            )));
        }
        Ok(Self { start, shape })
    }

    /// The product of one range for each dimension; a range that ends before it starts counts as empty.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let pairs = ranges
            .into_iter()
            .map(|range| (range.start, range.end.saturating_sub(range.start)));
        let (start, shape): (Vec<u64>, Vec<u64>) = pairs.unzip();
        Self {
            start: start.into(),
            shape: shape.into(),
        }
    }

    /// The first global index along each dimension.
    #[must_use]
    pub fn start(&self) -> &[u64] {
        &self.start
    }

    /// The number of indices along each dimension.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The half-open range of global indices along each dimension.
    #[must_use]
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        let pairs = self.start.iter().zip(&self.shape);
        pairs.map(|(start, length)| *start..start + length)
    }

    /// The number of dimensions.
    #[must_use]
    pub fn num_dimensions(&self) -> usize {
        self.start.len()
    }

    /// The number of elements: the product of the shape, 1 without dimensions; stays at the greatest number of 64 bits where it would not fit.
    #[must_use]
    pub fn num_elements(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let multiply = |product: u64, length: &u64| product.saturating_mul(*length);
        self.shape.iter().fold(1, multiply)
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// What both rectangles share, or `None` when they share no element or differ in the number of dimensions.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.num_dimensions() != other.num_dimensions() {
            return None;
        }
        let pairs = self.ranges().zip(other.ranges());
        let shared = Self::from_ranges(
            pairs.map(|(mine, theirs)| mine.start.max(theirs.start)..mine.end.min(theirs.end)),
        );
        (!shared.is_empty()).then_some(shared)
    }

    /// Whether every element of `other` lies in this rectangle; an empty one lies in each of the same number of dimensions.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.num_dimensions() == other.num_dimensions()
            && (other.is_empty() || self.intersect(other).as_ref() == Some(other))
    }

    /// The two pieces left and right of global index `at` along `dimension`; a piece may be empty.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension, or when `at` lies outside start ..= stop.
    pub fn split(&self, dimension: usize, at: u64) -> Result<(Self, Self)> {
        let range = self.ranges().nth(dimension).ok_or_else(|| {
            let count = self.num_dimensions();
            Error::invalid_argument(format!(
                "a region of {count} dimensions has no dimension {dimension}"
            ))
        })?;
        if at < range.start || at > range.end {
            return Err(Error::invalid_argument(format!(
                "a region can be split from {} to {} along dimension {dimension}, got {at}",
                range.start, range.end
            )));
        }
        let piece = |part: Range<u64>| {
            let replace = |(number, whole)| {
                if number == dimension {
                    part.clone()
                } else {
                    whole
                }
            };
            Self::from_ranges(self.ranges().enumerate().map(replace))
        };
        Ok((piece(range.start..at), piece(at..range.end)))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .ranges()
            .map(|range| format!("{}..{}", range.start, range.end))
            .collect();
        write!(formatter, "[{}]", parts.join(", "))
    }
}

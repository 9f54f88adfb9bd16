//! What one rank sends to another.
//!
//! Comes in: combs along each dimension. Goes out: a [`Transfer`], the product of them; pieces of it that fit a message. Never here: bytes.

use std::ops::Range;

use crate::distarray::redistribute::comb::{self, Comb};
use crate::error::{Error, Result};

/// The elements that go from one rank to another, as a product of places along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    from_rank: usize,
    to_rank: usize,
    combs: Vec<Vec<Comb>>,
}

impl Transfer {
    pub(super) fn new(from_rank: usize, to_rank: usize, combs: Vec<Vec<Comb>>) -> Self {
        Self {
            from_rank,
            to_rank,
            combs,
        }
    }

    /// The rank that owns the elements.
    #[must_use]
    pub fn from_rank(&self) -> usize {
        self.from_rank
    }

    /// The rank that gets them.
    #[must_use]
    pub fn to_rank(&self) -> usize {
        self.to_rank
    }

    /// Whether both are one rank, so that no message is needed.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.from_rank == self.to_rank
    }

    /// The places along each dimension, in elements of the local buffers. The order of the elements of a message is that of their product, the last dimension fastest.
    #[must_use]
    pub fn combs(&self) -> &[Vec<Comb>] {
        &self.combs
    }

    /// Local indices along a dimension of the source buffer, as runs; none for a dimension that does not exist.
    pub fn local_from(&self, dimension: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.runs(dimension, |comb| (comb.from, comb.from_step))
    }

    /// Local indices along a dimension of the destination buffer, in the same order; the runs are as long.
    pub fn local_to(&self, dimension: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.runs(dimension, |comb| (comb.to, comb.to_step))
    }

    /// Number of elements along each dimension: the shape of the message.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        let combs = self.combs.iter();
        combs.map(|combs| comb::num_elements(combs)).collect()
    }

    /// Number of elements.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.shape()
            .iter()
            .fold(1, |product: usize, len| product.saturating_mul(*len))
    }

    /// The transfer in pieces of at most `max_bytes` each, elements counting `item_bytes`, in the order of the elements of the whole message: one after the other they are that message.
    ///
    /// # Errors
    /// `InvalidArgument` when an element has no bytes, or more than the limit.
    pub fn pieces(
        &self,
        item_bytes: usize,
        max_bytes: usize,
    ) -> Result<impl Iterator<Item = Self>> {
        if item_bytes == 0 || item_bytes > max_bytes {
            return Err(Error::invalid_argument(format!(
                "a message must have room for an element of at least 1 byte, got elements of {item_bytes} and a limit of {max_bytes} bytes"
            )));
        }
        let shape = self.shape();
        let room = max_bytes / item_bytes;
        // The first dimension behind which everything fits is cut in chunks, those before it in single elements, those behind it not at all.
        let mut inner = 1_usize;
        let mut chunks = vec![1; shape.len()];
        for (chunk, len) in chunks.iter_mut().zip(&shape).rev() {
            *chunk = (room / inner).clamp(1, (*len).max(1));
            inner = inner.saturating_mul((*len).max(1));
        }
        let counts: Vec<usize> = shape
            .iter()
            .zip(&chunks)
            .map(|(len, chunk)| len.div_ceil(*chunk))
            .collect();
        let total = counts
            .iter()
            .fold(1, |product: usize, count| product.saturating_mul(*count));
        let transfer = self.clone();
        Ok((0..total).map(move |number| transfer.piece(number, &counts, &chunks)))
    }

    fn piece(&self, number: usize, counts: &[usize], chunks: &[usize]) -> Self {
        let mut rest = number;
        let mut combs: Vec<Vec<Comb>> = Vec::with_capacity(self.combs.len());
        let sides = self.combs.iter().zip(counts.iter().zip(chunks));
        for (whole, (count, chunk)) in sides.rev() {
            let start = rest % count * chunk;
            rest /= count;
            combs.push(comb::cut(whole, &(start..start.saturating_add(*chunk))));
        }
        combs.reverse();
        Self::new(self.from_rank, self.to_rank, combs)
    }

    fn runs(
        &self,
        dimension: usize,
        place: impl Fn(&Comb) -> (usize, usize) + Copy + 'static,
    ) -> impl Iterator<Item = Range<usize>> + '_ {
        let combs = self.combs.get(dimension).map(Vec::as_slice);
        combs.unwrap_or_default().iter().flat_map(move |comb| {
            let (first, step) = place(comb);
            (0..comb.count).map(move |number| {
                let start = first + number * step;
                start..start + comb.len
            })
        })
    }
}

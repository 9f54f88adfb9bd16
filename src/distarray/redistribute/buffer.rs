//! Where the elements of a section lie in its bytes.
//!
//! Comes in: shape, strides, offset and size of the elements, and the bytes. Goes out: a [`Layout`] whose arithmetic cannot overflow, [`Source`] and [`Target`], held against what a rank
//! has to hold. Never here: what the elements mean, copying.

use crate::error::{Error, ErrorKind, Result};

/// An n-d array within bytes. The place of every element is known to fit an `isize` and not to lie before the first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
    item_bytes: usize,
    /// One past the last byte of any element.
    end: usize,
}

impl Layout {
    /// Elements of `item_bytes` bytes, `strides` bytes from one to the next along each dimension, and the one at index 0 along all of them `offset` bytes behind the first byte.
    /// Strides may be negative or 0.
    ///
    /// # Errors
    /// `InvalidArgument` unless there is a stride for each dimension, an element has at least 1 byte, and every element lies behind the first byte and below 2^63.
    pub fn try_new(
        shape: Vec<usize>,
        strides: Vec<isize>,
        offset: usize,
        item_bytes: usize,
    ) -> Result<Self> {
        let wrong = |expected: &str| {
            Error::invalid_argument(format!(
                "{expected}, got the shape {shape:?}, strides of {strides:?} bytes, an offset of {offset} and elements of {item_bytes} bytes"
            ))
        };
        if shape.len() != strides.len() || item_bytes == 0 {
            return Err(wrong(
                "a layout wants one stride for each dimension and elements of at least 1 byte",
            ));
        }
        let end = if shape.contains(&0) {
            Some(0)
        } else {
            end_of(&shape, &strides, offset, item_bytes)
        };
        let end =
            end.ok_or_else(|| wrong("every element must lie between byte 0 and byte 2^63"))?;
        Ok(Self {
            shape,
            strides,
            offset,
            item_bytes,
            end,
        })
    }

    /// Elements one after the other, the last dimension fastest.
    ///
    /// # Errors
    /// As of [`Layout::try_new`].
    pub fn try_c_order(shape: &[usize], item_bytes: usize) -> Result<Self> {
        let strides = dense(shape.iter().rev(), item_bytes);
        Self::try_new(
            shape.to_vec(),
            strides.into_iter().rev().collect(),
            0,
            item_bytes,
        )
    }

    /// Elements one after the other, the first dimension fastest.
    ///
    /// # Errors
    /// As of [`Layout::try_new`].
    pub fn try_f_order(shape: &[usize], item_bytes: usize) -> Result<Self> {
        let strides = dense(shape.iter(), item_bytes);
        Self::try_new(shape.to_vec(), strides, 0, item_bytes)
    }

    /// Number of elements along each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes from one element to the next along each dimension.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Bytes before the element at index 0 along all dimensions.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of an element.
    #[must_use]
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// How many bytes a buffer must have at least: up to the end of the last element.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.end
    }

    /// Whether two elements may lie on one byte: true unless each stride is longer than what lies within it, which holds for all parts of dense arrays.
    fn overlaps(&self) -> bool {
        if self.shape.contains(&0) {
            return false;
        }
        let sides = self.shape.iter().zip(&self.strides);
        let mut sides: Vec<(usize, usize)> = sides
            .filter(|(len, _)| **len > 1)
            .map(|(len, stride)| (stride.unsigned_abs(), *len))
            .collect();
        sides.sort_unstable();
        let mut extent = self.item_bytes;
        sides.iter().any(|(stride, len)| {
            let within = *stride < extent;
            extent = extent.saturating_add(stride.saturating_mul(len - 1));
            within
        })
    }

    fn check(&self, shape: &[usize], num_bytes: usize) -> Result<()> {
        if self.shape != shape {
            return Err(Error::invalid_argument(format!(
                "the buffer of the section must have the shape {shape:?}, got {:?}",
                self.shape
            )));
        }
        if num_bytes < self.end {
            return Err(Error::invalid_argument(format!(
                "the buffer of the section must have at least {} bytes, got {num_bytes}",
                self.end
            )));
        }
        Ok(())
    }
}

/// The bytes of a section that are read.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Everything that the layout refers to.
    pub bytes: &'a [u8],
    /// Where the elements lie, halo included.
    pub layout: Layout,
}

/// The bytes of a section that are written.
#[derive(Debug)]
pub struct Target<'a> {
    /// Everything that the layout refers to.
    pub bytes: &'a mut [u8],
    /// Where the elements lie, halo included.
    pub layout: Layout,
}

impl Source<'_> {
    /// Whether the elements are those of a section of this shape.
    ///
    /// # Errors
    /// `InvalidArgument` for another shape than `shape`, and for too few bytes.
    pub fn check(&self, shape: &[usize]) -> Result<()> {
        self.layout.check(shape, self.bytes.len())
    }
}

impl Target<'_> {
    /// Whether the elements are those of a section of this shape, and can be written.
    ///
    /// # Errors
    /// `InvalidArgument` for another shape than `shape`, for too few bytes, and for elements that overlap.
    pub fn check(&self, shape: &[usize]) -> Result<()> {
        self.layout.check(shape, self.bytes.len())?;
        if self.layout.overlaps() {
            return Err(Error::invalid_argument(format!(
                "elements that are written must not overlap, got the shape {:?} with strides of {:?} bytes",
                self.layout.shape, self.layout.strides
            )));
        }
        Ok(())
    }
}

/// Bytes of value 0, which the system hands out when they are first written.
///
/// # Errors
/// `ResourcesExhausted` when there are not so many.
pub(super) fn zeroed(num_bytes: usize) -> Result<Vec<u8>> {
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(num_bytes).map_err(|error| {
        let text = format!("no memory for a buffer of {num_bytes} bytes");
        Error::new(ErrorKind::ResourcesExhausted, text).with_source(error)
    })?;
    drop(probe);
    Ok(vec![0; num_bytes])
}

/// Strides of elements without gaps, the first of `lens` fastest. What does not fit becomes `isize::MAX`, which no layout bears.
fn dense<'a>(lens: impl Iterator<Item = &'a usize>, item_bytes: usize) -> Vec<isize> {
    let mut next = item_bytes;
    lens.map(|len| {
        let stride = next;
        next = next.saturating_mul((*len).max(1));
        isize::try_from(stride).unwrap_or(isize::MAX)
    })
    .collect()
}

/// One past the last byte of the last element; `None` when an element lies before the first byte, or too far behind it. No dimension is empty.
fn end_of(shape: &[usize], strides: &[isize], offset: usize, item_bytes: usize) -> Option<usize> {
    let offset = isize::try_from(offset).ok()?;
    let (mut first, mut last) = (offset, offset);
    for (len, stride) in shape.iter().zip(strides) {
        let reach = stride.checked_mul(isize::try_from(len - 1).ok()?)?;
        if reach < 0 {
            first = first.checked_add(reach)?;
        } else {
            last = last.checked_add(reach)?;
        }
    }
    let end = last.checked_add(isize::try_from(item_bytes).ok()?)?;
    usize::try_from(first).ok()?;
    usize::try_from(end).ok()
}

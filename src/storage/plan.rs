//! Where the elements of a storage lie.
//!
//! Comes in: shape, width of an element, parameters. Goes out: a [`Plan`]: strides, how many bytes are needed, and, once it is known where they begin, how far behind that the first
//! element lies. Never here: memory; so the plans for GPUs are the same code.
//!
//! The extent along the smallest stride is filled up to a whole number of alignments. So not only the element `aligned_index` is aligned, but every element that shares its index
//! along that dimension.

use smallvec::SmallVec;

use super::dims::Dims;
use super::parameters::Parameters;
use crate::error::{Error, ErrorKind, Result};

/// More dimensions than this no consumer of buffers takes (`PyBUF_MAX_NDIM`).
const MAX_DIMENSIONS: usize = 64;

/// No type of C wants more than this.
const MAX_ITEM_ALIGNMENT: usize = 16;

/// In which memory a storage lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// That of the CPU.
    Host,
    /// That of an accelerator: `device="gpu"`.
    Gpu,
}

/// One number for each dimension; of as many as stencils have, without an allocation.
type Each = SmallVec<[usize; 4]>;

/// Where the elements lie, relative to where the memory begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    shape: Each,
    item_bytes: usize,
    layout: Each,
    strides: Each,
    aligned_index: Each,
    alignment_size: usize,
    place: Place,
    dims: Option<Dims>,
    /// What the address of the aligned element is a multiple of: the alignment, and what elements of this width want.
    step: usize,
    /// Bytes from the first element to the aligned one.
    lead: usize,
    /// Bytes from the first element to the end of the last one and what its row was filled up with.
    span: usize,
}

impl Plan {
    /// The plan of a storage.
    ///
    /// # Errors
    /// `InvalidArgument` for parameters that contradict themselves or each other, `ResourcesExhausted` for more bytes than there are addresses.
    pub fn try_new(shape: &[usize], item_bytes: usize, parameters: &Parameters) -> Result<Self> {
        parameters.check_exclusive()?;
        let count = shape.len();
        if count > MAX_DIMENSIONS {
            return Err(Error::invalid_argument(format!(
                "a storage has at most {MAX_DIMENSIONS} dimensions, got {count}"
            )));
        }
        if let Some(dims) = &parameters.dims {
            check_length("dims", dims.as_slice().len(), count)?;
        }
        let (layout, alignment_size, place) = match parameters.backend {
            Some(backend) => {
                let assumed = || Dims::assumed(count);
                let dims = parameters.dims.clone().unwrap_or_else(assumed);
                let alignment_size = backend.alignment_size(item_bytes);
                (
                    backend.layout(&dims).into(),
                    alignment_size,
                    backend.place(),
                )
            }
            None => (
                checked_layout(parameters.layout.as_deref(), count)?,
                parameters.alignment_size.unwrap_or(1),
                parameters.place.unwrap_or(Place::Host),
            ),
        };
        let plan = Self {
            shape: shape.into(),
            item_bytes,
            strides: smallvec::smallvec![item_bytes; count],
            layout,
            aligned_index: checked_index(parameters.aligned_index.as_deref(), shape)?,
            step: step(alignment_size, item_bytes)?,
            alignment_size,
            place,
            dims: parameters.dims.clone(),
            lead: 0,
            span: 0,
        };
        let too_large = || too_large(shape, item_bytes);
        plan.laid_out().ok_or_else(too_large)
    }

    /// With strides; `None` when the bytes are not to be addressed.
    fn laid_out(mut self) -> Option<Self> {
        let items_per_step = (self.alignment_size / self.item_bytes).max(1);
        let mut bytes = self.item_bytes;
        for (rank, dimension) in self.fastest_first().into_iter().enumerate() {
            *self.strides.get_mut(dimension)? = bytes;
            let extent = *self.shape.get(dimension)?;
            let padded = match rank {
                0 => extent.checked_next_multiple_of(items_per_step)?,
                _ => extent,
            };
            bytes = bytes.checked_mul(padded.max(1))?;
        }
        self.span = match self.shape.contains(&0) {
            true => 0,
            false => bytes,
        };
        // An element of the storage: its distance is less than `bytes`.
        let steps = self.aligned_index.iter().zip(&self.strides);
        self.lead = steps.map(|(at, stride)| at * stride).sum();
        let all = bytes.checked_add(self.step)?;
        isize::try_from(all).ok().map(|_| self)
    }

    fn fastest_first(&self) -> Each {
        let mut order: Each = (0..self.layout.len()).collect();
        order.sort_unstable_by_key(|dimension| std::cmp::Reverse(self.layout.get(*dimension)));
        order
    }

    /// The plan of elements that lie somewhere already, at these strides; with no alignment to speak of, unless one is given.
    pub(super) fn of_existing(
        shape: &[usize],
        strides: &[usize],
        item_bytes: usize,
        alignment_size: usize,
    ) -> Self {
        let signed = |stride: &usize| isize::try_from(*stride).unwrap_or(isize::MAX);
        let signed: Vec<isize> = strides.iter().map(signed).collect();
        Self {
            shape: shape.into(),
            item_bytes,
            layout: layout_of(&signed).into(),
            strides: strides.into(),
            aligned_index: smallvec::smallvec![0; shape.len()],
            alignment_size,
            place: Place::Host,
            dims: None,
            step: alignment_size,
            lead: 0,
            span: 0,
        }
    }

    pub(super) fn with_dims(mut self, dims: Option<Dims>) -> Result<Self> {
        if let Some(dims) = &dims {
            check_length("dims", dims.as_slice().len(), self.shape.len())?;
        }
        self.dims = dims;
        Ok(self)
    }

    /// How far behind `base`, the address of the first byte, the first element lies.
    #[inline]
    #[must_use]
    pub fn offset(&self, base: usize) -> usize {
        // Nearly all steps are powers of two, and divisions would cost as much as the rest of this.
        let past = match self.step.is_power_of_two() {
            true => base.wrapping_add(self.lead) & (self.step - 1),
            false => (base % self.step + self.lead % self.step) % self.step,
        };
        if past == 0 { 0 } else { self.step - past }
    }

    /// The bytes that are needed, wherever they begin.
    #[inline]
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.span + self.step - 1
    }

    /// Bytes from the first element to the end of the last one, with what the last row was filled up with.
    #[must_use]
    pub fn span_bytes(&self) -> usize {
        self.span
    }

    /// The number of elements along each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes from one element to the next along each dimension.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The bytes of one element.
    #[inline]
    #[must_use]
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// The number of elements.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// For each dimension the rank of its stride, 0 being the largest.
    #[must_use]
    pub fn layout(&self) -> &[usize] {
        &self.layout
    }

    /// The element that is aligned.
    #[must_use]
    pub fn aligned_index(&self) -> &[usize] {
        &self.aligned_index
    }

    /// The bytes of which the address of that element is a multiple.
    #[must_use]
    pub fn alignment_size(&self) -> usize {
        self.alignment_size
    }

    /// In which memory the storage lies.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// What the dimensions mean, where that was said.
    #[must_use]
    pub fn dims(&self) -> Option<&Dims> {
        self.dims.as_ref()
    }

    /// Where a stencil begins unless it is told otherwise: the aligned element, its components in the order `I`, `J`, `K`, then data, where it is zero.
    #[must_use]
    pub fn origin(&self) -> Vec<usize> {
        match &self.dims {
            Some(dims) => dims.origin(&self.aligned_index),
            None => Dims::assumed(self.shape.len()).origin(&self.aligned_index),
        }
    }

    /// What another storage inherits that is made like this one.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        Parameters {
            aligned_index: Some(self.aligned_index.to_vec()),
            alignment_size: Some(self.alignment_size),
            backend: None,
            place: Some(self.place),
            dims: self.dims.clone(),
            layout: Some(self.layout.to_vec()),
        }
    }
}

/// The layout of strides that something else has chosen: the largest is 0, of equal ones that of the first dimension.
#[must_use]
pub fn layout_of(strides: &[isize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..strides.len()).collect();
    let size = |dimension: &usize| strides.get(*dimension).map(|stride| stride.unsigned_abs());
    order.sort_by_key(|dimension| std::cmp::Reverse(size(dimension)));
    let rank = |dimension: usize| order.iter().position(|each| *each == dimension);
    (0..strides.len())
        .map(|dimension| rank(dimension).unwrap_or(dimension))
        .collect()
}

/// Of what the address of the aligned element is a multiple, so that all elements lie where a processor wants them.
fn step(alignment_size: usize, item_bytes: usize) -> Result<usize> {
    if alignment_size == 0 {
        return Err(Error::invalid_argument(
            "alignment_size must be at least 1 byte, got 0",
        ));
    }
    let fits =
        item_bytes.is_multiple_of(alignment_size) || alignment_size.is_multiple_of(item_bytes);
    if !fits {
        return Err(Error::invalid_argument(format!(
            "alignment_size must be a multiple or a divisor of the {item_bytes} bytes of an element, got {alignment_size}"
        ))
        .with_hint(format!("alignment_size={}", alignment_size.next_multiple_of(item_bytes))));
    }
    // The largest power of two in the width: what C wants of numbers, and at least what it wants of records.
    let natural = (1 << item_bytes.trailing_zeros()).min(MAX_ITEM_ALIGNMENT);
    let mut step = alignment_size;
    while !step.is_multiple_of(natural) {
        step *= 2;
    }
    Ok(step)
}

fn checked_layout(layout: Option<&[usize]>, count: usize) -> Result<Each> {
    let Some(layout) = layout else {
        return Ok((0..count).collect());
    };
    check_length("layout", layout.len(), count)?;
    match (0..count).find(|rank| !layout.contains(rank)) {
        None => Ok(layout.into()),
        Some(missing) => Err(Error::invalid_argument(format!(
            "layout must have each number below {count} once, got {layout:?} without {missing}"
        ))
        .with_hint("0 is for the dimension with the largest stride, the highest number for that with the smallest")),
    }
}

fn checked_index(index: Option<&[usize]>, shape: &[usize]) -> Result<Each> {
    let Some(index) = index else {
        return Ok(smallvec::smallvec![0; shape.len()]);
    };
    check_length("aligned_index", index.len(), shape.len())?;
    let beyond = |(at, extent): (&usize, &usize)| *at > extent.saturating_sub(1);
    if index.iter().zip(shape).any(beyond) {
        return Err(Error::invalid_argument(format!(
            "aligned_index must be an element of the storage, got {index:?} for the shape {shape:?}"
        )));
    }
    Ok(index.into())
}

fn check_length(name: &str, got: usize, count: usize) -> Result<()> {
    if got == count {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{name} must have one entry for each of the {count} dimensions, got {got}"
    )))
}

pub(super) fn too_large(shape: &[usize], item_bytes: usize) -> Error {
    Error::new(
        ErrorKind::ResourcesExhausted,
        format!(
            "a storage must fit the addresses of a process, got the shape {shape:?} of elements of {item_bytes} bytes"
        ),
    )
}

//! Buffers of sections as the core reads and writes them.
//!
//! Comes in: an object with the buffer interface, or a shape. Goes out: where its elements are, as bytes with a layout. numpy reads formats and addresses, and has the memory of what is
//! made new. Never here: which element goes where.

use partgrid::distarray::redistribute::{Layout, Source, Target};
use partgrid::error::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

use crate::convert::import;
use crate::error::Outcome;

/// What needs numpy, in messages.
const WANTED_BY: &str = "another distribution";

/// The memory of an array of any number of dimensions. Keeps it alive.
pub(super) struct Memory {
    array: Py<PyAny>,
    /// Of the first byte of any element.
    lowest: usize,
    layout: Layout,
    is_writable: bool,
}

impl Memory {
    /// That of an object with the buffer interface.
    pub(super) fn of(buffer: &Bound<'_, PyAny>) -> Outcome<Self> {
        let numpy = import(buffer.py(), "numpy", WANTED_BY)?;
        // numpy does not read all formats that it writes.
        match buffer.is_instance(&numpy.getattr("ndarray")?)? {
            true => Self::of_array(buffer),
            false => {
                let view = (PyMemoryView::from(buffer)?,);
                Self::of_array(&numpy.call_method1("asarray", view)?)
            }
        }
    }

    /// New memory, of what numpy's `dtype` says, in C order. What is in it is not defined.
    pub(super) fn empty(dtype: &Bound<'_, PyAny>, shape: &[u64]) -> Outcome<Self> {
        let numpy = import(dtype.py(), "numpy", WANTED_BY)?;
        let options = PyDict::new(dtype.py());
        options.set_item("dtype", dtype)?;
        Self::of_array(&numpy.call_method("empty", (shape.to_vec(),), Some(&options))?)
    }

    fn of_array(array: &Bound<'_, PyAny>) -> Outcome<Self> {
        if array.getattr("dtype")?.getattr("hasobject")?.extract()? {
            return Err(Error::unsupported(
                "elements that are moved must be values, the buffer holds references to Python objects",
            )
            .with_hint("give them a type of numpy that holds the values")
            .into());
        }
        let interface = array.getattr("__array_interface__")?;
        let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        let strides: Vec<isize> = array.getattr("strides")?.extract()?;
        // Elements before the first one: strides may be negative.
        let before: usize = match shape.contains(&0) {
            true => 0,
            false => shape
                .iter()
                .zip(&strides)
                .filter(|(_, stride)| **stride < 0)
                .map(|(len, stride)| stride.unsigned_abs().saturating_mul(len - 1))
                .fold(0, usize::saturating_add),
        };
        let item_bytes: usize = array.getattr("itemsize")?.extract()?;
        Ok(Self {
            lowest: address.saturating_sub(before),
            layout: Layout::try_new(shape, strides, before, item_bytes)?,
            is_writable: !is_read_only,
            array: array.clone().unbind(),
        })
    }

    /// Whether some byte may belong to both: their memory from the first element to the last meets.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let range = |memory: &Self| memory.lowest..memory.lowest + memory.layout.num_bytes();
        let (one, other) = (range(self), range(other));
        !one.is_empty() && !other.is_empty() && one.start < other.end && other.start < one.end
    }

    /// The address of the first byte of any element.
    pub(super) fn lowest(&self) -> usize {
        self.lowest
    }

    /// The `numpy.ndarray`.
    pub(super) fn array<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.array.bind(py)
    }

    /// The bytes of the elements.
    pub(super) fn num_bytes(&self) -> u64 {
        let count: usize = self.layout.shape().iter().product();
        (count * self.layout.item_bytes()) as u64
    }

    /// The elements, to be read.
    #[expect(unsafe_code, reason = "numpy says where its memory is by address")]
    pub(super) fn source(&self) -> Source<'_> {
        let start = std::ptr::with_exposed_provenance::<u8>(self.lowest);
        let bytes = match self.layout.num_bytes() {
            0 => &[],
            // SAFETY: all elements of one array lie in one allocation, which the array keeps; that nobody writes there meanwhile is what the documentation asks for.
            count => unsafe { std::slice::from_raw_parts(start, count) },
        };
        Source {
            bytes,
            layout: self.layout.clone(),
        }
    }

    /// The elements, to be written.
    ///
    /// # Errors
    /// `InvalidArgument` for memory that is read-only.
    #[expect(unsafe_code, reason = "numpy says where its memory is by address")]
    pub(super) fn target(&mut self) -> Result<Target<'_>, Error> {
        if !self.is_writable {
            return Err(
                Error::invalid_argument("the buffer must be writable, it is read-only").with_hint(
                    "sections that were copied can be written: distarray(..., copy=True)",
                ),
            );
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.lowest);
        let bytes: &mut [u8] = match self.layout.num_bytes() {
            0 => &mut [],
            // SAFETY: as for reading; and nobody else reads there meanwhile, as the documentation asks for.
            count => unsafe { std::slice::from_raw_parts_mut(start, count) },
        };
        Ok(Target {
            bytes,
            layout: self.layout.clone(),
        })
    }
}

//! `Plan`: from one distribution to another, in this process or over messages that `partgrid._messages` carries.
//!
//! Every number comes from `partgrid::distarray::redistribute`.

use std::sync::Arc;

use arrow::buffer::Buffer;
use partgrid::distarray::redistribute::{MAX_MESSAGE_BYTES, Plan, Source, Target, Transfer};
use partgrid::distarray::{Copied, Distribution, ElementType, Reason};
use partgrid::error::Error;
use partgrid::grid::Numbers;
use pyo3::prelude::*;

use super::array::PyDistArray;
use super::distribution::{PyDistribution, picture};
use super::memory::Memory;
use crate::array::PyArray;
use crate::error::Outcome;

/// Who sends which elements to whom, so that an array lies in another distribution. Made by `DistArray.redistribute`; `print` shows it as a table, notebooks as a picture.
///
/// Every element of each destination, communication padding included, comes from one rank that owns it.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> array = pg.from_numpy(np.arange(6)).distarray("column_0")
///     >>> print(array.redistribute(pg.distarray.cyclic(6, 2)))
///     1 rank to 2 ranks, 3 of 6 elements in 1 message
///     from \ to  0  1
///             0  3  3
#[pyclass(name = "Plan", module = "partgrid.distarray", frozen)]
pub(crate) struct PyPlan {
    core: Arc<Plan>,
    source: Py<PyDistArray>,
}

impl PyPlan {
    pub(super) fn try_new(source: Py<PyDistArray>, to: Arc<Distribution>) -> Outcome<Self> {
        let core = Plan::try_new(source.get().lying(), &to)?;
        Ok(Self {
            core: Arc::new(core),
            source,
        })
    }

    /// Carries it out in this process, into memory of numpy.
    pub(super) fn execute_here(&self, py: Python<'_>) -> Outcome<PyDistArray> {
        let source = self.source.get();
        let sections = source.sections().iter();
        let held: Vec<Memory> = sections
            .map(|section| Memory::of(section.get().memory()?.bind(py)))
            .collect::<Outcome<_>>()?;
        let dtype = source.numpy_dtype(py)?;
        let ranks = 0..self.core.to().num_ranks();
        let shapes = ranks.map(|rank| self.core.to().local_shape(rank).unwrap_or_default());
        let mut made: Vec<Memory> = shapes
            .map(|shape| Memory::empty(&dtype, &shape))
            .collect::<Outcome<_>>()?;
        let sources: Vec<Source> = held.iter().map(Memory::source).collect();
        let targets: Result<Vec<Target>, Error> = made.iter_mut().map(Memory::target).collect();
        let mut targets = targets?;
        py.detach(|| self.core.execute_into(&sources, &mut targets))?;
        drop(targets);
        self.arrived(py, made.into_iter().map(Some).collect(), None)
    }

    /// The array of the destination, when its elements have arrived.
    fn arrived(
        &self,
        py: Python<'_>,
        made: Vec<Option<Memory>>,
        rank: Option<usize>,
    ) -> Outcome<PyDistArray> {
        let source = self.source.get();
        let mut copies = source.copies().to_vec();
        for memory in made.iter().flatten() {
            Copied::add(&mut copies, Reason::Moved, memory.num_bytes());
        }
        let buffers = made.iter().map(|memory| {
            let memory = memory.as_ref()?;
            Some(memory.array(py).clone().unbind())
        });
        let to = Arc::new(self.core.to().clone());
        PyDistArray::of_buffers(py, to, source.about(py, copies, rank), buffers.collect())
    }
}

#[pymethods]
impl PyPlan {
    /// The array that is distributed anew.
    #[getter]
    fn source(&self, py: Python<'_>) -> Py<PyDistArray> {
        self.source.clone_ref(py)
    }

    /// How it shall lie.
    #[getter(to)]
    fn destination(&self) -> PyDistribution {
        PyDistribution::new(Arc::new(self.core.to().clone()))
    }

    /// The number of pairs of different ranks of which one sends something to the other. Over MPI, one that is too large for one message is sent as several.
    #[getter]
    fn messages(&self) -> u64 {
        self.core.messages()
    }

    /// The bytes that go to another rank.
    #[getter]
    fn bytes_moved(&self) -> u64 {
        let item_bytes = self.source.get().item_bytes() as u64;
        self.core.elements_moved().saturating_mul(item_bytes)
    }

    /// The number of elements that are written, in all destination buffers together.
    #[getter]
    fn num_elements(&self) -> u64 {
        self.core.num_elements()
    }

    /// The number of elements that stay on their rank, and are copied there.
    #[getter]
    fn local_elements(&self) -> u64 {
        self.core.local_elements()
    }

    /// How many elements each rank (outer list) sends to each rank (inner lists), itself included.
    ///
    /// Raises:
    ///     UnsupportedError: There are more than 16,777,216 pairs of ranks.
    fn counts(&self) -> Outcome<Vec<Vec<u64>>> {
        Ok(self.core.counts()?)
    }

    /// Carries the plan out: in this process, or among the ranks of a communicator. Everything is copied; do not write to the source meanwhile. Needs numpy.
    ///
    /// Args:
    ///     comm: A communicator of mpi4py, or anything with `Get_rank`, `Get_size`, `allgather`, `Isend` and `Recv` that work alike. Every rank must call it with the same plan; the sections
    ///         of each must be the one of its number. Messages stay below 2 GiB. Without it, all sections must be in this process.
    ///
    /// Returns:
    ///     The array as it lies then, in C order, in memory of numpy that can be written. Over a communicator only `local` has a buffer; ranks without a section there have `None`.
    ///
    /// Raises:
    ///     NotLocalError: A section is in another process.
    ///     InvalidArgumentError: Ranks have different plans, or there are fewer ranks than sections; on all ranks alike.
    #[pyo3(signature = (comm=None))]
    fn execute<'py>(
        slf: &Bound<'py, Self>,
        comm: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let py = slf.py();
        match comm {
            None => Ok(Bound::new(py, slf.get().execute_here(py)?)?.into_any()),
            Some(comm) => {
                let messages = py.import("partgrid._messages")?;
                Ok(messages.call_method1("execute", (slf, comm))?)
            }
        }
    }

    /// The plan as a picture: rows send, columns receive, and the more elements, the darker the cell. More than 40 ranks on a side are drawn in bins of neighbours.
    ///
    /// Returns:
    ///     A `Picture`: the text of an SVG, which notebooks show, with `save(path)`.
    fn plot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        picture(py, self.core.plot())
    }

    fn _repr_html_(&self) -> String {
        self.core.plot()
    }

    fn __repr__(&self) -> String {
        self.core.table()
    }

    /// A number that is the same on all ranks when their plans are.
    #[getter]
    fn _digest(&self) -> (u64, u64) {
        let digest = |lying: &Distribution| PyDistribution::new(Arc::new(lying.clone())).digest();
        (digest(self.core.from()), digest(self.core.to()))
    }

    /// New memory for the section of a rank; nothing when there is none.
    fn _target<'py>(&self, py: Python<'py>, rank: usize) -> Outcome<Option<Bound<'py, PyAny>>> {
        let Some(shape) = self.core.to().local_shape(rank) else {
            return Ok(None);
        };
        let dtype = self.source.get().numpy_dtype(py)?;
        Ok(Some(Memory::empty(&dtype, &shape)?.array(py).clone()))
    }

    /// What goes from a rank to a rank, in pieces that fit a message.
    fn _transfers(&self, from_rank: usize, to_rank: usize) -> Outcome<Vec<PyTransfer>> {
        let transfer = self.core.transfer(from_rank, to_rank);
        pieces(transfer, self.source.get().item_bytes())
    }

    /// The array of the destination, of which this rank has a section.
    fn _arrived(
        &self,
        py: Python<'_>,
        rank: usize,
        section: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<PyDistArray> {
        let mut made: Vec<Option<Memory>> = Vec::new();
        made.resize_with(self.core.to().num_ranks(), || None);
        if let (Some(place), Some(section)) = (made.get_mut(rank), section) {
            *place = Some(Memory::of(section)?);
        }
        self.arrived(py, made, Some(rank))
    }
}

/// Elements that go from one rank to another in one message.
#[pyclass(name = "_Transfer", module = "partgrid.distarray", frozen)]
pub(crate) struct PyTransfer {
    core: Transfer,
    item_bytes: usize,
}

/// Transfers in pieces that fit a message.
pub(super) fn pieces(
    transfers: impl IntoIterator<Item = Transfer>,
    item_bytes: usize,
) -> Outcome<Vec<PyTransfer>> {
    let mut all = Vec::new();
    for transfer in transfers {
        let pieces = transfer.pieces(item_bytes, MAX_MESSAGE_BYTES)?;
        all.extend(pieces.map(|core| PyTransfer { core, item_bytes }));
    }
    Ok(all)
}

#[pymethods]
impl PyTransfer {
    /// The bytes of the message.
    #[getter]
    fn nbytes(&self) -> usize {
        self.core.num_elements() * self.item_bytes
    }

    /// Copies from buffer to buffer, where both are here.
    fn carry(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> Outcome<()> {
        let (source, mut target) = (Memory::of(source)?, Memory::of(target)?);
        if source.meets(&target) {
            // Halos that repeat the other end of the same buffer.
            let mut message = Vec::new();
            self.core.pack(&source.source(), &mut message)?;
            self.core.unpack(&message, &mut target.target()?)?;
            return Ok(());
        }
        let (source, mut target) = (source.source(), target.target()?);
        py.detach(|| self.core.carry(&source, &mut target))?;
        Ok(())
    }

    /// The message, from the buffer of the rank that sends it.
    fn pack(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Outcome<PyArray> {
        let memory = Memory::of(source)?;
        let source = memory.source();
        let message = py.detach(|| {
            let mut message = Vec::new();
            self.core.pack(&source, &mut message).map(|()| message)
        });
        let bytes = Buffer::from_vec(message?);
        Ok(PyArray::writable(Numbers::from_bytes(
            bytes,
            ElementType::UInt8,
        )))
    }

    /// Puts a message into the buffer of the rank that got it.
    fn unpack(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> Outcome<()> {
        let (message, mut target) = (Memory::of(message)?, Memory::of(target)?);
        let (message, mut target) = (message.source(), target.target()?);
        py.detach(|| self.core.unpack(message.bytes, &mut target))?;
        Ok(())
    }
}

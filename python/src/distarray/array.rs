//! `DistArray`: arrays of grids, and those of others.
//!
//! Every number comes from `partgrid::distarray`.

use std::sync::Arc;

use partgrid::distarray::check::{Mode, SectionInfo, read_all};
use partgrid::distarray::{Copied, DistArray, Distribution, Value, Version};
use partgrid::error::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use super::check::dictionary_of;
use super::distribution::PyDistribution;
use super::memory::Memory;
use super::plan::PyPlan;
use super::section::PySection;
use super::value::value_of;
use super::wishes::Wanted;
use crate::argument::Given;
use crate::array::PyArray;
use crate::convert::{self, import};
use crate::error::Outcome;
use crate::numpy::refuse_masked;

/// A distributed array: one section for each rank. `len`, indexing and iteration give the sections.
///
/// `Grid.distarray` makes one of columns, `partgrid.distarray.from_sections` of the sections of anybody, `partgrid.distarray.from_local` of those of an MPI program.
#[pyclass(name = "DistArray", module = "partgrid", frozen, sequence)]
pub(crate) struct PyDistArray {
    distribution: Arc<Distribution>,
    version: Version,
    /// Of one element (PEP 3118).
    format: String,
    columns: Vec<String>,
    copies: Vec<Copied>,
    sections: Vec<Py<PySection>>,
    /// The rank of this process, where each process has one section.
    rank: Option<usize>,
    item_bytes: usize,
    /// An object with the buffer interface whose elements are of the type; nothing for columns, whose format numpy knows.
    sample: Option<Py<PyAny>>,
}

/// What an array is beside its sections.
pub(super) struct About {
    pub(super) version: Version,
    pub(super) format: String,
    pub(super) columns: Vec<String>,
    pub(super) copies: Vec<Copied>,
    pub(super) rank: Option<usize>,
    pub(super) item_bytes: usize,
    pub(super) sample: Option<Py<PyAny>>,
}

impl PyDistArray {
    /// An array of the given buffers, one for each rank; those of other processes are `None`.
    pub(super) fn of_buffers(
        py: Python<'_>,
        distribution: Arc<Distribution>,
        about: About,
        buffers: Vec<Option<Py<PyAny>>>,
    ) -> Outcome<Self> {
        let sections = buffers.into_iter().enumerate().map(|(rank, buffer)| {
            let section = PySection {
                rank,
                version: about.version,
                dim_data: distribution.dim_data(rank, about.version)?,
                shape: distribution.local_shape(rank).unwrap_or_default(),
                format: about.format.clone(),
                buffer,
            };
            Ok(Py::new(py, section)?)
        });
        Ok(Self {
            sections: sections.collect::<Outcome<_>>()?,
            distribution,
            version: about.version,
            format: about.format,
            columns: about.columns,
            copies: about.copies,
            rank: about.rank,
            item_bytes: about.item_bytes,
            sample: about.sample,
        })
    }

    /// Columns of a grid. `rank` is that of this process, where each process has one section.
    pub(super) fn of_columns(
        py: Python<'_>,
        core: DistArray,
        rank: Option<usize>,
    ) -> Outcome<Self> {
        let buffers = core.sections.into_iter().map(|section| {
            let array = section.numbers.map(|numbers| match section.is_copy {
                true => PyArray::writable(numbers),
                false => PyArray::new(numbers),
            });
            let array = array.map(|array| Py::new(py, array).map(Py::into_any));
            array.transpose()
        });
        let buffers = buffers.collect::<PyResult<_>>()?;
        let about = About {
            version: core.version,
            format: core.element.format().to_string(),
            columns: core.columns,
            copies: core.copies,
            rank,
            item_bytes: core.element.item_bytes(),
            sample: None,
        };
        Self::of_buffers(py, Arc::new(core.distribution), about, buffers)
    }

    /// What an array of the same elements in another distribution is.
    pub(super) fn about(&self, py: Python<'_>, copies: Vec<Copied>, rank: Option<usize>) -> About {
        About {
            version: self.version,
            format: self.format.clone(),
            columns: self.columns.clone(),
            copies,
            rank,
            item_bytes: self.item_bytes,
            sample: self.sample.as_ref().map(|sample| sample.clone_ref(py)),
        }
    }

    /// The bytes of one element.
    pub(super) fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// The type of the elements as numpy has it.
    pub(super) fn numpy_dtype<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        match &self.sample {
            Some(sample) => Ok(Memory::of(sample.bind(py))?.array(py).getattr("dtype")?),
            None => {
                let numpy = import(py, "numpy", "another distribution")?;
                Ok(numpy.getattr("dtype")?.call1((&self.format,))?)
            }
        }
    }

    pub(super) fn lying(&self) -> &Arc<Distribution> {
        &self.distribution
    }

    pub(super) fn copies(&self) -> &[Copied] {
        &self.copies
    }

    pub(super) fn sections(&self) -> &[Py<PySection>] {
        &self.sections
    }
}

#[pymethods]
impl PyDistArray {
    /// Refused: without this method numpy would make an array of one object.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        dtype: Option<Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'_, PyAny>> {
        drop((dtype, copy));
        Err(convert::refuse_numpy(
            "a distributed array",
            "numpy.asarray takes the buffer of a section: array[0].buffer",
        ))
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.distribution.shape())
    }

    /// The format of one element as in the `struct` module (PEP 3118), for instance `d` for a 64-bit float. `numpy.dtype` takes that of a column.
    #[getter]
    fn dtype(&self) -> &str {
        &self.format
    }

    /// The version of the protocol in which the sections are written.
    #[getter]
    fn version(&self) -> &'static str {
        self.version.text()
    }

    /// The names of the columns; empty for an array of other origin.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// How the array lies on the ranks.
    #[getter(distribution)]
    fn map_of_all(&self) -> PyDistribution {
        PyDistribution::new(Arc::clone(&self.distribution))
    }

    /// The sections, rank 0 first. Those of other processes have everything but their buffer.
    #[getter(sections)]
    fn list(&self, py: Python<'_>) -> Vec<Py<PySection>> {
        let sections = self.sections.iter();
        sections.map(|section| section.clone_ref(py)).collect()
    }

    /// The section of this process, for a program of several processes. `None` when it has none.
    ///
    /// Raises:
    ///     UnsupportedError: Several sections are in this process.
    #[getter]
    fn local(&self, py: Python<'_>) -> Outcome<Option<Py<PySection>>> {
        let here: Vec<&Py<PySection>> = match self.rank {
            Some(rank) => self.sections.get(rank).into_iter().collect(),
            None => {
                let sections = self.sections.iter();
                sections
                    .filter(|section| section.get().buffer.is_some())
                    .collect()
            }
        };
        match here.as_slice() {
            [] => Ok(None),
            [section] => Ok(Some(section.clone_ref(py))),
            several => Err(Error::unsupported(format!(
                "the section of this process must be one, there are {}",
                several.len()
            ))
            .with_hint("distarray(..., distribution=\"rank\") makes one of all tiles of a process; `sections` has all")
            .into()),
        }
    }

    /// What was copied, and why: one line for each reason. Empty when every section shares the memory of its tile.
    #[getter(copies)]
    fn copied(&self) -> Vec<String> {
        self.copies.iter().map(ToString::to_string).collect()
    }

    /// Plans the same array in another distribution: who sends which elements to whom. Nothing is copied yet.
    ///
    /// Args:
    ///     to: A `Distribution`, its maps, or one map, of the same global shape. Only an unstructured dimension may hold other indices than all: a selection.
    ///
    /// Returns:
    ///     The plan. `execute()` carries it out in this process, `execute(comm)` among the ranks of an MPI program.
    ///
    /// Raises:
    ///     InvalidArgumentError: The shapes differ, or an index is not in the array.
    ///
    /// Examples:
    ///     >>> import partgrid as pg
    ///     >>> array = pg.read_parquet("data/flights").distarray("distance")
    ///     >>> plan = array.redistribute(pg.distarray.block(array.shape[0], 3))
    ///     >>> plan.messages, plan.bytes_moved
    ///     (13, 2478176)
    ///     >>> len(plan.execute().sections)
    ///     3
    fn redistribute(slf: &Bound<'_, Self>, to: Given<Wanted>) -> Outcome<PyPlan> {
        let to = to.named("to")?.distribution()?;
        PyPlan::try_new(slf.clone().unbind(), to)
    }

    /// Refuses the buffer of a rank that is not as its section says, or that cannot be written and shall be.
    fn _check(&self, py: Python<'_>, rank: usize, writable: bool) -> Outcome<()> {
        let (Some(section), Some(shape)) =
            (self.sections.get(rank), self.distribution.local_shape(rank))
        else {
            return Ok(());
        };
        let shape: Vec<usize> = shape
            .iter()
            .map(|len| usize::try_from(*len).unwrap_or(usize::MAX))
            .collect();
        let mut memory = Memory::of(section.get().memory()?.bind(py))?;
        memory.source().check(&shape)?;
        if writable {
            memory.target()?.check(&shape)?;
        }
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.sections.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.list(py))?.try_iter()
    }

    fn __getitem__(&self, py: Python<'_>, rank: isize) -> PyResult<Py<PySection>> {
        let count = self.sections.len();
        let place = match usize::try_from(rank) {
            Ok(place) => Some(place),
            Err(_) => count.checked_sub(rank.unsigned_abs()),
        };
        let section = place.and_then(|place| self.sections.get(place));
        let section = section.map(|section| section.clone_ref(py));
        section.ok_or_else(|| {
            let text = format!("no rank {rank}, there are {}", self.sections.len());
            pyo3::exceptions::PyIndexError::new_err(text)
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?.to_string();
        let columns = match self.columns.as_slice() {
            [] => String::new(),
            [one] => format!(" `{one}`"),
            [first, .., last] => format!(" `{first}` to `{last}`"),
        };
        let (format, count) = (&self.format, self.sections.len());
        let plural = if count == 1 { "" } else { "s" };
        let mut text = format!("DistArray{columns} {shape} of {format} in {count} section{plural}");
        for copied in &self.copies {
            text.push_str(&format!("\ncopied, {copied}"));
        }
        Ok(text)
    }
}

/// Makes an array of the sections of anybody, of any number of dimensions. Nothing is copied.
///
/// Args:
///     sections: Objects with `__distarray__`, or their dictionaries, rank 0 first; version 0.9 or 0.10 of the Distributed Array Protocol.
///
/// Returns:
///     The array, over the buffers of the sections.
///
/// Raises:
///     ProtocolError: A rule of the protocol is broken; the text names rule, rank, dimension and key. `partgrid.distarray.validate` lists everything.
///
/// Examples:
///     >>> import numpy as np, partgrid as pg
///     >>> halves = pg.distarray.block(4, 2)
///     >>> def section(rank):
///     ...     return {"__version__": "0.10.0", "buffer": np.full(2, rank), "dim_data": (halves.dim_data(rank),)}
///     >>> array = pg.distarray.from_sections([section(0), section(1)])
///     >>> whole = array.redistribute(pg.distarray.block(4)).execute()
///     >>> np.asarray(whole.local.buffer).tolist()
///     [0, 0, 1, 1]
#[pyfunction]
pub(crate) fn from_sections(sections: &Bound<'_, PyAny>) -> Outcome<PyDistArray> {
    array_of(&listed(sections)?, None)
}

/// The array of a program of several processes: the sections of others are stand-ins, with everything but data.
#[pyfunction]
#[pyo3(name = "_dist_array")]
pub(crate) fn from_parts(sections: &Bound<'_, PyAny>, rank: usize) -> Outcome<PyDistArray> {
    array_of(&listed(sections)?, Some(rank))
}

/// The sections of a list, or of anything else that can be iterated.
pub(super) fn listed<'py>(sections: &Bound<'py, PyAny>) -> Outcome<Vec<Bound<'py, PyAny>>> {
    let all = match sections.is_instance_of::<PyDict>() {
        true => None,
        false => sections.try_iter().ok(),
    };
    let all = all.ok_or_else(|| {
        let text = "sections must be a list of the sections of all ranks";
        Error::invalid_argument(text).with_hint("[section] for an array on one process")
    })?;
    Ok(all.collect::<PyResult<_>>()?)
}

/// What sections say of themselves, when every rule holds.
pub(super) fn described(given: &[Bound<'_, PyAny>]) -> Outcome<(Vec<Py<PyAny>>, Vec<SectionInfo>)> {
    let dictionaries = given.iter().enumerate().map(|(rank, section)| {
        dictionary_of(section).map_err(|error| {
            // The producer's own exception, with a note: it is not ours to change.
            let note = format!("raised by the section of rank {rank}");
            match error.value(section.py()).call_method1("add_note", (note,)) {
                Ok(_) => error,
                Err(other) => other,
            }
        })
    });
    let dictionaries = dictionaries.collect::<PyResult<Vec<_>>>()?;
    for (rank, each) in dictionaries.iter().enumerate() {
        if let Ok(buffer) = each.get_item("buffer") {
            refuse_masked(&buffer).map_err(|error| error.at_rank(rank))?;
        }
    }
    let values: Vec<Value> = dictionaries.iter().map(value_of).collect();
    let infos = read_all(&values, Mode::Lenient)?;
    let buffers = dictionaries.iter().map(|each| each.get_item("buffer"));
    let buffers: PyResult<Vec<_>> = buffers.map(|each| each.map(Bound::unbind)).collect();
    Ok((buffers?, infos))
}

fn array_of(given: &[Bound<'_, PyAny>], rank: Option<usize>) -> Outcome<PyDistArray> {
    let Some(first) = given.first() else {
        let text = "sections must be the sections of all ranks, got none";
        return Err(Error::invalid_argument(text).into());
    };
    let (buffers, infos) = described(given)?;
    let distribution = Distribution::try_from_sections(&infos)?;
    let about = About {
        version: infos.first().map_or(Version::V0_10, |info| info.version),
        format: infos
            .first()
            .map_or_else(String::new, |info| info.format.clone()),
        columns: Vec::new(),
        copies: Vec::new(),
        rank,
        item_bytes: infos.first().map_or(1, |info| info.item_bytes),
        sample: buffers.first().map(|buffer| buffer.clone_ref(first.py())),
    };
    let buffers = buffers.into_iter().enumerate();
    let buffers = buffers.map(|(number, buffer)| {
        let is_here = rank.is_none_or(|rank| rank == number);
        is_here.then_some(buffer)
    });
    PyDistArray::of_buffers(first.py(), Arc::new(distribution), about, buffers.collect())
}

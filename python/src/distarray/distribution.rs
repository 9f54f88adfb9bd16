//! `Distribution`: which rank has which elements of an array.
//!
//! Every number comes from `partgrid::distarray`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use partgrid::distarray::Distribution;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::dictionary::dim_data;
use super::map::{PyMap, described, hash_map};
use super::wishes::{Maps, PyVersion, version_of};
use crate::argument::Given;
use crate::error::Outcome;

/// How an array of any number of dimensions lies on a grid of ranks: the product of one `Map` for each dimension. Ranks are numbered row-major.
///
/// Args:
///     maps: The dimensions, dimension 0 first.
///
/// Raises:
///     InvalidArgumentError: There are more ranks than a machine word counts.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> distribution = pg.distarray.Distribution([pg.distarray.block(5, 2), pg.distarray.cyclic(9, 2)])
///     >>> distribution.shape, distribution.num_ranks
///     ((5, 9), 4)
///     >>> distribution.locate((4, 3))
///     (3, (1, 1))
///     >>> distribution.local_shape(0)
///     (3, 5)
#[pyclass(name = "Distribution", module = "partgrid.distarray", frozen, eq, hash)]
#[derive(PartialEq)]
pub(crate) struct PyDistribution {
    core: Arc<Distribution>,
}

impl Hash for PyDistribution {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for map in self.core.maps() {
            hash_map(map, state);
        }
    }
}

impl PyDistribution {
    pub(super) fn new(core: Arc<Distribution>) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Arc<Distribution> {
        &self.core
    }

    /// A number that differs, nearly always, for other distributions, and is the same in every process.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// The text of an SVG, as an object that notebooks show.
pub(super) fn picture(py: Python<'_>, text: String) -> PyResult<Bound<'_, PyAny>> {
    let module = py.import("partgrid._picture")?;
    module.call_method1("Picture", (text,))
}

#[pymethods]
impl PyDistribution {
    #[new]
    fn try_new(maps: Given<Maps>) -> Outcome<Self> {
        let maps = maps.named("maps")?.0;
        Ok(Self::new(Arc::new(Distribution::try_new(maps)?)))
    }

    /// The number of global elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.shape())
    }

    /// The number of ranks: the product of those of the dimensions.
    #[getter]
    fn num_ranks(&self) -> usize {
        self.core.num_ranks()
    }

    /// The dimensions.
    #[getter]
    fn maps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let maps = self.core.maps().iter().cloned();
        PyTuple::new(py, maps.map(PyMap::new).collect::<Vec<_>>())
    }

    /// The place of a rank in the process grid; `None` for a rank that does not exist.
    ///
    /// Args:
    ///     rank: The rank.
    fn coordinates<'py>(
        &self,
        py: Python<'py>,
        rank: usize,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let place = self.core.coordinates(rank);
        place.map(|place| PyTuple::new(py, place)).transpose()
    }

    /// Where an element is owned.
    ///
    /// Args:
    ///     index: Its global index along each dimension.
    ///
    /// Returns:
    ///     The rank, and the index in its buffer along each dimension. `None` when it is not in the array.
    fn locate<'py>(
        &self,
        py: Python<'py>,
        index: Vec<i64>,
    ) -> PyResult<Option<(usize, Bound<'py, PyTuple>)>> {
        let found = self.core.locate(&index);
        let found = found.map(|(rank, local)| Ok((rank, PyTuple::new(py, local)?)));
        found.transpose()
    }

    /// The extents of the buffer of a rank, halo included; `None` for a rank that does not exist.
    ///
    /// Args:
    ///     rank: The rank.
    fn local_shape<'py>(
        &self,
        py: Python<'py>,
        rank: usize,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let shape = self.core.local_shape(rank);
        shape.map(|shape| PyTuple::new(py, shape)).transpose()
    }

    /// "dim_data" of a rank: a dictionary for each dimension.
    ///
    /// Args:
    ///     rank: The rank.
    ///     version: `"0.10.0"` (the default) or `"0.9.0"`.
    ///
    /// Raises:
    ///     NotFoundError: There is no such rank.
    ///     UnsupportedError: The version has no form for the distribution.
    #[pyo3(signature = (rank, version=None))]
    fn dim_data<'py>(
        &self,
        py: Python<'py>,
        rank: Given<usize>,
        version: Option<Given<PyVersion>>,
    ) -> Outcome<Bound<'py, PyTuple>> {
        dim_data(
            py,
            &self
                .core
                .dim_data(rank.named("rank")?, version_of(version)?)?,
        )
    }

    /// The distribution as a picture: of one dimension a line for each rank, of two a plane of elements with the numbers of their ranks, of more the first such plane.
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
        let maps: Vec<String> = self.core.maps().iter().map(described).collect();
        format!("Distribution [{}]", maps.join("; "))
    }
}

//! `Map`: which rank has which indices of one dimension, and the functions that make one.
//!
//! Every number comes from `partgrid::distarray`.

use std::hash::{Hash, Hasher};

use arrow::buffer::Buffer;
use partgrid::distarray::{Dist, ElementType, Halo, IndexSet, Map, Place, Version};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{Axis, Numbers};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dictionary::dimension_dict;
use super::wishes::{Cuts, Indices, Lists, PyVersion, Widths, version_of};
use crate::argument::{Given, optional};
use crate::array::PyArray;
use crate::error::Outcome;

/// One dimension of an array over all its ranks: which rank has which global index, and where. Made by `block`, `cyclic` and `unstructured`; never changes.
///
/// A local index counts from the start of the local buffer: communication padding on the left comes before what the rank owns.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> rows = pg.distarray.cyclic(10, 3, block_size=2)
///     >>> rows.locate(7)
///     (0, 3)
///     >>> rows.global_index(0, 3)
///     7
///     >>> rows
///     Map of 10 indices on 3 ranks, cyclic by 2
#[pyclass(name = "Map", module = "partgrid.distarray", frozen, eq, hash)]
#[derive(PartialEq)]
pub(crate) struct PyMap {
    core: Map,
}

impl PyMap {
    pub(super) fn new(core: Map) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Map {
        &self.core
    }
}

impl Hash for PyMap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_map(&self.core, state);
    }
}

#[pymethods]
impl PyMap {
    /// The number of global indices.
    #[getter]
    fn size(&self) -> u64 {
        self.core.size()
    }

    /// The number of ranks.
    #[getter]
    fn num_ranks(&self) -> usize {
        self.core.num_ranks()
    }

    /// The type in dictionaries: `"b"`, `"c"` or `"u"`.
    #[getter]
    fn dist_type(&self) -> &'static str {
        match () {
            () if self.core.cuts().is_some() => "b",
            () if self.core.is_unstructured() => "u",
            () => "c",
        }
    }

    /// Where a global index is owned.
    ///
    /// Args:
    ///     index: The global index.
    ///
    /// Returns:
    ///     The rank, and the local index in its buffer; of several owners the first. `None` when it is not in the array.
    fn locate(&self, index: i64) -> Option<(usize, usize)> {
        self.core
            .locate(index)
            .map(|place| (place.rank, place.local))
    }

    /// Where many global indices are owned: the fast way.
    ///
    /// Args:
    ///     indices: A list or an array of integers.
    ///
    /// Returns:
    ///     The ranks and the local indices, as arrays of int64.
    ///
    /// Raises:
    ///     InvalidArgumentError: An index is not in the array.
    fn locate_all(&self, py: Python<'_>, indices: Given<Indices>) -> Outcome<(PyArray, PyArray)> {
        let indices = indices.named("indices")?.0;
        let mut places: Vec<Place> = Vec::new();
        py.detach(|| self.core.locate_all(&indices, &mut places))?;
        let ranks = places.iter().map(|place| signed(place.rank));
        let locals = places.iter().map(|place| signed(place.local));
        Ok((integers(ranks.collect()), integers(locals.collect())))
    }

    /// The global index of an element of a local buffer, halo included.
    ///
    /// Args:
    ///     rank: The rank.
    ///     local: Its index in the buffer.
    ///
    /// Returns:
    ///     The global index; `None` past the end of the buffer, and for a rank that does not exist.
    fn global_index(&self, rank: usize, local: usize) -> Option<i64> {
        self.core.global(rank, local)
    }

    /// The global indices that a rank owns, in the order of its buffer, as an array of int64.
    ///
    /// Args:
    ///     rank: The rank.
    ///
    /// Raises:
    ///     NotFoundError: There is no such rank.
    fn owned(&self, rank: Given<usize>) -> Outcome<PyArray> {
        let rank = rank.named("rank")?;
        let part = self.core.owned(rank).ok_or_else(|| {
            let text = format!("no rank {rank}, there are {}", self.core.num_ranks());
            Error::not_found(text)
        })?;
        Ok(integers(listed(&part.indices)?))
    }

    /// The extent of the local buffer of a rank, halo included; `None` for a rank that does not exist.
    ///
    /// Args:
    ///     rank: The rank.
    fn local_len(&self, rank: usize) -> Option<u64> {
        self.core.local_len(rank)
    }

    /// The dimension dictionary of a rank.
    ///
    /// Args:
    ///     rank: The rank.
    ///     version: `"0.10.0"` (the default) or `"0.9.0"`.
    ///
    /// Raises:
    ///     NotFoundError: There is no such rank.
    ///     UnsupportedError: A periodic dimension with outer padding in the other version than the one that it was made for.
    #[pyo3(signature = (rank, version=None))]
    fn dim_data<'py>(
        &self,
        py: Python<'py>,
        rank: Given<usize>,
        version: Option<Given<PyVersion>>,
    ) -> Outcome<Bound<'py, PyDict>> {
        let version = version_of(version)?;
        dimension_dict(py, &self.core.dim_data(rank.named("rank")?, version)?)
    }

    fn __repr__(&self) -> String {
        format!("Map of {}", described(&self.core))
    }
}

/// Blocks: each rank has one run of neighbours.
///
/// Args:
///     cuts: Where the blocks begin and end, from 0 to the size, such as `[0, 4, 10]`; or the size, which is then cut as evenly as can be.
///     num_ranks: With a size: the number of ranks, by default 1.
///     padding: Communication padding: how many elements of its neighbours each rank holds on either side of a border. Beside a rank that owns nothing there is none.
///     boundary: Boundary padding: how many of the first and of the last elements count as padding. They are part of the array.
///     periodic: Whether the last element is beside the first. In version 0.9 that is a border as any other, with communication padding.
///     version: The version of the protocol whose rules count, `"0.10.0"` (the default) or `"0.9.0"`. They differ for periodic dimensions only.
///
/// Raises:
///     InvalidArgumentError: The cuts do not begin at 0, or decrease; there are no ranks, or more than 16,777,216; a rank owns less than the padding that its neighbour holds, or than its boundary.
///     ProtocolError: Another version.
///     UnsupportedError: Boundary padding of a periodic dimension in 0.9.
///
/// Examples:
///     >>> import partgrid as pg
///     >>> rows = pg.distarray.block([0, 4, 10], padding=1)
///     >>> rows.dim_data(1)["start"], rows.dim_data(1)["padding"]
///     (3, (1, 0))
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the keyword arguments that Python users expect"
)]
#[pyo3(signature = (cuts, num_ranks=None, *, padding=None, boundary=None, periodic=None, version=None))]
pub(crate) fn block(
    cuts: Given<Cuts>,
    num_ranks: Option<Given<usize>>,
    padding: Option<Given<usize>>,
    boundary: Option<Given<Widths>>,
    periodic: Option<Given<bool>>,
    version: Option<Given<PyVersion>>,
) -> Outcome<PyMap> {
    let num_ranks = optional(num_ranks, "num_ranks")?;
    let axis = match (cuts.named("cuts")?, num_ranks) {
        (Cuts::Size(size), num_ranks) => {
            let num_ranks = num_ranks.unwrap_or(1);
            if num_ranks == 0 || num_ranks > MAX_RANKS {
                let text = format!("num_ranks must be 1 to {MAX_RANKS}, got {num_ranks}");
                return Err(Error::invalid_argument(text).into());
            }
            Axis::try_even(size, num_ranks)?
        }
        (Cuts::All(cuts), None) => Axis::try_new(cuts)?,
        (Cuts::All(_), Some(number)) => {
            let text =
                format!("num_ranks must be left out when cuts says where they are, got {number}");
            return Err(Error::invalid_argument(text).into());
        }
    };
    let halo = Halo {
        width: optional(padding, "padding")?.unwrap_or(0) as u64,
        boundary: optional(boundary, "boundary")?.map_or([0, 0], |widths| widths.0),
        periodic: optional(periodic, "periodic")?.unwrap_or(false),
    };
    let map = Map::block(&axis);
    let version = version_of(version)?;
    let core = match halo == Halo::default() {
        true => map,
        false => map.try_with_halo(&halo, version)?,
    };
    Ok(PyMap { core })
}

/// Blocks of equal size, dealt out to the ranks in turn.
///
/// Args:
///     size: The number of global indices.
///     num_ranks: The number of ranks.
///     block_size: How many neighbours are dealt out at a time.
///
/// Raises:
///     InvalidArgumentError: No rank, or a block size of 0.
#[pyfunction]
#[pyo3(signature = (size, num_ranks, block_size=None))]
pub(crate) fn cyclic(
    size: Given<usize>,
    num_ranks: Given<usize>,
    block_size: Option<Given<usize>>,
) -> Outcome<PyMap> {
    let block_size = optional(block_size, "block_size")?.unwrap_or(1);
    let (size, num_ranks) = (size.named("size")?, num_ranks.named("num_ranks")?);
    let core = Map::try_cyclic(size as u64, num_ranks, block_size as u64)?;
    Ok(PyMap { core })
}

/// Any indices, in any order, on any rank.
///
/// Args:
///     indices: The global indices of each rank: lists or arrays of integers. Copied.
///     size: The number of global indices; by default that of the different ones.
///     one_to_one: Whether no index is on two ranks. By default that is looked up, and stated only where it holds.
///
/// Raises:
///     InvalidArgumentError: No rank, or indices that are no integers.
///     ProtocolError: An index twice on one rank, or on two with `one_to_one=True`; or another size.
#[pyfunction]
#[pyo3(signature = (indices, *, size=None, one_to_one=None))]
pub(crate) fn unstructured(
    py: Python<'_>,
    indices: Given<Lists>,
    size: Option<Given<usize>>,
    one_to_one: Option<Given<bool>>,
) -> Outcome<PyMap> {
    let indices = indices.named("indices")?.0;
    let size = optional(size, "size")?;
    let one_to_one = optional(one_to_one, "one_to_one")?;
    let core = py.detach(move || {
        let mut all: Vec<i64> = indices
            .iter()
            .flat_map(|list| list.iter().copied())
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        let distinct = all.len();
        drop(all);
        let size = size.unwrap_or(distinct) as u64;
        Map::try_unstructured(size, indices, one_to_one.unwrap_or(distinct == count))
    })?;
    Ok(PyMap { core })
}

/// More blocks than any machine has ranks: their cuts would fill its memory.
const MAX_RANKS: usize = 1 << 24;

/// Feeds a hasher with everything that tells a map from others.
pub(super) fn hash_map<H: Hasher>(map: &Map, state: &mut H) {
    (map.size(), map.num_ranks()).hash(state);
    let is_cyclic = map.cuts().is_none() && !map.is_unstructured();
    // The ranks of a cyclic dimension all say the same.
    let ranks = if is_cyclic { 1 } else { map.num_ranks() };
    for rank in 0..ranks {
        for version in [Version::V0_10, Version::V0_9] {
            map.dim_data(rank, version).ok().hash(state);
        }
    }
}

/// `10 indices on 3 ranks, cyclic by 2`.
pub(super) fn described(map: &Map) -> String {
    let (size, ranks) = (map.size(), map.num_ranks());
    let plural = if ranks == 1 { "" } else { "s" };
    let kind = match (map.cuts(), map.dim_data(0, Version::V0_10)) {
        (Some(cuts), _) if cuts.num_intervals() <= 8 => format!("blocks cut at {:?}", cuts.cuts()),
        (Some(_), _) => "blocks".to_owned(),
        (None, Ok(first)) => match first.dist {
            Dist::Cyclic { block_size, .. } => match block_size.unwrap_or(1) {
                1 => "cyclic".to_owned(),
                size => format!("cyclic by {size}"),
            },
            _ => "unstructured".to_owned(),
        },
        (None, Err(_)) => "unstructured".to_owned(),
    };
    format!("{size} indices on {ranks} rank{plural}, {kind}")
}

fn listed(indices: &IndexSet) -> Result<Vec<i64>, Error> {
    let mut all: Vec<i64> = Vec::new();
    all.try_reserve_exact(indices.len()).map_err(|error| {
        let text = format!("no memory for {} indices", indices.len());
        Error::new(ErrorKind::ResourcesExhausted, text).with_source(error)
    })?;
    all.extend(indices.iter());
    Ok(all)
}

fn integers(values: Vec<i64>) -> PyArray {
    let bytes = Buffer::from_vec(values);
    PyArray::writable(Numbers::from_bytes(bytes, ElementType::Int64))
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

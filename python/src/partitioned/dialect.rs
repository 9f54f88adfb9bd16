//! `Grid.partitioned`: the grid as one consumer wants to see it.
//!
//! Comes in: the grid, the arguments. Goes out: an object with `__partitioned__`. Every number comes from the core, what talks to MPI or Ray stands in `partgrid.engines`. Never here:
//! options that a dialect would ignore.

use std::sync::Arc;

use partgrid::error::Error;
use partgrid::grid::{FillValue, Order, PartitionGrid};
use partgrid::partitioned::{
    Partitioned, describe_for_heat, describe_for_xgboost_ray, is_balanced_for_heat,
};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{DataKind, PyPartitioned};
use crate::argument::{Given, optional};
use crate::convert;
use crate::error::{Outcome, Raised};
use crate::grid::PyGrid;
use crate::numpy::{Wish, fill_value, to_numpy};

/// The arguments of `Grid.partitioned`, not looked at yet.
pub(crate) struct Wishes<'a, 'py> {
    pub(crate) data: Option<Given<String>>,
    pub(crate) dialect: Option<Given<String>>,
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
    pub(crate) fill_null: Option<&'a Bound<'py, PyAny>>,
    pub(crate) copy: Option<Given<bool>>,
    pub(crate) num_actors: Option<Given<usize>>,
}

/// What one of the dialects was asked for.
enum Wanted<'a, 'py> {
    Draft(DataKind),
    Heat(Wish<'a, 'py>),
    XgboostRay(Option<usize>),
}

impl<'a, 'py> Wishes<'a, 'py> {
    fn read(self, dialect: &str) -> Outcome<Wanted<'a, 'py>> {
        let data = optional(self.data, "data")?;
        let copy = optional(self.copy, "copy")?;
        let num_actors = optional(self.num_actors, "num_actors")?;
        let only = |owner: &str, name: &str, given: bool| match given && dialect != owner {
            false => Ok(()),
            true => Err(Error::invalid_argument(format!(
                "{name} is for dialect={owner:?}, got dialect={dialect:?}"
            ))),
        };
        let data_is = |kind: &str| match data.as_deref() {
            Some(data) if data != kind => Err(Error::invalid_argument(format!(
                "data must be {kind:?} for dialect={dialect:?}, got {data:?}"
            ))),
            _ => Ok(()),
        };
        if !["draft", "heat", "xgboost_ray"].contains(&dialect) {
            return Err(Error::invalid_argument(format!(
                "dialect must be \"draft\", \"heat\" or \"xgboost_ray\", got {dialect:?}"
            ))
            .into());
        }
        only("heat", "dtype", self.dtype.is_some())?;
        only("heat", "fill_null", self.fill_null.is_some())?;
        only("heat", "copy", copy.is_some())?;
        only("xgboost_ray", "num_actors", num_actors.is_some())?;
        match dialect {
            "heat" => {
                data_is("numpy")?;
                Ok(Wanted::Heat(Wish {
                    dtype: self.dtype,
                    fill: fill_value(self.fill_null)?,
                    order: Order::Columns,
                    // HeAT writes into memory, read-only or not.
                    copy: Some(copy.unwrap_or(true)),
                }))
            }
            "xgboost_ray" => {
                data_is("pandas")?;
                Ok(Wanted::XgboostRay(num_actors))
            }
            _ => {
                let data = data.as_deref().unwrap_or("pandas");
                Ok(Wanted::Draft(DataKind::from_name(data)?))
            }
        }
    }
}

/// The grid as an object with `__partitioned__`. What goes wrong on one rank of a program is raised on all that ask for HeAT's dialect, since HeAT would wait for those that raised.
pub(crate) fn partitioned(
    grid: &Bound<'_, PyGrid>,
    mut wishes: Wishes<'_, '_>,
) -> Outcome<PyPartitioned> {
    let py = grid.py();
    let comm = grid.get().comm(py);
    let dialect = optional(wishes.dialect.take(), "dialect");
    let dialect = dialect.map(|dialect| dialect.unwrap_or_else(|| "draft".to_owned()));
    // The other dialects are asked for by one rank alone, which must not wait for others then.
    let is_alone = matches!(dialect.as_deref(), Ok("draft" | "xgboost_ray"));
    let made = match dialect
        .map_err(Raised::from)
        .and_then(|dialect| wishes.read(&dialect))
    {
        Ok(Wanted::Draft(kind)) => {
            let grid = grid.get();
            let made = PyPartitioned::with_get(py, grid.core(), grid.handles(py)?, kind);
            return Ok(made?);
        }
        Ok(Wanted::XgboostRay(num_actors)) => return xgboost_ray(grid, num_actors),
        Ok(Wanted::Heat(wish)) => heat_array(py, grid.get().core(), wish),
        Err(error) => Err(error),
    };
    let Some(comm) = comm.filter(|_| !is_alone) else {
        return heat(grid, made?);
    };
    let made = made.map_err(PyErr::from);
    let error = made.as_ref().err().map(|error| error.value(py).clone());
    let wish = made.as_ref().map(|made| made.wish.as_str()).unwrap_or("");
    let engine = py.import("partgrid.engines.mpi")?;
    engine.getattr("agree")?.call1((comm, error, wish))?;
    heat(grid, made?)
}

/// What HeAT gets of this rank.
struct ForHeat<'py> {
    described: Partitioned,
    array: Bound<'py, PyAny>,
    /// What must be the same on all ranks, in words.
    wish: String,
}

fn heat(grid: &Bound<'_, PyGrid>, made: ForHeat<'_>) -> Outcome<PyPartitioned> {
    let py = grid.py();
    let described = made.described;
    if !is_balanced_for_heat(&described) {
        warn(
            py,
            "ranks have other numbers of rows than HeAT would give them: call balance_() on the array first, since matmul and resplit of HeAT 1.8 are wrong or fail for such arrays",
        )?;
    }
    let data = PyList::empty(py);
    let local = described.locals.iter().flatten().next();
    for partition in &described.partitions {
        match Some(&partition.position) == local {
            true => data.append(&made.array)?,
            false => data.append(py.None())?,
        }
    }
    let engine = py.import("partgrid.engines.mpi")?;
    Ok(PyPartitioned {
        grid: Arc::clone(grid.get().core()),
        described,
        data: data.unbind(),
        get: engine.getattr("get")?.unbind(),
        label: "dialect=\"heat\"".to_owned(),
    })
}

/// The numbers for HeAT, and the array of this rank.
fn heat_array<'py>(
    py: Python<'py>,
    grid: &PartitionGrid,
    mut wish: Wish<'_, 'py>,
) -> Outcome<ForHeat<'py>> {
    let (_, element) = wish.resolve(py, grid)?;
    let described = describe_for_heat(grid, element)?;
    let fill = match wish.fill {
        None => "no value for nulls".to_owned(),
        Some(FillValue::Int(value)) => format!("fill_null={value}"),
        Some(FillValue::Float(value)) => format!("fill_null={value:?}"),
    };
    let text = format!("{} x {}", grid.num_rows(), grid.num_columns());
    let part = grid.rank_part()?;
    let part = part.as_ref().unwrap_or(grid);
    if part.num_rows() == 0 {
        wish.copy = None;
    }
    let array = to_numpy(py, part, &wish)?;
    Ok(ForHeat {
        described,
        array,
        wish: format!("{text} of {element}, {fill}"),
    })
}

/// Frames in Ray's object store.
fn xgboost_ray(grid: &Bound<'_, PyGrid>, num_actors: Option<usize>) -> Outcome<PyPartitioned> {
    let py = grid.py();
    let core = grid.get().core();
    if core.locals().is_some() {
        let text = "a grid of an SPMD program has partitions that no Ray actor can open";
        return Err(Error::unsupported(text).into());
    }
    if num_actors == Some(0) {
        return Err(Error::invalid_argument("num_actors must be at least 1, got 0").into());
    }
    let engine = py.import("partgrid.engines.ray")?;
    let node: String = engine.call_method0("node_address")?.extract()?;
    let enough = match num_actors {
        Some(actors) => actors,
        None => engine.call_method0("num_cpus")?.extract()?,
    };
    let described = describe_for_xgboost_ray(core, enough, &node);
    let found = described.partitions.len();
    if let Some(wanted) = num_actors.filter(|wanted| found < *wanted) {
        let text = format!(
            "the grid has {} rows, which make {found} partitions for {wanted} actors: the actors without one would load all rows",
            core.num_rows()
        );
        warn(py, &text)?;
    }
    let tables = PyList::empty(py);
    for partition in &described.partitions {
        let part = Bound::new(py, PyGrid::new(core.slice(partition.rows())?))?;
        tables.append(convert::to_arrow(&part)?)?;
    }
    let data = engine.call_method1("put", (tables,))?;
    let data = data.cast_into::<PyList>().map_err(PyErr::from)?;
    Ok(PyPartitioned {
        grid: Arc::clone(core),
        described,
        data: data.unbind(),
        get: engine.getattr("get")?.unbind(),
        label: "dialect=\"xgboost_ray\"".to_owned(),
    })
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let category = py.get_type::<PyUserWarning>();
    let text = std::ffi::CString::new(text)?;
    PyErr::warn(py, &category, &text, 1)
}

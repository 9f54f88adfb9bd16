//! `Grid.partitioned`: the grid as one consumer wants to see it.
//!
//! Comes in: the grid, the arguments. Goes out: an object with `__partitioned__`. Every number comes from the core, what talks to MPI or Ray stands in `partgrid.engines`. Never here:
//! options that a dialect would ignore.

use std::sync::Arc;

use partgrid::error::Error;
use partgrid::grid::{Order, PartitionGrid};
use partgrid::partitioned::{
    Partitioned, describe_for_heat, describe_for_xgboost_ray, is_balanced_for_heat,
};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{DataKind, PyPartitioned};
use crate::convert;
use crate::error::Outcome;
use crate::grid::PyGrid;
use crate::numpy::{Wish, fill_value, to_numpy};

/// The arguments of `Grid.partitioned`.
pub(crate) struct Wishes<'a, 'py> {
    pub(crate) data: Option<&'a str>,
    pub(crate) dialect: &'a str,
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
    pub(crate) fill_null: Option<&'a Bound<'py, PyAny>>,
    pub(crate) copy: Option<bool>,
    pub(crate) num_actors: Option<usize>,
}

impl Wishes<'_, '_> {
    /// Whether an argument was given that only another dialect has.
    fn refuse(&self, others: &[(&str, &str, bool)]) -> Result<(), Error> {
        match others.iter().find(|(_, _, given)| *given) {
            None => Ok(()),
            Some((name, owner, _)) => Err(Error::invalid_argument(format!(
                "{name} is for dialect={owner:?}, got dialect={:?}",
                self.dialect
            ))),
        }
    }

    /// `data`, which a dialect leaves no choice of.
    fn only(&self, kind: &str) -> Result<(), Error> {
        match self.data {
            Some(data) if data != kind => Err(Error::invalid_argument(format!(
                "data must be {kind:?} for dialect={:?}, got {data:?}",
                self.dialect
            ))),
            _ => Ok(()),
        }
    }
}

/// The grid as an object with `__partitioned__`.
pub(crate) fn partitioned(
    grid: &Bound<'_, PyGrid>,
    wishes: &Wishes<'_, '_>,
) -> Outcome<PyPartitioned> {
    let for_heat = [
        ("dtype", "heat", wishes.dtype.is_some()),
        ("fill_null", "heat", wishes.fill_null.is_some()),
        ("copy", "heat", wishes.copy.is_some()),
    ];
    let for_ray = [("num_actors", "xgboost_ray", wishes.num_actors.is_some())];
    match wishes.dialect {
        "draft" => {
            wishes.refuse(&for_heat)?;
            wishes.refuse(&for_ray)?;
            let kind = DataKind::from_name(wishes.data.unwrap_or("pandas"))?;
            let py = grid.py();
            let grid = grid.get();
            Ok(PyPartitioned::with_get(
                py,
                grid.core(),
                grid.handles(py)?,
                kind,
            )?)
        }
        "heat" => {
            wishes.refuse(&for_ray)?;
            wishes.only("numpy")?;
            heat(grid, wishes)
        }
        "xgboost_ray" => {
            wishes.refuse(&for_heat)?;
            wishes.only("pandas")?;
            xgboost_ray(grid, wishes.num_actors)
        }
        other => Err(Error::invalid_argument(format!(
            "dialect must be \"draft\", \"heat\" or \"xgboost_ray\", got {other:?}"
        ))
        .into()),
    }
}

/// One array for each rank. What goes wrong on one rank is raised on all of them, since HeAT would wait for those that raised.
fn heat(grid: &Bound<'_, PyGrid>, wishes: &Wishes<'_, '_>) -> Outcome<PyPartitioned> {
    let py = grid.py();
    let engine = py.import("partgrid.engines.mpi")?;
    let made = heat_array(py, grid.get().core(), wishes);
    let made = match grid.get().comm(py) {
        None => made?,
        Some(comm) => {
            let made = made.map_err(PyErr::from);
            let error = made.as_ref().err().map(|error| error.value(py).clone());
            engine.getattr("agree")?.call1((comm, error))?;
            made?
        }
    };
    let (described, array) = made;
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
            true => data.append(&array)?,
            false => data.append(py.None())?,
        }
    }
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
    wishes: &Wishes<'_, 'py>,
) -> Outcome<(Partitioned, Bound<'py, PyAny>)> {
    let mut wish = Wish {
        dtype: wishes.dtype,
        fill: fill_value(wishes.fill_null)?,
        order: Order::Columns,
        // HeAT writes into memory, read-only or not.
        copy: Some(wishes.copy.unwrap_or(true)),
    };
    let (_, element) = wish.resolve(py, grid)?;
    let described = describe_for_heat(grid, element)?;
    let part = grid.rank_part()?;
    let part = part.as_ref().unwrap_or(grid);
    if part.num_rows() == 0 {
        wish.copy = None;
    }
    let array = to_numpy(py, part, &wish)?;
    Ok((described, array))
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
    let described = describe_for_xgboost_ray(core, num_actors.unwrap_or(1), &node);
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

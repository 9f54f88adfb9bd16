//! Dictionaries of the protocol, fresh at each call, so that no consumer can spoil them.
//!
//! Every number comes from `partgrid::distarray`.

use arrow::buffer::Buffer;
use partgrid::distarray::{DimData, Dist, ElementType};
use partgrid::grid::Numbers;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::PyArray;
use crate::error::Outcome;

/// "dim_data": a dictionary for each dimension.
pub(super) fn dim_data<'py>(py: Python<'py>, dims: &[DimData]) -> Outcome<Bound<'py, PyTuple>> {
    let dims: Outcome<Vec<_>> = dims.iter().map(|each| dimension_dict(py, each)).collect();
    Ok(PyTuple::new(py, dims?)?)
}

/// The dictionary of one dimension.
pub(super) fn dimension_dict<'py>(
    py: Python<'py>,
    dimension: &DimData,
) -> Outcome<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("dist_type", dimension.dist_type())?;
    result.set_item("size", dimension.size)?;
    result.set_item("proc_grid_size", dimension.proc_grid_size)?;
    result.set_item("proc_grid_rank", dimension.proc_grid_rank)?;
    match &dimension.dist {
        Dist::Undistributed { .. } => {}
        Dist::Block { start, stop, .. } => {
            result.set_item("start", start)?;
            result.set_item("stop", stop)?;
        }
        Dist::Cyclic { start, block_size } => {
            result.set_item("start", start)?;
            if let Some(block_size) = block_size {
                result.set_item("block_size", block_size)?;
            }
        }
        Dist::Unstructured {
            indices,
            one_to_one,
        } => {
            let bytes = Buffer::from_vec(indices.to_vec());
            let numbers = Numbers::from_bytes(bytes, ElementType::Int64);
            result.set_item("indices", PyArray::new(numbers))?;
            if let Some(one_to_one) = one_to_one {
                result.set_item("one_to_one", one_to_one)?;
            }
        }
    }
    if let Some([left, right]) = dimension.padding() {
        result.set_item("padding", (left, right))?;
    }
    if let Some(periodic) = dimension.periodic {
        result.set_item("periodic", periodic)?;
    }
    Ok(result)
}

//! Communication padding made fresh: in this process, or over messages that `partgrid._messages` carries.
//!
//! Every number comes from `partgrid::distarray::redistribute`.

use partgrid::distarray::redistribute::{HaloPlan, Target};
use partgrid::error::Error;
use pyo3::prelude::*;

use super::array::PyDistArray;
use super::memory::Memory;
use super::plan::{PyTransfer, pieces};
use crate::error::Outcome;

/// Fills the communication padding of all sections of an array, which are all in this process.
#[pyfunction]
#[pyo3(name = "_fill_halos")]
pub(crate) fn fill_halos(array: &Bound<'_, PyDistArray>) -> Outcome<()> {
    let (py, array) = (array.py(), array.get());
    let plan = HaloPlan::try_new(array.lying())?;
    let mut held = Vec::with_capacity(array.sections().len());
    for section in array.sections() {
        held.push(Memory::of(section.get().memory()?.bind(py))?);
    }
    apart(&held)?;
    let targets = held.iter_mut().enumerate().map(|(rank, memory)| {
        let target = memory.target();
        target.map_err(|error| error.with_context("rank", rank.to_string()))
    });
    let mut targets: Vec<Target> = targets.collect::<Result<_, Error>>()?;
    py.detach(|| plan.exchange(&mut targets))?;
    Ok(())
}

/// Refuses buffers of different ranks that share memory: one would be written while the other is read.
fn apart(held: &[Memory]) -> Outcome<()> {
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_unstable_by_key(|rank| held.get(*rank).map(Memory::lowest));
    let mut ends: Option<usize> = None;
    for rank in order {
        let (Some(memory), before) = (held.get(rank), ends) else {
            continue;
        };
        if let Some(other) = before.and_then(|before| Some((before, held.get(before)?)))
            && memory.meets(other.1)
        {
            let text = format!(
                "the buffers of ranks must not share memory, those of ranks {} and {} do",
                other.0.min(rank),
                other.0.max(rank)
            );
            return Err(Error::invalid_argument(text)
                .with_hint("copy them: numpy.array(buffer)")
                .into());
        }
        if memory.num_bytes() > 0 {
            ends = Some(rank);
        }
    }
    Ok(())
}

/// Which elements go from rank to rank so that communication padding is fresh.
#[pyclass(name = "_HaloPlan", module = "partgrid.distarray", frozen)]
pub(crate) struct PyHaloPlan {
    core: HaloPlan,
    item_bytes: usize,
}

#[pymethods]
impl PyHaloPlan {
    #[new]
    fn try_new(array: &Bound<'_, PyDistArray>) -> Outcome<Self> {
        let array = array.get();
        Ok(Self {
            core: HaloPlan::try_new(array.lying())?,
            item_bytes: array.item_bytes(),
        })
    }

    /// What goes from a rank to a rank, in pieces that fit a message.
    fn _transfers(&self, from_rank: usize, to_rank: usize) -> Outcome<Vec<PyTransfer>> {
        let all = self.core.transfers_from(from_rank);
        let wanted = all.filter(|transfer| transfer.to_rank() == to_rank);
        pieces(wanted, self.item_bytes)
    }
}

//! Storages: plans by address arithmetic, presets, memory of the host and of made-up devices, storages as grids and grids as storages.

mod band;
mod memory;
mod parameters;
mod plan;

use std::sync::Arc;

use partgrid::grid::ElementType;
use partgrid::storage::{Backend, Dims, Fill, Host, Item, Parameters, Plan, Storage};

/// Labels, of which every letter is one.
fn dims(labels: &str) -> Dims {
    let labels: Vec<String> = labels.chars().map(String::from).collect();
    Dims::try_from_labels(&labels).unwrap()
}

fn backend(name: &str) -> Backend {
    Backend::try_from_name(name).unwrap()
}

/// A storage of 64-bit floats.
fn floats(shape: &[usize], parameters: &Parameters, fill: Fill<'_>) -> Arc<Storage> {
    let plan = Plan::try_new(shape, 8, parameters).unwrap();
    Storage::try_new(plan, Item::Number(ElementType::Float64), fill, &Host).unwrap()
}

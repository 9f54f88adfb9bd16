//! Which layout, alignment and device the backends of GT4Py want.
//!
//! Comes in: the name of a backend. Goes out: its preset, for any dimensions in any order. Never here: a layout that goes by the place of a dimension and not by its meaning, as
//! GT4Py 1.1 has it (specification: "the smallest stride is always in the K dimension, independently of which index corresponds to the K dimension").
//!
//! The values are those of GT4Py 1.1.12 and 1.2.3.

use std::fmt;

use super::dims::{Dim, Dims};
use super::plan::Place;
use crate::error::{Error, Result};

#[derive(Debug, PartialEq, Eq)]
struct Preset {
    name: &'static str,
    place: Place,
    /// In elements.
    alignment: usize,
    /// The axes of the grid, that of the largest stride first. Dimensions of data have larger strides still.
    axes: [Dim; 3],
}

const IJK: [Dim; 3] = [Dim::I, Dim::J, Dim::K];
const KJI: [Dim; 3] = [Dim::K, Dim::J, Dim::I];
const KIJ: [Dim; 3] = [Dim::K, Dim::I, Dim::J];

const fn preset(name: &'static str, place: Place, alignment: usize, axes: [Dim; 3]) -> Preset {
    Preset {
        name,
        place,
        alignment,
        axes,
    }
}

const PRESETS: [Preset; 10] = [
    preset("numpy", Place::Host, 1, IJK),
    preset("debug", Place::Host, 1, IJK),
    preset("gt:cpu_kfirst", Place::Host, 1, IJK),
    preset("gt:cpu_ifirst", Place::Host, 1, KJI),
    preset("gt:gpu", Place::Gpu, 32, KJI),
    preset("dace:cpu", Place::Host, 1, KIJ),
    preset("dace:cpu_kfirst", Place::Host, 1, IJK),
    preset("dace:cpu_KJI", Place::Host, 1, KJI),
    preset("dace:gpu", Place::Gpu, 1, KJI),
    preset("dace:gpu_IJK", Place::Gpu, 1, IJK),
];

/// A backend of GT4Py.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend(&'static Preset);

impl Backend {
    /// The backend of a name such as `gt:cpu_ifirst`.
    ///
    /// # Errors
    /// `InvalidArgument` for other names, with those that there are.
    pub fn try_from_name(name: &str) -> Result<Self> {
        let known = PRESETS.iter().find(|preset| preset.name == name);
        known.map(Self).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            let error =
                Error::invalid_argument(format!("backend must be one of GT4Py, got {name:?}"));
            error.with_hint(format!("the backends are {}", names.join(", ")))
        })
    }

    /// Every backend that has a preset.
    pub fn all() -> impl Iterator<Item = Self> {
        PRESETS.iter().map(Self)
    }

    /// The name, as GT4Py has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Where the backend wants the memory.
    #[must_use]
    pub fn place(self) -> Place {
        self.0.place
    }

    /// The alignment in bytes of elements of this width.
    #[must_use]
    pub fn alignment_size(self, item_bytes: usize) -> usize {
        match self.0.alignment {
            1 => 1,
            items => items.saturating_mul(item_bytes),
        }
    }

    /// The layout for these dimensions: for each, the rank of its stride, 0 being the largest.
    #[must_use]
    pub fn layout(self, dims: &Dims) -> Vec<usize> {
        // Data before axes, "0" before "1".
        let key = |dim: Dim| match dim {
            Dim::Data(number) => (0, u64::from(number)),
            axis => {
                let at = self.0.axes.iter().position(|each| *each == axis);
                (1, at.unwrap_or(0) as u64)
            }
        };
        let dims = dims.as_slice();
        dims.iter()
            .map(|dim| {
                let larger = dims.iter().filter(|other| key(**other) < key(*dim));
                larger.count()
            })
            .collect()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.name)
    }
}

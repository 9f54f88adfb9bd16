//! What was asked for beside shape and type.
//!
//! Comes in: the optional parameters of the specification (section "Optional Keyword-Only Parameters"). Goes out: the same, checked against each other, with what a storage gives
//! to another one that is made like it. Never here: memory, arithmetic with strides.

use super::backend::Backend;
use super::dims::Dims;
use super::plan::Place;
use crate::error::{Error, Result};

/// The optional parameters; what is `None` was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The element that is aligned; the first one by default.
    pub aligned_index: Option<Vec<usize>>,
    /// The bytes of which the address of that element is a multiple; 1 by default.
    pub alignment_size: Option<usize>,
    /// Gives alignment, layout and place.
    pub backend: Option<Backend>,
    /// Where the memory is; the host's by default.
    pub place: Option<Place>,
    /// What the dimensions mean.
    pub dims: Option<Dims>,
    /// For each dimension the rank of its stride, 0 being the largest; C order by default.
    pub layout: Option<Vec<usize>>,
}

impl Parameters {
    /// Where nothing was asked for.
    pub const NONE: Self = Self {
        aligned_index: None,
        alignment_size: None,
        backend: None,
        place: None,
        dims: None,
        layout: None,
    };

    /// Refuses a backend beside what it decides.
    ///
    /// # Errors
    /// `InvalidArgument` when a backend is given with an alignment, a device or a layout.
    pub fn check_exclusive(&self) -> Result<()> {
        let Some(backend) = self.backend else {
            return Ok(());
        };
        let given = [
            ("alignment_size", self.alignment_size.is_some()),
            ("device", self.place.is_some()),
            ("layout", self.layout.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_argument(format!(
                "backend decides {name}: one of the two must be left out, got backend={:?} and {name}",
                backend.name()
            ))
            .with_hint(format!(
                "leave out {name}, or leave out backend and give alignment_size, device and layout"
            ))),
        }
    }

    /// These parameters, and for what they leave open those of another storage. A backend stands for alignment, layout and place, which are then not inherited.
    ///
    /// # Errors
    /// As [`Parameters::check_exclusive`].
    pub fn or_like(self, other: Self) -> Result<Self> {
        self.check_exclusive()?;
        let inherited = match self.backend {
            Some(_) => Self {
                aligned_index: other.aligned_index,
                dims: other.dims,
                ..Self::default()
            },
            None => other,
        };
        Ok(Self {
            aligned_index: self.aligned_index.or(inherited.aligned_index),
            alignment_size: self.alignment_size.or(inherited.alignment_size),
            backend: self.backend,
            place: self.place.or(inherited.place),
            dims: self.dims.or(inherited.dims),
            layout: self.layout.or(inherited.layout),
        })
    }
}

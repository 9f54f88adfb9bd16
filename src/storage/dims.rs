//! What the dimensions of a storage mean.
//!
//! Comes in: labels as GT4Py writes them, `I`, `J`, `K` for the axes of the grid and `0`, `1`, ... for dimensions of data (specification, section "Dimension Mapping").
//! Goes out: checked [`Dims`], and the order in which a stencil sees them. Never here: memory.

use std::fmt;

use crate::error::{Error, Result};

/// The meaning of one dimension, in the order in which a stencil sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// Along the first horizontal axis.
    I,
    /// Along the second horizontal axis.
    J,
    /// Along the vertical axis.
    K,
    /// Along the components of what is stored at one point of the grid.
    Data(u32),
}

impl Dim {
    /// The dimension of a label; `None` when it is no label.
    fn of(label: &str) -> Option<Self> {
        match label {
            "I" => Some(Self::I),
            "J" => Some(Self::J),
            "K" => Some(Self::K),
            // "07" and "+7" are other texts than those that GT4Py compares.
            _ => label
                .parse()
                .ok()
                .filter(|number: &u32| number.to_string() == label)
                .map(Self::Data),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::I => formatter.write_str("I"),
            Self::J => formatter.write_str("J"),
            Self::K => formatter.write_str("K"),
            Self::Data(number) => write!(formatter, "{number}"),
        }
    }
}

/// The meanings of all dimensions of a storage, in index order; each comes once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dims(Vec<Dim>);

impl Dims {
    /// Reads labels such as `["K", "J", "I"]` or `["I", "J", "K", "0"]`.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no label, and for a label that repeats.
    pub fn try_from_labels<T: AsRef<str>>(labels: &[T]) -> Result<Self> {
        let mut dims = Vec::with_capacity(labels.len());
        for label in labels {
            let label = label.as_ref();
            let dim = Dim::of(label).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "dims must be labels out of \"I\", \"J\", \"K\" and decimal numbers, got {label:?}"
                ))
                .with_hint("dimensions of data are \"0\", \"1\" and so on: dims=(\"I\", \"J\", \"K\", \"0\")")
            })?;
            if dims.contains(&dim) {
                return Err(Error::invalid_argument(format!(
                    "dims must not repeat a label, got {label:?} twice"
                )));
            }
            dims.push(dim);
        }
        Ok(Self(dims))
    }

    /// What a stencil takes the dimensions for when nothing is said: `I`, `J`, `K`, then data.
    #[must_use]
    pub fn assumed(num_dimensions: usize) -> Self {
        let data = (0..).map(Dim::Data);
        Self(
            [Dim::I, Dim::J, Dim::K]
                .into_iter()
                .chain(data)
                .take(num_dimensions)
                .collect(),
        )
    }

    /// The dimensions in index order.
    #[must_use]
    pub fn as_slice(&self) -> &[Dim] {
        &self.0
    }

    /// The labels in index order.
    pub fn labels(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }

    /// An index with its components in the order in which a stencil sees the dimensions (`I`, `J`, `K`, then data), those of data being zero: an origin.
    #[must_use]
    pub fn origin(&self, index: &[usize]) -> Vec<usize> {
        let mut pairs: Vec<(Dim, usize)> =
            self.0.iter().copied().zip(index.iter().copied()).collect();
        pairs.sort_unstable_by_key(|(dim, _)| *dim);
        let component = |(dim, at): (Dim, usize)| match dim {
            Dim::Data(_) => 0,
            _ => at,
        };
        pairs.into_iter().map(component).collect()
    }
}

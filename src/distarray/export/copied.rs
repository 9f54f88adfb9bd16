//! What was copied on the way to an array, and why.
//!
//! Comes in: the reasons of each section. Goes out: [`Copied`]: one line for each reason. Never here: copying.

use std::fmt;

use crate::grid::picture::{counted, thousands};

/// Why values were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The caller wanted a copy.
    Asked,
    /// Nulls were replaced.
    Nulls,
    /// The values became another type.
    Type,
    /// The columns did not lie at one distance in one allocation.
    Place,
    /// Several tiles became one section.
    Joined,
    /// The elements went into another distribution.
    Moved,
}

impl Reason {
    /// The reason in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Asked => "as asked",
            Self::Nulls => "nulls replaced",
            Self::Type => "another type",
            Self::Place => "columns at uneven distances",
            Self::Joined => "tiles joined",
            Self::Moved => "another distribution",
        }
    }
}

/// One reason for copies, and how much it concerns. Sections copied for several reasons count for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Why.
    pub reason: Reason,
    /// How many sections.
    pub num_sections: usize,
    /// Bytes of their elements.
    pub num_bytes: u64,
}

impl fmt::Display for Copied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {}, {} bytes",
            self.reason.text(),
            counted(self.num_sections as u64, "section"),
            thousands(self.num_bytes)
        )
    }
}

impl Copied {
    /// Adds one section, of so many bytes, that was copied for this reason.
    pub fn add(copies: &mut Vec<Self>, reason: Reason, num_bytes: u64) {
        match copies.iter_mut().find(|each| each.reason == reason) {
            Some(known) => {
                known.num_sections += 1;
                known.num_bytes += num_bytes;
            }
            None => copies.push(Self {
                reason,
                num_sections: 1,
                num_bytes,
            }),
        }
    }
}

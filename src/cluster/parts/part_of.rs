//! Which part of a grid of all a grid is.
//!
//! Comes in: its number, how many there are, how many members are to have it. Goes out: these, if they can be. Never here: who has which parts.

use super::{MOST_PARTS, MOST_REPLICAS};
use crate::error::{Error, Result};

/// Which part of a grid of all a grid is, and how many members are to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOf {
    pub(super) number: usize,
    pub(super) of: usize,
    replicas: usize,
}

impl PartOf {
    /// Part `number`, from 0, of the `of` parts of a grid; only the member that contributes it has it.
    #[must_use]
    pub fn new(number: usize, of: usize) -> Self {
        Self {
            number,
            of,
            replicas: 1,
        }
    }

    /// So many members are to have the part: 1 to 16, the one that contributes it among them.
    #[must_use]
    pub fn with_replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// # Errors
    /// `InvalidArgument` for none or too many parts, for a number that is not less than theirs, and for replicas that are none or too many.
    pub(super) fn check(self) -> Result<u32> {
        let Self {
            number,
            of,
            replicas,
        } = self;
        if !(1..=MOST_PARTS).contains(&of) {
            let text =
                format!("a grid may have 1 to {MOST_PARTS} parts, got part {number} of {of}");
            return Err(Error::invalid_argument(text));
        }
        if number >= of {
            let last = of - 1;
            let text = format!(
                "the number of a part must be 0 to {last}, since there are {of}, got part {number} of {of}"
            );
            return Err(Error::invalid_argument(text));
        }
        let small = u32::try_from(replicas);
        match small
            .ok()
            .filter(|_| (1..=MOST_REPLICAS).contains(&replicas))
        {
            Some(replicas) => Ok(replicas),
            None => {
                let text = format!("replicas must be 1 to {MOST_REPLICAS}, got {replicas}");
                Err(Error::invalid_argument(text)
                    .with_hint("replicas=1 keeps a part only where it was contributed"))
            }
        }
    }
}

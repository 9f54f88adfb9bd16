//! The versions of the protocol, and every difference between them.
//!
//! Comes in: the text of "__version__". Goes out: a [`Version`] and its [`Rules`], the one table of what differs; dictionaries of 0.9 in the words of 0.10. Never here: rules that
//! both versions share (`dimension.rs`, `check/`).

use crate::distarray::dimension::{DimData, Dist};
use crate::error::{Error, ErrorKind, Result};

/// A version of the protocol, by its minor number: patches of one change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 0.9, of February 2014.
    V0_9,
    /// 0.10, of August 2015: what is written unless 0.9 is asked for.
    V0_10,
}

/// What one version of the protocol says where the other says something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// "__version__" as it is written.
    pub text: &'static str,
    /// There is the "dist_type" `n`, a dimension without process grid.
    pub has_undistributed: bool,
    /// An empty dictionary stands for a dimension of one process.
    pub has_empty_alias: bool,
    /// "start" and "stop" bound the whole buffer. Otherwise they bound what the rank owns, and communication padding lies outside.
    pub bounds_hold_halo: bool,
    /// The outer padding of a periodic dimension is communication padding: it repeats elements of the other end. Otherwise it is boundary padding, part of "size".
    pub periodic_wraps: bool,
    /// "periodic" means something in every "dist_type". Otherwise in `b` only.
    pub periodic_everywhere: bool,
    /// "padding" stands on all ranks of a dimension or on none. Otherwise an absent one is `(0, 0)`.
    pub padding_all_or_none: bool,
    /// Communication padding is as wide on both sides of a border.
    pub padding_matches: bool,
    /// The printed examples have lists for "indices".
    pub prints_list_indices: bool,
}

/// Every difference between the versions.
const TABLE: [(Version, Rules); 2] = [
    (
        Version::V0_9,
        Rules {
            text: "0.9.0",
            has_undistributed: true,
            has_empty_alias: false,
            bounds_hold_halo: false,
            periodic_wraps: true,
            periodic_everywhere: true,
            padding_all_or_none: true,
            padding_matches: false,
            prints_list_indices: true,
        },
    ),
    (
        Version::V0_10,
        Rules {
            text: "0.10.0",
            has_undistributed: false,
            has_empty_alias: true,
            bounds_hold_halo: true,
            periodic_wraps: false,
            periodic_everywhere: false,
            padding_all_or_none: false,
            padding_matches: true,
            prints_list_indices: false,
        },
    ),
];

impl Version {
    /// What differs between the versions, as this one has it.
    #[must_use]
    pub const fn rules(self) -> &'static Rules {
        let [(_, old), (_, new)] = &TABLE;
        match self {
            Self::V0_9 => old,
            Self::V0_10 => new,
        }
    }

    /// "__version__" as it is written: `0.9.0`, `0.10.0`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.rules().text
    }

    /// Reads "__version__": three plain numbers, the first two those of a known version, the last any.
    ///
    /// # Errors
    /// `Protocol` for every other text.
    pub fn try_from_text(text: &str) -> Result<Self> {
        let known = TABLE.iter().find(|(version, _)| version.is_text(text));
        known.map(|(version, _)| *version).ok_or_else(|| {
            let text = format!(
                "__version__ must be 0.9 or 0.10 with a patch number, such as '0.10.0', got {text:?}"
            );
            Error::new(ErrorKind::Protocol, text)
        })
    }

    fn is_text(self, text: &str) -> bool {
        let parts: Vec<&str> = text.split('.').collect();
        let known: Vec<&str> = self.text().split('.').collect();
        let ([major, minor, patch], [known_major, known_minor, _]) = (&parts[..], &known[..])
        else {
            return false;
        };
        let plain = !patch.is_empty()
            && patch.bytes().all(|sign| sign.is_ascii_digit())
            && (*patch == "0" || !patch.starts_with('0'));
        plain && major == known_major && minor == known_minor
    }
}

/// The dictionaries of one dimension in the words of 0.10: `n` becomes `b` on one process, bounds take communication padding in, and a periodic dimension with outer padding
/// grows by it, every bound moving right by the width on the left. `ranks` holds one dictionary of 0.9 for each grid rank, rank 0 first. What is absent stays absent;
/// "periodic" of `c` and `u`, which means nothing there, is left out.
///
/// # Errors
/// `Protocol` when a bound would fall below 0 or past 2^63, which a padding wider than what is left of it does.
pub fn translate(ranks: &[DimData]) -> Result<Vec<DimData>> {
    let edge = |rank: Option<&DimData>, side: fn([u64; 2]) -> u64| match rank {
        Some(rank) if rank.periodic == Some(true) => rank.padding().map_or(0, side),
        _ => 0,
    };
    let left = edge(ranks.first(), |[left, _]| left);
    let right = edge(ranks.last(), |[_, right]| right);
    ranks
        .iter()
        .map(|rank| {
            translate_one(rank, left, right).ok_or_else(|| {
                let text = format!(
                    "padding must fit between 0 and the size of the dimension, got {:?} in a size of {}",
                    rank.padding().unwrap_or_default(),
                    rank.size
                );
                Error::new(ErrorKind::Protocol, text)
                    .with_context("rank", rank.proc_grid_rank.to_string())
                    .with_context("key", "padding")
            })
        })
        .collect()
}

/// `left` and `right` are the outer widths that 0.9 does not count and 0.10 does.
fn translate_one(rank: &DimData, left: u64, right: u64) -> Option<DimData> {
    let mut result = rank.clone();
    match &rank.dist {
        Dist::Undistributed { padding } => {
            result.size = rank.size.checked_add(left)?.checked_add(right)?;
            (result.proc_grid_size, result.proc_grid_rank) = (1, 0);
            result.dist = Dist::Block {
                start: 0,
                stop: result.size,
                padding: *padding,
            };
        }
        Dist::Block {
            start,
            stop,
            padding,
        } => {
            let [before, after] = rank.communication(Version::V0_9);
            result.size = rank.size.checked_add(left)?.checked_add(right)?;
            let stop = stop.checked_add(after)?.checked_add(left)?;
            result.dist = Dist::Block {
                start: start.checked_add(left)?.checked_sub(before)?,
                stop: Some(stop).filter(|stop| *stop <= result.size)?,
                padding: *padding,
            };
        }
        Dist::Cyclic { .. } | Dist::Unstructured { .. } => result.periodic = None,
    }
    Some(result)
}

//! Somebody else's dictionary: do its numbers make a grid?
//!
//! Comes in: the numbers of a `__partitioned__` dictionary as they were found. Goes out: the [`Geometry`] that they describe, or the first fault with its path, such as
//! `partitions[(1, 0)].start`. The draft of the Partitioned Protocol (sections "shape", "partition_tiling", "partitions", "start") wants every position once, rectangles that lie side
//! by side, and nothing left over. Never here: data, Python.

use crate::error::{Error, ErrorKind, Result, format_position};
use crate::grid::{Axis, Geometry};

/// The numbers of a dictionary, not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// "shape".
    pub shape: Vec<u64>,
    /// "partition_tiling".
    pub partition_tiling: Vec<u64>,
    /// "partitions", in any order.
    pub partitions: Vec<ClaimedPartition>,
}

impl Claim {
    /// The claim of a dictionary of July 2021, in which "shape" was the shape of the partition grid: the shape of the whole is where the partitions end.
    #[must_use]
    pub fn of_grid_shape(grid_shape: Vec<u64>, partitions: Vec<ClaimedPartition>) -> Self {
        let stop = |partition: &ClaimedPartition, dimension: usize| {
            let start = partition.start.get(dimension).copied().unwrap_or(0);
            let length = partition.shape.get(dimension).copied().unwrap_or(0);
            start.saturating_add(length)
        };
        let ends = (0..grid_shape.len()).map(|dimension| {
            let stops = partitions.iter().map(|each| stop(each, dimension));
            stops.max().unwrap_or(0)
        });
        Self {
            shape: ends.collect(),
            partition_tiling: grid_shape,
            partitions,
        }
    }
}

/// The numbers of one entry of "partitions".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedPartition {
    /// The key.
    pub position: Vec<u64>,
    /// "start".
    pub start: Vec<u64>,
    /// "shape".
    pub shape: Vec<u64>,
}

/// What a correct dictionary describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The axes.
    pub geometry: Geometry,
    /// For each entry of "partitions", in the order of the claim: its position.
    pub positions: Vec<Vec<usize>>,
}

/// Checks a claim. Takes time and memory in proportion to the entries, whatever numbers are in them.
///
/// # Errors
/// `Protocol` with the path of the first fault.
pub fn check(claim: &Claim) -> Result<Checked> {
    let tiling = tiling_of(claim)?;
    let positions = positions_of(claim, &tiling)?;
    let num_dimensions = claim.shape.len();
    let axes: Result<Vec<Axis>> = (0..num_dimensions)
        .map(|dimension| axis_of(claim, &positions, dimension, tiling.get(dimension).copied()))
        .collect();
    let geometry =
        Geometry::try_new(axes?).map_err(|error| fault("partition_tiling", error.message()))?;
    Ok(Checked {
        geometry,
        positions,
    })
}

/// The path of an entry of "partitions", for messages.
#[must_use]
pub fn entry_path(position: &[u64]) -> String {
    let position: Vec<usize> = position
        .iter()
        .map(|at| usize::try_from(*at).unwrap_or(usize::MAX))
        .collect();
    format!("partitions[{}]", format_position(&position))
}

/// A fault at a path of the dictionary.
#[must_use]
pub fn fault(path: &str, text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("{path}: {text}"))
}

fn tiling_of(claim: &Claim) -> Result<Vec<usize>> {
    let num_dimensions = claim.shape.len();
    let given = &claim.partition_tiling;
    if given.len() != num_dimensions {
        return Err(fault(
            "partition_tiling",
            format!(
                "must have one number for each of the {num_dimensions} dimensions of shape, got {}",
                tuple(given)
            ),
        ));
    }
    if let Some(dimension) = given.iter().position(|count| *count == 0) {
        let text = format!("must be at least 1 in each dimension, got 0 in dimension {dimension}");
        return Err(fault("partition_tiling", text));
    }
    let count = given
        .iter()
        .try_fold(1_u64, |product, count| product.checked_mul(*count));
    let entries = claim.partitions.len() as u64;
    if count != Some(entries) {
        let wanted = count.map_or_else(|| "more than 2^64".to_owned(), |count| count.to_string());
        return Err(fault(
            "partitions",
            format!(
                "must have all positions of the tiling {}, which are {wanted}, got {entries}{}",
                tuple(given),
                first_missing(claim, given)
            ),
        ));
    }
    let tiling = given.iter().map(|count| usize::try_from(*count).ok());
    // There are as many entries as tiles, so that each number fits.
    tiling
        .collect::<Option<_>>()
        .ok_or_else(|| fault("partition_tiling", "too large for this machine"))
}

/// Names a position that is not there, where one can be found without trying all.
fn first_missing(claim: &Claim, tiling: &[u64]) -> String {
    let known: std::collections::HashSet<&[u64]> = claim
        .partitions
        .iter()
        .map(|each| each.position.as_slice())
        .collect();
    let mut position = vec![0_u64; tiling.len()];
    // Of one more positions than there are entries, one is not there.
    for _ in 0..=claim.partitions.len() {
        if !known.contains(position.as_slice()) {
            return format!("; {} is missing", tuple(&position));
        }
        for (at, count) in position.iter_mut().zip(tiling).rev() {
            *at += 1;
            if *at < *count {
                break;
            }
            *at = 0;
        }
    }
    String::new()
}

/// The positions of the entries: as many numbers as dimensions, within the tiling, each once.
fn positions_of(claim: &Claim, tiling: &[usize]) -> Result<Vec<Vec<usize>>> {
    let mut seen = std::collections::HashSet::new();
    let mut positions = Vec::with_capacity(claim.partitions.len());
    for partition in &claim.partitions {
        let path = entry_path(&partition.position);
        let position: Vec<usize> = partition
            .position
            .iter()
            .map(|at| usize::try_from(*at).unwrap_or(usize::MAX))
            .collect();
        let inside = position.iter().zip(tiling).all(|(at, count)| at < count);
        if position.len() != tiling.len() || !inside {
            let text = format!("the key must be a position in the tiling {}", tuple(tiling));
            return Err(fault(&path, text));
        }
        if !seen.insert(position.clone()) {
            return Err(fault(&path, "the position is there twice"));
        }
        positions.push(position);
    }
    Ok(positions)
}

/// One dimension: every entry must agree with the others at the same number, and their intervals must lie side by side.
fn axis_of(
    claim: &Claim,
    positions: &[Vec<usize>],
    dimension: usize,
    count: Option<usize>,
) -> Result<Axis> {
    let mut lengths: Vec<Option<(u64, usize)>> = vec![None; count.unwrap_or(0)];
    for (number, (partition, position)) in claim.partitions.iter().zip(positions).enumerate() {
        let path = entry_path(&partition.position);
        let length = number_at(&partition.shape, dimension, claim, || {
            format!("{path}.shape")
        })?;
        let slot = position.get(dimension).and_then(|at| lengths.get_mut(*at));
        match slot {
            Some(slot @ None) => *slot = Some((length, number)),
            Some(Some((known, first))) if *known != length => {
                let first = claim.partitions.get(*first);
                let first = first
                    .map(|first| entry_path(&first.position))
                    .unwrap_or_default();
                return Err(fault(
                    &format!("{path}.shape"),
                    format!(
                        "must have {known} elements in dimension {dimension}, as {first} has, got {length}"
                    ),
                ));
            }
            _ => {}
        }
    }
    let lengths = lengths
        .into_iter()
        .map(|length| length.map_or(0, |(length, _)| length));
    let axis =
        Axis::try_from_lengths(lengths).map_err(|error| fault("partitions", error.message()))?;
    check_starts(claim, positions, dimension, &axis)?;
    let extent = claim.shape.get(dimension).copied().unwrap_or(0);
    if axis.extent() != extent {
        let text = format!(
            "must be what the partitions add up to, {} in dimension {dimension}, got {extent}",
            axis.extent()
        );
        return Err(fault("shape", text));
    }
    Ok(axis)
}

fn check_starts(
    claim: &Claim,
    positions: &[Vec<usize>],
    dimension: usize,
    axis: &Axis,
) -> Result<()> {
    for (partition, position) in claim.partitions.iter().zip(positions) {
        let path = || format!("{}.start", entry_path(&partition.position));
        let start = number_at(&partition.start, dimension, claim, path)?;
        let at = position.get(dimension).copied().unwrap_or(0);
        let wanted = axis.interval(at).map_or(0, |interval| interval.start);
        if start != wanted {
            let what = if start < wanted {
                "an overlap"
            } else {
                "a gap"
            };
            return Err(fault(
                &path(),
                format!(
                    "must be {wanted} in dimension {dimension}, where the partitions before it end, got {start}, which leaves {what}"
                ),
            ));
        }
    }
    Ok(())
}

fn number_at(
    numbers: &[u64],
    dimension: usize,
    claim: &Claim,
    path: impl Fn() -> String,
) -> Result<u64> {
    match numbers.get(dimension) {
        Some(number) if numbers.len() == claim.shape.len() => Ok(*number),
        _ => Err(fault(
            &path(),
            format!(
                "must have one number for each of the {} dimensions of shape, got {}",
                claim.shape.len(),
                tuple(numbers)
            ),
        )),
    }
}

/// Numbers as Python writes a tuple.
fn tuple<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match numbers.as_slice() {
        [only] => format!("({only},)"),
        many => format!("({})", many.join(", ")),
    }
}

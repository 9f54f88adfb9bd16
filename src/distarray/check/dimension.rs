//! One dictionary of "dim_data" (rules D1 to D13).
//!
//! Comes in: a dictionary, the extent of the buffer along the dimension, the version. Goes out: what could be made out of it. Never here: other dictionaries.

use std::sync::Arc;

use crate::distarray::check::fields::{self, Field, IntKey};
use crate::distarray::check::{Log, Rule};
use crate::distarray::dimension::{DimData, Dist};
use crate::distarray::value::Value;
use crate::distarray::version::Version;

/// What could be made out of a dictionary.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenDim {
    pub(super) dist_type: Option<char>,
    pub(super) size: Field<u64>,
    pub(super) grid_size: Field<u64>,
    pub(super) grid_rank: Field<u64>,
    pub(super) periodic: Field<bool>,
    pub(super) block_size: Field<u64>,
    pub(super) one_to_one: Field<bool>,
    start: Field<u64>,
    stop: Field<u64>,
    padding: Field<[u64; 2]>,
    indices: Field<Arc<[i64]>>,
    /// The whole, where bounds and widths make sense together.
    pub(super) data: Option<DimData>,
}

const SIZE: IntKey = IntKey {
    key: "size",
    rule: Rule::D3,
    least: 0,
    required: true,
};

pub(super) fn check(
    dict: &Value,
    extent: Option<u64>,
    version: Option<Version>,
    log: &mut Log,
) -> SeenDim {
    if matches!(dict, Value::Dict(entries) if entries.is_empty()) {
        return alias(extent, version, log);
    }
    let mut seen = SeenDim {
        dist_type: dist_type(dict, version, log),
        size: fields::int(dict, SIZE, log),
        ..SeenDim::default()
    };
    let elsewhere = matches!(seen.dist_type, Some('c' | 'u'));
    let limited = version.is_some_and(|version| !version.rules().periodic_everywhere);
    if elsewhere && limited {
        if dict.get("periodic").is_some() {
            let text = "periodic means something in dist_type 'b' only, and is ignored here";
            log.warning(Rule::D9, Some("periodic"), text);
        }
    } else {
        seen.periodic = fields::boolean(dict, "periodic", Rule::D9, log);
    }
    if seen.dist_type == Some('n') {
        (seen.grid_size, seen.grid_rank) = (Field::Given(1), Field::Given(0));
    } else {
        grid(dict, &mut seen, log);
    }
    match seen.dist_type {
        Some('n') => seen.padding = fields::padding(dict, log),
        Some('b') => block(dict, &mut seen, log),
        Some('c') => cyclic(dict, &mut seen, log),
        Some('u') => {
            seen.indices = fields::indices(dict, version, log);
            seen.one_to_one = fields::boolean(dict, "one_to_one", Rule::D12, log);
        }
        _ => {}
    }
    seen.data = data(&seen);
    check_extent(&mut seen, extent, version, log);
    seen
}

/// An empty dictionary: the dimension is on one process (0.10.0, 1.6.3).
fn alias(extent: Option<u64>, version: Option<Version>, log: &mut Log) -> SeenDim {
    if version.is_some_and(|version| !version.rules().has_empty_alias) {
        let text = "an empty dict has a meaning from 0.10 on only, dist_type is missing";
        log.error(Rule::D2, Some("dist_type"), text);
        return SeenDim::default();
    }
    SeenDim {
        dist_type: Some('b'),
        size: extent.map_or(Field::Broken, Field::Given),
        grid_size: Field::Given(1),
        grid_rank: Field::Given(0),
        data: extent.map(DimData::whole),
        ..SeenDim::default()
    }
}

fn dist_type(dict: &Value, version: Option<Version>, log: &mut Log) -> Option<char> {
    let has_undistributed = version.is_none_or(|version| version.rules().has_undistributed);
    let found = match dict.get("dist_type") {
        Some(Value::Text(text)) => match text.as_str() {
            "b" => Some('b'),
            "c" => Some('c'),
            "u" => Some('u'),
            "n" => Some('n'),
            _ => None,
        },
        _ => None,
    };
    if found.is_none() || (found == Some('n') && !has_undistributed) {
        let allowed = if has_undistributed {
            "'n', 'b', 'c' or 'u'"
        } else {
            "'b', 'c' or 'u'"
        };
        let text = match dict.get("dist_type") {
            None => "dist_type is missing".to_owned(),
            Some(value) => format!("dist_type must be {allowed}, got {value}"),
        };
        log.error(Rule::D1, Some("dist_type"), text);
    }
    found
}

fn grid(dict: &Value, seen: &mut SeenDim, log: &mut Log) {
    let key = |key, least| IntKey {
        key,
        rule: Rule::D4,
        least,
        required: true,
    };
    seen.grid_size = fields::int(dict, key("proc_grid_size", 1), log);
    seen.grid_rank = fields::int(dict, key("proc_grid_rank", 0), log);
    if let (Field::Given(size), Field::Given(rank)) = (&seen.grid_size, &seen.grid_rank)
        && rank >= size
    {
        let text = format!("proc_grid_rank must be less than proc_grid_size, {size}, got {rank}");
        log.error(Rule::D4, Some("proc_grid_rank"), text);
        seen.grid_rank = Field::Broken;
    }
}

fn block(dict: &Value, seen: &mut SeenDim, log: &mut Log) {
    let key = |key| IntKey {
        key,
        rule: Rule::D5,
        least: 0,
        required: true,
    };
    seen.start = fields::int(dict, key("start"), log);
    seen.stop = fields::int(dict, key("stop"), log);
    seen.padding = fields::padding(dict, log);
    if let (Field::Given(start), Field::Given(stop)) = (&seen.start, &seen.stop)
        && start > stop
    {
        let text = format!("stop must be at least start, {start}, got {stop}");
        log.error(Rule::D5, Some("stop"), text);
        seen.start = Field::Broken;
    }
    if let (Field::Given(stop), Field::Given(size)) = (&seen.stop, &seen.size)
        && stop > size
    {
        let text = format!("stop must be at most size, {size}, got {stop}");
        log.error(Rule::D5, Some("stop"), text);
        seen.stop = Field::Broken;
    }
}

fn cyclic(dict: &Value, seen: &mut SeenDim, log: &mut Log) {
    let key = |key, least, required| IntKey {
        key,
        rule: Rule::D10,
        least,
        required,
    };
    seen.start = fields::int(dict, key("start", 0, true), log);
    seen.block_size = fields::int(dict, key("block_size", 1, false), log);
    let block_size = seen.block_size.or(1);
    let (Some(start), Some(rank), Some(block_size)) =
        (seen.start.given(), seen.grid_rank.given(), block_size)
    else {
        return;
    };
    let wanted = u128::from(rank) * u128::from(block_size);
    let size = seen.size.given();
    // A rank that owns nothing may say so by starting at the end.
    let at_end = size.is_some_and(|size| start == size && wanted >= u128::from(size));
    if u128::from(start) != wanted && !at_end {
        let text = format!(
            "start must be proc_grid_rank times block_size, {rank} * {block_size}, got {start}"
        );
        log.error(Rule::D10, Some("start"), text);
        seen.start = Field::Broken;
    }
}

/// The whole, where everything that decides where elements lie is known. What is broken and decides nothing counts as absent.
fn data(seen: &SeenDim) -> Option<DimData> {
    let padding = seen.padding.or([0, 0])?;
    let stated = seen.padding.given().map(|_| padding);
    let dist = match seen.dist_type? {
        'n' => Dist::Undistributed { padding: stated },
        'b' => Dist::Block {
            start: seen.start.given()?,
            stop: seen.stop.given()?,
            padding: stated,
        },
        'c' => {
            seen.block_size.or(1)?;
            Dist::Cyclic {
                start: seen.start.given()?,
                block_size: seen.block_size.given(),
            }
        }
        'u' => Dist::Unstructured {
            indices: seen.indices.given()?,
            one_to_one: seen.one_to_one.given(),
        },
        _ => return None,
    };
    Some(DimData {
        size: seen.size.given()?,
        proc_grid_size: seen.grid_size.given()?,
        proc_grid_rank: seen.grid_rank.given()?,
        periodic: seen.periodic.given(),
        dist,
    })
}

/// Padding within the buffer, and the buffer as long as it must be. Needs to know the version where a block is padded or bounded.
fn check_extent(seen: &mut SeenDim, extent: Option<u64>, version: Option<Version>, log: &mut Log) {
    let (Some(data), Some(version)) = (&seen.data, version) else {
        return;
    };
    let [left, right] = data.padding().unwrap_or_default();
    let (expected, meaning) = match data.dist {
        Dist::Block { start, stop, .. } if version.rules().bounds_hold_halo => {
            (stop - start, "stop - start")
        }
        Dist::Block { .. } => (
            data.local_len(version),
            "stop - start and the communication padding",
        ),
        Dist::Undistributed { .. } => (
            data.local_len(version),
            "size and the communication padding",
        ),
        Dist::Cyclic { .. } => (data.local_len(version), "the round robin"),
        Dist::Unstructured { .. } => (data.local_len(version), "the length of indices"),
    };
    let total = left.saturating_add(right);
    let fits = total <= expected;
    if !fits {
        let text = format!(
            "padding must fit in the {expected} elements of the buffer, got ({left}, {right})"
        );
        log.error(Rule::D8, Some("padding"), text);
    }
    if let Some(extent) = extent
        && extent != expected
    {
        let text = format!(
            "the buffer must have {expected} elements along this dimension ({meaning}), got {extent}"
        );
        log.error(Rule::D6, Some("buffer"), text);
    }
    if !fits {
        seen.data = None;
    }
}

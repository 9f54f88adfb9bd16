//! What all ranks must agree on (rules X1 to X4, X11, X13, X15).
//!
//! Comes in: what could be made out of each section, in the order of ranks. Goes out: findings. Sections that are broken themselves are left out of what they cannot answer. Never here: one section;
//! what neighbours must agree on (`along.rs`).

use std::collections::BTreeMap;

use crate::distarray::check::dimension::SeenDim;
use crate::distarray::check::section::Seen;
use crate::distarray::check::{Log, Rule, along};
use crate::distarray::dimension::{DimData, Dist};
use crate::distarray::value::{quoted, shape_text};
use crate::distarray::version::Version;

pub(super) fn check(sections: &[Seen], log: &mut Log) {
    one_version(sections, log);
    one_format(sections, log);
    let with_dims = sections.iter().filter_map(|section| section.dims.as_ref());
    let counts: Vec<usize> = with_dims.map(Vec::len).collect();
    let Some(num_dimensions) = counts.first().copied() else {
        if sections.is_empty() {
            let text = "an array must have at least one section, got none";
            log.error(Rule::X1, None, text);
        }
        return;
    };
    if num_dimensions == 0 && sections.len() != 1 {
        let text = format!(
            "an array without dimensions must be on one process, got {} sections",
            sections.len()
        );
        log.error(Rule::X15, Some("dim_data"), text);
        return;
    }
    let rows: Vec<Option<&[SeenDim]>> = sections
        .iter()
        .enumerate()
        .map(|(rank, section)| {
            let dims = section.dims.as_deref()?;
            if dims.len() == num_dimensions {
                return Some(dims);
            }
            log.rank = Some(rank);
            let text = format!(
                "dim_data must have as many dicts as on the first rank, {num_dimensions}, got {}",
                dims.len()
            );
            log.error(Rule::X3, Some("dim_data"), text);
            log.rank = None;
            None
        })
        .collect();
    let version = sections.iter().find_map(|section| section.version);
    let grid: Vec<Option<u64>> = (0..num_dimensions)
        .map(|dimension| column(&rows, dimension).find_map(|(_, dim)| dim.grid_size.given()))
        .collect();
    if let Some(grid) = grid.iter().copied().collect::<Option<Vec<u64>>>() {
        places(&rows, &grid, log);
    }
    for dimension in 0..num_dimensions {
        same_keys(&rows, dimension, log);
        let Some(version) = version else { continue };
        let ranks = ranks_of(&rows, dimension, version, log);
        along::check(&ranks, dimension, version, log);
        if version.rules().padding_all_or_none {
            padding_on_all(&rows, dimension, log);
        }
    }
}

/// What the sections say of one dimension, with the number of each.
fn column<'a>(
    rows: &'a [Option<&'a [SeenDim]>],
    dimension: usize,
) -> impl Iterator<Item = (usize, &'a SeenDim)> {
    rows.iter().enumerate().filter_map(move |(rank, dims)| {
        let dims = (*dims)?;
        Some((rank, dims.get(dimension)?))
    })
}

fn one_version(sections: &[Seen], log: &mut Log) {
    let Some(first) = sections.iter().find_map(|section| section.version) else {
        return;
    };
    for (rank, section) in sections.iter().enumerate() {
        if section.version.is_some_and(|version| version != first) {
            log.rank = Some(rank);
            let text = format!(
                "all sections must state one version, {} on the first rank, got {}",
                first.text(),
                quoted(section.version_text.as_deref().unwrap_or_default())
            );
            log.error(Rule::X13, Some("__version__"), text);
        }
    }
    log.rank = None;
}

fn one_format(sections: &[Seen], log: &mut Log) {
    let Some(first) = sections.iter().find_map(|section| section.buffer.as_ref()) else {
        return;
    };
    for (rank, section) in sections.iter().enumerate() {
        let Some(buffer) = &section.buffer else {
            continue;
        };
        if buffer.element() != first.element() {
            log.rank = Some(rank);
            let text = format!(
                "all buffers must have one element format, {} of {} bytes on the first rank, got {} of {}",
                quoted(&first.format),
                first.item_bytes,
                quoted(&buffer.format),
                buffer.item_bytes
            );
            log.error(Rule::X11, Some("buffer"), text);
        }
    }
    log.rank = None;
}

/// As many sections as places, in row-major order.
fn places(rows: &[Option<&[SeenDim]>], grid: &[u64], log: &mut Log) {
    let product = grid
        .iter()
        .try_fold(1_u64, |product, size| product.checked_mul(*size));
    let count = rows.len() as u64;
    if product != Some(count) {
        let wanted = product.map_or_else(|| "2^64 or more".to_owned(), |wanted| wanted.to_string());
        let text = format!(
            "there must be as many sections as the process grid {} has places, {wanted}, got {count}",
            shape_text(grid)
        );
        log.error(Rule::X1, Some("proc_grid_size"), text);
    }
    let num_places = product.unwrap_or(u64::MAX);
    for (rank, dims) in rows.iter().enumerate() {
        let mut rest = rank as u64;
        if rest >= num_places {
            continue;
        }
        for (dimension, size) in grid.iter().enumerate().rev() {
            let wanted = rest % size;
            rest /= size;
            let seen = dims.and_then(|dims| dims.get(dimension)?.grid_rank.given());
            if let Some(got) = seen.filter(|got| *got != wanted) {
                let text = format!(
                    "section {rank} must have proc_grid_rank {wanted} in row-major order, got {got}"
                );
                log.error_at((rank, dimension), Rule::X2, "proc_grid_rank", text);
            }
        }
    }
}

/// The keys that do not depend on the rank.
fn same_keys(rows: &[Option<&[SeenDim]>], dimension: usize, log: &mut Log) {
    type Ask = fn(&SeenDim) -> Option<String>;
    let asks: [(&'static str, Ask); 6] = [
        ("dist_type", |dim| {
            dim.dist_type.map(|code| format!("'{code}'"))
        }),
        ("size", |dim| {
            dim.size.given().map(|value| value.to_string())
        }),
        ("proc_grid_size", |dim| {
            dim.grid_size.given().map(|value| value.to_string())
        }),
        ("block_size", |dim| match dim.dist_type {
            Some('c') => dim.block_size.or(1).map(|value| value.to_string()),
            _ => None,
        }),
        ("periodic", |dim| dim.periodic.or(false).map(python_bool)),
        ("one_to_one", |dim| match dim.dist_type {
            Some('u') => dim.one_to_one.or(false).map(python_bool),
            _ => None,
        }),
    ];
    for (key, ask) in asks {
        let mut values = column(rows, dimension).filter_map(|(rank, dim)| Some((rank, ask(dim)?)));
        let Some((_, first)) = values.next() else {
            continue;
        };
        for (rank, value) in values.filter(|(_, value)| *value != first) {
            let text =
                format!("{key} must be the same on all ranks, {first} on the first, got {value}");
            log.error_at((rank, dimension), Rule::X3, key, text);
        }
    }
}

fn python_bool(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}

/// The first section of each grid rank. Others with the same grid rank must say the same.
fn ranks_of<'a>(
    rows: &'a [Option<&'a [SeenDim]>],
    dimension: usize,
    version: Version,
    log: &mut Log,
) -> BTreeMap<u64, (usize, &'a DimData)> {
    let mut ranks: BTreeMap<u64, (usize, &DimData)> = BTreeMap::new();
    for (rank, dim) in column(rows, dimension) {
        let Some(data) = &dim.data else { continue };
        match ranks.get(&data.proc_grid_rank) {
            None => {
                ranks.insert(data.proc_grid_rank, (rank, data));
            }
            Some((first_rank, first)) => {
                for (key, one, other) in differences(first, data, version) {
                    let text = format!(
                        "{key} must be the same on all sections with proc_grid_rank {}, {one} on rank {first_rank}, got {other}",
                        data.proc_grid_rank
                    );
                    log.error_at((rank, dimension), Rule::X4, key, text);
                }
            }
        }
    }
    ranks
}

/// The keys in which two dictionaries differ that should be one, as text; outer padding may differ.
fn differences(
    one: &DimData,
    other: &DimData,
    version: Version,
) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    let mut compare = |key, one: u64, other: u64| {
        if one != other {
            found.push((key, one.to_string(), other.to_string()));
        }
    };
    match (&one.dist, &other.dist) {
        (
            Dist::Block { start, stop, .. },
            Dist::Block {
                start: other_start,
                stop: other_stop,
                ..
            },
        ) => {
            compare("start", *start, *other_start);
            compare("stop", *stop, *other_stop);
        }
        (
            Dist::Unstructured { indices, .. },
            Dist::Unstructured {
                indices: others, ..
            },
        ) if indices != others => {
            let place = indices.iter().zip(others.iter()).position(|(a, b)| a != b);
            let place = place.unwrap_or(indices.len().min(others.len()));
            let text = |list: &[i64]| match list.get(place) {
                Some(index) => format!("{index} at place {place}"),
                None => format!("{} of them", list.len()),
            };
            found.push(("indices", text(indices), text(others)));
        }
        _ => {}
    }
    let widths = [one.communication(version), other.communication(version)];
    if let [[left, right], [other_left, other_right]] = widths
        && widths.first() != widths.last()
    {
        let text = |left, right| format!("communication widths of ({left}, {right})");
        found.push(("padding", text(left, right), text(other_left, other_right)));
    }
    found
}

fn padding_on_all(rows: &[Option<&[SeenDim]>], dimension: usize, log: &mut Log) {
    let stated = |dim: &SeenDim| Some(dim.data.as_ref()?.padding().is_some());
    let any = column(rows, dimension).any(|(_, dim)| stated(dim) == Some(true));
    for (rank, dim) in column(rows, dimension) {
        if any && stated(dim) == Some(false) {
            let text = "padding must be on all ranks or on none, it is missing here";
            log.error_at((rank, dimension), Rule::X12, "padding", text.to_owned());
        }
    }
}

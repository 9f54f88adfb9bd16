//! The wish for column bands -> the order of the columns and where to cut between them.
//!
//! Comes in: columns, lists of names or a number. Goes out: the columns in the order of the grid, one band after the other. Pure. Never here: rows.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};

use super::options::{LoadOptions, TileColumns};
use super::schema::{Columns, Origin};
use crate::error::{Error, Result};
use crate::grid::{not_dense, unknown_column};

/// A run of columns that share their tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) columns: Range<usize>,
    /// Whether the columns lie in one allocation.
    pub(super) dense: bool,
}

/// Puts the bands that are named first, in the order in which they are named, then the other columns.
pub(super) fn arrange(columns: Columns, options: &LoadOptions) -> Result<(Columns, Vec<Band>)> {
    let named = named_bands(options)?;
    let all = columns.schema.fields();
    let fields = all.get(..columns.num_visible).unwrap_or(all);
    let place = |name: &str| {
        let found = fields.iter().position(|field| field.name() == name);
        found.ok_or_else(|| unknown_column(name, fields.iter().map(|field| field.name().as_str())))
    };
    let mut order = Vec::with_capacity(fields.len());
    let mut bands = Vec::new();
    let mut taken = HashSet::new();
    for (names, dense) in named {
        let start = order.len();
        for name in names {
            let at = place(name)?;
            if !taken.insert(at) {
                let text = "a column must be named in one band only";
                return Err(Error::invalid_argument(text).with_column(name));
            }
            order.push(at);
        }
        let band = order.get(start..).unwrap_or_default();
        if dense {
            check_dense(band.iter().filter_map(|at| fields.get(*at)))?;
        }
        let columns = start..order.len();
        bands.push(Band { columns, dense });
    }
    let rest = order.len();
    order.extend((0..fields.len()).filter(|at| !taken.contains(at)));
    bands.extend(rest_bands(rest..order.len(), options.tile_columns()));
    if bands.is_empty() {
        // A grid without columns still has one band.
        bands.push(Band {
            columns: 0..0,
            dense: false,
        });
    }
    order.extend(fields.len()..all.len());
    Ok((reordered(&columns, &order), bands))
}

/// The lists of names, each with whether it is dense.
fn named_bands(options: &LoadOptions) -> Result<Vec<(&Vec<String>, bool)>> {
    let dense = options.dense();
    let lists = match options.tile_columns() {
        Some(TileColumns::Named(lists)) => lists.as_slice(),
        _ => &[],
    };
    if lists.iter().chain(dense).any(Vec::is_empty) {
        return Err(Error::invalid_argument(
            "a column band must name at least one column, got an empty list",
        ));
    }
    let plain = lists.iter().map(|names| (names, dense.contains(names)));
    let more = dense.iter().filter(|names| !lists.contains(names));
    Ok(plain.chain(more.map(|names| (names, true))).collect())
}

/// The bands of the columns that no list names.
fn rest_bands(columns: Range<usize>, wish: Option<&TileColumns>) -> Vec<Band> {
    let width = match wish {
        Some(TileColumns::Count(width)) => *width,
        _ => columns.len(),
    };
    let starts = columns.clone().step_by(width.max(1));
    let band = |start: usize| Band {
        columns: start..start.saturating_add(width).min(columns.end),
        dense: false,
    };
    starts.map(band).collect()
}

fn check_dense<'a>(fields: impl Iterator<Item = &'a FieldRef>) -> Result<()> {
    let mut first: Option<&FieldRef> = None;
    for field in fields {
        let wanted = first.get_or_insert(field);
        let numeric = field.data_type().is_integer() || field.data_type().is_floating();
        if !numeric || field.data_type() != wanted.data_type() {
            return Err(not_dense(wanted, field));
        }
    }
    Ok(())
}

fn reordered(columns: &Columns, order: &[usize]) -> Columns {
    let fields = columns.schema.fields();
    let picked: Vec<FieldRef> = order
        .iter()
        .filter_map(|at| fields.get(*at).cloned())
        .collect();
    let origins: Vec<Origin> = order
        .iter()
        .filter_map(|at| columns.origins.get(*at).cloned())
        .collect();
    let metadata = columns.schema.metadata().clone();
    Columns {
        schema: Arc::new(Schema::new_with_metadata(picked, metadata)),
        origins,
        num_visible: columns.num_visible,
    }
}

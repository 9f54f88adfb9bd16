//! Somebody else's partitions -> a grid.
//!
//! Comes in: a checked dictionary, and what its `get` returned for each entry. Goes out: a grid over the same memory, in which entries that are not here keep their outline. Never here:
//! copies of values, Python.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};

use super::check::{Checked, entry_path, fault};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{
    AbsentTile, Axis, Geometry, GridBuilder, PartitionGrid, Tile, fields_of, fitted, unite,
};
use crate::location::Location;

/// What is known of one entry of "partitions".
#[derive(Debug, Clone)]
pub enum Part {
    /// The data, in this process.
    Here(RecordBatch),
    /// It is elsewhere.
    Elsewhere(Vec<Location>),
}

/// What the draft does not carry, or only for SPMD programs.
#[derive(Debug, Clone, Default)]
pub struct FrameKeys<'a> {
    /// The names of the columns, instead of those that the data has.
    pub names: Option<&'a [String]>,
    /// The metadata of the schema.
    pub metadata: HashMap<String, String>,
    /// Section "locals": whether each entry is here, in the order of the claim.
    pub locals: Option<&'a [bool]>,
}

/// Makes a grid of entries, in the order of the claim that was checked. One dimension is a frame of one column, none a frame of one value. With `locals` the grid is one of
/// an SPMD program.
///
/// # Errors
/// `Protocol` with the path of an entry whose data has another shape, type or name than the dictionary or the entry above it says; `Unsupported` for more than two dimensions;
/// `InvalidArgument` for wrong `names`.
pub fn import(checked: &Checked, parts: &[Part], keys: FrameKeys<'_>) -> Result<PartitionGrid> {
    let names = keys.names;
    let (rows, columns) = frame_axes(checked)?;
    if let Some(names) = names
        && names.len() as u64 != columns.extent()
    {
        let (wanted, got) = (columns.extent(), names.len());
        let text = format!("names must have one name for each of {wanted} columns, got {got}");
        return Err(Error::invalid_argument(text));
    }
    let frame = Frame {
        checked,
        parts,
        names,
        columns: &columns,
    };
    let bands = frame.bands()?;
    let fields: Vec<Field> = bands.iter().flatten().cloned().collect();
    let schemas = bands
        .into_iter()
        .map(|fields| Arc::new(Schema::new(fields)));
    let schemas: Vec<SchemaRef> = schemas.collect();
    let mut builder = GridBuilder::try_new(
        Arc::new(Schema::new_with_metadata(fields, keys.metadata)),
        rows.clone(),
        columns.clone(),
    )
    .map_err(|error| match error.context("column") {
        Some(name) => fault(
            "partitions",
            format!("two column bands have a column `{name}`"),
        )
        .with_hint("give names= for all columns"),
        None => error,
    })?;
    for (number, (position, part)) in frame.entries() {
        let schema = schemas.get(position[1]);
        let schema = schema.ok_or_else(|| Error::internal("a position lies in a column band"))?;
        let interval = rows.interval(position[0]).unwrap_or(0..0);
        let tile = match part {
            Part::Here(batch) => Tile::try_from_batch(&fitted(batch, schema)?)?,
            Part::Elsewhere(locations) => {
                let num_rows = interval.end - interval.start;
                Tile::new(Arc::new(AbsentTile::new(
                    Arc::clone(schema),
                    num_rows,
                    locations.clone(),
                )))
            }
        };
        builder
            .set(&position, tile)
            .map_err(|error| fault(&frame.path(number), error.message()))?;
    }
    if let Some(locals) = keys.locals {
        builder = builder.with_locals(frame.in_order(&rows, locals)?)?;
    }
    builder.build()
}

fn frame_axes(checked: &Checked) -> Result<(Axis, Axis)> {
    match checked.geometry.axes() {
        [] => Ok((Axis::uncut(1), Axis::uncut(1))),
        [rows] => Ok((rows.clone(), Axis::uncut(1))),
        [rows, columns] => Ok((rows.clone(), columns.clone())),
        more => {
            let text = format!("a frame has at most 2 dimensions, shape has {}", more.len());
            Err(Error::unsupported(text))
        }
    }
}

/// The entries as parts of a frame.
struct Frame<'a> {
    checked: &'a Checked,
    parts: &'a [Part],
    names: Option<&'a [String]>,
    columns: &'a Axis,
}

impl Frame<'_> {
    /// Number of the entry, its position in the frame, its part.
    fn entries(&self) -> impl Iterator<Item = (usize, ([usize; 2], &Part))> {
        let in_frame = |position: &Vec<usize>| {
            let at = |dimension: usize| position.get(dimension).copied().unwrap_or(0);
            [at(0), at(1)]
        };
        let positions = self.checked.positions.iter().map(in_frame);
        positions.zip(self.parts).enumerate()
    }

    /// What was said of each entry, in row-major order.
    fn in_order(&self, rows: &Axis, said: &[bool]) -> Result<Vec<bool>> {
        let geometry = Geometry::try_new([rows.clone(), self.columns.clone()])?;
        let mut ordered = vec![false; geometry.num_tiles()];
        for ((_, (position, _)), said) in self.entries().zip(said) {
            if let Some(slot) = ordered.get_mut(geometry.flat_index(&position)?) {
                *slot = *said;
            }
        }
        Ok(ordered)
    }

    fn path(&self, number: usize) -> String {
        let position = self.checked.positions.get(number).map(Vec::as_slice);
        let position: Vec<u64> = position
            .unwrap_or_default()
            .iter()
            .map(|at| *at as u64)
            .collect();
        format!("{}.data", entry_path(&position))
    }

    /// The fields of each column band: those of its first entry that is here, with which the others must agree; nullable where one of them is.
    fn bands(&self) -> Result<Vec<Vec<Field>>> {
        let mut known: Vec<Option<(usize, Vec<Field>)>> = vec![None; self.columns.num_intervals()];
        for (number, ([_, band], part)) in self.entries() {
            let Part::Here(batch) = part else { continue };
            let interval = self.columns.interval(band).unwrap_or(0..0);
            self.check_shape(number, batch, interval.end - interval.start)?;
            let found = fields_of(batch);
            match known.get_mut(band) {
                Some(Some((first, fields))) => self.agree((*first, fields), (number, &found))?,
                Some(unknown) => *unknown = Some((number, found)),
                None => {}
            }
        }
        let bands = known.into_iter().enumerate();
        bands
            .map(|(band, known)| match known {
                Some((_, fields)) => Ok(self.named(band, fields)),
                None => Err(Error::new(
                    ErrorKind::NotLocal,
                    format!(
                        "no partition of column band {band} is in this process, so that its columns are not known"
                    ),
                )),
            })
            .collect()
    }

    /// The fields under the wanted names.
    fn named(&self, band: usize, mut fields: Vec<Field>) -> Vec<Field> {
        let first = self
            .columns
            .interval(band)
            .map_or(0, |interval| interval.start);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let names = self.names.and_then(|names| names.get(first..));
        for (field, name) in fields.iter_mut().zip(names.unwrap_or_default()) {
            field.set_name(name.clone());
        }
        fields
    }

    /// Whether the data has the shape that the entry says.
    fn check_shape(&self, number: usize, batch: &RecordBatch, width: u64) -> Result<()> {
        let position = self
            .checked
            .positions
            .get(number)
            .cloned()
            .unwrap_or_default();
        let region = self.checked.geometry.region(&position)?;
        let num_rows = region.shape().first().copied().unwrap_or(1);
        let (got_rows, got_columns) = (batch.num_rows() as u64, batch.num_columns() as u64);
        if (got_rows, got_columns) == (num_rows, width) {
            return Ok(());
        }
        Err(fault(
            &self.path(number),
            format!(
                "the entry says {num_rows} rows and {width} columns, the data has {got_rows} and {got_columns}"
            ),
        ))
    }

    fn agree(
        &self,
        (first, fields): (usize, &mut Vec<Field>),
        (number, found): (usize, &[Field]),
    ) -> Result<()> {
        let Some((field, found)) = unite(fields, found, self.names.is_none()) else {
            return Ok(());
        };
        let describe = |field: &Field| format!("`{}` {}", field.name(), field.data_type());
        Err(fault(
            &self.path(number),
            format!(
                "all data must be of the same type: {} has a column {}, this has {}",
                self.path(first),
                describe(&field),
                describe(&found)
            ),
        ))
    }
}

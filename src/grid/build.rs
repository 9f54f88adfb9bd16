//! Puts tiles together to a grid and checks every invariant, once.
//!
//! Comes in: a schema, the axes of rows and columns, one tile for each position. Goes out: a [`PartitionGrid`] of which all later code may assume: every
//! position has exactly one tile, each tile has the rows and the fields of its region. Never here: reading of values.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::grid::axis::Axis;
use crate::grid::geometry::Geometry;
use crate::grid::names::{check_count, numbered};
use crate::grid::order::RowOrder;
use crate::grid::ranks::Ranks;
use crate::grid::tile::Tile;
use crate::grid::{GridId, PartitionGrid, unknown_column};
use crate::location::host_setting;

/// Collects the tiles of a grid of rows x columns.
#[derive(Debug)]
pub struct GridBuilder {
    id: Option<GridId>,
    schema: SchemaRef,
    geometry: Geometry,
    tiles: Vec<Option<Tile>>,
    order: RowOrder,
    locals: Option<Arc<[bool]>>,
    ranks: Option<Ranks>,
}

impl GridBuilder {
    /// A builder for a frame with the columns of `schema`, cut along `rows` and `columns`.
    ///
    /// # Errors
    /// `InvalidArgument` when the column axis does not end with the number of columns, when a column name repeats, when there are more tiles than this machine
    /// can number, or when `PARTGRID_HOST` is set to something that is no address.
    pub fn try_new(schema: SchemaRef, rows: Axis, columns: Axis) -> Result<Self> {
        host_setting()?;
        check_names(&schema)?;
        let num_columns = schema.fields().len();
        if columns.extent() != num_columns as u64 {
            return Err(Error::invalid_argument(format!(
                "the column axis must end with the number of columns, {num_columns}, got {}",
                columns.extent()
            )));
        }
        let geometry = Geometry::try_new([rows, columns])?;
        let tiles = vec![None; geometry.num_tiles()];
        Ok(Self {
            id: None,
            schema,
            geometry,
            tiles,
            order: RowOrder::default(),
            locals: None,
            ranks: None,
        })
    }

    /// Gives the grid the name of the one in another process that has the same tiles.
    pub(crate) fn with_id(self, id: GridId) -> Self {
        let id = Some(id);
        Self { id, ..self }
    }

    /// Says what is known of the order of the rows. The caller answers for it: values are not looked at, and SQL neither sorts again what is sorted already nor looks whether it is.
    ///
    /// # Errors
    /// `NotFound` for a column that the schema does not have.
    pub fn with_order(self, order: RowOrder) -> Result<Self> {
        let sorted = order.sorted_by.iter().map(|column| &column.name);
        for name in sorted.chain(&order.partitioned_by) {
            if self.schema.column_with_name(name).is_none() {
                let names = self.schema.fields().iter();
                return Err(unknown_column(
                    name,
                    names.map(|field| field.name().as_str()),
                ));
            }
        }
        Ok(Self { order, ..self })
    }

    /// Says that this process is part of an SPMD program, and whether it has each tile, in row-major order.
    ///
    /// # Errors
    /// `InvalidArgument` when there are not as many as tiles.
    pub fn with_locals(self, locals: impl Into<Arc<[bool]>>) -> Result<Self> {
        let locals = locals.into();
        self.check_count(locals.len())?;
        let locals = Some(locals);
        Ok(Self { locals, ..self })
    }

    /// Says that this process is a rank of an SPMD program, and which rank has which tile.
    ///
    /// # Errors
    /// `InvalidArgument` when there are not as many owners as tiles.
    pub fn with_ranks(self, ranks: Ranks) -> Result<Self> {
        self.check_count(ranks.owners().len())?;
        let locals = ranks.owners().iter().map(|owner| *owner == ranks.rank());
        let locals = Some(locals.collect());
        let ranks = Some(ranks);
        Ok(Self {
            locals,
            ranks,
            ..self
        })
    }

    fn check_count(&self, got: usize) -> Result<()> {
        match self.tiles.len() {
            wanted if wanted == got => Ok(()),
            wanted => Err(Error::invalid_argument(format!(
                "there must be one for each of {wanted} tiles, got {got}"
            ))),
        }
    }

    /// Sets the tile at a position.
    ///
    /// # Errors
    /// `NotFound` for a position outside the grid, `InvalidArgument` when it is taken or when the tile's rows or fields are not those of the position.
    pub fn set(&mut self, position: &[usize], tile: Tile) -> Result<()> {
        let flat_index = self.geometry.flat_index(position)?;
        self.check_tile(position, &tile)?;
        match self.tiles.get_mut(flat_index) {
            Some(slot @ None) => {
                *slot = Some(tile);
                Ok(())
            }
            _ => {
                Err(Error::invalid_argument("the position already has a tile")
                    .with_position(position))
            }
        }
    }

    /// The finished grid.
    ///
    /// # Errors
    /// `InvalidArgument` when a position has no tile.
    pub fn build(self) -> Result<PartitionGrid> {
        let missing = self.tiles.iter().position(Option::is_none);
        if let Some(position) = missing.and_then(|flat_index| self.geometry.position(flat_index)) {
            return Err(Error::invalid_argument("a tile is missing").with_position(&position));
        }
        Ok(PartitionGrid {
            id: self.id.map_or_else(GridId::try_random, Ok)?,
            schema: self.schema,
            geometry: self.geometry,
            tiles: self.tiles.into_iter().flatten().collect(),
            order: self.order,
            locals: self.locals,
            ranks: self.ranks,
            loads: Arc::from([]),
        })
    }

    fn check_tile(&self, position: &[usize], tile: &Tile) -> Result<()> {
        let [rows, columns] = self.geometry.axes() else {
            return Err(Error::internal("a frame has two axes"));
        };
        let (Some(row_band), Some(column_band)) = (
            position.first().and_then(|at| rows.interval(*at)),
            position.get(1).and_then(|at| columns.interval(*at)),
        ) else {
            return Err(Error::internal("a checked position has two intervals"));
        };
        let num_rows = row_band.end - row_band.start;
        if tile.num_rows() != num_rows {
            return Err(Error::invalid_argument(format!(
                "the tile must have the {num_rows} rows of its row band, got {}",
                tile.num_rows()
            ))
            .with_position(position));
        }
        let wanted = self.schema.fields().iter().enumerate();
        let wanted = wanted.filter(|(number, _)| column_band.contains(&(*number as u64)));
        check_fields(
            wanted.map(|(_, field)| field.as_ref()),
            &tile.data().schema(),
        )
        .map_err(|error| error.with_position(position))
    }
}

impl PartitionGrid {
    /// A grid of one tile for each batch, one below the other, without copying (nested columns of sliced batches are rebuilt). Without a batch: one empty tile.
    ///
    /// # Errors
    /// `InvalidArgument` when a batch has other columns than `schema`; as [`GridBuilder::try_new`].
    pub fn try_from_batches(schema: SchemaRef, batches: &[RecordBatch]) -> Result<Self> {
        let empty = [RecordBatch::new_empty(Arc::clone(&schema))];
        let batches = if batches.is_empty() { &empty } else { batches };
        let rows = Axis::try_from_lengths(batches.iter().map(|batch| batch.num_rows() as u64))?;
        let columns = Axis::uncut(schema.fields().len() as u64);
        let mut builder = GridBuilder::try_new(schema, rows, columns)?;
        for (row_band, batch) in batches.iter().enumerate() {
            builder.set(&[row_band, 0], Tile::try_from_batch(batch)?)?;
        }
        builder.build()
    }
}

impl PartitionGrid {
    /// A grid of one tile of the given columns, without copying; without names they are `column_0`, `column_1` and so on.
    ///
    /// # Errors
    /// `InvalidArgument` without columns, for another number of names, for columns of different lengths, and for a name given twice.
    pub fn try_from_columns(columns: Vec<ArrayRef>, names: Option<Vec<String>>) -> Result<Self> {
        let count = columns.len();
        if count == 0 {
            return Err(Error::invalid_argument(
                "a grid is made of at least one column, got an array without any",
            ));
        }
        let names = names.unwrap_or_else(|| numbered(count));
        check_count(&names, count)?;
        let fields = names.into_iter().zip(&columns);
        let fields =
            fields.map(|(name, column)| Field::new(name, column.data_type().clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        Self::try_from_batches(schema, &[batch])
    }
}

fn check_names(schema: &SchemaRef) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        None => Ok(()),
        Some(twice) => Err(Error::invalid_argument(
            "column names of a grid must be distinct, this one repeats",
        )
        .with_column(twice.name())),
    }
}

/// Fields must agree in name, type and nullability; metadata belongs to the grid's schema.
fn check_fields<'a>(wanted: impl Iterator<Item = &'a Field>, got: &SchemaRef) -> Result<()> {
    let wanted: Vec<&Field> = wanted.collect();
    if wanted.len() != got.fields().len() {
        return Err(Error::invalid_argument(format!(
            "the tile must have the {} columns of its column band, got {}",
            wanted.len(),
            got.fields().len()
        )));
    }
    for (wanted, got) in wanted.into_iter().zip(got.fields()) {
        let same = wanted.name() == got.name() && wanted.data_type() == got.data_type();
        if !same || (got.is_nullable() && !wanted.is_nullable()) {
            return Err(Error::invalid_argument(format!(
                "a column of the tile must be {}, got {}",
                describe_field(wanted),
                describe_field(got)
            ))
            .with_column(wanted.name()));
        }
    }
    Ok(())
}

/// Name, type, whether its categories have an order, and whether it holds nulls.
pub(super) fn describe_field(field: &Field) -> String {
    let nullable = if field.is_nullable() { "" } else { " not null" };
    let ordered = match field.dict_is_ordered() {
        Some(true) => " ordered",
        _ => "",
    };
    let data_type = field.data_type();
    format!("`{}` {data_type}{ordered}{nullable}", field.name())
}

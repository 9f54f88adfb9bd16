//! `tiles('name')`: where the data of a grid is, as a table.
//!
//! Comes in: the name of a grid. Goes out: a row for each tile: position, rows, bytes, location, what is known of its columns, and whether nobody has it any more. Nothing is read for it: statistics that nobody
//! has worked out yet are null, unless the values are in the memory of this process. Never here: tiles themselves.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, ListBuilder, RecordBatch, StringArray, StringBuilder, StructBuilder,
    UInt32Array, UInt64Array, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::Expr;

use super::error::no_table;
use super::names::{Names, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{PartitionGrid, Tile};

/// The table function.
pub(super) struct Tiles {
    pub(super) names: Names,
}

impl fmt::Debug for Tiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("tiles")
    }
}

impl TableFunctionImpl for Tiles {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> PlanResult<Arc<dyn TableProvider>> {
        let name = match arguments.exprs() {
            [Expr::Literal(value, _)] => value.try_as_str().flatten(),
            _ => None,
        };
        let name = name.ok_or_else(|| {
            Error::new(
                ErrorKind::Query,
                "tiles() takes the name of a grid as a text",
            )
            .with_hint("write tiles('name')")
        })?;
        let known = self.names.planned();
        let grid = match known.table(name) {
            Some((_, Table::Grid(table))) => Arc::clone(table.grid()),
            Some((_, Table::View(_))) => {
                let text = format!("`{name}` is a view, which has no tiles");
                return Err(Error::new(ErrorKind::Query, text)
                    .with_context("table", name)
                    .into());
            }
            None => return Err(no_table(name, &known).into()),
        };
        let batch = describe(&grid)?;
        Ok(Arc::new(MemTable::try_new(
            batch.schema(),
            vec![vec![batch]],
        )?))
    }
}

fn statistics_fields() -> Fields {
    Fields::from(vec![
        Field::new("column", DataType::Utf8, false),
        Field::new("null_count", DataType::UInt64, true),
        Field::new("min", DataType::Utf8, true),
        Field::new("max", DataType::Utf8, true),
    ])
}

/// The table of a grid. Counting from 0, as positions do.
fn describe(grid: &PartitionGrid) -> Result<RecordBatch> {
    let width = grid.columns().num_intervals();
    let height = grid.rows().num_intervals();
    let positions: Vec<(usize, usize)> = (0..height)
        .flat_map(|row| (0..width).map(move |column| (row, column)))
        .collect();
    let tiles: Vec<&Tile> = (0..height).flat_map(|row| grid.row_band(row)).collect();
    let numbers = |of: &dyn Fn(&Tile) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            tiles.iter().map(|tile| of(tile)),
        ))
    };
    let bands = |of: fn(&(usize, usize)) -> usize| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            positions.iter().map(|position| of(position) as u64),
        ))
    };
    let starts = positions
        .iter()
        .map(|(row, _)| grid.rows().interval(*row).map_or(0, |rows| rows.start));
    let column_names: Vec<Vec<String>> = (0..width).map(|band| names_of(grid, band)).collect();
    let located = Located::of(&tiles);
    let lazy: Vec<bool> = tiles.iter().map(|tile| tile.data().is_lazy()).collect();
    let lost: Vec<bool> = tiles.iter().map(|tile| tile.data().is_lost()).collect();
    let pairs: Vec<(&str, ArrayRef)> = vec![
        ("row_band", bands(|(row, _)| *row)),
        ("column_band", bands(|(_, column)| *column)),
        ("first_row", Arc::new(UInt64Array::from_iter_values(starts))),
        ("rows", numbers(&|tile| tile.num_rows())),
        ("bytes", numbers(&|tile| tile.data().memory_bytes())),
        ("lazy", Arc::new(BooleanArray::from(lazy))),
        ("here", Arc::new(BooleanArray::from(located.here))),
        ("host", Arc::new(StringArray::from(located.hosts))),
        ("process", Arc::new(UInt64Array::from(located.processes))),
        ("device", Arc::new(StringArray::from(located.devices))),
        ("copies", Arc::new(UInt32Array::from(located.copies))),
        ("statistics", statistics(&tiles, &column_names)?),
        ("lost", Arc::new(BooleanArray::from(lost))),
    ];
    let fields: Vec<Field> = pairs
        .iter()
        .map(|(name, values)| Field::new(*name, values.data_type().clone(), true))
        .collect();
    let columns = pairs.into_iter().map(|(_, values)| values).collect();
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

fn names_of(grid: &PartitionGrid, column_band: usize) -> Vec<String> {
    let columns = grid.columns().interval(column_band).unwrap_or_default();
    let fields = grid.schema().fields().iter().enumerate();
    let within = fields.filter(|(number, _)| columns.contains(&(*number as u64)));
    within.map(|(_, field)| field.name().clone()).collect()
}

/// The first location of each tile, the one in this process before others.
#[derive(Default)]
struct Located {
    here: Vec<bool>,
    hosts: Vec<Option<String>>,
    processes: Vec<Option<u64>>,
    devices: Vec<Option<String>>,
    copies: Vec<u32>,
}

impl Located {
    fn of(tiles: &[&Tile]) -> Self {
        let mut located = Self::default();
        for tile in tiles {
            let locations = tile.locations();
            let here = locations.iter().find(|location| location.is_here());
            let nearest = here.or_else(|| locations.first());
            located.here.push(here.is_some());
            located
                .hosts
                .push(nearest.map(|location| location.host().to_string()));
            located
                .processes
                .push(nearest.map(|location| location.process()));
            located
                .devices
                .push(nearest.map(|location| location.device().to_string()));
            located
                .copies
                .push(u32::try_from(locations.len()).unwrap_or(u32::MAX));
        }
        located
    }
}

fn statistics(tiles: &[&Tile], names: &[Vec<String>]) -> Result<ArrayRef> {
    let fields = statistics_fields();
    let columns = StructBuilder::new(
        fields.clone(),
        vec![
            Box::new(StringBuilder::new()),
            Box::new(UInt64Builder::new()),
            Box::new(StringBuilder::new()),
            Box::new(StringBuilder::new()),
        ],
    );
    let item = Field::new("item", DataType::Struct(fields), false);
    let mut lists = ListBuilder::new(columns).with_field(item);
    for (tile, names) in tiles.iter().zip(names.iter().cycle()) {
        for (column, name) in names.iter().enumerate() {
            let known = tile.statistics_at_hand(column);
            let bound = |place: usize| -> Result<Option<String>> {
                let Some(bounds) = known.and_then(|known| known.bounds.as_ref()) else {
                    return Ok(None);
                };
                let formatter = ArrayFormatter::try_new(bounds, &FormatOptions::default())?;
                Ok(Some(formatter.value(place).try_to_string()?))
            };
            let (least, greatest) = (bound(0)?, bound(1)?);
            append(
                lists.values(),
                name,
                known.map(|known| known.null_count),
                [least, greatest],
            );
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

fn append(
    columns: &mut StructBuilder,
    name: &str,
    nulls: Option<u64>,
    bounds: [Option<String>; 2],
) {
    if let Some(names) = columns.field_builder::<StringBuilder>(0) {
        names.append_value(name);
    }
    if let Some(counts) = columns.field_builder::<UInt64Builder>(1) {
        counts.append_option(nulls);
    }
    for (place, bound) in bounds.into_iter().enumerate() {
        if let Some(texts) = columns.field_builder::<StringBuilder>(2 + place) {
            texts.append_option(bound);
        }
    }
    columns.append(true);
}

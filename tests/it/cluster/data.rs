//! The grids of the tests of clusters: what each process makes by itself, from its number.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use partgrid::PartitionGrid;
use partgrid::grid::{Axis, GridBuilder, MemoryTile, Tile};

/// `facts` with many rows in two column bands, `names` with few rows, which the members have in another order; `few`, which the member of seed 1 alone has; `floats` with so few rows that the
/// engine chooses other plans, and one row where the seed is 1.
pub(super) const GRIDS: [&str; 4] = ["facts", "names", "few", "floats"];

/// Rows of each tile of `facts`.
const ROWS: i64 = 3_000;

/// Values that compare in ways of their own.
const FLOATS: [Option<f64>; 7] = [
    Some(0.0),
    Some(-0.0),
    Some(f64::NAN),
    Some(f64::INFINITY),
    Some(-1.5),
    None,
    Some(2.0),
];

/// What the process of a seed has of a grid.
pub(super) fn part(name: &str, seed: u64) -> Arc<PartitionGrid> {
    let seed = i64::try_from(seed).unwrap();
    Arc::new(match name {
        "facts" => facts(seed),
        "names" => names(seed),
        "floats" => floats(seed),
        _ => few(seed),
    })
}

fn facts(seed: i64) -> PartitionGrid {
    let tiles = 1 + seed % 3;
    let batches: Vec<RecordBatch> = (0..tiles)
        .map(|tile| {
            let ids = (tile * ROWS..(tile + 1) * ROWS).map(move |row| seed * 1_000_000 + row);
            let ids: Vec<i64> = ids.collect();
            let groups = ids.iter().map(|id| (id % 7 != 0).then_some(id % 11));
            let texts = ids
                .iter()
                .map(|id| (id % 5 != 0).then(|| format!("text {}", id % 13)));
            let amounts = ids.iter().map(|id| i128::from(id * 37 % 10_007));
            let amounts = Decimal128Array::from_iter_values(amounts);
            batch(&[
                ("id", Arc::new(Int64Array::from(ids.clone()))),
                ("g", Arc::new(groups.collect::<Int64Array>())),
                ("text", Arc::new(texts.collect::<StringArray>())),
                (
                    "f",
                    Arc::new(
                        ids.iter()
                            .map(|id| FLOATS[(id % 7) as usize])
                            .collect::<Float64Array>(),
                    ),
                ),
                (
                    "amount",
                    Arc::new(amounts.with_precision_and_scale(12, 2).unwrap()),
                ),
            ])
        })
        .collect();
    grid(&batches, &[0, 2, 5])
}

fn names(seed: i64) -> PartitionGrid {
    let keys: Vec<i64> = (0..11).filter(|key| key % 3 == (seed + 1) % 3).collect();
    let names: StringArray = keys.iter().map(|key| Some(format!("name {key}"))).collect();
    let batch = batch(&[
        ("g", Arc::new(Int64Array::from(keys))),
        ("name", Arc::new(names)),
    ]);
    grid(&[batch], &[0, 2])
}

fn few(seed: i64) -> PartitionGrid {
    let keys: Vec<i64> = if seed == 1 { vec![3, 1, 2] } else { Vec::new() };
    grid(
        &[batch(&[("k", Arc::new(Int64Array::from(keys)))])],
        &[0, 1],
    )
}

fn floats(seed: i64) -> PartitionGrid {
    let num_rows = 1 + seed / 2 % 3 * 7;
    let ids = seed * 100..seed * 100 + num_rows;
    let values: Float64Array = ids.clone().map(|id| FLOATS[(id % 7) as usize]).collect();
    let batch = batch(&[
        ("id", Arc::new(ids.map(Some).collect::<Int64Array>())),
        ("f", Arc::new(values)),
    ]);
    grid(&[batch], &[0, 2])
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let field = |(name, array): &(&str, ArrayRef)| {
        let data_type: DataType = array.data_type().clone();
        Field::new(*name, data_type, true)
    };
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let arrays = columns.iter().map(|(_, array)| Arc::clone(array)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// A grid of one row band for each batch, with these column cuts.
fn grid(batches: &[RecordBatch], column_cuts: &[u64]) -> PartitionGrid {
    let schema: SchemaRef = batches[0].schema();
    let rows = Axis::try_from_lengths(batches.iter().map(|batch| batch.num_rows() as u64)).unwrap();
    let columns = Axis::try_new(column_cuts).unwrap();
    let mut builder = GridBuilder::try_new(schema, rows, columns.clone()).unwrap();
    for (row_band, batch) in batches.iter().enumerate() {
        for (column_band, numbers) in columns.intervals().enumerate() {
            let numbers: Vec<usize> = (numbers.start as usize..numbers.end as usize).collect();
            let tile = MemoryTile::try_new(&batch.project(&numbers).unwrap()).unwrap();
            builder
                .set(&[row_band, column_band], Tile::new(Arc::new(tile)))
                .unwrap();
        }
    }
    builder.build().unwrap()
}

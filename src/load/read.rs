//! A plan -> decoded columns -> the grid.
//!
//! Comes in: what to read and where to cut. Goes out: the grid that `assembly.rs` makes of the columns, and the keeper of its tiles. The unit of work is one column of one row band (or
//! some small ones): every core has one to decode, and only a little more than the columns being decoded is in memory besides the tiles. Never here: where to cut, how to decode.

use std::sync::Arc;

use arrow::array::ArrayRef;
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::assembly::{Assembly, Decoded, empty_grid};
use super::budget::Budget;
use super::checkpoint::Checkpoint;
use super::decode::ColumnWork;
use super::error::{blocking, contained};
use super::input::{Pages, pages};
use super::keep::Keeper;
use super::layout::{Plan, ReadTask};
use super::options::LoadOptions;
use super::progress::Counters;
use super::sizes::{Sizes, byte_ranges};
use crate::error::{Error, Result};
use crate::grid::PartitionGrid;

/// How many row bands of remote files are fetched before they are decoded.
const FETCHED_AHEAD: usize = 4;

/// Columns are decoded together until they are about so large.
const UNIT_BYTES: u64 = 2 << 20;

/// How many units wait for a core, so that none is idle between two.
const NEXT: usize = 2;

/// Some columns of one row band, ready to be decoded.
struct Unit {
    task: usize,
    columns: Vec<usize>,
    pages: Pages,
    sizes: Sizes,
}

/// Reads all tiles and puts them together.
pub(super) async fn grid(
    plan: Arc<Plan>,
    options: &LoadOptions,
    counters: &Arc<Counters>,
) -> Result<(PartitionGrid, Keeper)> {
    let keeper = Keeper::new(&plan, options, counters);
    if plan.tasks.is_empty() {
        return Ok((empty_grid(&plan)?, keeper));
    }
    let budget = Arc::clone(keeper.budget());
    let checkpoint = match options.resume() {
        None => None,
        Some(folder) => {
            let (folder, filters) = (folder.to_owned(), options.filters().to_vec());
            Some(blocking(move || Checkpoint::open(&folder, &filters)).await?)
        }
    };
    let mut assembly = Assembly::new(&plan, keeper, checkpoint, counters);
    assembly.add_bands_without_columns().await?;
    assembly.resume(options.concurrency()).await?;
    let tasks = 0..plan.tasks.len();
    let missing: Vec<(usize, Vec<usize>)> = tasks
        .map(|task| (task, assembly.missing(task)))
        .filter(|(_, columns)| !columns.is_empty())
        .collect();
    let mut units = std::pin::pin!(decoded(
        &plan,
        missing,
        &budget,
        counters,
        options.concurrency()
    ));
    while let Some(unit) = units.try_next().await? {
        assembly.add(unit).await?;
    }
    assembly.grid()
}

/// The missing columns of row bands, decoded, about in order.
fn decoded(
    plan: &Arc<Plan>,
    missing: Vec<(usize, Vec<usize>)>,
    budget: &Arc<Budget>,
    counters: &Arc<Counters>,
    concurrency: usize,
) -> impl Stream<Item = Result<Vec<Decoded>>> {
    let (opened, plan) = (Arc::clone(plan), Arc::clone(plan));
    let (budget, counters) = (Arc::clone(budget), Arc::clone(counters));
    stream::iter(missing)
        .map(move |(task, columns)| units(Arc::clone(&opened), task, columns))
        .buffered(FETCHED_AHEAD)
        .map_ok(|units| stream::iter(units.into_iter().map(Ok)))
        .try_flatten()
        .map_ok(move |unit| {
            let (plan, budget) = (Arc::clone(&plan), Arc::clone(&budget));
            decode(plan, budget, Arc::clone(&counters), unit)
        })
        .try_buffer_unordered(concurrency + NEXT)
}

/// The columns of one row band, the largest first, so that the last to end are small. Small ones share a unit.
async fn units(plan: Arc<Plan>, number: usize, columns: Vec<usize>) -> Result<Vec<Unit>> {
    let (task, file, footer) = parts(&plan, number)?;
    let roots: Vec<usize> = columns
        .iter()
        .filter_map(|column| plan.root_in(footer, *column))
        .collect();
    let ranges = byte_ranges(footer, task.row_groups.clone(), &roots);
    let pages = pages(file, &ranges).await?;
    let mut columns: Vec<(usize, Sizes)> = columns
        .into_iter()
        .map(|column| (column, plan.sizes(task, column)))
        .collect();
    columns.sort_by_key(|(_, sizes)| std::cmp::Reverse(sizes.decoded_bytes));
    let mut units: Vec<Unit> = Vec::new();
    for (column, sizes) in columns {
        match units.last_mut() {
            Some(unit) if unit.sizes.decoded_bytes < UNIT_BYTES => {
                unit.columns.push(column);
                unit.sizes = unit.sizes.plus(sizes);
            }
            _ => units.push(Unit {
                task: number,
                columns: vec![column],
                pages: pages.clone(),
                sizes,
            }),
        }
    }
    Ok(units)
}

/// A row band, its file, the footer of that.
pub(super) fn parts(
    plan: &Plan,
    number: usize,
) -> Result<(
    &ReadTask,
    &super::source::SourceFile,
    &super::footer::Footer,
)> {
    let missing = || Error::internal("a read task names a file that is not there");
    let task = plan.tasks.get(number).ok_or_else(missing)?;
    let file = plan.files.get(task.file).ok_or_else(missing)?;
    let footer = plan.footers.get(task.file).ok_or_else(missing)?;
    Ok((task, file, footer))
}

async fn decode(
    plan: Arc<Plan>,
    budget: Arc<Budget>,
    counters: Arc<Counters>,
    unit: Unit,
) -> Result<Vec<Decoded>> {
    let sizes = unit.sizes;
    let mut reservation = Some(budget.reserve(sizes.decoded_bytes).await?);
    let number = unit.task;
    let decoded = blocking(move || {
        let (_, file, _) = parts(&plan, unit.task)?;
        contained(&file.name, || decode_columns(&plan, &unit))
    })
    .await?;
    counters.num_bytes.add(sizes.file_bytes);
    let columns = decoded.into_iter().map(|(column, values)| Decoded {
        task: number,
        column,
        values,
        reservation: reservation.take(),
    });
    Ok(columns.collect())
}

fn decode_columns(plan: &Plan, unit: &Unit) -> Result<Vec<(usize, ArrayRef)>> {
    let columns = unit.columns.iter();
    columns
        .map(|column| {
            let values = decode_column(plan, unit.task, *column, &unit.pages)?;
            Ok((*column, values))
        })
        .collect()
}

/// One column of a row band, out of pages that hold it.
pub(super) fn decode_column(
    plan: &Plan,
    number: usize,
    column: usize,
    pages: &Pages,
) -> Result<ArrayRef> {
    let (task, file, footer) = parts(plan, number)?;
    let field = plan.columns.schema.fields().get(column);
    let origin = plan.columns.origins.get(column);
    let (Some(field), Some(origin)) = (field, origin) else {
        return Err(Error::internal("a column that is not there is to be read"));
    };
    let work = ColumnWork {
        file,
        footer,
        task,
        field,
        origin,
    };
    work.decode(pages)
}

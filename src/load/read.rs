//! A plan -> decoded columns -> the grid.
//!
//! Comes in: what to read and where to cut. Goes out: the grid that `assembly.rs` makes of the columns, and the keeper of its tiles. The unit of work is one column of one row band (or
//! some small ones): every core has one to decode, and only a little more than the columns being decoded is in memory besides the tiles. Never here: where to cut, how to decode.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::RowSelection;

use super::assembly::{Assembly, Decoded, Part, empty_grid};
use super::budget::{Budget, Reservation};
use super::checkpoint::Checkpoint;
use super::choose::{Chosen, choose};
use super::decode::{ColumnWork, Rows};
use super::error::{blocking, contained};
use super::footer::Footer;
use super::input::{Pages, pages};
use super::keep::Keeper;
use super::layout::{Plan, ReadTask};
use super::options::LoadOptions;
use super::progress::Counters;
use super::sizes::{Sizes, byte_ranges};
use super::source::SourceFile;
use super::spill::prepare;
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
    rows: Arc<Rows>,
    pages: Pages,
    sizes: Sizes,
    /// What is decoded already.
    done: Vec<(usize, ArrayRef)>,
    reservation: Option<Reservation>,
}

/// Reads all tiles and puts them together.
pub(super) async fn grid(
    plan: Arc<Plan>,
    options: &LoadOptions,
    counters: &Arc<Counters>,
) -> Result<(PartitionGrid, Keeper)> {
    if let Some(folder) = options.spill_to().map(PathBuf::from) {
        blocking(move || prepare(&folder)).await?;
    }
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
    assembly.resume(options.concurrency()).await?;
    let tasks = 0..plan.tasks.len();
    let missing: Vec<(usize, Vec<usize>)> = tasks
        .filter_map(|task| Some((task, assembly.missing(task)?)))
        .collect();
    let mut units = std::pin::pin!(decoded(
        &plan,
        missing,
        &budget,
        counters,
        options.concurrency()
    ));
    while let Some(part) = units.try_next().await? {
        assembly.add(part).await?;
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
) -> impl Stream<Item = Result<Part>> {
    let (opened, plan) = (Arc::clone(plan), Arc::clone(plan));
    let (at_opening, budget) = (Arc::clone(budget), Arc::clone(budget));
    let counters = Arc::clone(counters);
    stream::iter(missing)
        .map(move |(task, columns)| {
            units(Arc::clone(&opened), Arc::clone(&at_opening), task, columns)
        })
        .buffered(FETCHED_AHEAD)
        .map_ok(|units| stream::iter(units.into_iter().map(Ok)))
        .try_flatten()
        .map_ok(move |unit| {
            let (plan, budget) = (Arc::clone(&plan), Arc::clone(&budget));
            decode(plan, budget, Arc::clone(&counters), unit)
        })
        .try_buffer_unordered(concurrency + NEXT)
}

/// The columns of one row band, the largest first, so that the last to end are small. Those that a filter had to look at come before them, decoded.
async fn units(
    plan: Arc<Plan>,
    budget: Arc<Budget>,
    number: usize,
    columns: Vec<usize>,
) -> Result<Vec<Unit>> {
    let Chosen {
        rows,
        columns: chosen,
        reservation,
    } = choose(&plan, number, &budget).await?;
    let (task, ..) = parts(&plan, number)?;
    let fields = plan.columns.schema.fields();
    let mut done = Vec::new();
    let mut sizes = Sizes::default();
    for (column, values) in chosen {
        let is_missing = columns.contains(&column);
        // What a finished tile holds was counted with it.
        if is_missing || column >= plan.columns.num_visible {
            sizes = sizes.plus(plan.sizes(task, column));
        }
        if is_missing {
            done.push((column, values));
        }
    }
    let is_open = |column: &usize| done.iter().all(|(ready, _)| ready != column);
    let mut open: Vec<usize> = columns.into_iter().filter(is_open).collect();
    if rows.num_kept() == 0 && plan.filter.is_some() {
        for column in open.drain(..) {
            sizes = sizes.plus(plan.sizes(task, column));
            let field = fields.get(column);
            done.extend(field.map(|field| (column, new_empty_array(field.data_type()))));
        }
    }
    let pages = pages_of(&plan, number, &open, rows.selection.as_ref()).await?;
    let rows = Arc::new(rows);
    let unit = |columns, sizes, done, reservation| Unit {
        task: number,
        columns,
        rows: Arc::clone(&rows),
        pages: pages.clone(),
        sizes,
        done,
        reservation,
    };
    let mut units = Vec::new();
    // Also what has no column to wait for.
    if plan.filter.is_some() || open.is_empty() {
        sizes.decoded_bytes = 0;
        units.push(unit(Vec::new(), sizes, done, reservation));
    }
    let together = grouped(&plan, task, open).into_iter();
    units.extend(together.map(|(columns, sizes)| unit(columns, sizes, Vec::new(), None)));
    Ok(units)
}

/// Columns that are decoded together, with their size: the largest first, alone; small ones share.
fn grouped(plan: &Plan, task: &ReadTask, columns: Vec<usize>) -> Vec<(Vec<usize>, Sizes)> {
    let mut columns: Vec<(usize, Sizes)> = columns
        .into_iter()
        .map(|column| (column, plan.sizes(task, column)))
        .collect();
    columns.sort_by_key(|(_, sizes)| std::cmp::Reverse(sizes.decoded_bytes));
    let mut groups: Vec<(Vec<usize>, Sizes)> = Vec::new();
    for (column, sizes) in columns {
        match groups.last_mut() {
            Some((group, whole)) if whole.decoded_bytes < UNIT_BYTES => {
                group.push(column);
                *whole = whole.plus(sizes);
            }
            _ => groups.push((vec![column], sizes)),
        }
    }
    groups
}

/// The pages of some columns of a row band; with a selection among the rows of its row groups those that hold selected rows.
pub(super) async fn pages_of(
    plan: &Plan,
    number: usize,
    columns: &[usize],
    selection: Option<&RowSelection>,
) -> Result<Pages> {
    let (task, file, footer) = parts(plan, number)?;
    let roots = columns
        .iter()
        .filter_map(|column| plan.root_in(footer, *column));
    let roots: Vec<usize> = roots.collect();
    let groups = task.row_groups.clone();
    pages(file, &byte_ranges(footer, groups, &roots, selection)).await
}

/// A row band, its file, the footer of that.
pub(super) fn parts(plan: &Plan, number: usize) -> Result<(&ReadTask, &SourceFile, &Footer)> {
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
    mut unit: Unit,
) -> Result<Part> {
    let (sizes, number, rows) = (unit.sizes, unit.task, Arc::clone(&unit.rows));
    let done = std::mem::take(&mut unit.done);
    let mut reservation = unit.reservation.take();
    let mut columns = done;
    if !unit.columns.is_empty() {
        reservation = Some(budget.reserve(sizes.decoded_bytes).await?);
        columns = blocking(move || {
            let (_, file, _) = parts(&plan, unit.task)?;
            contained(&file.name, || decode_columns(&plan, &unit))
        })
        .await?;
    }
    counters.num_bytes.add(sizes.file_bytes);
    let columns = columns.into_iter().map(|(column, values)| Decoded {
        column,
        values,
        reservation: reservation.take(),
    });
    Ok(Part {
        task: number,
        num_rows: rows.num_kept() as u64,
        columns: columns.collect(),
    })
}

fn decode_columns(plan: &Plan, unit: &Unit) -> Result<Vec<(usize, ArrayRef)>> {
    let columns = unit.columns.iter();
    columns
        .map(|column| {
            let values = decode_column(plan, unit.task, *column, &unit.rows, &unit.pages)?;
            Ok((*column, values))
        })
        .collect()
}

/// One column of a row band, out of pages that hold it.
pub(super) fn decode_column(
    plan: &Plan,
    number: usize,
    column: usize,
    rows: &Rows,
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
        rows,
        field,
        origin,
    };
    work.decode(pages)
}

//! The rows of a row band that a filter wants, before anything else of it is read.
//!
//! Comes in: a plan with a filter, a row band. Goes out: which rows are wanted, and the columns that the filter had to look at, of these rows. The page index leaves out pages, the
//! values of the filter's columns leave out rows; only the rest of the other columns is read. Never here: what is compared how.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::{SlicesIterator, filter};
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::RowSelection;

use super::budget::{Budget, Reservation};
use super::decode::Rows;
use super::error::{blocking, contained};
use super::footer::Footer;
use super::layout::{Plan, ReadTask};
use super::read::{decode_column, pages_of, parts};
use crate::error::Result;

/// Runs of selected rows that are shorter than this on average are not worth skipping between: everything is decoded and filtered after.
const SHORT_RUN: usize = 16;

/// What a filter chose in one row band.
pub(super) struct Chosen {
    pub(super) rows: Rows,
    /// The columns that the filter looked at, of the wanted rows, by number.
    pub(super) columns: HashMap<usize, ArrayRef>,
    /// What they use.
    pub(super) reservation: Option<Reservation>,
}

/// Applies the filter of a plan to a row band; all rows without one.
pub(super) async fn choose(
    plan: &Arc<Plan>,
    number: usize,
    budget: &Arc<Budget>,
) -> Result<Chosen> {
    let (task, _, footer) = parts(plan, number)?;
    let Some(wanted) = &plan.filter else {
        return Ok(Chosen {
            rows: Rows::all(task),
            columns: HashMap::new(),
            reservation: None,
        });
    };
    let kept = wanted.kept_rows(footer, &task.row_groups);
    let candidates = Arc::new(candidates(task, footer, kept));
    let looked_at = wanted.columns();
    let bytes = looked_at
        .iter()
        .map(|column| plan.sizes(task, *column).decoded_bytes);
    let mut reservation = budget.reserve(bytes.sum()).await?;
    let columns = read(plan, number, looked_at, &candidates).await?;
    let mask = wanted.mask(&columns, candidates.num_rows)?;
    let columns: Result<HashMap<usize, ArrayRef>> = columns
        .into_iter()
        .map(|(column, values)| Ok((column, filter(&values, &mask)?)))
        .collect();
    let columns = columns?;
    let held: usize = columns
        .values()
        .map(|values| values.get_array_memory_size())
        .sum();
    reservation.settle(held as u64);
    Ok(Chosen {
        rows: narrowed(
            task,
            footer.row_groups.get(task.row_groups.clone()),
            &candidates,
            mask,
        ),
        columns,
        reservation: Some(reservation),
    })
}

/// Some columns of the candidates.
async fn read(
    plan: &Arc<Plan>,
    number: usize,
    columns: Vec<usize>,
    rows: &Arc<Rows>,
) -> Result<HashMap<usize, ArrayRef>> {
    let pages = pages_of(plan, number, &columns, rows.selection.as_ref()).await?;
    stream::iter(columns)
        .map(|column| {
            let (plan, pages, rows) = (Arc::clone(plan), pages.clone(), Arc::clone(rows));
            async move {
                let values = blocking(move || {
                    let (_, file, _) = parts(&plan, number)?;
                    contained(&file.name, || {
                        decode_column(&plan, number, column, &rows, &pages)
                    })
                });
                Ok((column, values.await?))
            }
        })
        .buffered(usize::MAX)
        .try_collect()
        .await
}

/// The rows of a task that lie in pages that can hold wanted ones.
fn candidates(task: &ReadTask, footer: &Footer, kept: Option<RowSelection>) -> Rows {
    let Some(kept) = kept else {
        return Rows::all(task);
    };
    let held = footer.row_groups.get(task.row_groups.clone());
    let selection = kept.intersection(&window(task, held));
    Rows {
        num_rows: selection.row_count(),
        selection: Some(selection),
        mask: None,
    }
}

/// The rows of a task among those of its row groups.
fn window(task: &ReadTask, held: Option<&[u64]>) -> RowSelection {
    let number = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    let held = number(held.unwrap_or_default().iter().sum());
    let rows: Range<usize> = number(task.skip_rows)..number(task.skip_rows + task.num_rows);
    RowSelection::from_consecutive_ranges(std::iter::once(rows), held)
}

/// The candidates that the mask keeps.
fn narrowed(task: &ReadTask, held: Option<&[u64]>, candidates: &Rows, mask: BooleanArray) -> Rows {
    let kept = mask.true_count();
    if kept == mask.len() {
        return candidates.clone();
    }
    let runs = SlicesIterator::new(&mask).count();
    if kept > 0 && mask.len() < runs * SHORT_RUN {
        return Rows {
            mask: Some(mask),
            ..candidates.clone()
        };
    }
    let before = match &candidates.selection {
        Some(selection) => selection.clone(),
        None => window(task, held),
    };
    Rows {
        selection: Some(before.and_then(&RowSelection::from_filters(&[mask]))),
        num_rows: kept,
        mask: None,
    }
}

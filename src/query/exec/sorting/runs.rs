//! Values in order, a run of them by each thread.
//!
//! Comes in: values, and how two are compared. Goes out: the values in order. Never here: what they are.

use std::cmp::Ordering;

use datafusion::common::internal_datafusion_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use futures::future::try_join_all;
use tokio::task::yield_now;

/// So many rows are sorted by one thread, without a pause of more than a few milliseconds.
pub(super) const RUN_ROWS: usize = 1 << 18;

/// Lets others have their turn between so many rows, and ends what is not wanted any more.
#[derive(Default)]
pub(super) struct Pace {
    rows: usize,
}

impl Pace {
    /// After so many rows that were looked at.
    pub(super) async fn after(&mut self, rows: usize) {
        self.rows += rows;
        if self.rows >= RUN_ROWS {
            self.rows = 0;
            yield_now().await;
        }
    }
}

/// Sorts runs, and merges them two by two, all threads at the same time.
pub(super) async fn sorted<T: Copy + Send + Sync + 'static>(
    values: Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let mut runs: Vec<Vec<T>> = match values.len() {
        ..=RUN_ROWS => vec![values],
        _ => values.chunks(RUN_ROWS).map(<[T]>::to_vec).collect(),
    };
    if let [run] = runs.as_mut_slice() {
        run.sort_unstable_by(compare);
        return Ok(runs.pop().unwrap_or_default());
    }
    let sorts = runs.into_iter().map(|mut run| {
        let compare = compare.clone();
        SpawnedTask::spawn(async move {
            run.sort_unstable_by(compare);
            run
        })
    });
    let mut runs = all(sorts.collect()).await?;
    while runs.len() > 1 {
        let mut pairs = Vec::with_capacity(runs.len() / 2 + 1);
        let mut rest = runs.into_iter();
        while let Some(one) = rest.next() {
            let (next, compare) = (rest.next(), compare.clone());
            pairs.push(SpawnedTask::spawn(async move {
                match next {
                    Some(next) => merged(&one, &next, compare).await,
                    None => one,
                }
            }));
        }
        runs = all(pairs).await?;
    }
    Ok(runs.pop().unwrap_or_default())
}

async fn all<T: Send + 'static>(tasks: Vec<SpawnedTask<T>>) -> Result<Vec<T>> {
    let found = try_join_all(tasks).await;
    found.map_err(|error| internal_datafusion_err!("a sort ended early: {error}"))
}

/// Both in order. Others have their turn between, and what is not wanted any more ends.
async fn merged<T: Copy>(
    mut one: &[T],
    mut next: &[T],
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let mut merged = Vec::with_capacity(one.len() + next.len());
    let mut since = 0;
    while let (Some((first, ones)), Some((other, nexts))) = (one.split_first(), next.split_first())
    {
        if compare(other, first).is_lt() {
            merged.push(*other);
            next = nexts;
        } else {
            merged.push(*first);
            one = ones;
        }
        since += 1;
        if since == RUN_ROWS {
            since = 0;
            yield_now().await;
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(next);
    merged
}

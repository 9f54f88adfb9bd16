//! Where placement has put row bands.
//!
//! Comes in: a grid, the members of a query. Goes out: the task of a row band, as `placement/mod.rs` gives it; it is worked out once for these members, and known to their next statements: for a thousand members and a million row
//! bands that takes seconds. Never here: placement itself, which members have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::members::Members;
use crate::grid::{GridId, PartitionGrid};

/// Fewer draws (row bands times members) than these take less time than others are kept for: some 0.1 ms.
const FEW_DRAWS: usize = 1 << 16;

/// Of so many row bands it is kept at most, of all grids together: 64 MiB.
const MOST_ROW_BANDS: usize = 1 << 24;

/// What is kept of all grids.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Placed(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Those for whom it holds, and how many of them have a task.
    members: Option<(Arc<Members>, usize)>,
    grids: HashMap<GridId, Arc<Places>>,
}

/// One more than the number of the task of each row band of a grid; 0 where it is not known yet.
#[derive(Debug)]
pub(in crate::cluster) struct Places(Vec<AtomicU32>);

impl Placed {
    /// What is kept of a grid for the first `num_tasks` of these members; `None` where that is not worth it.
    pub(in crate::cluster) fn of(
        &self,
        grid: &PartitionGrid,
        members: &Arc<Members>,
        num_tasks: usize,
    ) -> Option<Arc<Places>> {
        let num_bands = grid.rows().num_intervals();
        if num_bands.saturating_mul(num_tasks) < FEW_DRAWS || num_bands > MOST_ROW_BANDS {
            return None;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_theirs = kept.members.as_ref().is_some_and(|(those, of)| {
            (Arc::ptr_eq(those, members) || those == members) && *of == num_tasks
        });
        if !is_theirs {
            kept.grids.clear();
            kept.members = Some((Arc::clone(members), num_tasks));
        }
        if let Some(places) = kept.grids.get(&grid.id()) {
            return Some(Arc::clone(places));
        }
        let others = kept.grids.values().map(|places| places.0.len());
        if others.sum::<usize>() + num_bands > MOST_ROW_BANDS {
            kept.grids.clear();
        }
        let unknown = std::iter::repeat_with(AtomicU32::default).take(num_bands);
        let places = Arc::new(Places(unknown.collect()));
        kept.grids.insert(grid.id(), Arc::clone(&places));
        Some(places)
    }
}

impl Places {
    /// The task of a row band, which `find` gives where it is not known yet. Several may look for the same one at once, and find the same.
    pub(in crate::cluster) fn place(
        &self,
        row_band: usize,
        find: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let Some(place) = self.0.get(row_band) else {
            return find();
        };
        if let Some(known) = place.load(Ordering::Relaxed).checked_sub(1) {
            return usize::try_from(known).ok();
        }
        let found = find()?;
        if let Ok(number) = u32::try_from(found) {
            place.store(number.saturating_add(1), Ordering::Relaxed);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::super::leaf::seats;
    use super::*;
    use crate::cluster::members::Member;
    use crate::cluster::{owner, scale};

    fn grid(num_bands: usize) -> PartitionGrid {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("x", values)]).unwrap();
        PartitionGrid::try_from_batches(batch.schema(), &vec![batch; num_bands]).unwrap()
    }

    #[test]
    fn a_row_band_is_placed_once_for_the_same_members_and_anew_for_others() {
        let placed = Placed::default();
        let (one, other) = (grid(2_000), grid(2_000));
        let draws = Cell::new(0);
        let places = |grid: &PartitionGrid, members: &Arc<Members>, num_tasks: usize| {
            let seats = seats(members, num_tasks);
            let kept = placed.of(grid, members, num_tasks).unwrap();
            for band in 0..100 {
                let expected = owner(grid.id().bits(), band as u64, &seats);
                let found = kept.place(band, || {
                    draws.set(draws.get() + 1);
                    expected
                });
                assert_eq!(found, expected);
            }
            draws.replace(0)
        };
        let own = Member::here("grpc://127.0.0.1:9").unwrap();
        let all = Arc::new(scale::members(&own, 40));
        assert_eq!(places(&one, &all, 40), 100);
        assert_eq!(places(&one, &all, 40), 0);
        assert_eq!(places(&one, &Arc::new(scale::members(&own, 40)), 40), 0);
        // A grid of its own, fewer tasks, fewer members, and these again.
        assert_eq!(places(&other, &all, 40), 100);
        assert_eq!(places(&other, &all, 39), 100);
        let fewer = Arc::new(scale::members(&own, 39));
        assert_eq!(places(&one, &fewer, 39), 100);
        assert_eq!(places(&one, &all, 40), 100);
        assert!(placed.of(&grid(3), &all, 40).is_none());
    }
}

//! The plans that were made last on this thread, and what has been freed of their storages.
//!
//! Comes in: what a storage is asked to be; storages that nobody needs any more. Goes out: the plan of the storage before it, and the freed storage itself: stencils make temporaries
//! of few shapes over and over, and numpy keeps small memory as well. Never here: memory of devices, and anything that somebody else holds.

#![expect(
    unsafe_code,
    reason = "moves a storage out of its handle when that is dropped"
)]

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Fill, Item, Parameters, Place, Plan, Storage};
use crate::error::Result;

/// So many plans a thread remembers.
const MAX_PLANS: usize = 4;

/// At most this much memory of freed storages waits on a thread, of which each plan has so many. It is less than what the allocator of the system keeps back of freed memory.
const MAX_SPARE_BYTES: usize = 32 << 20;
const MAX_SPARE: usize = 8;

/// From this size on zeros are fresh pages, that come when they are first touched, and not memory that is cleared here and now.
const FRESH_ZEROS_FROM_BYTES: usize = 512 << 10;

struct Recent {
    parameters: Parameters,
    plan: Arc<Plan>,
    spare: Vec<Arc<Storage>>,
}

impl Recent {
    fn is(&self, shape: &[usize], item_bytes: usize, parameters: &Parameters) -> bool {
        self.plan.item_bytes() == item_bytes
            && self.plan.shape() == shape
            && self.parameters == *parameters
    }

    fn spare_bytes(&self) -> usize {
        self.plan.num_bytes() * self.spare.len()
    }
}

/// What has been freed waits for the next of its plan; of older plans it goes where that has no room.
#[inline]
fn wait(all: &mut [Recent], storage: Arc<Storage>) {
    let is_it = |each: &Recent| Arc::ptr_eq(&each.plan, &storage.plan);
    let Some(place) = all.iter().position(is_it) else {
        return;
    };
    let (older, rest) = all.split_at_mut(place);
    let Some((known, newer)) = rest.split_first_mut() else {
        return;
    };
    let fixed: usize = newer.iter().map(Recent::spare_bytes).sum();
    let fixed = fixed + known.spare_bytes() + known.plan.num_bytes();
    if known.spare.len() == MAX_SPARE || fixed > MAX_SPARE_BYTES {
        return;
    }
    known.spare.push(storage);
    let mut bytes = fixed + older.iter().map(Recent::spare_bytes).sum::<usize>();
    for each in older {
        if bytes <= MAX_SPARE_BYTES {
            break;
        }
        bytes -= each.spare_bytes();
        each.spare.clear();
    }
}

thread_local! {
    /// The newest last.
    static RECENT: RefCell<Vec<Recent>> = const { RefCell::new(Vec::new()) };
}

/// One of the plans, which is the newest then.
#[inline]
fn found(all: &mut [Recent], is_it: impl Fn(&Recent) -> bool) -> Option<&mut Recent> {
    let place = all.iter().rposition(is_it)?;
    if place + 1 < all.len() {
        all.get_mut(place..)?.rotate_left(1);
    }
    all.last_mut()
}

impl Plan {
    /// The plan of a storage, shared with one before it on this thread where that had the same.
    ///
    /// # Errors
    /// As [`Plan::try_new`].
    pub fn try_shared(
        shape: &[usize],
        item_bytes: usize,
        parameters: &Parameters,
    ) -> Result<Arc<Self>> {
        RECENT.with_borrow_mut(|all| {
            if let Some(known) = found(all, |each| each.is(shape, item_bytes, parameters)) {
                return Ok(Arc::clone(&known.plan));
            }
            let plan = Arc::new(Self::try_new(shape, item_bytes, parameters)?);
            if all.len() == MAX_PLANS {
                all.remove(0);
            }
            all.push(Recent {
                parameters: parameters.clone(),
                plan: Arc::clone(&plan),
                spare: Vec::new(),
            });
            Ok(plan)
        })
    }
}

impl Storage {
    /// A storage of the host that was freed on this thread, which is as asked for; `None` where there is none.
    #[inline]
    #[must_use]
    pub fn spare(
        shape: &[usize],
        item: &Item,
        fill: Fill<'_>,
        parameters: &Parameters,
    ) -> Option<Arc<Self>> {
        let mut storage = RECENT.with_borrow_mut(|all| {
            let known = found(all, |each| each.is(shape, item.item_bytes(), parameters))?;
            // Widths may be equal of several types.
            let place = known
                .spare
                .iter()
                .rposition(|storage| storage.item == *item)?;
            Some(known.spare.swap_remove(place))
        })?;
        let pattern = match fill {
            Fill::Undefined => return Some(storage),
            // The allocator has it back, for these zeros among others.
            Fill::Zeros if storage.plan.num_bytes() >= FRESH_ZEROS_FROM_BYTES => return None,
            Fill::Zeros => &[0],
            Fill::Item(value) if value.len() == item.item_bytes() => value,
            Fill::Item(_) => return None,
        };
        let Self {
            offset,
            plan,
            memory,
            ..
        } = Arc::get_mut(&mut storage)?;
        let filled = memory.fill(*offset..*offset + plan.span_bytes(), pattern);
        filled.is_ok().then_some(storage)
    }
}

/// A storage that is kept, for the next of its plan, when this is dropped and nobody else has it.
#[derive(Debug)]
pub struct Handle(ManuallyDrop<Arc<Storage>>);

impl From<Arc<Storage>> for Handle {
    #[inline]
    fn from(storage: Arc<Storage>) -> Self {
        Self(ManuallyDrop::new(storage))
    }
}

impl Deref for Handle {
    type Target = Arc<Storage>;

    #[inline]
    fn deref(&self) -> &Arc<Storage> {
        &self.0
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing reads the handle again.
        let storage = unsafe { ManuallyDrop::take(&mut self.0) };
        keep(storage);
    }
}

#[inline]
fn keep(storage: Arc<Storage>) {
    let is_alone = Arc::strong_count(&storage) == 1 && Arc::weak_count(&storage) == 0;
    // What those did who had it before has happened.
    fence(Ordering::Acquire);
    if !is_alone || storage.plan.place() != Place::Host || !storage.access.is_unused() {
        return;
    }
    // While the thread ends there is nowhere to keep it.
    RECENT
        .try_with(|all| {
            let Ok(mut all) = all.try_borrow_mut() else {
                return;
            };
            wait(&mut all, storage);
        })
        .unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;
    use crate::grid::ElementType;

    const FLOATS: Item = Item::Number(ElementType::Float64);

    fn made(shape: &[usize]) -> Handle {
        let plan = Plan::try_shared(shape, 8, &Parameters::NONE).unwrap();
        let storage = Storage::try_new(plan, FLOATS, Fill::Zeros, &Host);
        storage.unwrap().into()
    }

    fn spare(shape: &[usize], item: &Item) -> Option<Arc<Storage>> {
        Storage::spare(shape, item, Fill::Undefined, &Parameters::NONE)
    }

    #[test]
    fn a_freed_storage_is_the_next_one_of_its_shape_and_type() {
        let first = made(&[3, 5]);
        let address = first.as_ptr();
        assert!(spare(&[3, 5], &FLOATS).is_none(), "it is in use");
        drop(first);
        assert!(spare(&[5, 3], &FLOATS).is_none());
        let whole = Item::Number(ElementType::Int64);
        assert!(spare(&[3, 5], &whole).is_none());
        let parameters = Parameters {
            alignment_size: Some(64),
            ..Parameters::NONE
        };
        assert!(Storage::spare(&[3, 5], &FLOATS, Fill::Undefined, &parameters).is_none());
        let second = spare(&[3, 5], &FLOATS).unwrap();
        assert_eq!(second.as_ptr(), address);
        assert!(spare(&[3, 5], &FLOATS).is_none(), "there was one");
    }

    #[test]
    fn what_is_asked_to_be_in_it_is_in_it() {
        let values = |storage: &Arc<Storage>| {
            // SAFETY: three floats lie there, which were written.
            unsafe { std::slice::from_raw_parts(storage.as_ptr().cast::<f64>(), 3) }.to_vec()
        };
        let seven = 7.0_f64.to_ne_bytes();
        let fills = [
            (Fill::Item(&seven), [7.0; 3]),
            (Fill::Zeros, [0.0; 3]),
            (Fill::Item(&seven), [7.0; 3]),
        ];
        drop(made(&[3]));
        for (fill, expected) in fills {
            let storage = Storage::spare(&[3], &FLOATS, fill, &Parameters::NONE).unwrap();
            assert_eq!(values(&storage), expected);
            drop(Handle::from(storage));
        }
        let wrong = Storage::spare(&[3], &FLOATS, Fill::Item(&[1, 2]), &Parameters::NONE);
        assert!(wrong.is_none(), "no float has two bytes");
    }

    #[test]
    fn what_somebody_holds_or_a_grid_has_is_not_kept() {
        let held = made(&[4]);
        let holder = Arc::clone(&held);
        drop(held);
        assert!(spare(&[4], &FLOATS).is_none());
        drop(holder);
        let frozen = made(&[4]);
        frozen.frozen_for(|| Ok(())).unwrap();
        drop(frozen);
        assert!(spare(&[4], &FLOATS).is_none());
        let written = made(&[4]);
        drop(written.try_write().unwrap());
        drop(written);
        assert!(spare(&[4], &FLOATS).is_some());
    }

    #[test]
    fn little_is_kept() {
        let many: Vec<Handle> = (0..20).map(|_| made(&[2])).collect();
        drop(many);
        let kept = std::iter::from_fn(|| spare(&[2], &FLOATS)).count();
        assert_eq!(kept, MAX_SPARE);
        let too_large = MAX_SPARE_BYTES / 8 + 1;
        drop(made(&[too_large]));
        assert!(spare(&[too_large], &FLOATS).is_none());
        drop(made(&[2]));
        for extent in 10..10 + MAX_PLANS - 1 {
            drop(made(&[extent]));
        }
        drop(Handle::from(spare(&[2], &FLOATS).unwrap()));
        drop(made(&[20]));
        assert!(spare(&[10], &FLOATS).is_none(), "others came since");
        assert!(
            spare(&[2], &FLOATS).is_some(),
            "it was asked for after that one"
        );
    }

    #[test]
    fn older_plans_make_room_for_newer_ones() {
        let half = MAX_SPARE_BYTES / 8 / 2;
        drop(made(&[half + 1]));
        drop(made(&[half + 2]));
        assert!(spare(&[half + 1], &FLOATS).is_none(), "both are too much");
        drop(Handle::from(spare(&[half + 2], &FLOATS).unwrap()));
        let (older, newer) = (made(&[half + 3]), made(&[half + 4]));
        drop(newer);
        drop(older);
        assert!(
            spare(&[half + 3], &FLOATS).is_none(),
            "there is a newer one"
        );
        drop([made(&[half - 9]), made(&[half - 9]), made(&[half - 9])]);
        let kept = std::iter::from_fn(|| spare(&[half - 9], &FLOATS)).count();
        assert_eq!(kept, 2);
    }

    #[test]
    fn large_zeros_are_fresh_pages() {
        let zeros = |extent: usize| {
            let of_nothing = Parameters::NONE;
            Storage::spare(&[extent], &FLOATS, Fill::Zeros, &of_nothing).is_some()
        };
        let large = FRESH_ZEROS_FROM_BYTES / 8;
        drop(made(&[large]));
        assert!(!zeros(large));
        assert!(spare(&[large], &FLOATS).is_none(), "it went back");
        drop(made(&[9]));
        assert!(zeros(9));
    }
}

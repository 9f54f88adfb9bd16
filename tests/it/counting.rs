//! An allocator that counts what a thread asks for.
//!
//! Comes in: work. Goes out: the bytes that it asked for. The unit tests of the crate take this file in as well.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator; counts the bytes that the calling thread asks for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

fn count(num_bytes: usize) {
    // A thread that is ending has no counter any more, and nobody asks for it.
    let add = |bytes: &Cell<usize>| bytes.set(bytes.get().wrapping_add(num_bytes));
    ALLOCATED_BYTES.try_with(add).unwrap_or(());
}

/// The result of `action` and the bytes that it asked for on this thread, freed ones included.
pub(crate) fn allocated_bytes<T>(action: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED_BYTES.get();
    let result = action();
    (result, ALLOCATED_BYTES.get().wrapping_sub(before))
}

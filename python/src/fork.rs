//! What Python says of forks.
//!
//! Comes in: that this process is about to fork, and that it has. Goes out: threads that stand still meanwhile (`partgrid::still`), with the GIL released until they do. Never here: how.

use std::cell::RefCell;

use partgrid::still::{Still, stand_still as all_stand_still};
use pyo3::prelude::*;

thread_local! {
    /// Of the fork that this thread is about to do.
    static STILL: RefCell<Option<Still>> = const { RefCell::new(None) };
}

/// Lets all threads of ours wait, at the end of the step that each is in; Python runs it before a fork.
#[pyfunction]
#[pyo3(name = "_stand_still")]
pub(crate) fn stand_still(py: Python<'_>) {
    drop(STILL.take());
    // A thread may want the GIL to end its step.
    let still = py.detach(all_stand_still);
    STILL.set(Some(still));
}

/// Lets the threads go on; Python runs it in the parent after a fork.
#[pyfunction]
#[pyo3(name = "_go_on")]
pub(crate) fn go_on() {
    drop(STILL.take());
}

/// Forgets what the threads of the parent wait for, and their calls, in a forked child, which does not have them.
#[pyfunction]
#[pyo3(name = "_forget_threads")]
pub(crate) fn forget_threads() {
    if let Some(still) = STILL.take() {
        still.forget();
    }
    crate::runtime::forget_calls();
}

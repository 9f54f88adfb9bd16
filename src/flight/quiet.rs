//! Panics that are expected, and caught.
//!
//! Comes in: work over bytes of strangers. Goes out: what came of it, or that it panicked. Such a panic is an error of one client: it prints nothing, so that nobody fills a log with messages that he broke on
//! purpose. All others print as before. Never here: what the work is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread does such work.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Puts the hook of the process behind one that leaves out what is expected; once.
static HOOKED: Once = Once::new();

/// Does the work; `None` when it panicked.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    HOOKED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| match QUIET.get() {
            true => tracing::debug!(%panic, "contained"),
            false => before(panic),
        }));
    });
    QUIET.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    done.ok()
}

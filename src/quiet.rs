//! Panics that are expected, and caught.
//!
//! Comes in: work over bytes of strangers. Goes out: what came of it, or with what it panicked. Such a panic is an error of one client or file: it prints nothing, so that nobody fills a log with what he broke on
//! purpose. All others print as before. Never here: what the work is.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread does such work.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Puts the hook of the process behind one that leaves out what is expected; once.
static HOOKED: Once = Once::new();

/// Does the work.
///
/// # Errors
/// What it said when it panicked.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOKED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| match QUIET.get() {
            true => tracing::debug!(%panic, "contained"),
            false => before(panic),
        }));
    });
    let outer = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(outer);
    done.map_err(|panic| text(panic.as_ref()))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Whether this thread says nothing of a panic at this moment.
#[cfg(test)]
pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_told_and_ends_with_the_work() {
        let inner = || quietly(|| panic!("broken {}", 7));
        assert_eq!(inner(), Err::<(), _>("broken 7".to_owned()));
        let seen = quietly(|| {
            assert!(inner().is_err());
            is_quiet()
        });
        assert_eq!(seen, Ok(true));
        assert!(!is_quiet());
    }
}

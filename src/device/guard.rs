//! Turns a panic into an error.
//!
//! Comes in: something to run. Goes out: its result, or an error with the text of the panic. Never here: a panic that goes further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind, Result};

/// Runs `action`; a panic in it becomes an error of `kind` that says what was being done.
///
/// The caller drops whatever `action` worked on after a panic, so that nothing is seen half done.
pub(super) fn contain<T>(
    kind: ErrorKind,
    doing: &str,
    action: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(result) => result,
        Err(payload) => Err(Error::new(
            kind,
            format!("panic while {doing}: {}", text_of(payload)),
        )),
    }
}

/// What the panic said. A payload that is no text is leaked, because its destructor could panic in turn.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(payload) => {
                std::mem::forget(payload);
                "(no text)".to_owned()
            }
        },
    }
}

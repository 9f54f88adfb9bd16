//! Windows by their names: `OVER w`, `OVER (w ORDER BY x)` and `WINDOW v AS (w ORDER BY x)`. The engine knows names in the items of a SELECT, and none that windows build upon.
//!
//! Comes in: a window as it is written, and those that have names. Goes out: the window with what its name says put into it. Never here: which names can be said where.

use datafusion::sql::sqlparser::ast::{
    NamedWindowDefinition, NamedWindowExpr, WindowSpec, WindowType,
};

use super::using::same;
use crate::error::{Error, ErrorKind, Result};

/// The window of a call.
///
/// # Errors
/// As [`complete`].
pub(super) fn in_place(over: &mut WindowType, windows: &[NamedWindowDefinition]) -> Result<()> {
    match over {
        WindowType::WindowSpec(spec) => complete(spec, windows, windows.len()),
        WindowType::NamedWindow(name) => {
            let mut spec = WindowSpec {
                window_name: Some(name.clone()),
                partition_by: Vec::new(),
                order_by: Vec::new(),
                window_frame: None,
            };
            complete(&mut spec, windows, windows.len())?;
            *over = WindowType::WindowSpec(spec);
            Ok(())
        }
    }
}

/// What the window says that a specification builds upon, put into it. `steps` bounds how far windows build upon each other.
///
/// # Errors
/// `Query` for a name that is of no window, and for what the window has already.
pub(super) fn complete(
    spec: &mut WindowSpec,
    windows: &[NamedWindowDefinition],
    steps: usize,
) -> Result<()> {
    let Some(name) = spec.window_name.take() else {
        return Ok(());
    };
    let found = windows.iter().find(|window| same(&window.0, &name));
    let Some(NamedWindowDefinition(_, found)) = found.filter(|_| steps > 0) else {
        let text = format!("no window `{name}`");
        return Err(Error::new(ErrorKind::Query, text)
            .with_hint("WINDOW name AS (…) after the conditions defines one"));
    };
    let mut base = match found {
        NamedWindowExpr::WindowSpec(base) => base.clone(),
        NamedWindowExpr::NamedWindow(other) => WindowSpec {
            window_name: Some(other.clone()),
            partition_by: Vec::new(),
            order_by: Vec::new(),
            window_frame: None,
        },
    };
    complete(&mut base, windows, steps - 1)?;
    if !spec.partition_by.is_empty() {
        let text = format!("what builds upon the window `{name}` has its PARTITION BY");
        return Err(Error::new(ErrorKind::Query, text));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        let text = format!("the window `{name}` has an ORDER BY already");
        return Err(Error::new(ErrorKind::Query, text));
    }
    spec.partition_by = base.partition_by;
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by;
    }
    spec.window_frame = spec.window_frame.take().or(base.window_frame);
    Ok(())
}

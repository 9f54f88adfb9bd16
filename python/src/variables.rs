//! Tables that a statement names and nobody passed: variables of whoever called.
//!
//! Comes in: the error about a table that is not there. Goes out: the value of the variable of its name. Never here: what makes a table of a value (`query.rs`), and sessions, whose names
//! stay: what they read never depends on who calls.

use partgrid::error::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::capsule::{FRAMES, remedy};
use crate::error::Outcome;
use crate::query::is_table;

/// A variable of the function that called, or of its module.
pub(crate) struct Variable<'py> {
    /// The name as the statement has it.
    pub(crate) name: String,
    pub(crate) value: Bound<'py, PyAny>,
}

/// The variable that a statement meant which failed with this error, in a session that knows `tables`.
///
/// # Errors
/// The same error, where it is of something else, or there is no such variable; with a remedy where that is no table.
pub(crate) fn meant<'py>(
    py: Python<'py>,
    error: Error,
    tables: &[String],
) -> Outcome<Variable<'py>> {
    let is_new =
        |name: &&str| error.kind() == ErrorKind::Query && tables.iter().all(|known| known != name);
    let name = error.context("table").filter(is_new);
    let Some(name) = name.map(str::to_owned) else {
        return Err(error.into());
    };
    let Some((called, value)) = find(py, &name) else {
        return Err(error.into());
    };
    if is_table(&value).unwrap_or(false) {
        return Ok(Variable { name, value });
    }
    let class = value.get_type().qualname()?;
    let remedy = match remedy(&value)? {
        FRAMES => {
            "grids, results, and frames of pyarrow, polars, pandas, duckdb and arro3 are tables"
        }
        other => other,
    };
    let hint = format!("the variable {called} is no table but {class}: {remedy}");
    Err(error.with_hint(hint).into())
}

/// The variable of a name: a table of the function, then one of its module, and in each one of this name first, then the only one that differs from it in case, as SQL folds names. Where none is a table, the one of this name.
fn find<'py>(py: Python<'py>, name: &str) -> Option<(String, Bound<'py, PyAny>)> {
    // Functions of Rust have no frame: the innermost is that of the caller.
    let sys = py.import("sys").ok()?;
    let frame = sys.call_method1("_getframe", (0,)).ok()?;
    let of = |scope: &str| frame.getattr(scope).ok()?.cast_into::<PyMapping>().ok();
    let scopes = match may_be_local(&frame, name) {
        true => vec![of("f_locals")?, of("f_globals")?],
        false => vec![of("f_globals")?],
    };
    let table = scopes.iter().find_map(|variables| within(variables, name));
    table.or_else(|| {
        let mut values = scopes.iter();
        let value = values.find_map(|variables| variables.get_item(name).ok())?;
        Some((name.to_owned(), value))
    })
}

/// Whether the function has such a variable. Before Python 3.13, asking it for its variables keeps those alive until it ends.
fn may_be_local(frame: &Bound<'_, PyAny>, name: &str) -> bool {
    const OPTIMIZED: u32 = 1;
    let names = || {
        let code = frame.getattr("f_code")?;
        if code.getattr("co_flags")?.extract::<u32>()? & OPTIMIZED == 0 {
            return Ok(true);
        }
        ["co_varnames", "co_cellvars", "co_freevars"]
            .iter()
            .try_fold(false, |is, kind| {
                let names: Vec<String> = code.getattr(*kind)?.extract()?;
                Ok(is || names.iter().any(|known| known.eq_ignore_ascii_case(name)))
            })
    };
    PyResult::unwrap_or(names(), true)
}

fn within<'py>(
    variables: &Bound<'py, PyMapping>,
    name: &str,
) -> Option<(String, Bound<'py, PyAny>)> {
    if let Ok(value) = variables.get_item(name)
        && is_table(&value).unwrap_or(false)
    {
        return Some((name.to_owned(), value));
    }
    let items = variables.items().ok()?;
    let mut folded = items.iter().filter_map(|item| {
        let (called, value): (String, Bound<'py, PyAny>) = item.extract().ok()?;
        let is_it = called.eq_ignore_ascii_case(name) && is_table(&value).ok()?;
        is_it.then_some((called, value))
    });
    // Of two, neither is meant more.
    folded.next().filter(|_| folded.next().is_none())
}

//! The `partgrid` command, as the wheel brings it.

use std::io::{stderr, stdout};

use pyo3::prelude::*;

/// Runs the `partgrid` command in this process.
///
/// Args:
///     arguments: The command line, the program's name first.
///
/// Returns:
///     The exit code: 0 done, 1 failed, 2 wrong usage.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| partgrid::cli::run(arguments, &mut stdout(), &mut stderr()))
}

//! The `partgrid` command. Everything is in [`partgrid::cli`].

use std::process::ExitCode;

/// Gives memory of dropped tiles to the next ones without asking the system for fresh pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Not locked: whoever logs or panics on another thread must not wait for the end of the command.
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    ExitCode::from(partgrid::cli::run(
        std::env::args_os(),
        &mut stdout,
        &mut stderr,
    ))
}

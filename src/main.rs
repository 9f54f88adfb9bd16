//! The `partgrid` command. Everything is in [`partgrid::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    // Not locked: whoever logs or panics on another thread must not wait for the end of the command.
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    ExitCode::from(partgrid::cli::run(
        std::env::args_os(),
        &mut stdout,
        &mut stderr,
    ))
}

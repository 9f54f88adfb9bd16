//! Ctrl-C while a file is written.
//!
//! Comes in: the signal. Goes out: that it came, to whoever waits, so that what is half written can be removed. Heard on a thread of its own: a query may hold all threads of its runtime. Never here: what is written.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};

/// With what errors begin that say that Ctrl-C was pressed.
const INTERRUPTED: &str = "interrupted";

/// What the shell says of a program that Ctrl-C ended.
pub(super) const EXIT_INTERRUPTED: u8 = 130;

/// Ctrl-C, from the moment on at which it was made. The first one is told, the second one ends the process.
pub(super) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// # Errors
    /// `Internal` where the system does not tell of signals.
    pub(super) fn hear() -> Result<Self> {
        let failed =
            |error: io::Error| Error::internal("Ctrl-C cannot be heard").with_source(error);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let mut pressed = {
            let _within = runtime.enter();
            signal(SignalKind::interrupt()).map_err(failed)?
        };
        let (tell, told) = watch::channel(false);
        let hearing = async move {
            pressed.recv().await;
            tell.send_replace(true);
            pressed.recv().await;
            leave();
        };
        let thread = std::thread::Builder::new().name("partgrid-ctrl-c".to_owned());
        let hearing = thread.spawn(move || runtime.block_on(hearing));
        drop(hearing.map_err(failed)?);
        Ok(Self(told))
    }

    /// Waits until it is pressed.
    pub(super) async fn pressed(&self) {
        let mut told = self.0.clone();
        if told.wait_for(|pressed| *pressed).await.is_err() {
            // Whoever would tell is gone.
            std::future::pending::<()>().await;
        }
    }
}

/// Ends the process at once.
#[expect(
    clippy::disallowed_methods,
    reason = "who presses twice does not wait for whatever keeps the first from taking effect"
)]
fn leave() {
    std::process::exit(EXIT_INTERRUPTED.into());
}

/// The error of what Ctrl-C ended.
pub(super) fn interrupted() -> Error {
    Error::new(ErrorKind::Cancelled, INTERRUPTED)
}

/// Whether Ctrl-C ended it.
pub(super) fn is_interrupted(error: &Error) -> bool {
    error.kind() == ErrorKind::Cancelled && error.message().starts_with(INTERRUPTED)
}

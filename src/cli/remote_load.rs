//! `partgrid --server URI load`: a load that the server does, with a bar or events here.
//!
//! Comes in: what to load, and how to tell of it. Goes out: a grid on the server; on the way the same bar and events as of a load here. Ctrl-C ends the load on the server. Never here: loading.

use std::io::Write;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::hints::in_options;
use super::load::{Events, Wishes, fields, show};
use super::remote::Remote;
use super::{Pipe, runtime, say};
use crate::client::{Client, RemoteJob, RemoteLoad};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::picture::counted;
use crate::load::Progress;

/// How long after Ctrl-C the server may take to say what came of it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Has the server load, and waits.
///
/// # Errors
/// Whatever the server says; `Cancelled` after Ctrl-C.
pub(super) fn run(
    remote: &Remote,
    wanted: &RemoteLoad,
    wishes: &Wishes,
    stdout: &mut Pipe<'_>,
    stderr: &mut dyn Write,
) -> Result<()> {
    let mut events = wishes.events(stdout);
    let (sources, name) = (&wanted.sources, &wanted.name);
    events.print(&json!({"event": "started", "sources": sources, "name": name}))?;
    let runtime = runtime(None)?;
    let done = runtime.block_on(async {
        let Some(client) = remote.connect().await? else {
            return Err(Error::internal("a load of a server without a server"));
        };
        load(&client, wanted, wishes, &mut events).await
    });
    match done {
        Ok((num_rows, last)) => {
            events.print(&told("finished", &last))?;
            if !wishes.is_quiet() {
                let rows = counted(num_rows, "row");
                let seconds = last.elapsed.as_secs_f64();
                say(
                    stderr,
                    &format!("{rows} loaded as {name} in {seconds:.1} s\n"),
                );
            }
            Ok(())
        }
        Err(error) => {
            let error = in_options(wishes.with_direction(error), "load");
            let kind = format!("{:?}", error.kind());
            events.print(&json!({"event": "failed", "kind": kind, "error": error.to_string()}))?;
            Err(error)
        }
    }
}

/// What a server does not say of its loads.
const UNTOLD: [&str; 5] = [
    "files",
    "total_files",
    "tile_bytes",
    "spilled_tiles",
    "resumed_tiles",
];

/// An event without what the server does not say.
fn told(event: &str, progress: &Progress) -> Value {
    let mut told = fields(event, progress);
    if let Some(object) = told.as_object_mut() {
        object.retain(|name, _| !UNTOLD.contains(&name.as_str()));
    }
    told
}

/// The rows of the grid, and how far the load was when it ended.
async fn load(
    client: &Client,
    wanted: &RemoteLoad,
    wishes: &Wishes,
    events: &mut Events<'_, '_>,
) -> Result<(u64, Progress)> {
    let job = client.load(wanted).await?;
    let bar = wishes.bar();
    let seen = Mutex::new(None);
    let last = || *seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut waiting = pin!(job.wait(|progress| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }));
    let mut pressed = pin!(tokio::signal::ctrl_c());
    let num_rows = loop {
        tokio::select! {
            done = waiting.as_mut() => break done,
            () = tokio::time::sleep(wishes.interval()) => {}
            pressed = pressed.as_mut() => {
                pressed.map_err(|error| Error::internal("Ctrl-C cannot be heard").with_source(error))?;
                break Err(interrupted(&job, &wanted.name).await);
            }
        }
        if let Some(progress) = last() {
            show(&bar, &progress);
            events.print(&told("progress", &progress))?;
        }
    };
    bar.finish_and_clear();
    let num_rows = num_rows?;
    let last = match last() {
        Some(progress) => progress,
        None => job.progress().await?,
    };
    Ok((num_rows, last))
}

/// Ends the load there, and says what came of it.
async fn interrupted(job: &RemoteJob, name: &str) -> Error {
    let ending = async {
        job.cancel().await?;
        job.wait(|_| ()).await
    };
    let text = match tokio::time::timeout(PATIENCE, ending).await {
        Ok(Err(error)) if error.kind() == ErrorKind::Cancelled => {
            "interrupted; the server ended the load".to_owned()
        }
        Ok(Ok(_)) => format!("interrupted; the load was done by then: the server has {name}"),
        Ok(Err(error)) => return error.with_context("interrupted", "the load may go on"),
        Err(_) => "interrupted; the server has not said that it ended the load".to_owned(),
    };
    Error::new(ErrorKind::Cancelled, text)
}

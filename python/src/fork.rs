//! The threads of the runtime while the process forks.
//!
//! Comes in: a fork that is about to happen, and that it has happened. Goes out: threads that stand still meanwhile, each in a task of ours, so that the child finds no lock of theirs taken
//! and no thread in a queue of those that wait: such queues go through the stacks of the threads, which a child has lost. Never here: what the child does with its copy.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// How long a fork waits for the threads. One that is longer in one step than this goes on, and may hold a lock that the child then waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The threads that a runtime has: those that run its tasks, and those that wait for files.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<AtomicUsize>);

impl Threads {
    pub(crate) fn counted(builder: &mut Builder) -> Self {
        let threads = Self::default();
        let (begun, ended) = (threads.clone(), threads.clone());
        builder.on_thread_start(move || {
            begun.0.fetch_add(1, Ordering::AcqRel);
        });
        builder.on_thread_stop(move || {
            ended.0.fetch_sub(1, Ordering::AcqRel);
        });
        threads
    }
}

/// Where threads wait until a fork is over.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    is_open: bool,
}

impl Gate {
    /// Waits until the gate opens.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.changed.notify_all();
        while !state.is_open {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_open = true;
        self.changed.notify_all();
    }

    /// Waits until so many threads wait here.
    fn fills(&self, num_threads: usize) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting < num_threads {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let (now, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = now;
        }
    }
}

thread_local! {
    /// The gate of the fork that this thread is about to do.
    static GATE: RefCell<Option<Arc<Gate>>> = const { RefCell::new(None) };
}

/// Lets all threads of the runtime wait, at the end of the step that each is in; Python runs it before a fork.
#[pyfunction]
#[pyo3(name = "_stand_still")]
pub(crate) fn stand_still(py: Python<'_>) {
    let Some((runtime, threads)) = crate::runtime::running() else {
        return;
    };
    let gate = Arc::new(Gate::default());
    if let Some(earlier) = GATE.replace(Some(Arc::clone(&gate))) {
        earlier.open();
    }
    // A thread may want the GIL to end its step.
    py.detach(|| {
        let num_wanted = close(&gate, runtime, threads);
        gate.fills(num_wanted);
    });
}

/// Sends a task to each thread.
fn close(gate: &Arc<Gate>, runtime: &Runtime, threads: &Threads) -> usize {
    let num_workers = runtime.metrics().num_workers();
    let num_threads = threads.0.load(Ordering::Acquire).max(num_workers);
    for _ in 0..num_workers {
        let gate = Arc::clone(gate);
        runtime.spawn(async move { gate.pass() });
    }
    for _ in num_workers..num_threads {
        let gate = Arc::clone(gate);
        runtime.spawn_blocking(move || gate.pass());
    }
    num_threads
}

/// Lets the threads go on; Python runs it in the parent after a fork.
#[pyfunction]
#[pyo3(name = "_go_on")]
pub(crate) fn go_on() {
    if let Some(gate) = GATE.take() {
        gate.open();
    }
}

/// Forgets what the threads of the parent wait for, and their calls, in a forked child, which does not have them.
#[pyfunction]
#[pyo3(name = "_forget_threads")]
pub(crate) fn forget_threads() {
    // A thread may have had its lock.
    std::mem::forget(GATE.take());
    crate::runtime::forget_calls();
}

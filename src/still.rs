//! Threads that stand still while the process forks.
//!
//! Comes in: runtimes with threads of ours, and a fork that is about to happen. Goes out: their threads, each waiting in a task of ours until the fork is over, so that the child finds no lock of
//! theirs taken and no thread in a queue of those that wait: such queues go through the stacks of threads, which a child has lost. Never here: what the child does with its copy; runtimes of others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long a fork waits for the threads. One that is longer in one step than this goes on, and may hold a lock that the child then waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The runtimes of this process, and of those that it was forked from. Without a lock, which a fork could leave taken.
static RUNTIMES: ArcSwapOption<Vec<Entry>> = ArcSwapOption::const_empty();

#[derive(Debug, Clone)]
struct Entry {
    process: u32,
    handle: Handle,
    /// How many threads it has: those that run its tasks, and those that wait for files.
    num_threads: Arc<AtomicUsize>,
}

/// As long as it is there, the threads of a runtime take part in [`stand_still`].
#[derive(Debug)]
pub struct TakesPart(Entry);

impl Drop for TakesPart {
    fn drop(&mut self) {
        change(|entries| {
            entries.retain(|entry| !Arc::ptr_eq(&entry.num_threads, &self.0.num_threads));
        });
    }
}

fn change(how: impl Fn(&mut Vec<Entry>)) {
    RUNTIMES.rcu(|entries| {
        let mut entries = entries.as_deref().cloned().unwrap_or_default();
        how(&mut entries);
        Some(Arc::new(entries))
    });
}

/// Starts a runtime whose threads stand still during a fork.
///
/// # Errors
/// What the operating system says to its threads.
pub fn start(builder: &mut Builder) -> std::io::Result<(Runtime, TakesPart)> {
    let num_threads = Arc::new(AtomicUsize::new(0));
    let (begun, ended) = (Arc::clone(&num_threads), Arc::clone(&num_threads));
    builder.on_thread_start(move || {
        begun.fetch_add(1, Ordering::AcqRel);
    });
    builder.on_thread_stop(move || {
        ended.fetch_sub(1, Ordering::AcqRel);
    });
    let runtime = builder.build()?;
    let entry = Entry {
        process: std::process::id(),
        handle: runtime.handle().clone(),
        num_threads,
    };
    change(|entries| entries.push(entry.clone()));
    Ok((runtime, TakesPart(entry)))
}

/// Threads that stand still until this is gone. A forked child must forget it (`mem::forget`): it has a copy of a lock, which may be taken.
#[derive(Debug)]
#[must_use = "the threads go on when it is dropped"]
pub struct Still(Arc<Gate>);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Lets the threads of all our runtimes wait, each at the end of the step that it is in; returns when they do, or after a second.
pub fn stand_still() -> Still {
    let gate = Arc::new(Gate::default());
    let mut num_wanted = 0;
    for entry in RUNTIMES.load().iter().flat_map(|entries| entries.iter()) {
        if entry.process == std::process::id() {
            num_wanted += entry.send_to(&gate);
        }
    }
    gate.fills(num_wanted);
    Still(gate)
}

impl Entry {
    /// Sends a task to each thread; says to how many.
    fn send_to(&self, gate: &Arc<Gate>) -> usize {
        let num_workers = self.handle.metrics().num_workers();
        let num_threads = self.num_threads.load(Ordering::Acquire).max(num_workers);
        for _ in 0..num_workers {
            let gate = Arc::clone(gate);
            self.handle.spawn(async move { gate.pass() });
        }
        for _ in num_workers..num_threads {
            let gate = Arc::clone(gate);
            self.handle.spawn_blocking(move || gate.pass());
        }
        num_threads
    }
}

/// Where threads wait until a fork is over.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
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
            let waiting = self.changed.wait(state);
            state = waiting.unwrap_or_else(PoisonError::into_inner);
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
            let waiting = self.changed.wait_timeout(state, left);
            (state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_stand_still_until_the_fork_is_over() {
        let mut builder = Builder::new_multi_thread();
        let (runtime, _takes_part) = start(builder.worker_threads(3)).unwrap();
        let (ran, seen) = std::sync::mpsc::channel();
        let idle = ran.clone();
        // A thread that waits for files, idle by now.
        let blocking = runtime.spawn_blocking(move || idle.send(0).unwrap());
        runtime.block_on(blocking).unwrap();
        assert_eq!(seen.recv().unwrap(), 0);
        let begun = Instant::now();
        let still = stand_still();
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        runtime.spawn(async move { ran.send(1).unwrap() });
        let early = seen.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "a thread went on");
        drop(still);
        assert_eq!(seen.recv_timeout(Duration::from_secs(10)), Ok(1));
    }
}

//! Threads that stand still while the process forks.
//!
//! Comes in: runtimes with threads of ours, steps that threads of others do with us, and a fork that is about to happen. Goes out: these threads, each waiting until the fork is over, at the end of the
//! step that it is in, so that the child finds no lock of theirs taken and no thread in a queue of those that wait: such queues go through the stacks of threads, which a child has lost. Never here:
//! what the child does with its copy; runtimes of others.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long a fork waits for threads that wait themselves, perhaps for what the one holds that forks. They go on, and may hold a lock that the child then waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long it waits for threads that run, or would if a processor were free.
const LONG_PATIENCE: Duration = Duration::from_secs(10);

/// How often a fork that has waited long looks whether any runs.
const GLANCE: Duration = Duration::from_millis(20);

/// How often it counts the threads that there are: those that end do not say so.
const COUNT: Duration = Duration::from_millis(1);

/// How long a thread that waited for files stays for the next one. One that has nothing to do stands in a queue, and whether it does, nobody can see: soon there is none.
const IDLE: Duration = Duration::from_millis(2);

/// The runtimes of this process, and of those that it was forked from. Without a lock, which a fork could leave taken.
static RUNTIMES: ArcSwapOption<Vec<Entry>> = ArcSwapOption::const_empty();

/// How many threads of others are in a step of ours.
static STEPS: AtomicUsize = AtomicUsize::new(0);

/// Where those that want to begin one wait: a gate for each fork that is about to happen.
static CLOSED: ArcSwapOption<Vec<Arc<Gate>>> = ArcSwapOption::const_empty();

thread_local! {
    /// Whether this thread is in a step: one within it does not wait.
    static IS_STEPPING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Clone)]
struct Entry {
    process: u32,
    handle: Handle,
    /// How many threads it has, from the moment on at which they are made: those that run its tasks, and those that wait for files.
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

/// Starts a runtime whose threads have this name and stand still during a fork.
///
/// # Errors
/// What the operating system says to its threads.
pub fn start(builder: &mut Builder, name: &'static str) -> std::io::Result<(Runtime, TakesPart)> {
    let num_threads = Arc::new(AtomicUsize::new(0));
    let (made, ended) = (Arc::clone(&num_threads), Arc::clone(&num_threads));
    // Asked for on the thread that makes another one.
    builder.thread_name_fn(move || {
        made.fetch_add(1, Ordering::AcqRel);
        name.to_owned()
    });
    builder.on_thread_stop(move || {
        ended.fetch_sub(1, Ordering::AcqRel);
    });
    builder.thread_keep_alive(IDLE);
    let runtime = builder.build()?;
    let entry = Entry {
        process: std::process::id(),
        handle: runtime.handle().clone(),
        num_threads,
    };
    change(|entries| entries.push(entry.clone()));
    Ok((runtime, TakesPart(entry)))
}

/// Work of ours on a thread of another runtime, or of none, such as the one that calls us: it does not begin while a fork is about to happen, and a fork waits until it has ended. It should be
/// short, and not wait for what others do.
pub fn step<T>(work: impl FnOnce() -> T) -> T {
    if IS_STEPPING.get() {
        return work();
    }
    let _step = Step::begin();
    work()
}

/// A future that a thread of another runtime, or of none, drives: each poll of it is a [`step`].
pub async fn in_steps<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| step(|| work.as_mut().poll(context))).await
}

/// Waits for a future on a thread that is none of a runtime, with what it needs of one: in steps, and between them in no queue, as it would be with `block_on`.
pub fn wait_for<T>(runtime: &Handle, work: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = pin!(in_steps(work));
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Step;

impl Step {
    fn begin() -> Self {
        loop {
            // Counted first: whoever closes the gate later sees it.
            STEPS.fetch_add(1, Ordering::SeqCst);
            let step = Self;
            IS_STEPPING.set(true);
            let closed = CLOSED.load();
            let Some(gate) = closed.as_ref().and_then(|gates| gates.first()).cloned() else {
                return step;
            };
            drop((step, closed));
            gate.wait();
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        IS_STEPPING.set(false);
        STEPS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Threads that stand still until this is gone. A forked child calls [`Still::forget`] instead.
#[derive(Debug)]
#[must_use = "the threads go on when it is dropped"]
pub struct Still(Arc<Gate>);

impl Still {
    /// Forgets the threads in a forked child, which has none but the one that forked, and a copy of a lock, which may be taken.
    pub fn forget(self) {
        std::mem::forget(self);
        std::mem::forget(CLOSED.swap(None));
        STEPS.store(usize::from(IS_STEPPING.get()), Ordering::SeqCst);
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        close(|gates| gates.retain(|gate| !Arc::ptr_eq(gate, &self.0)));
        self.0.open();
    }
}

/// Lets the threads of all our runtimes wait, and those that are in a [`step`], each at the end of the step that it is in; returns when they do, or after a second in which those that do not were waiting
/// for something else: on a busy machine one that is about to end its step may get no processor for longer.
pub fn stand_still() -> Still {
    let gate = Arc::new(Gate::default());
    close(|gates| gates.push(Arc::clone(&gate)));
    let runtimes = RUNTIMES.load_full();
    let runtimes = runtimes.iter().flat_map(|entries| entries.iter());
    let of_here = runtimes.filter(|entry| entry.process == std::process::id());
    let of_here: Vec<&Entry> = of_here.collect();
    for entry in &of_here {
        entry.send_to(&gate);
    }
    let num_threads = || {
        let counts = of_here
            .iter()
            .map(|entry| entry.num_threads.load(Ordering::Acquire));
        counts.sum()
    };
    let begun = Instant::now();
    let mut end = begun + PATIENCE;
    while !(gate.fills(num_threads, end) && steps_end(end)) {
        if begun.elapsed() > LONG_PATIENCE || !is_any_running() {
            break;
        }
        end = Instant::now() + GLANCE;
    }
    Still(gate)
}

/// Whether a thread of this process but this one runs, or waits for a processor or a disk.
#[cfg(target_os = "linux")]
fn is_any_running() -> bool {
    let own = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let threads = threads.flatten();
    let others = threads.filter(|thread| Some(&*thread.file_name()) != own.file_name());
    // After the name in parentheses, which may hold any character, comes one letter.
    others
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .filter_map(|text| text.rsplit_once(") ")?.1.chars().next())
        .any(|state| matches!(state, 'R' | 'D'))
}

/// Nobody says it.
#[cfg(not(target_os = "linux"))]
fn is_any_running() -> bool {
    false
}

fn close(how: impl Fn(&mut Vec<Arc<Gate>>)) {
    CLOSED.rcu(|gates| {
        let mut gates = gates.as_deref().cloned().unwrap_or_default();
        how(&mut gates);
        Some(Arc::new(gates))
    });
}

/// Waits until no other thread is in a step; says whether that is so.
fn steps_end(end: Instant) -> bool {
    let own = usize::from(IS_STEPPING.get());
    let mut pause = Duration::from_micros(20);
    while STEPS.load(Ordering::SeqCst) > own {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    true
}

impl Entry {
    /// Sends a task to each thread that runs tasks. Those that wait for files end when they have nothing to do: a task for each would be taken by others, that are made for it.
    fn send_to(&self, gate: &Arc<Gate>) {
        for _ in 0..self.handle.metrics().num_workers() {
            let gate = Arc::clone(gate);
            self.handle.spawn(async move { gate.pass() });
        }
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
    /// Is counted, and waits until the gate opens.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        drop(state);
        self.changed.notify_all();
        self.wait();
    }

    /// Waits until the gate opens.
    fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Waits until so many threads wait here as there are; says whether they do.
    fn fills(&self, num_threads: impl Fn() -> usize, end: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting < num_threads() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waiting = self.changed.wait_timeout(state, left.min(COUNT));
            (state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two forks at a time would wait for each other: there is one list of runtimes and one number of steps.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn all_threads_stand_still_until_the_fork_is_over() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut builder = Builder::new_multi_thread();
        let (runtime, _takes_part) = start(builder.worker_threads(3), "three").unwrap();
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

    #[test]
    fn a_fork_waits_for_threads_that_are_made_meanwhile() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut builder = Builder::new_multi_thread();
        let (runtime, takes_part) = start(builder.worker_threads(2), "two").unwrap();
        let begun = Instant::now();
        for _ in 0..50 {
            // These have something to do when they are asked to stand still, so that others are made.
            let busy = (0..4)
                .map(|_| runtime.spawn_blocking(|| std::thread::sleep(Duration::from_millis(3))));
            let busy: Vec<_> = busy.collect();
            let still = stand_still();
            let num_threads = takes_part.0.num_threads.load(Ordering::Acquire);
            let num_waiting = still.0.state.lock().unwrap().waiting;
            assert_eq!(num_waiting, num_threads, "a thread is in a queue");
            assert_eq!(num_threads, 2, "some that wait for files");
            drop(still);
            for each in busy {
                runtime.block_on(each).unwrap();
            }
        }
        assert!(begun.elapsed() < PATIENCE * 50, "{:?}", begun.elapsed());
    }

    #[test]
    fn who_waits_for_a_future_is_in_a_step_only_while_it_is_polled() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let (send, may_end) = tokio::sync::oneshot::channel();
        let other = std::thread::spawn(move || wait_for(&handle, may_end));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(STEPS.load(Ordering::SeqCst), 0);
        send.send(7).unwrap();
        assert_eq!(other.join().unwrap(), Ok(7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_fork_waits_longer_for_a_thread_that_runs_than_for_one_that_waits() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (send, begun) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            step(|| {
                send.send(()).unwrap();
                let end = Instant::now() + PATIENCE * 2;
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                Instant::now()
            })
        });
        begun.recv().unwrap();
        let still = stand_still();
        let closed = Instant::now();
        drop(still);
        assert!(
            closed >= other.join().unwrap(),
            "a fork would have found a step"
        );
    }

    #[test]
    fn steps_of_other_threads_end_before_a_fork_and_begin_after_it() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (send, begun) = std::sync::mpsc::channel();
        let (finish, may_end) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            step(|| {
                send.send(0).unwrap();
                may_end.recv().unwrap();
            });
            let nested = in_steps(async { step(|| send.send(1).unwrap()) });
            Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(nested);
        });
        assert_eq!(begun.recv().unwrap(), 0);
        let closing = std::thread::spawn(|| {
            let still = stand_still();
            (still, Instant::now())
        });
        while CLOSED.load().iter().all(|gates| gates.is_empty()) {
            std::thread::yield_now();
        }
        let ended = Instant::now();
        finish.send(()).unwrap();
        let (still, closed) = closing.join().unwrap();
        assert!(closed >= ended, "a fork would have found a step");
        let early = begun.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "a step began");
        drop(still);
        assert_eq!(begun.recv_timeout(Duration::from_secs(10)), Ok(1));
        other.join().unwrap();
        // Within a step of one's own a fork does not wait for that step.
        step(|| drop(stand_still()));
        assert!(CLOSED.load().iter().all(|gates| gates.is_empty()));
    }
}

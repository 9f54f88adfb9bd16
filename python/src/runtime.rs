//! The one tokio runtime of the process, and waiting on it from Python.
//!
//! Comes in: futures of the core. Goes out: their results, with the GIL released while they run and Ctrl-C obeyed. The runtime starts at the first wait, never at
//! import. A forked child gets one of its own; the parent's, whose threads the child does not have, is left alone. Never here: what the futures do.

use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::pin;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use partgrid::error::{Error, ErrorKind};
use partgrid::still::{self, TakesPart};
use pyo3::ffi;
use pyo3::prelude::*;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

use crate::error::{Outcome, Raised};

/// How often a waiting thread looks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

struct Started {
    pid: u32,
    runtime: Runtime,
    _takes_part: TakesPart,
}

/// The runtime of this process, or null. Values are never freed: a child must not join its parent's threads, and the parent needs its own until it ends.
static STARTED: AtomicPtr<Started> = AtomicPtr::new(null_mut());

/// The runtime of this process, started now if it was not. Takes no lock, so that a fork at any moment is harmless.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    let pid = std::process::id();
    let current = STARTED.load(Ordering::Acquire);
    if let Some(started) = alive(current)
        && started.pid == pid
    {
        return Ok(&started.runtime);
    }
    #[cfg(unix)]
    crate::allocator::give_back_when_idle();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(partgrid::query::max_threads())
        .enable_all();
    let (runtime, takes_part) = still::start(&mut builder, "partgrid")
        .map_err(|error| Error::internal("no runtime could be started").with_source(error))?;
    let started = Started {
        pid,
        runtime,
        _takes_part: takes_part,
    };
    let fresh = Box::into_raw(Box::new(started));
    match STARTED.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => alive(fresh),
        // Another thread was faster. Ours has done nothing yet and may go.
        Err(faster) => {
            discard(fresh);
            alive(faster)
        }
    }
    .map(|started| &started.runtime)
    .ok_or_else(|| Error::internal("the runtime is gone"))
}

#[expect(
    unsafe_code,
    reason = "the pointer comes from Box::into_raw and is never freed once stored"
)]
fn alive(pointer: *mut Started) -> Option<&'static Started> {
    // SAFETY: STARTED holds null or a pointer from `Box::into_raw` that nothing frees, and its target is never written again.
    unsafe { pointer.as_ref() }
}

#[expect(
    unsafe_code,
    reason = "gives back the box of a runtime that lost the race"
)]
fn discard(pointer: *mut Started) {
    // SAFETY: the pointer comes from `Box::into_raw` in the caller and was never stored or shared.
    let started = unsafe { Box::from_raw(pointer) };
    started.runtime.shutdown_background();
}

/// Runs work with the GIL held, on a thread that may or may not hold it, as within a callback of a C stream. Returns `None` when the interpreter has ended.
///
/// `Python::attach` is not enough there: when one of our methods called the consumer, PyO3 counts this thread as attached, while the consumer has released the GIL.
#[expect(
    unsafe_code,
    reason = "only the C interface can tell whether this thread holds the GIL"
)]
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: may be called on any thread at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    let _call = Call::begin()?;
    // SAFETY: the interpreter runs; the state is given back below, also when `work` panics.
    let _held = Held(unsafe { ffi::PyGILState_Ensure() });
    // SAFETY: `_held` holds the GIL until the end of this function.
    Some(work(unsafe { Python::assume_attached() }))
}

/// Calls Python from a thread of the core; what it raises becomes an error of the core, and is raised as it is where that comes out.
///
/// # Errors
/// `Cancelled` when the interpreter has ended.
pub(crate) fn called<T>(work: impl FnOnce(Python<'_>) -> Outcome<T>) -> Result<T, Error> {
    let ending = || {
        let text = "the interpreter is ending";
        Err(Error::new(ErrorKind::Cancelled, text))
    };
    let call = || attached(|py| work(py).map_err(Raised::into_core)).unwrap_or_else(ending);
    // Python may call us again, and wait for work that needs this thread of the runtime.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        _ => call(),
    }
}

/// Drops what may hold objects of Python, with the GIL held, on a thread of which PyO3 cannot tell whether it holds it; see [`attached`]. When the interpreter has ended, nothing is
/// dropped any more.
pub(crate) fn drop_attached<T>(value: T) {
    let value = ManuallyDrop::new(value);
    attached(|_| drop(ManuallyDrop::into_inner(value)));
}

/// What an object of Python owns of memory that others may have to free, with code of Python. It is dropped with the object, that is at any moment: an exception that is on its way then is put aside, since
/// it would end that code.
pub(crate) struct Aside<T>(ManuallyDrop<T>);

impl<T> Aside<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Aside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Aside<T> {
    #[expect(unsafe_code, reason = "PyO3 has no way that bears a panic on its way")]
    fn drop(&mut self) {
        // SAFETY: not used any more.
        let mut value = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        attached(|_| {
            let (mut class, mut raised, mut traceback) = (null_mut(), null_mut(), null_mut());
            // SAFETY: attached; three places for references.
            unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut raised, &raw mut traceback) };
            drop(value.take());
            // SAFETY: the references that were fetched.
            unsafe { ffi::PyErr_Restore(class, raised, traceback) };
        });
        // It is still there when the interpreter ends.
        drop(value);
    }
}

/// An object of Python that may be dropped on any thread, also within a callback of a C stream.
pub(crate) struct Shared(Option<Py<PyAny>>);

impl Shared {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(Some(object))
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match &self.0 {
            Some(object) => object.bind(py).clone(),
            None => py.None().into_bound(py),
        }
    }
}

impl Drop for Shared {
    #[expect(
        unsafe_code,
        reason = "PyO3 would put it off until somebody calls us again: it does not see that the thread holds the GIL"
    )]
    fn drop(&mut self) {
        let Some(object) = self.0.take() else {
            return;
        };
        let pointer = object.into_ptr().expose_provenance();
        attached(|_| {
            // SAFETY: a reference that is ours, given back once, with the GIL held.
            unsafe { ffi::Py_DecRef(std::ptr::with_exposed_provenance_mut(pointer)) };
        });
    }
}

/// How many threads are in [`attached`], and, in the highest bit, that none may enter any more: the interpreter ends. A thread that asks for the GIL after that is ended by Python in the
/// midst of our frames, which ends the process with an abort.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// The thread that ends the interpreter, which may still enter.
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();

const ENDING: usize = 1 << (usize::BITS - 1);

struct Call;

impl Call {
    fn begin() -> Option<Self> {
        let call = Self;
        let ending = CALLS.fetch_add(1, Ordering::AcqRel) & ENDING != 0;
        let may_enter = !ending || ENDED_BY.get() == Some(&std::thread::current().id());
        may_enter.then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Nothing to take away in a child that was forked within a call.
        let _ = CALLS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |calls| {
            (calls & !ENDING > 0).then(|| calls - 1)
        });
    }
}

/// Waits until no other thread of ours is in Python; none will be from now on. Python runs it when it ends, while threads may still have the GIL.
///
/// Raises:
///     KeyboardInterrupt: Ctrl-C while a function takes its time.
#[pyfunction]
#[pyo3(name = "_end_calls")]
pub(crate) fn end_calls(py: Python<'_>) -> PyResult<()> {
    ENDED_BY.get_or_init(|| std::thread::current().id());
    CALLS.fetch_or(ENDING, Ordering::AcqRel);
    while CALLS.load(Ordering::Acquire) & !ENDING != 0 {
        py.detach(|| std::thread::sleep(Duration::from_millis(2)));
        py.check_signals()?;
    }
    Ok(())
}

/// Forgets the calls of other threads, which a forked child does not have.
pub(crate) fn forget_calls() {
    CALLS.store(0, Ordering::Release);
}

struct Held(ffi::PyGILState_STATE);

impl Drop for Held {
    #[expect(unsafe_code, reason = "the other half of `attached`")]
    fn drop(&mut self) {
        // SAFETY: made by `PyGILState_Ensure` on this thread and given back once.
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread until it is ready, the GIL released, looking for signals in between; every now and then `tick` is called with the GIL held. An exception of a signal
/// handler or of `tick` ends the waiting.
pub(crate) fn poll_and_tick<F>(
    py: Python<'_>,
    future: F,
    mut tick: impl FnMut() -> PyResult<()>,
) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(still::in_steps(future));
    loop {
        let polled = py.detach(|| {
            let mut context = Context::from_waker(&waker);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            std::thread::park_timeout(SIGNAL_INTERVAL);
            None
        });
        match polled {
            Some(output) => return Ok(output),
            None => {
                py.check_signals()?;
                tick()?;
            }
        }
    }
}

/// Drives a future of the core on this thread, within the runtime, until it is ready. When a signal handler raises, the future is dropped, which stops its work, and
/// the exception is raised. Nothing of it waits for a free thread of the runtime: a query that is to be stopped may hold them all.
pub(crate) fn wait<T, F>(py: Python<'_>, future: F) -> Outcome<T>
where
    T: Send,
    F: Future<Output = Result<T, Error>> + Send,
{
    wait_and_tick(py, future, || Ok(()))
}

/// As [`wait`]; every now and then `tick` is called with the GIL held.
pub(crate) fn wait_and_tick<T, F>(
    py: Python<'_>,
    future: F,
    tick: impl FnMut() -> PyResult<()>,
) -> Outcome<T>
where
    T: Send,
    F: Future<Output = Result<T, Error>> + Send,
{
    let runtime = runtime()?;
    let within = async move {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _entered = runtime.enter();
            future.as_mut().poll(context)
        })
        .await
    };
    Ok(poll_and_tick(py, within, tick)??)
}

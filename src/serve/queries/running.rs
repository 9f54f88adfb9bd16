//! What runs at this moment, for those who watch and those who cancel.
//!
//! Comes in: queries as they begin. Goes out: a list, and a way to end each. A query is listed from its beginning until its stream is dropped, and a while after. Never here: how it runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::error::{Error, ErrorKind, Result};
use crate::query::{Query, QueryProgress, Watched};
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::unknown;
use crate::serve::watch::counts::TimesBy;

/// How many that have ended are listed.
const ENDED: usize = 20;

/// The longest text that is listed.
const MAX_SHOWN_BYTES: usize = 2_000;

/// A query with the text that it came of. Cheap to clone; clones are the same query.
#[derive(Clone)]
pub(in crate::serve) struct Task {
    pub(in crate::serve) query: Query,
    pub(in crate::serve) text: Arc<str>,
}

/// Where a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum State {
    Running,
    Done,
    Failed,
    Cancelled,
}

impl State {
    pub(in crate::serve) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Self::Running,
            1 => Self::Done,
            2 => Self::Failed,
            _ => Self::Cancelled,
        }
    }
}

/// How far a query is, or came.
#[derive(Clone, Copy, Default)]
pub(in crate::serve) struct Figures {
    pub(in crate::serve) progress: QueryProgress,
    pub(in crate::serve) peak_memory_bytes: u64,
}

impl Figures {
    fn of(query: &Query) -> Self {
        Self {
            progress: query.progress().unwrap_or_default(),
            peak_memory_bytes: query.peak_memory_bytes(),
        }
    }
}

/// A query that runs or ran.
pub(in crate::serve) struct Run {
    pub(in crate::serve) id: u64,
    pub(in crate::serve) caller: Arc<str>,
    pub(in crate::serve) text: Arc<str>,
    /// Until it ends: a plan keeps its grids.
    query: ArcSwapOption<Query>,
    /// How far it came, once it has ended.
    last: OnceLock<Figures>,
    begun: Instant,
    took_micros: AtomicU64,
    pub(in crate::serve) num_rows: AtomicU64,
    state: AtomicU8,
}

impl Run {
    /// How far it is, or came.
    pub(in crate::serve) fn figures(&self) -> Figures {
        match self.query.load_full() {
            Some(query) => Figures::of(&query),
            None => self.last.get().copied().unwrap_or_default(),
        }
    }

    pub(in crate::serve) fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    pub(in crate::serve) fn elapsed(&self) -> Duration {
        match self.took_micros.load(Ordering::Acquire) {
            0 => self.begun.elapsed(),
            micros => Duration::from_micros(micros),
        }
    }
}

#[derive(Default)]
struct Listed {
    running: BTreeMap<u64, Arc<Run>>,
    ended: VecDeque<Arc<Run>>,
}

/// All queries that run.
pub(in crate::serve) struct Running {
    next: AtomicU64,
    listed: Mutex<Listed>,
    /// How many began and failed, and the rows that all handed on, since the start.
    pub(in crate::serve) num_begun: AtomicU64,
    pub(in crate::serve) num_failed: AtomicU64,
    pub(in crate::serve) num_rows: AtomicU64,
    /// How long they took, by how they ended.
    pub(in crate::serve) times: TimesBy,
}

impl Default for Running {
    fn default() -> Self {
        let ends = [State::Done, State::Failed, State::Cancelled];
        Self {
            next: AtomicU64::default(),
            listed: Mutex::default(),
            num_begun: AtomicU64::default(),
            num_failed: AtomicU64::default(),
            num_rows: AtomicU64::default(),
            times: TimesBy::of("state", &ends.map(State::name)),
        }
    }
}

impl Running {
    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a query until the guard is dropped.
    pub(in crate::serve) fn begin(self: &Arc<Self>, caller: &Caller, task: &Task) -> Guard {
        let mut text = Arc::clone(&task.text);
        if text.len() > MAX_SHOWN_BYTES {
            let cut = (0..=MAX_SHOWN_BYTES)
                .rev()
                .find(|at| text.is_char_boundary(*at));
            let head = text.get(..cut.unwrap_or(0)).unwrap_or_default();
            text = Arc::from(format!("{head}…"));
        }
        let run = Arc::new(Run {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            caller: Arc::clone(caller.name()),
            text,
            query: ArcSwapOption::from_pointee(task.query.clone()),
            last: OnceLock::new(),
            begun: Instant::now(),
            took_micros: AtomicU64::new(0),
            num_rows: AtomicU64::new(0),
            state: AtomicU8::new(0),
        });
        self.num_begun.fetch_add(1, Ordering::Relaxed);
        self.listed().running.insert(run.id, Arc::clone(&run));
        Guard {
            running: Arc::clone(self),
            run,
        }
    }

    /// What a caller may see of them, the youngest first: their own, or all for an administrator.
    pub(in crate::serve) fn seen_by(&self, caller: &Caller) -> Vec<Arc<Run>> {
        let listed = self.listed();
        let running = listed.running.values().rev();
        let all = running.chain(listed.ended.iter().rev());
        all.filter(|run| may(caller, run)).cloned().collect()
    }

    /// How many run.
    pub(in crate::serve) fn len(&self) -> usize {
        self.listed().running.len()
    }

    /// How many have not ended; some that have are listed until their rows were read.
    pub(in crate::serve) fn num_running(&self) -> usize {
        let listed = self.listed();
        let running = listed.running.values();
        running.filter(|run| run.state() == State::Running).count()
    }

    /// Ends one.
    ///
    /// # Errors
    /// `NotFound` when it does not run, or is another's.
    pub(in crate::serve) fn cancel(&self, caller: &Caller, id: u64) -> Result<()> {
        let run = self.listed().running.get(&id).cloned();
        let run = run.filter(|run| may(caller, run));
        let query = run.and_then(|run| run.query.load_full());
        query.ok_or_else(|| unknown("query"))?.cancel();
        Ok(())
    }

    /// Ends all.
    pub(in crate::serve) fn cancel_all(&self) {
        for run in self.listed().running.values() {
            if let Some(query) = run.query.load_full() {
                query.cancel();
            }
        }
    }
}

fn may(caller: &Caller, run: &Run) -> bool {
    caller.scope() == Scope::Admin || run.caller == *caller.name()
}

/// Keeps a query on the list.
pub(in crate::serve) struct Guard {
    running: Arc<Running>,
    pub(super) run: Arc<Run>,
}

impl Guard {
    /// Counts rows that were handed on.
    pub(in crate::serve) fn count(&self, num_rows: usize) {
        let num_rows = num_rows as u64;
        self.run.num_rows.fetch_add(num_rows, Ordering::Relaxed);
        self.running.num_rows.fetch_add(num_rows, Ordering::Relaxed);
    }

    /// Says how it ended.
    pub(in crate::serve) fn end(&self, failed: Option<&Error>) {
        let state = match failed.map(Error::kind) {
            None => 1,
            Some(ErrorKind::Cancelled) => 3,
            Some(_) => {
                self.running.num_failed.fetch_add(1, Ordering::Relaxed);
                2
            }
        };
        self.run.state.store(state, Ordering::Release);
    }
}

impl Watched for Guard {
    fn end(&self, failed: Option<&Error>) {
        Guard::end(self, failed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let elapsed = self.run.begun.elapsed();
        let took = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.run.took_micros.store(took.max(1), Ordering::Release);
        // Whoever reads no further has cancelled it.
        let state = &self.run.state;
        let _ended_before = state.compare_exchange(0, 3, Ordering::AcqRel, Ordering::Acquire);
        self.running.times.count(self.run.state().name(), elapsed);
        self.run.last.get_or_init(|| self.run.figures());
        self.run.query.store(None);
        let mut listed = self.running.listed();
        listed.running.remove(&self.run.id);
        if listed.ended.len() == ENDED {
            listed.ended.pop_front();
        }
        listed.ended.push_back(Arc::clone(&self.run));
    }
}

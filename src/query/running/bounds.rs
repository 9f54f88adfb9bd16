//! Memory and turns that the queries of one session share.
//!
//! Comes in: limits. Goes out: a pool for each run, which counts against that of the session, and turns in the order in which they were asked for. Never here: what
//! the memory is used for.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::shares::{Operator, Shares};
use crate::error::{Error, ErrorKind, Result};
use crate::query::messages::limits::{MemoryBound, Whose};
use crate::query::options::SessionOptions;

/// What all queries of a session use together.
#[derive(Debug)]
pub(in crate::query) struct SessionMemory {
    limit: usize,
    /// The setting of a server that says it.
    setting: Option<&'static str>,
    used: AtomicUsize,
}

impl SessionMemory {
    pub(in crate::query) fn new(limit: usize) -> Self {
        Self {
            limit,
            setting: None,
            used: AtomicUsize::new(0),
        }
    }

    /// That of the queries of a session.
    pub(in crate::query) fn of_session(options: &SessionOptions) -> Self {
        Self {
            setting: options.limit_names.map(|names| names.memory),
            ..Self::new(options.memory_limit())
        }
    }

    pub(in crate::query) fn limit(&self) -> usize {
        self.limit
    }

    /// The limit as that of a session.
    fn bound(&self) -> MemoryBound {
        MemoryBound {
            bytes: self.limit,
            of: Whose::Session(self.setting),
        }
    }

    pub(in crate::query) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(super) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    pub(super) fn try_take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, within)
            .is_ok()
    }
}

/// The memory of one run, within that of the session.
#[derive(Debug)]
pub(in crate::query) struct RunPool {
    limit: usize,
    /// Whose limit that is.
    of: Whose,
    session: Arc<SessionMemory>,
    /// That of its caller, within that of the session.
    caller: Option<Arc<SessionMemory>>,
    shares: Mutex<Shares>,
}

impl RunPool {
    pub(in crate::query) fn new(session: &Arc<SessionMemory>, bound: Option<MemoryBound>) -> Self {
        let less = bound.filter(|bound| bound.bytes < session.limit);
        let MemoryBound { bytes, of } = less.unwrap_or_else(|| session.bound());
        Self {
            limit: bytes,
            of,
            session: Arc::clone(session),
            caller: None,
            shares: Mutex::default(),
        }
    }

    /// Within what its caller may use, too.
    pub(super) fn within(self, caller: Option<&Arc<SessionMemory>>) -> Self {
        let (limit, of) = match caller {
            Some(caller) if caller.limit() < self.limit => (caller.limit(), Whose::Caller),
            _ => (self.limit, self.of),
        };
        let caller = caller.map(Arc::clone);
        Self {
            limit,
            of,
            caller,
            ..self
        }
    }

    /// Only this run takes the lock, and a forked child has no runs of its parent.
    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, reservation: &MemoryReservation, bytes: usize) {
        self.shares()
            .add(Operator::of(reservation.consumer()), bytes);
    }

    /// The most bytes that the run used at once.
    pub(super) fn peak(&self) -> usize {
        self.shares().peak()
    }

    /// Whether there is room for more.
    fn has_room(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let operator = Operator::of(reservation.consumer());
        let bytes = (reservation.size(), additional);
        self.shares().has_room(self.limit, operator, bytes)
    }
}

impl fmt::Display for RunPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} within {} of the session",
            size(self.limit),
            size(self.session.limit)
        )
    }
}

impl MemoryPool for RunPool {
    fn name(&self) -> &'static str {
        "partgrid"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shares().begin(Operator::of(consumer));
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shares().end(Operator::of(consumer));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.add(reservation, additional);
        for memory in self.caller.iter().chain([&self.session]) {
            memory.used.fetch_add(additional, Ordering::AcqRel);
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shares()
            .take(Operator::of(reservation.consumer()), shrink);
        for memory in self.caller.iter().chain([&self.session]) {
            memory.give(shrink);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        let operator = reservation.consumer().name();
        if !self.has_room(reservation, additional) {
            let (bytes, of) = (self.limit, self.of);
            return Err(MemoryBound { bytes, of }.exhausted(operator, additional));
        }
        if let Some(caller) = &self.caller
            && !caller.try_take(additional)
        {
            let (bytes, of) = (caller.limit(), Whose::Caller);
            return Err(MemoryBound { bytes, of }.exhausted(operator, additional));
        }
        if self.session.try_take(additional) {
            self.add(reservation, additional);
            return Ok(());
        }
        if let Some(caller) = &self.caller {
            caller.give(additional);
        }
        Err(self.session.bound().exhausted(operator, additional))
    }

    fn reserved(&self) -> usize {
        self.shares().used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// Bytes as people read them.
pub(in crate::query) fn size(bytes: usize) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let word = if bytes == 1 { "byte" } else { "bytes" };
    let mut shown = (format!("{bytes} {word}"), 1000_usize);
    for unit in units {
        if bytes < shown.1 {
            break;
        }
        let tenths = bytes / (shown.1 / 10);
        shown = (
            format!("{}.{} {unit}", tenths / 10, tenths % 10),
            shown.1.saturating_mul(1000),
        );
    }
    shown.0
}

/// Turns to run, given in the order in which they were asked for.
#[derive(Debug, Clone)]
pub(in crate::query) struct Queue {
    turns: Arc<Semaphore>,
    at_once: u32,
    /// Places to wait in; none says that all may wait.
    places: Option<Arc<Semaphore>>,
    /// How many turns were given so far.
    begun: Arc<AtomicU64>,
}

/// Who else ran when a run began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    begun: u64,
    others: bool,
}

impl Queue {
    pub(in crate::query) fn new(at_once: usize, max_waiting: Option<usize>) -> Self {
        let places = max_waiting.map(|most| Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let at_once = u32::try_from(at_once.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self {
            turns: Arc::new(Semaphore::new(at_once as usize)),
            at_once,
            places: places.map(Arc::new),
            begun: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Waits for a turn among others.
    ///
    /// # Errors
    /// `ResourcesExhausted` when as many wait already as may.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        let Some(places) = &self.places else {
            return self.acquire(1).await;
        };
        // Nobody is passed by: a turn that is free at once is only taken when nobody waits for it.
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            self.begun.fetch_add(1, Ordering::AcqRel);
            return Ok(turn);
        }
        let _place = places.try_acquire().map_err(|_| {
            let text = format!(
                "{} queries run and as many wait for their turn as may",
                self.at_once
            );
            Error::new(ErrorKind::ResourcesExhausted, text).with_hint("try again later")
        })?;
        self.acquire(1).await
    }

    /// Waits until nobody else runs, and lets nobody run meanwhile.
    pub(super) async fn alone(&self) -> Result<OwnedSemaphorePermit> {
        self.acquire(self.at_once).await
    }

    /// What [`Queue::was_shared_since`] wants; asked by somebody who has a turn.
    pub(super) fn moment(&self) -> Moment {
        Moment {
            begun: self.begun.load(Ordering::Acquire),
            others: self.turns.available_permits() + 1 < self.at_once as usize,
        }
    }

    /// Whether anybody else ran at that moment or began since.
    pub(super) fn was_shared_since(&self, moment: Moment) -> bool {
        moment.others || self.begun.load(Ordering::Acquire) != moment.begun
    }

    async fn acquire(&self, turns: u32) -> Result<OwnedSemaphorePermit> {
        let acquired = Arc::clone(&self.turns).acquire_many_owned(turns).await;
        let turn = acquired.map_err(|_| Error::internal("the queue of the session was closed"))?;
        self.begun.fetch_add(1, Ordering::AcqRel);
        Ok(turn)
    }
}

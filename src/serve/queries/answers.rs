//! What tickets and handles stand for: planned queries, prepared statements, answers that are kept.
//!
//! Comes in: what a caller asked for. Goes out: a random name under which only that caller finds it again, until nobody asked for a while. Bounded in number. Never here: running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::poll::Polled;
use super::running::Task;
use crate::error::{Error, ErrorKind, Result};
use crate::query::{Parameters, Prepared, Query};
use crate::serve::door::auth::Caller;
use crate::serve::door::call::{name_of, random_name, unknown};
use crate::serve::receive::upload::Construction;

/// How long something is kept that nobody asks for.
pub(in crate::serve) const KEPT_FOR: Duration = Duration::from_secs(300);

/// Prepared statements live as long as a connection may rest.
pub(in crate::serve) const PREPARED_FOR: Duration = Duration::from_secs(3600);

/// How many of each kind are kept: a planned query takes some 25 kB.
pub(in crate::serve) const MOST: u64 = 4096;

/// Something that belongs to one caller.
#[derive(Clone)]
struct Owned<T> {
    /// As they were then: who may less since then finds nothing.
    owner: Caller,
    what: T,
}

/// Things of one kind by random names.
pub(in crate::serve) struct Named<T> {
    what: &'static str,
    known: Cache<[u8; 16], Owned<T>>,
}

impl<T: Clone + Send + Sync + 'static> Named<T> {
    fn new(what: &'static str, kept_for: Duration) -> Self {
        let known = Cache::builder()
            .max_capacity(MOST)
            .time_to_idle(kept_for)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { what, known }
    }

    /// Keeps it, and gives its name.
    ///
    /// # Errors
    /// As [`random_name`].
    pub(in crate::serve) fn keep(&self, caller: &Caller, what: T) -> Result<[u8; 16]> {
        let name = random_name()?;
        let owner = caller.clone();
        self.known.insert(name, Owned { owner, what });
        Ok(name)
    }

    /// What the caller keeps under the name.
    ///
    /// # Errors
    /// `NotFound` when there is nothing, `PermissionDenied` when it is another's: who knows 128 random bits learns nothing from the difference.
    pub(in crate::serve) fn find(&self, caller: &Caller, name: &[u8]) -> Result<T> {
        match self.known.get(&name_of(name, self.what)?) {
            None => Err(unknown(self.what)),
            Some(found) if found.owner == *caller => Ok(found.what),
            Some(_) => {
                let text = format!(
                    "this {} was given to another token, or to this one when it had other rights",
                    self.what
                );
                Err(Error::new(ErrorKind::PermissionDenied, text)
                    .with_hint("ask for one of your own"))
            }
        }
    }

    /// Puts something else under a name of the caller.
    ///
    /// # Errors
    /// As [`Named::find`].
    pub(in crate::serve) fn replace(&self, caller: &Caller, name: &[u8], what: T) -> Result<()> {
        drop(self.find(caller, name)?);
        let owner = caller.clone();
        self.known
            .insert(name_of(name, self.what)?, Owned { owner, what });
        Ok(())
    }

    /// Forgets it, and gives what it was.
    ///
    /// # Errors
    /// As [`Named::find`].
    pub(in crate::serve) fn remove(&self, caller: &Caller, name: &[u8]) -> Result<T> {
        let what = self.find(caller, name)?;
        self.known.invalidate(&name_of(name, self.what)?);
        Ok(what)
    }

    /// Forgets it, whoever's it is, and gives what it was.
    pub(in crate::serve) fn forget(&self, name: &[u8; 16]) -> Option<T> {
        self.known.remove(name).map(|known| known.what)
    }

    /// Keeps those longer of which it is true.
    fn renew_if(&self, is_used: impl Fn(&T) -> bool) {
        let used = self.known.iter().filter(|(_, kept)| is_used(&kept.what));
        for (name, _) in used {
            drop(self.known.get(name.as_ref()));
        }
    }

    /// Forgets those of which it is true. Looking at them does not keep them longer.
    fn forget_if(&self, is_over: impl Fn(&T) -> bool) {
        let over = self.known.iter().filter(|(_, kept)| is_over(&kept.what));
        for (name, _) in over {
            self.known.invalidate(name.as_ref());
        }
    }

    /// Gives back the memory of those whose time is over.
    fn tidy(&self) {
        self.known.run_pending_tasks();
    }

    /// How many there are, roughly.
    pub(in crate::serve) fn len(&self) -> u64 {
        self.known.entry_count()
    }
}

/// What a ticket gives.
#[derive(Clone)]
pub(in crate::serve) enum Answer {
    /// The rows of queries, one after the other: one for each row of parameters.
    Queries {
        tasks: Vec<Task>,
        schema: SchemaRef,
        readers: Arc<Readers>,
    },
    /// What is known already.
    Batch(RecordBatch),
    /// What a statement said that was done when it was planned, and its text.
    Said { said: RecordBatch, text: Arc<str> },
}

/// Who reads an answer.
#[derive(Debug, Default)]
pub(in crate::serve) struct Readers {
    /// How many at this moment.
    now: AtomicUsize,
    /// Whether somebody ever did.
    ever: AtomicBool,
}

impl Readers {
    fn are_through(&self) -> bool {
        self.ever.load(Ordering::Acquire) && self.now.load(Ordering::Acquire) == 0
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(in crate::serve) struct Reader(Arc<Readers>);

impl Reader {
    pub(in crate::serve) fn of(readers: &Arc<Readers>) -> Self {
        readers.now.fetch_add(1, Ordering::AcqRel);
        readers.ever.store(true, Ordering::Release);
        Self(Arc::clone(readers))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a handle of a prepared statement stands for.
#[derive(Clone)]
pub(in crate::serve) struct Statement {
    pub(in crate::serve) text: Arc<str>,
    /// Looked up already, if it reads.
    pub(in crate::serve) prepared: Option<Arc<Prepared>>,
    /// A set of values for each time that it is to run.
    pub(in crate::serve) bound: Vec<Parameters>,
}

/// All that is kept for callers.
pub(in crate::serve) struct Answers {
    pub(in crate::serve) tickets: Named<Answer>,
    pub(in crate::serve) statements: Named<Statement>,
    pub(in crate::serve) polled: Named<Arc<Polled>>,
    pub(in crate::serve) uploads: Named<Arc<Construction>>,
}

impl Answer {
    /// Of queries that nobody has read.
    pub(in crate::serve) fn of_queries(tasks: Vec<Task>, schema: SchemaRef) -> Self {
        Self::Queries {
            tasks,
            schema,
            readers: Arc::default(),
        }
    }

    /// Whether somebody reads it at this moment, who can end it as long as it is kept.
    fn is_being_read(&self) -> bool {
        match self {
            Self::Batch(_) | Self::Said { .. } => false,
            Self::Queries { readers, .. } => readers.now.load(Ordering::Acquire) > 0,
        }
    }

    /// Whether it was read, and would keep grids that its names do not stand for any more.
    fn is_spent(&self) -> bool {
        match self {
            Self::Batch(_) | Self::Said { .. } => false,
            Self::Queries { tasks, readers, .. } => {
                let mut queries = tasks.iter().map(|task| &task.query);
                readers.are_through() && queries.any(Query::is_outdated)
            }
        }
    }
}

impl Answers {
    pub(in crate::serve) fn new() -> Self {
        Self {
            tickets: Named::new("ticket", KEPT_FOR),
            statements: Named::new("prepared statement", PREPARED_FOR),
            polled: Named::new("answer", KEPT_FOR),
            uploads: Named::new("upload", KEPT_FOR),
        }
    }

    /// Ends the queries whose rows are kept, and lets go of the rows.
    pub(in crate::serve) fn cancel_all(&self) {
        for (_, kept) in &self.polled.known {
            kept.what.cancel();
        }
    }

    /// Gives back the memory of what nobody asks for any more, and of grids that are gone; to be called now and then.
    pub(in crate::serve) fn tidy(&self) {
        self.tickets.renew_if(Answer::is_being_read);
        self.tickets.forget_if(Answer::is_spent);
        for (_, kept) in &self.statements.known {
            if let Some(prepared) = &kept.what.prepared {
                prepared.forget_outdated();
            }
        }
        for (_, kept) in &self.polled.known {
            kept.what.forget_outdated();
        }
        self.tickets.tidy();
        self.statements.tidy();
        self.polled.tidy();
        self.uploads.tidy();
    }
}

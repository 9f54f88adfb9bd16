//! What the queries of one caller may use together.
//!
//! Comes in: limits, and queries that begin and take memory. Goes out: places for queries, room for bytes, or a refusal at once. It lies between the limits of a query and those of the session. Never here: who callers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bounds::SessionMemory;
use crate::error::{Error, ErrorKind, Result};

/// Limits that several queries share, and what they use of them. Cheap to clone; clones are the same.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// Whose it is, for messages.
    name: Arc<str>,
    max_queries: Option<usize>,
    queries: Arc<AtomicUsize>,
    memory: Option<Arc<SessionMemory>>,
}

/// A query that runs; gives its place back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Bytes that count as long as it is there.
#[derive(Debug)]
pub struct Taken {
    bytes: usize,
    of: Option<Arc<SessionMemory>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(memory) = &self.of {
            memory.give(self.bytes);
        }
    }
}

impl Allowance {
    /// For a caller, without limits.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            max_queries: None,
            queries: Arc::default(),
            memory: None,
        }
    }

    /// How many queries run or wait at once; others are refused.
    #[must_use]
    pub fn with_queries(self, max_queries: usize) -> Self {
        let max_queries = Some(max_queries);
        Self {
            max_queries,
            ..self
        }
    }

    /// How many bytes they use together.
    #[must_use]
    pub fn with_memory_bytes(self, bytes: usize) -> Self {
        let memory = Some(Arc::new(SessionMemory::new(bytes)));
        Self { memory, ..self }
    }

    /// Other limits for the same caller: queries that run count on.
    #[must_use]
    pub fn following(self, before: &Self) -> Self {
        let queries = Arc::clone(&before.queries);
        Self { queries, ..self }
    }

    /// How many queries run or wait at this moment.
    #[must_use]
    pub fn num_queries(&self) -> usize {
        self.queries.load(Ordering::Acquire)
    }

    /// Bytes for what is no query, such as rows that come in.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there is no room.
    pub fn take(&self, bytes: usize) -> Result<Taken> {
        let mut taken = self.take_nothing();
        self.resize(&mut taken, bytes)?;
        Ok(taken)
    }

    /// Room for bytes of which nothing has come yet, to be resized.
    pub(crate) fn take_nothing(&self) -> Taken {
        let of = self.memory.clone();
        Taken { bytes: 0, of }
    }

    /// Other bytes in place of those that were taken.
    ///
    /// # Errors
    /// `ResourcesExhausted` when these are more, and there is no room; then nothing has changed.
    pub(crate) fn resize(&self, taken: &mut Taken, bytes: usize) -> Result<()> {
        if let Some(memory) = &taken.of {
            match bytes.checked_sub(taken.bytes) {
                None => memory.give(taken.bytes - bytes),
                Some(more) if memory.try_take(more) => {}
                Some(_) => return Err(self.no_room(memory.limit())),
            }
        }
        taken.bytes = bytes;
        Ok(())
    }

    fn no_room(&self, limit_bytes: usize) -> Error {
        let text = format!(
            "`{}` may use {limit_bytes} bytes at once, queries and rows that come in together, and wants more",
            self.name
        );
        Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("try again when what runs has ended, or ask the administrator for more")
    }

    /// A place for a query.
    ///
    /// # Errors
    /// `ResourcesExhausted` when as many run as may.
    pub(super) fn seat(&self) -> Result<Seat> {
        let most = self.max_queries.unwrap_or(usize::MAX);
        let within = |now: usize| now.checked_add(1).filter(|next| *next <= most);
        let taken = self
            .queries
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, within);
        if taken.is_ok() {
            return Ok(Seat(Arc::clone(&self.queries)));
        }
        let text = format!(
            "`{}` may have {most} queries at once, and has as many",
            self.name
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
            "read the others to their end or cancel them, or ask the administrator for more",
        ))
    }

    /// The memory that they share, if it is limited.
    pub(super) fn memory(&self) -> Option<&Arc<SessionMemory>> {
        self.memory.as_ref()
    }

    /// The most bytes, if there is a limit.
    pub(in crate::query) fn limit_bytes(&self) -> Option<usize> {
        self.memory.as_ref().map(|memory| memory.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_bytes_come_back() {
        let few = Allowance::new("a").with_queries(1).with_memory_bytes(10);
        let seat = few.seat().unwrap();
        assert!(few.seat().is_err());
        let more = Allowance::new("a").with_queries(2).following(&few);
        let second = more.seat().unwrap();
        assert_eq!(few.num_queries(), 2);
        drop((seat, second));
        assert!(few.seat().is_ok());
        let mut taken = few.take(10).unwrap();
        assert!(few.take(1).is_err());
        few.resize(&mut taken, 9).unwrap();
        let other = few.take(1).unwrap();
        assert!(few.resize(&mut taken, 10).is_err());
        drop((taken, other));
        assert!(few.take(10).is_ok());
        assert!(few.take(1).is_ok());
        assert!(Allowance::new("b").take(usize::MAX).is_ok());
    }
}

//! A statement whose plan reads rows that are not there any more.
//!
//! Comes in: a statement over grids of several processes, the error of its run before anybody got a row. Goes out: the same statement, planned over what its names stand for by now, where a process has brought its part anew. Nothing where
//! they stand for what they did, its columns would be others, or it cannot be planned. Never here: grids that have the same rows as those of the plan, which stands then (`cluster/spread/again.rs`).

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::answer::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::query::names::Known;
use crate::query::options::QueryOptions;
use crate::query::parameters::Parameters;
use crate::query::prepared::Prepared;
use crate::query::session::Session;

/// So long a run may have taken whose member is lost, for a look that waits for it once more.
const SHORT: Duration = Duration::from_secs(2);

/// How a statement was asked, to plan it once more.
#[derive(Clone)]
pub(in crate::query) struct Anew {
    session: Session,
    asked: Asked,
    parameters: Parameters,
    options: QueryOptions,
    /// What the names stood for when it was planned, as long as they do.
    known: Weak<Known>,
}

#[derive(Clone)]
enum Asked {
    Text(Arc<str>),
    Prepared(Box<Prepared>),
}

impl Anew {
    /// Of a text that reads.
    pub(in crate::query) fn of_text(
        session: &Session,
        known: &Arc<Known>,
        text: &Arc<str>,
        (parameters, options): (Parameters, &QueryOptions),
    ) -> Option<Self> {
        let asked = || Asked::Text(Arc::clone(text));
        Self::of(session, known, asked, (parameters, options))
    }

    /// Of a statement that was prepared.
    pub(in crate::query) fn of_prepared(
        session: &Session,
        known: &Arc<Known>,
        prepared: &Prepared,
        (parameters, options): (Parameters, &QueryOptions),
    ) -> Option<Self> {
        let asked = || Asked::Prepared(Box::new(prepared.without_found()));
        Self::of(session, known, asked, (parameters, options))
    }

    /// `None` where no other process has anything.
    fn of(
        session: &Session,
        known: &Arc<Known>,
        asked: impl FnOnce() -> Asked,
        (parameters, options): (Parameters, &QueryOptions),
    ) -> Option<Self> {
        session.spreader.now()?;
        Some(Self {
            session: session.clone(),
            asked: asked(),
            parameters,
            options: options.clone(),
            known: Arc::downgrade(known),
        })
    }

    /// The query that is to run after an error of one with these columns, which took so long, if there is one. Looks what the processes have.
    pub(super) async fn after(
        self,
        error: &Error,
        before: &Query,
        took: Duration,
    ) -> Option<Query> {
        match error.kind() {
            ErrorKind::PartitionLost => self.look().await,
            // Who is lost is asked first in a look, too: of one that hung for long that is enough.
            ErrorKind::WorkerLost if took < SHORT => self.look().await,
            ErrorKind::WorkerLost => {}
            _ => return None,
        }
        if Weak::as_ptr(&self.known) == Arc::as_ptr(&self.session.names.now()) {
            return None;
        }
        let planned = match self.planned().await {
            Ok(planned) => planned,
            Err(why) => {
                tracing::debug!(%why, "a statement whose rows are gone cannot be planned anew");
                return None;
            }
        };
        let is_like = planned.schema().fields() == before.schema().fields();
        let is_answer = is_like && planned.said().is_none();
        if is_answer {
            let why = error.message();
            tracing::warn!(
                why,
                "a statement is planned anew before its first row: its rows are gone, and names have changed since"
            );
        }
        is_answer.then_some(planned)
    }

    /// Looks what the processes have after an error of a run that cannot begin again.
    pub(super) async fn look_after(&self, error: &Error) {
        if error.kind() == ErrorKind::PartitionLost {
            self.look().await;
        }
    }

    /// Looks at once for what is looked for every second.
    async fn look(&self) {
        if let Some(spread) = self.session.spreader.now() {
            spread.look().await;
        }
    }

    /// In a box: what is planned may be planned anew itself.
    fn planned(self) -> BoxFuture<'static, Result<Query>> {
        let planning = async move {
            let (parameters, options) = (self.parameters, &self.options);
            match &self.asked {
                Asked::Text(text) => self.session.sql_with(text, parameters, options).await,
                Asked::Prepared(prepared) => prepared.query(parameters, options).await,
            }
        };
        planning.boxed()
    }
}

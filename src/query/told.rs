//! What the rows say before a statement is planned: the values of `PIVOT t ON k`.
//!
//! Comes in: a statement that asks for rows before it can be planned, with its parameters and limits. Goes out: what it comes to, with what was told. All is planned over the names of one moment, within one time limit. Never here: which queries ask,
//! and what becomes of their values (`rewrite/pivot/`).

use std::future::Future;
use std::sync::Arc;

use datafusion::execution::SessionState;

use super::cache::Question;
use super::names::{Known, Names};
use super::options::QueryOptions;
use super::parameters::Parameters;
use super::planner::{Asking, Looked, Planned, within};
use super::session::Session;
use crate::error::{Error, Result};
use crate::query::rewrite::pivot::Told;

impl Session {
    /// What a statement comes to, with what it asks of rows first.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub(super) async fn planned(
        &self,
        state: SessionState,
        question: Question,
        parameters: Parameters,
        options: &QueryOptions,
    ) -> Result<Planned> {
        let (asked, names) = ((question.clone(), parameters.clone()), self.names.clone());
        let planning = self.planner.plan(state, names, asked.0, asked.1);
        match within(self.timeout(options), planning).await? {
            Asking::Done(planned) => Ok(planned),
            Asking::First => {
                let told = async move {
                    let mut asker = Asker::new(self, question, parameters, options);
                    loop {
                        asker.ask().await?;
                        if let Asking::Done(planned) = asker.plan(false).await? {
                            return Ok(planned);
                        }
                    }
                };
                self.in_time(options, Box::pin(told)).await
            }
        }
    }

    /// A statement that reads, with its names looked up, and with what it asks of rows first; `None` for one that changes what names stand for.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub(super) async fn looked(
        &self,
        question: Question,
        options: &QueryOptions,
    ) -> Result<Option<Looked>> {
        let (state, names) = (self.state(options), self.names.clone());
        let looking = self.planner.prepare(state, names, question.clone());
        match within(self.timeout(options), looking).await? {
            Asking::Done(looked) => Ok(looked),
            Asking::First => {
                let told = async move {
                    let mut asker = Asker::new(self, question, Parameters::default(), options);
                    loop {
                        asker.ask().await?;
                        let (state, names) = (self.state(options), asker.names.clone());
                        let looking = self.planner.prepare(state, names, asker.question.clone());
                        if let Asking::Done(looked) = looking.await? {
                            return Ok(looked);
                        }
                    }
                };
                self.in_time(options, Box::pin(told)).await
            }
        }
    }

    /// Asks, and plans, within the time for a query.
    async fn in_time<T>(
        &self,
        options: &QueryOptions,
        told: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<T> {
        let Some(limit) = self.timeout(options) else {
            return told.await;
        };
        let told = tokio::time::timeout(limit.time, told).await;
        told.unwrap_or_else(|_| Err(limit.run_over()))
    }
}

/// Asks for one statement, over the names of the moment at which it begins.
struct Asker<'a> {
    session: &'a Session,
    known: Arc<Known>,
    names: Names,
    question: Question,
    parameters: Parameters,
    options: &'a QueryOptions,
}

impl<'a> Asker<'a> {
    fn new(
        session: &'a Session,
        question: Question,
        parameters: Parameters,
        options: &'a QueryOptions,
    ) -> Self {
        let known = session.names.now();
        Self {
            session,
            names: Names::of(&known),
            known,
            question,
            parameters,
            options,
        }
    }

    /// Plans the statement, or what it asks next.
    async fn plan(&self, asks: bool) -> Result<Asking<Planned>> {
        let question = Question {
            asks,
            ..self.question.clone()
        };
        let state = self.session.state(self.options);
        let (names, parameters) = (self.names.clone(), self.parameters.clone());
        let planner = &self.session.planner;
        planner.plan(state, names, question, parameters).await
    }

    /// Asks what the statement asks next.
    async fn ask(&mut self) -> Result<()> {
        let Asking::Done(Planned::Rows(plan)) = self.plan(true).await? else {
            return Err(Error::internal(
                "what a statement asks was not planned as rows",
            ));
        };
        let (session, options) = (self.session, self.options);
        let config = session.state(options).config().clone();
        let query = session.query(&self.known, plan, config, options);
        let watched = options.watch.as_ref().map(|watch| watch.begun(&query));
        let batches = query.collect().await;
        if let Some(watched) = watched {
            watched.end(batches.as_ref().err());
        }
        let told = Told::of(&query.schema(), &batches?)?;
        let told = self.question.told.iter().cloned().chain([told]);
        self.question.told = told.collect();
        Ok(())
    }
}

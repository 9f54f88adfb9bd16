//! What the rows say before a statement is planned: the values of `PIVOT t ON k`.
//!
//! Comes in: the text of a query that a statement asks first, with the parameters and limits of the statement. Goes out: its values. Never here: which query that is, and what becomes of its values (`rewrite/pivot/`).

use std::collections::BTreeSet;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::cache::Question;
use super::options::QueryOptions;
use super::parameters::Parameters;
use super::planner::{Asking, Looked, Planned, within};
use super::session::Session;
use crate::error::{Error, Result};
use crate::query::rewrite::pivot::Told;

/// What was told of the questions of a statement, one after the other.
#[derive(Default)]
struct Answers {
    told: Vec<Told>,
    /// Why the last question was not answered.
    refused: Option<Error>,
}

impl Session {
    /// What a statement comes to, with what it asks of rows first.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub(super) async fn planned(
        &self,
        state: &SessionState,
        mut question: Question,
        parameters: Parameters,
        options: &QueryOptions,
    ) -> Result<Planned> {
        let mut answers = Answers::default();
        loop {
            let (state, names) = (state.clone(), self.names.clone());
            let asked = (question.clone(), parameters.clone());
            let planning = self.planner.plan(state, names, asked.0, asked.1);
            let planned = within(self.timeout(options), planning).await?;
            let text = match planned {
                Asking::First(text) => text,
                Asking::Done(planned) => return answers.checked(planned),
            };
            answers.ask(text, self, &parameters, options).await?;
            question.told = answers.told.clone().into();
        }
    }

    /// A statement that reads, with its names looked up, and with what it asks of rows first; `None` for one that changes what names stand for.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub(super) async fn looked(
        &self,
        mut question: Question,
        options: &QueryOptions,
    ) -> Result<Option<Looked>> {
        let mut answers = Answers::default();
        loop {
            let (state, names) = (self.state(options), self.names.clone());
            let looking = self.planner.prepare(state, names, question.clone());
            let text = match within(self.timeout(options), looking).await? {
                Asking::First(text) => text,
                Asking::Done(looked) => return answers.checked(looked),
            };
            let none = Parameters::default();
            answers.ask(text, self, &none, options).await?;
            question.told = answers.told.clone().into();
        }
    }
}

impl Answers {
    /// Asks one more. Where it cannot be answered, the statement is planned all the same, so that what is wrong with it is shown where it stands there.
    ///
    /// # Errors
    /// As the query says, if it was planned and failed.
    async fn ask(
        &mut self,
        text: String,
        session: &Session,
        parameters: &Parameters,
        options: &QueryOptions,
    ) -> Result<()> {
        match answered(session.clone(), text, parameters, options.clone()).await? {
            Ok(told) => self.told.push(told),
            Err(error) => {
                self.told.push(Told::Nothing);
                self.refused.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// What was made of the statement, unless a question was not answered.
    ///
    /// # Errors
    /// What was wrong with the question, where nothing else is with the statement.
    fn checked<T>(self, made: T) -> Result<T> {
        self.refused.map_or(Ok(made), Err)
    }
}

/// What a query says, or why it cannot be planned. In a box: what asks is planned as that is.
fn answered(
    session: Session,
    text: String,
    parameters: &Parameters,
    options: QueryOptions,
) -> BoxFuture<'static, Result<Result<Told>>> {
    let parameters = parameters.only(&placeholders(&text));
    async move {
        let query = match session.sql_with(&text, parameters, &options).await {
            Ok(query) => query,
            Err(error) => return Ok(Err(error)),
        };
        let batches = query.collect().await?;
        Ok(Ok(Told::of(&query.schema(), &batches)?))
    }
    .boxed()
}

/// The parameters that a text names.
fn placeholders(text: &str) -> BTreeSet<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize();
    let tokens = tokens.unwrap_or_default().into_iter();
    let names = tokens.filter_map(|token| match token {
        Token::Placeholder(name) => Some(name),
        _ => None,
    });
    names.collect()
}

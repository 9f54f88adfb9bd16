//! Plans on threads of their own, with stacks that deep SQL fits into.
//!
//! Comes in: a session state and SQL text, or a statement that was prepared. Goes out: a physical plan, or a change of names. A planning thread is never the caller's and never one
//! that runs queries, so that a long plan stops nobody; a panic in it becomes an error. Never here: running.

use std::future::Future;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use tokio::sync::{Semaphore, oneshot};

use super::cache::{CachedPlan, Question, means_the_same_later};
use super::described;
use super::error::{placed, placed_in};
use super::guard::{self, Does};
use super::listed::{functions_listed, tables_listed};
use super::names::{Known, Names, PreparedStatement, plans_here, plans_with};
#[cfg(feature = "distributed")]
use super::near::{Near, planned_near};
use super::parameters::Parameters;
use super::permission;
use super::plan::types::{Operations, with_operations};
use super::spread::{apart, spread_out, spreads};
use super::statement::{Change, executed, named};
use crate::error::{Error, Result};
use crate::query::messages::faults::own_text;
use crate::query::messages::limits::TimeLimit;
use crate::query::rewrite::letter_case::{self, Where};
use crate::query::rewrite::same_names::Wanted;
use crate::query::running::physical::Physical;
use crate::still::wait_for;

/// Parsing, planning and dropping of the deepest text that the guard lets through need about a tenth of it. Only touched pages cost memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// How many plans are made at once in one session.
const MAX_AT_ONCE: usize = 2;

/// What a statement comes to.
pub(super) enum Planned {
    /// Rows, once it runs.
    Rows(Physical),
    /// Something that the session does at once.
    Change(Change),
}

/// What is made of a statement, unless it asks something first.
pub(super) enum Asking<T> {
    Done(T),
    /// What it comes to depends on rows that it asks for.
    First,
}

/// A statement whose names were looked up.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) statement: PreparedStatement,
    pub(super) found: Found,
}

/// What was found under its names.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) plan: LogicalPlan,
    /// The names of its columns that the planner did not take.
    pub(super) wanted: Wanted,
    /// What the names stood for then.
    pub(super) known: Arc<Known>,
}

/// Makes plans, a bounded number at a time.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    permits: Arc<Semaphore>,
}

impl Planner {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        }
    }

    /// What one statement comes to.
    ///
    /// # Errors
    /// As the guard says; `Query` for unknown tables, columns and functions.
    pub(super) async fn plan(
        &self,
        state: SessionState,
        names: Names,
        question: Question,
        parameters: Parameters,
    ) -> Result<Asking<Planned>> {
        let state = match parameters.types() {
            values if values.is_empty() => state,
            values => with_operations(state, Operations { values })?,
        };
        self.on_thread(async move {
            let known = names.now();
            plans_with(&known);
            let planning = |question: Question| {
                let (state, known, parameters) = (&state, &known, parameters.clone());
                async move { plan(state, known, &question, parameters).await }
            };
            let (planned, text) = as_meant(&question, &known, planning).await;
            let planned =
                planned.map_err(|error| placed_in(error, &question.text, &text, &state, &known))?;
            // Names that changed meanwhile may be in the plan already.
            if let Asking::Done(Planned::Rows(physical)) = &planned
                && physical.is_lasting
                // What rows said is asked anew each time.
                && question.told.is_empty()
                && !question.asks
                && Arc::ptr_eq(&known, &names.now())
            {
                let (plan, config) = (Arc::clone(&physical.plan), state.config().clone());
                let shown = own_text(&text, &known);
                let cached = CachedPlan {
                    plan,
                    config,
                    shown,
                };
                known.plans.insert(question, cached);
            }
            Ok(planned)
        })
        .await
    }

    /// A statement that reads, with its names looked up; `None` for one that changes what names stand for.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub(super) async fn prepare(
        &self,
        state: SessionState,
        names: Names,
        question: Question,
    ) -> Result<Asking<Option<Looked>>> {
        self.on_thread(async move {
            let known = names.now();
            plans_with(&known);
            let looking = |question: Question| {
                let (state, known) = (&state, Arc::clone(&known));
                async move { look_up(state, known, &question).await }
            };
            let (looked, text) = as_meant(&question, &known, looking).await;
            looked.map_err(|error| placed_in(error, &question.text, &text, &state, &known))
        })
        .await
    }

    /// The plan of a statement that was prepared. Its names are looked up again when any of them may have changed.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub(super) async fn execute(
        &self,
        state: SessionState,
        names: Names,
        (statement, found): (PreparedStatement, Option<Arc<Found>>),
        parameters: Parameters,
    ) -> Result<Physical> {
        self.on_thread(async move {
            let known = names.now();
            plans_with(&known);
            let executing = async {
                if let Some(found) = found
                    && Arc::ptr_eq(&known, &found.known)
                {
                    let plan = physical(&state, parameters.bind(found.plan.clone())?).await?;
                    return Ok(plan.restored(found.wanted.clone())?);
                }
                rows(&state, statement.statement.clone(), &parameters).await
            };
            let planned = executing.await;
            planned.map_err(|error| placed(error, &statement.text, &state, &known))
        })
        .await
    }

    /// Plans on a thread of its own, when it is its turn.
    pub(super) async fn on_thread<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Error::internal("the planner was closed"))?;
        let runtime = tokio::runtime::Handle::current();
        let (send, receive) = oneshot::channel();
        let work = move || {
            plans_here();
            let planned = wait_for(&runtime, work);
            // Nobody listens any more when the caller was cancelled; then the plan is dropped here.
            drop(send.send(planned));
        };
        std::thread::Builder::new()
            .name("partgrid-plan".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| Error::internal("no thread to plan on").with_source(error))?;
        let panicked = |_| Error::internal("the planner panicked, which is a fault of partgrid");
        let planned = receive.await.map_err(panicked)?;
        // A caller who waits no longer gives the turn to others, though the thread still plans.
        drop(permit);
        planned
    }
}

/// Waits for a plan no longer than the limit; the thread that makes it goes on, and its turn is given to others.
///
/// # Errors
/// `ResourcesExhausted` past the limit.
pub(super) fn within<T>(
    limit: Option<TimeLimit>,
    planning: impl Future<Output = Result<T>>,
) -> impl Future<Output = Result<T>> {
    let planning = Box::pin(planning);
    async move {
        let Some(limit) = limit else {
            return planning.await;
        };
        let planned = tokio::time::timeout(limit.time, planning).await;
        planned.unwrap_or_else(|_| Err(limit.planning_over()))
    }
}

/// What is made of a text, and the text in which columns are called as they are: one whose name is not found is looked for whatever the case of its letters.
async fn as_meant<T, F: Future<Output = Result<T>>>(
    question: &Question,
    known: &Known,
    make: impl Fn(Question) -> F,
) -> (Result<T>, Arc<str>) {
    let mut made = make(question.clone()).await;
    let mut asked = question.clone();
    let Err(first) = &made else {
        return (made, asked.text);
    };
    let first = first.clone();
    for place in [Where::Everywhere, Where::There] {
        (made, asked) = (Err(first.clone()), question.clone());
        for _ in 0..letter_case::MOST {
            let wrong = made.as_ref().err();
            let meant =
                wrong.and_then(|error| letter_case::corrected(error, &asked.text, known, place));
            let Some(meant) = meant else {
                break;
            };
            asked.text = meant;
            made = make(asked.clone()).await;
        }
        if made.is_ok() {
            break;
        }
    }
    (made, asked.text)
}

async fn plan(
    state: &SessionState,
    known: &Known,
    question: &Question,
    parameters: Parameters,
) -> Result<Asking<Planned>> {
    let text = &question.text;
    let parsed = guard::parse(state, question).await?;
    permission::check(question.may, &parsed.statement, parsed.does)?;
    if parsed.asks && !question.asks {
        return Ok(Asking::First);
    }
    let (statement, does) = (parsed.statement, parsed.does);
    let parameters = match parsed.placeholders {
        Some(placeholders) => placeholders.values(parameters)?,
        None => parameters,
    };
    let planned = match does {
        Does::Read => {
            let (logical, wanted) = Box::pin(described::planned(state, statement)).await?;
            let lasting = parameters.is_empty() && means_the_same_later(&logical)?;
            let mut plan = physical(state, parameters.bind(logical)?).await?;
            plan.is_lasting &= lasting;
            Planned::Rows(plan.restored(wanted)?)
        }
        Does::ListFunctions => Planned::Rows(functions_listed(state, &statement)?.into()),
        Does::ListTables => Planned::Rows(tables_listed(known)?.into()),
        Does::Name | Does::Prepare => {
            if let Some((prepared, values)) =
                executed(state, known, &statement, &parameters).await?
            {
                let planned = rows(state, prepared.statement.clone(), &values).await;
                let planned = planned.map_err(|error| placed(error, &prepared.text, state, known));
                let mut plan = planned?;
                plan.is_lasting = false;
                return Ok(Asking::Done(Planned::Rows(plan)));
            }
            Planned::Change(named(state, known, text, statement, &parameters).await?)
        }
    };
    Ok(Asking::Done(planned))
}

async fn look_up(
    state: &SessionState,
    known: Arc<Known>,
    question: &Question,
) -> Result<Asking<Option<Looked>>> {
    let text = Arc::clone(&question.text);
    let parsed = guard::parse(state, question).await?;
    permission::check(question.may, &parsed.statement, parsed.does)?;
    if parsed.asks {
        return Ok(Asking::First);
    }
    let (statement, does) = (parsed.statement, parsed.does);
    if does != Does::Read {
        return Ok(Asking::Done(None));
    }
    let (plan, wanted) = Box::pin(described::planned(state, statement.clone())).await?;
    let types = Vec::new();
    let statement = PreparedStatement {
        text,
        statement,
        types,
    };
    let found = Found {
        plan,
        wanted,
        known,
    };
    Ok(Asking::Done(Some(Looked { statement, found })))
}

async fn rows(
    state: &SessionState,
    statement: Statement,
    parameters: &Parameters,
) -> Result<Physical> {
    let (logical, wanted) = Box::pin(described::planned(state, statement)).await?;
    let plan = physical(state, parameters.bind(logical)?).await?;
    Ok(plan.restored(wanted)?)
}

/// The physical plan of a logical one that only reads, wherever it runs.
///
/// # Errors
/// As the engine says.
pub(super) async fn physical(state: &SessionState, logical: LogicalPlan) -> Result<Physical> {
    let read_only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    read_only.verify_plan(&logical)?;
    let Some(spread) = spreads(state, &logical) else {
        return Ok(Physical::here(state, &logical).await?);
    };
    #[cfg(feature = "distributed")]
    let is_lasting = match Box::pin(planned_near(&spread, state, &logical)).await {
        Near::Alone(plan) => return Ok(plan),
        Near::Spread { lasting } => lasting,
    };
    #[cfg(not(feature = "distributed"))]
    let is_lasting = true;
    let apart = apart(state, &spread);
    let (plan, is_of_grids) = Box::pin(spread_out(spread, apart, &logical)).await?;
    Ok(Physical {
        plan,
        is_lasting: is_of_grids && is_lasting,
        own_plans: None,
    })
}

//! A statement that runs again and again with other values.
//!
//! Comes in: what the planner looked up. Goes out: its parameters, its columns, a query for each set of values. Never here: looking up, planning.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::names::PreparedStatement;
use super::options::QueryOptions;
use super::parameters::Parameters;
use super::planner::{Found, Looked, within};
use super::session::Session;
use crate::error::Result;
use crate::query::messages::faults::own_text;
use crate::query::running::anew::Anew;
use crate::query::running::answer::Query;

/// A statement whose names were looked up, and whose parameters wait for values.
#[derive(Clone)]
pub struct Prepared {
    session: Session,
    statement: PreparedStatement,
    parameters: Result<Vec<(String, Option<DataType>)>>,
    schema: SchemaRef,
    /// As long as the names stand for it.
    found: Arc<ArcSwapOption<Found>>,
}

impl Prepared {
    pub(super) fn new(session: Session, looked: Looked) -> Self {
        let Looked { statement, found } = looked;
        Self {
            session,
            statement,
            parameters: parameters_of(&found),
            schema: schema_of(&found),
            found: Arc::new(ArcSwapOption::from_pointee(found)),
        }
    }

    /// The same statement, which keeps nothing of what its names stand for.
    pub(super) fn without_found(&self) -> Self {
        Self {
            found: Arc::default(),
            ..self.clone()
        }
    }

    /// The SQL text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.statement.text
    }

    /// Lets go of what the names stood for once any of them has changed, which keeps grids in memory. To run it, they are looked up again, as after any change.
    pub fn forget_outdated(&self) {
        let now = self.session.names.now();
        let is_outdated = |found: &Arc<Found>| !Arc::ptr_eq(&found.known, &now);
        if self.found.load().as_ref().is_some_and(is_outdated) {
            self.found.store(None);
        }
    }

    /// The parameters, sorted, with the types that their places suggest; values of other types are cast as SQL casts by itself.
    ///
    /// # Errors
    /// `Query` when one parameter stands in places of different types.
    pub fn parameters(&self) -> Result<Vec<(String, Option<DataType>)>> {
        self.parameters.clone()
    }

    /// The columns of its rows, as far as they are known before the parameters have values.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The query with values for the parameters; runs nothing yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// As [`Session::sql_with`].
    pub async fn query(&self, parameters: Parameters, options: &QueryOptions) -> Result<Query> {
        options.check()?;
        let session = &self.session;
        let state = session.state(options);
        let config = state.config().clone();
        let (names, known) = (session.names.clone(), session.names.now());
        let looked = (self.statement.clone(), self.found.load_full());
        let shown = own_text(&self.statement.text, &known);
        let again = (parameters.clone(), options);
        let anew = Anew::of_prepared(session, &known, self, again);
        let planner = &session.planner;
        let planning = planner.execute(state, names, looked, parameters);
        let plan = within(session.timeout(options), planning).await?;
        let query = session.query(&known, plan, config, options);
        Ok(query.with_text(shown).planned_by(anew))
    }
}

/// Sorted: `$2` before `$10`.
fn parameters_of(found: &Found) -> Result<Vec<(String, Option<DataType>)>> {
    let types = found.plan.get_parameter_types()?;
    let mut parameters: Vec<_> = types.into_iter().collect();
    parameters.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
    Ok(parameters)
}

fn schema_of(found: &Found) -> SchemaRef {
    let schema = found.plan.schema().as_arrow();
    let fields = schema.fields().iter().map(|field| {
        let wanted = found.wanted.get(field.name());
        let name = wanted.unwrap_or_else(|| field.name());
        field.as_ref().clone().with_name(name)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

//! A statement that runs again and again with other values.
//!
//! Comes in: what the planner looked up. Goes out: its parameters, its columns, a query for each set of values. Never here: looking up, planning.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::answer::Query;
use super::faults::own_text;
use super::options::QueryOptions;
use super::parameters::Parameters;
use super::planner::{Looked, within};
use super::session::Session;
use crate::error::Result;

/// A statement whose names were looked up, and whose parameters wait for values.
#[derive(Clone)]
pub struct Prepared {
    pub(super) session: Session,
    pub(super) looked: Arc<Looked>,
}

impl Prepared {
    /// The SQL text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.looked.statement.text
    }

    /// The parameters, sorted, with the types that their places suggest; values of other types are cast as SQL casts by itself.
    ///
    /// # Errors
    /// `Query` when one parameter stands in places of different types.
    pub fn parameters(&self) -> Result<Vec<(String, Option<DataType>)>> {
        let mut parameters: Vec<_> = self
            .looked
            .plan
            .get_parameter_types()?
            .into_iter()
            .collect();
        parameters.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        Ok(parameters)
    }

    /// The columns of its rows, as far as they are known before the parameters have values.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let schema = self.looked.plan.schema().as_arrow();
        let fields = schema.fields().iter().map(|field| {
            let wanted = self.looked.wanted.get(field.name());
            let name = wanted.unwrap_or_else(|| field.name());
            field.as_ref().clone().with_name(name)
        });
        let fields: Vec<Field> = fields.collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
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
        let (names, looked) = (session.names.clone(), Arc::clone(&self.looked));
        let shown = own_text(&looked.statement.text, &names.now());
        let planning = session.planner.execute(state, names, looked, parameters);
        let plan = within(session.timeout(options), planning).await?;
        Ok(session.query(plan, config, options).with_text(shown))
    }
}

//! Statements that change what the names of a session stand for.
//!
//! Comes in: a parsed statement. Goes out: what the session shall do; nothing is done here. `CREATE TABLE … AS` makes a grid, `CREATE VIEW` a query under a name, `PREPARE` a
//! statement with parameters under a name. Files and settings are never touched. Never here: parsing, running.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Field;
use datafusion::common::TableReference;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan, Statement as PlanStatement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ObjectName, ObjectType, Query, Statement as SqlStatement, Visit, Visitor,
};

use super::error::{near, no_table};
use super::names::{CATALOG, Known, PreparedStatement, SCHEMA, Table, View};
use super::parameters::Parameters;
use super::planner::physical;
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::{one_value, same_names};

/// What a session shall do.
pub(super) enum Change {
    /// Keep the answer of a query as a grid; without `or_replace`, only if there is no such name.
    Table {
        name: String,
        plan: Arc<dyn ExecutionPlan>,
        or_replace: bool,
    },
    View {
        name: String,
        view: Arc<View>,
    },
    Drop {
        name: String,
        if_exists: bool,
    },
    Prepare {
        name: String,
        statement: Arc<PreparedStatement>,
    },
    Deallocate {
        name: String,
    },
    /// There is nothing to do; the text says why.
    Nothing(String),
}

impl Change {
    /// The name of the grid or view that it makes or drops.
    pub(super) fn table(&self) -> Option<&str> {
        match self {
            Self::Table { name, .. } | Self::View { name, .. } | Self::Drop { name, .. } => {
                Some(name)
            }
            Self::Prepare { .. } | Self::Deallocate { .. } | Self::Nothing(_) => None,
        }
    }
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, text)
}

/// What is said where nothing has the name that is dropped.
pub(super) fn nothing_to_drop(name: &str) -> String {
    format!("there is no `{name}`")
}

/// The plan of rows that are known already.
pub(super) fn constant(batch: &RecordBatch) -> Result<Arc<dyn ExecutionPlan>> {
    let parts = [vec![batch.clone()]];
    Ok(MemorySourceConfig::try_new_exec(
        &parts,
        batch.schema(),
        None,
    )?)
}

/// The statement that `EXECUTE` names, and the values for it; `None` for other statements. Values come with the statement, or in place of its parameters.
pub(super) async fn executed(
    state: &SessionState,
    known: &Known,
    statement: &Statement,
    parameters: &Parameters,
) -> Result<Option<(Arc<PreparedStatement>, Parameters)>> {
    let Statement::Statement(inner) = statement else {
        return Ok(None);
    };
    if !matches!(inner.as_ref(), SqlStatement::Execute { .. }) {
        return Ok(None);
    }
    let plan = parameters.bind(one_value::planned(state, statement).await?)?;
    let LogicalPlan::Statement(PlanStatement::Execute(execute)) = plan else {
        return Err(Error::internal("EXECUTE was planned as something else"));
    };
    let prepared = known
        .prepared
        .get(&execute.name)
        .ok_or_else(|| no_prepared(&execute.name, known))?;
    let context = SimplifyContext::builder()
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let value = |expression: Expr| -> Result<ArrayRef> {
        match simplifier.simplify(expression)? {
            Expr::Literal(value, _) => Ok(value.to_array()?),
            other => Err(wrong(format!(
                "EXECUTE takes values, got the expression {other}"
            ))),
        }
    };
    let values: Result<Parameters> = execute.parameters.into_iter().map(value).collect();
    let values = values?.cast_to(&prepared.types)?;
    Ok(Some((Arc::clone(prepared), values)))
}

fn no_prepared(name: &str, known: &Known) -> Error {
    let error = wrong(format!("no prepared statement `{name}`"));
    match near(name, known.prepared.keys().map(String::as_str)) {
        Some(name) => error.with_hint(format!("did you mean `{name}`?")),
        None if known.prepared.is_empty() => error.with_hint("PREPARE name AS SELECT … makes one"),
        None => {
            let names: Vec<&str> = known.prepared.keys().map(String::as_str).collect();
            error.with_hint(format!("the prepared statements are {}", names.join(", ")))
        }
    }
}

/// What the session shall do for a statement that names something.
pub(super) async fn named(
    state: &SessionState,
    known: &Known,
    text: &Arc<str>,
    mut statement: Statement,
    parameters: &Parameters,
) -> Result<Change> {
    if let Some(change) = dropped(known, &statement)? {
        return Ok(change);
    }
    let (planned, has_twins) = same_names::planned_apart(state, &mut statement).await?;
    match planned {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
            if create.temporary
                || !create.constraints.is_empty()
                || !create.column_defaults.is_empty()
            {
                let text = "CREATE TABLE … AS takes no constraints, defaults and TEMPORARY";
                return Err(wrong(text).with_hint("all tables of a session end with it"));
            }
            let name = bare(&create.name)?;
            match existing(known, &name, create.if_not_exists, create.or_replace)? {
                Some(nothing) => Ok(nothing),
                None => {
                    let input = parameters.bind(Arc::unwrap_or_clone(create.input))?;
                    let plan = physical(state, input).await?.plan;
                    let or_replace = create.or_replace;
                    Ok(Change::Table {
                        name,
                        plan,
                        or_replace,
                    })
                }
            }
        }
        LogicalPlan::Ddl(DdlStatement::CreateView(create)) => {
            if create.temporary {
                return Err(wrong("CREATE VIEW takes no TEMPORARY")
                    .with_hint("all views of a session end with it"));
            }
            let name = bare(&create.name)?;
            if let Some(nothing) = existing(known, &name, false, create.or_replace)? {
                return Ok(nothing);
            }
            check_own_view(known, &name, &statement)?;
            // Values are of this moment; a view is a text.
            Parameters::default().bind(LogicalPlan::clone(&create.input))?;
            physical(state, Arc::unwrap_or_clone(create.input)).await?;
            let view = Arc::new(View {
                statement,
                has_twins,
            });
            Ok(Change::View { name, view })
        }
        LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => {
            prepared(known, text, statement, prepare.name, &prepare.fields)
        }
        LogicalPlan::Statement(PlanStatement::Deallocate(deallocate)) => {
            let name = deallocate.name;
            match known.prepared.contains_key(&name) {
                true => Ok(Change::Deallocate { name }),
                false => Err(no_prepared(&name, known)),
            }
        }
        other => Err(Error::internal(format!(
            "a statement was planned as {}",
            other.display()
        ))),
    }
}

/// Refuses a view that reads itself, also by way of others: it would be lost, since a view is planned anew each time.
fn check_own_view(known: &Known, name: &str, statement: &Statement) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut open = tables_of(statement);
    while let Some(read) = open.pop() {
        if read == name {
            return Err(wrong(format!("the view `{name}` would read itself"))
                .with_context("table", name)
                .with_hint("give the new view another name, or write out what the old one reads"));
        }
        if let Some((_, Table::View(view))) = known.table(&read)
            && seen.insert(read)
        {
            open.extend(tables_of(&view.statement));
        }
    }
    Ok(())
}

/// The tables and views that a statement reads.
fn tables_of(statement: &Statement) -> Vec<String> {
    let Statement::Statement(inner) = statement else {
        return Vec::new();
    };
    let SqlStatement::CreateView(create) = inner.as_ref() else {
        return Vec::new();
    };
    let mut tables = Tables::default();
    let _: ControlFlow<()> = create.query.visit(&mut tables);
    let own = tables.own;
    tables.read.retain(|name| !own.contains(name));
    tables.read
}

#[derive(Default)]
struct Tables {
    read: Vec<String>,
    /// The names of WITH.
    own: BTreeSet<String>,
}

impl Visitor for Tables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = names.map(|table| table.alias.name.to_string());
        self.own
            .extend(names.map(|name| TableReference::parse_str(&name).table().to_owned()));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let name = TableReference::parse_str(&name.to_string());
        self.read.push(name.table().to_owned());
        ControlFlow::Continue(())
    }
}

fn prepared(
    known: &Known,
    text: &Arc<str>,
    statement: Statement,
    name: String,
    fields: &[Arc<Field>],
) -> Result<Change> {
    let Statement::Statement(inner) = statement else {
        return Err(Error::internal("PREPARE was parsed as something else"));
    };
    let SqlStatement::Prepare {
        data_types,
        statement,
        ..
    } = *inner
    else {
        return Err(Error::internal("PREPARE was parsed as something else"));
    };
    if known.prepared.contains_key(&name) {
        return Err(
            wrong(format!("there is a prepared statement `{name}` already"))
                .with_hint(format!("DEALLOCATE {name} takes the name away")),
        );
    }
    // Types that nobody declared are guesses of the planner: values keep their own.
    let declared = if data_types.is_empty() { &[] } else { fields };
    let types = declared
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    let statement = PreparedStatement {
        text: Arc::clone(text),
        statement: Statement::Statement(statement),
        types,
    };
    let statement = Arc::new(statement);
    Ok(Change::Prepare { name, statement })
}

/// The name within the session.
fn bare(name: &TableReference) -> Result<String> {
    let ours = match name {
        TableReference::Bare { .. } => true,
        TableReference::Partial { schema, .. } => schema.as_ref() == SCHEMA,
        TableReference::Full {
            catalog, schema, ..
        } => catalog.as_ref() == CATALOG && schema.as_ref() == SCHEMA,
    };
    if ours {
        return Ok(name.table().to_owned());
    }
    Err(wrong(format!(
        "tables are named without a schema, got {name}"
    )))
}

/// Whether there is something under the name that is to stay.
fn existing(
    known: &Known,
    name: &str,
    if_not_exists: bool,
    or_replace: bool,
) -> Result<Option<Change>> {
    let Some(table) = known.tables.get(name) else {
        return Ok(None);
    };
    let kind = match table {
        Table::Grid(_) => "table",
        Table::View(_) => "view",
    };
    match (if_not_exists, or_replace) {
        (true, true) => Err(wrong("IF NOT EXISTS and OR REPLACE do not go together")),
        (true, false) => Ok(Some(Change::Nothing(format!(
            "there is a {kind} `{name}` already"
        )))),
        (false, true) => Ok(None),
        (false, false) => Err(wrong(format!("there is a {kind} `{name}` already"))
            .with_context("table", name)
            .with_hint("CREATE OR REPLACE takes the name over")),
    }
}

/// What DROP does; `None` for other statements.
fn dropped(known: &Known, statement: &Statement) -> Result<Option<Change>> {
    let Statement::Statement(inner) = statement else {
        return Ok(None);
    };
    let SqlStatement::Drop {
        object_type,
        if_exists,
        names,
        ..
    } = inner.as_ref()
    else {
        return Ok(None);
    };
    let [name] = names.as_slice() else {
        return Err(wrong("DROP takes one name at a time"));
    };
    let reference = TableReference::parse_str(&name.to_string());
    let name = bare(&reference)?;
    let wanted_view = *object_type == ObjectType::View;
    match known.table(&name) {
        Some((_, Table::Grid(_))) if wanted_view => {
            Err(wrong(format!("`{name}` is a table")).with_hint(format!("DROP TABLE {name}")))
        }
        Some((_, Table::View(_))) if !wanted_view => {
            Err(wrong(format!("`{name}` is a view")).with_hint(format!("DROP VIEW {name}")))
        }
        Some((name, _)) => Ok(Some(Change::Drop {
            name: name.to_owned(),
            if_exists: *if_exists,
        })),
        None if *if_exists && known.left_out(&name).is_none() => {
            Ok(Some(Change::Nothing(nothing_to_drop(&name))))
        }
        None => Err(no_table(&name, known)),
    }
}

//! Columns of USING of which several tables on the left may be the owner, and those that subqueries name, which may have such a column themselves: only the planner knows.
//!
//! Comes in: the names of the tables; later the statement. Goes out: a name that stands for the column of one of them, and the plan of the statement with what is meant. Never here: statements that
//! are planned at once.

use std::ops::ControlFlow;

use datafusion::common::{Column, SchemaError};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, Statement as SqlStatement, VisitMut, VisitorMut,
};

use super::{columns, folded, only, value_in_where};

/// How many subqueries are tried one by one.
const MAX_SUBQUERIES: usize = 16;

/// Between the names of the tables, of which no name can have it.
const OR: &str = "\u{1f} or \u{1f}";

/// The column `column` of the one of the tables that has it; `None` unless all have names, since one without could be it.
pub(super) fn column(tables: &[Option<Ident>], column: &Ident) -> Option<Expr> {
    let names: Option<Vec<String>> = tables
        .iter()
        .map(|table| table.as_ref().map(folded))
        .collect();
    let table = Ident::with_quote('"', names?.join(OR));
    Some(Expr::CompoundIdentifier(vec![table, column.clone()]))
}

/// The plan of a statement.
///
/// # Errors
/// As the engine says.
pub(in crate::query) async fn planned(
    state: &SessionState,
    mut statement: Statement,
) -> PlanResult<LogicalPlan> {
    let mut planned = state.statement_to_plan(statement.clone()).await;
    // The planner goes the same way each time, and stops at the first name that there is not.
    while let Err(error) = &planned
        && let Some(wanted) = missing(error)
    {
        let others = match wanted.relation.as_ref().map(|table| table.table()) {
            Some(tables) => of_tables(&statement, tables, &wanted.name),
            None => in_subqueries(&statement, &wanted.name),
        };
        let mut found = None;
        for (tried, table) in others {
            let plan = state.statement_to_plan(tried.clone()).await;
            let is_without = |error| {
                missing(error).is_some_and(|still| {
                    let relation = still.relation.as_ref().map(|relation| relation.table());
                    still.name == wanted.name && relation == table.as_deref()
                })
            };
            if !plan.as_ref().is_err_and(is_without) {
                found = Some((tried, plan));
                break;
            }
        }
        let Some((tried, plan)) = found else {
            break;
        };
        (statement, planned) = (tried, plan);
    }
    planned
}

/// A statement, and the table that it needs to have a column; none if that is not known.
type Tried = (Statement, Option<String>);

/// The statement with each of the tables.
fn of_tables(statement: &Statement, tables: &str, column: &str) -> Vec<Tried> {
    if !tables.contains(OR) {
        return Vec::new();
    }
    let each = tables.split(OR).map(|table| {
        let mut tried = statement.clone();
        put(&mut tried, (tables, column), table);
        (tried, Some(table.to_owned()))
    });
    each.collect()
}

/// The statement with the value of a column of USING in each subquery that names it, and in all of them.
fn in_subqueries(statement: &Statement, column: &str) -> Vec<Tried> {
    let with = |chosen: Option<usize>| {
        let mut tried = statement.clone();
        let mut sites = Sites {
            column,
            chosen,
            seen: 0,
        };
        if let Some(statement) = sql_of(&mut tried) {
            let _: ControlFlow<()> = statement.visit(&mut sites);
        }
        (tried, sites.seen)
    };
    let (all, count) = with(None);
    match count {
        0 => Vec::new(),
        1 => vec![(all, None)],
        _ => {
            let each = (0..count.min(MAX_SUBQUERIES)).map(|site| with(Some(site)).0);
            each.chain([all]).map(|tried| (tried, None)).collect()
        }
    }
}

/// The column that a statement names and no table has.
fn missing(error: &DataFusionError) -> Option<Column> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, .. } => Some((**field).clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Puts the name of a table in place of those that it may be one of.
fn put(statement: &mut Statement, (tables, column): (&str, &str), table: &str) {
    let mut putting = Putting {
        tables,
        column,
        table,
    };
    if let Some(statement) = sql_of(statement) {
        let _: ControlFlow<()> = statement.visit(&mut putting);
    }
}

fn sql_of(statement: &mut Statement) -> Option<&mut SqlStatement> {
    match statement {
        Statement::Statement(statement) => Some(statement),
        Statement::Explain(explain) => sql_of(&mut explain.statement),
        _ => None,
    }
}

struct Putting<'a> {
    tables: &'a str,
    column: &'a str,
    table: &'a str,
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(names) = expr
            && let [table, column] = names.as_mut_slice()
            && table.value == self.tables
            && folded(column) == self.column
        {
            *table = Ident::with_quote('"', self.table);
        }
        ControlFlow::Continue(())
    }
}

/// Puts the value of a column of USING in place of its name in subqueries of the SELECT that has it.
struct Sites<'a> {
    column: &'a str,
    /// In which of them; without one in all.
    chosen: Option<usize>,
    seen: usize,
}

impl VisitorMut for Sites<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let name = Ident::with_quote('"', self.column);
        if let Ok(columns) = columns(&mut select.from)
            && let Some(column) = only(&columns.all, &name)
        {
            let mut within = Within {
                value: value_in_where(column).clone(),
                sites: self,
                queries: 0,
                is_chosen: false,
            };
            let _: ControlFlow<()> = select.visit(&mut within);
        }
        ControlFlow::Continue(())
    }
}

struct Within<'a, 'b> {
    value: Expr,
    sites: &'a mut Sites<'b>,
    /// How many queries are open.
    queries: usize,
    is_chosen: bool,
}

impl VisitorMut for Within<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        if self.queries == 0 {
            let place = self.sites.seen;
            self.is_chosen = self.sites.chosen.is_none_or(|chosen| chosen == place);
            self.sites.seen += 1;
        }
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries > 0
            && self.is_chosen
            && let Expr::Identifier(name) = expr
            && folded(name) == self.sites.column
        {
            *expr = self.value.clone();
        }
        ControlFlow::Continue(())
    }
}

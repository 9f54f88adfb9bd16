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

use super::{Hidden, columns, folded, only, value_in_where};

/// In how many queries and SELECTs within others a name is looked for.
const MAX_SITES: u32 = 10;

/// How many statements are tried.
const MAX_TRIED: usize = 128;

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
    statement: &Statement,
) -> PlanResult<LogicalPlan> {
    let mut planned = state.statement_to_plan(statement.clone()).await;
    let mut better: Option<Statement> = None;
    // The planner goes the same way each time, and stops at the first name that there is not.
    while let Err(error) = &planned
        && let Some(wanted) = missing(error)
    {
        let asked = better.as_ref().unwrap_or(statement);
        let others = match wanted.relation.as_ref().map(|table| table.table()) {
            Some(tables) => of_tables(asked, tables, &wanted.name),
            None => in_subqueries(asked, &wanted.name),
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
        (better, planned) = (Some(tried), plan);
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

/// The statement with the value of a column of USING in some of its subqueries: in as few as there are that have no such column themselves.
fn in_subqueries(statement: &Statement, column: &str) -> Vec<Tried> {
    let with = |chosen: u32| {
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
    let (_, count) = with(0);
    let mut choices: Vec<u32> = (1..1 << count.min(MAX_SITES)).collect();
    choices.sort_by_key(|chosen| chosen.count_ones());
    choices.truncate(MAX_TRIED);
    let tried = choices.into_iter().map(|chosen| (with(chosen).0, None));
    tried.collect()
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

pub(in crate::query) fn sql_of(statement: &mut Statement) -> Option<&mut SqlStatement> {
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
    /// In which of them, a bit for each.
    chosen: u32,
    seen: u32,
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
                open: Vec::new(),
                hidden: Hidden::default(),
            };
            let _: ControlFlow<()> = select.visit(&mut within);
        }
        ControlFlow::Continue(())
    }
}

struct Within<'a, 'b> {
    value: Expr,
    sites: &'a mut Sites<'b>,
    /// Whether the value is put into each query and SELECT that is open; names are those of the innermost.
    open: Vec<bool>,
    hidden: Hidden,
}

impl Within<'_, '_> {
    fn enter(&mut self) {
        let chosen = self.sites.chosen.checked_shr(self.sites.seen).unwrap_or(0);
        self.open.push(chosen & 1 == 1);
        self.sites.seen += 1;
    }
}

impl VisitorMut for Within<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.enter();
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        match self.open.is_empty() {
            // The SELECT that has the column.
            true => self.open.push(false),
            false => self.enter(),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.hidden.open(expr);
        if self.open.last() == Some(&true)
            && let Expr::Identifier(name) = expr
            && folded(name) == self.sites.column
            && !self.hidden.has(name)
        {
            *expr = self.value.clone();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.hidden.close(expr);
        ControlFlow::Continue(())
    }
}

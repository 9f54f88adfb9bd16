//! What stands around a part of a statement: the queries that it is in, and what their WITH names.
//!
//! Comes in: queries, as a visitor opens and closes them. Goes out: for tables of the innermost one a query of all their columns, which can be planned by itself. Never here: tables that look at others around them, which cannot.

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, Statement as SqlStatement, TableWithJoins, With,
};

use super::standard;
use crate::error::Result;

/// The queries that are open, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Around(Vec<Open>);

/// A query that is open.
#[derive(Debug)]
struct Open {
    with: Option<With>,
    /// How many queries within it were opened; those of its WITH come first.
    opened: usize,
}

impl Open {
    /// What its WITH names for the query within it that was opened last: of others of WITH only those before it, and of itself, where it is recursive, its first part.
    fn known(&self) -> Option<With> {
        let mut with = self.with.clone()?;
        let known = self.opened.saturating_sub(1);
        if let Some(own) = with.cte_tables.get_mut(known) {
            let is_known = match own.query.body.as_mut() {
                SetExpr::SetOperation { left, .. } if with.recursive => {
                    own.query.body = left.clone();
                    true
                }
                _ => false,
            };
            with.cte_tables.truncate(known + usize::from(is_known));
        }
        (!with.cte_tables.is_empty()).then_some(with)
    }
}

impl Around {
    pub(super) fn open(&mut self, query: &Query) {
        if let Some(around) = self.0.last_mut() {
            around.opened += 1;
        }
        self.0.push(Open {
            with: query.with.clone(),
            opened: 0,
        });
    }

    pub(super) fn close(&mut self) {
        self.0.pop();
    }

    /// A query of all columns of some tables, with what is named around them.
    pub(super) fn all_of(&self, from: Vec<TableWithJoins>) -> Option<Query> {
        let mut query = all()?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return None;
        };
        select.from = from;
        let mut opened = self.0.iter().rev();
        query.with = opened.next().and_then(|open| open.with.clone());
        // One in the other, so that a name means what it means where it stands.
        for with in opened.filter_map(Open::known) {
            let mut outer = all()?;
            outer.with = Some(with);
            outer.body = Box::new(SetExpr::Query(Box::new(query)));
            query = outer;
        }
        Some(query)
    }
}

/// `SELECT *`, of which the tables are to come.
fn all() -> Option<Query> {
    let statement = DFParser::parse_sql("SELECT * FROM t").ok()?.pop_front()?;
    match statement {
        Statement::Statement(statement) => match *statement {
            SqlStatement::Query(query) => Some(*query),
            _ => None,
        },
        _ => None,
    }
}

/// A statement of a query.
pub(super) fn statement_of(query: Query) -> Statement {
    let statement = SqlStatement::Query(Box::new(query));
    Statement::Statement(Box::new(statement))
}

/// The plan of a statement that stands alone.
///
/// # Errors
/// As planning says.
pub(super) async fn planned_alone(
    mut statement: Statement,
    state: &SessionState,
) -> Result<LogicalPlan> {
    standard::rewrite(&mut statement, state)?;
    Ok(state.statement_to_plan(statement).await?)
}

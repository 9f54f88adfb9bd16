//! Subqueries in place of a value that have no column: `(SELECT FROM t)`, `(SELECT * FROM t)` where `t` has none. The engine looks for more than one only, and breaks when it wants the name or the type of what is not there.
//!
//! Comes in: a statement, and what names stand for. Goes out: its plan, or an error for such a subquery. Never here: EXISTS, which asks for rows alone; subqueries of several columns, which the engine refuses.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, JoinOperator, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, Statement as SqlStatement, TableFactor, TableWithJoins, Visit, Visitor,
};

use super::using::{self, folded};
use super::wide;
use crate::error::{Error, ErrorKind, Result};
use crate::query::messages::group_keys;
use crate::query::names::{Known, Table, View, planning_with};

/// What a subquery in place of a value must have; what it has stands behind that.
pub(in crate::query) const ONE_COLUMN: &str =
    "a subquery in place of a value must have one column, got";

/// How deep views are followed.
const MAX_VIEW_DEPTH: usize = 16;

/// The plan of a statement that is planned with the names of this thread.
///
/// # Errors
/// As [`check`] and [`group_keys::check`], and as the engine says.
pub(in crate::query) async fn planned(
    state: &SessionState,
    statement: &Statement,
) -> PlanResult<LogicalPlan> {
    let known = planning_with();
    check(statement, &known)?;
    group_keys::check(statement, state)?;
    // Who plans with one column in place of many says nothing of what is wrong.
    if let Some(with_one) = wide::with_one(statement, &known)
        && let Ok(plan) = using::planned(state, &with_one).await
        && let Some(plan) = wide::with_all(&plan)?
    {
        return Ok(plan);
    }
    using::planned(state, statement).await
}

/// Refuses subqueries in place of a value that have no column.
///
/// # Errors
/// `Query` for one of them.
pub(in crate::query) fn check(statement: &Statement, known: &Known) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return check(&explain.statement, known),
        _ => return Ok(()),
    };
    let mut visitor = Values {
        scope: Scope {
            known,
            with: Vec::new(),
            views: 0,
            seen: HashMap::new(),
        },
        opened: Vec::new(),
    };
    match inner.visit(&mut visitor) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(no_column()),
    }
}

fn no_column() -> Error {
    Error::new(ErrorKind::Query, format!("{ONE_COLUMN} none"))
        .with_hint("name one behind SELECT; EXISTS (SELECT …) asks whether there are rows")
}

/// Looks for them.
struct Values<'a> {
    scope: Scope<'a>,
    /// How many names of WITH there were before each query that is open.
    opened: Vec<usize>,
}

impl Visitor for Values<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.opened.push(self.scope.with.len());
        self.scope.open(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        let before = self.opened.pop().unwrap_or_default();
        self.scope.with.truncate(before);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let (Expr::Subquery(query)
        | Expr::InSubquery {
            subquery: query, ..
        }) = expression
        else {
            return ControlFlow::Continue(());
        };
        match self.scope.has_none(query) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// What the names of tables stand for in some place.
struct Scope<'a> {
    known: &'a Known,
    /// The names of WITH, the nearest ones last, and whether each stands for a query without columns.
    with: Vec<(String, bool)>,
    /// How many views are open.
    views: usize,
    /// What is known of tables of FROM, by where they stand in the memory of the statement or of a view: each `t.*` asks for its table, within each query around it.
    seen: HashMap<usize, bool>,
}

impl Scope<'_> {
    /// Adds the names of the WITH of a query.
    fn open(&mut self, query: &Query) {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let has_none = self.has_none(&table.query);
            self.with.push((folded(&table.alias.name), has_none));
        }
    }

    /// Whether a query has no columns. What is not known has some.
    fn has_none(&mut self, query: &Query) -> bool {
        let before = self.with.len();
        self.open(query);
        let has_none = self.body_has_none(&query.body);
        self.with.truncate(before);
        has_none
    }

    fn body_has_none(&mut self, body: &SetExpr) -> bool {
        match body {
            SetExpr::Select(select) => {
                let mut items = select.projection.iter();
                items.all(|item| self.is_nothing(item, select))
            }
            SetExpr::Query(query) => self.has_none(query),
            // Both sides have as many.
            SetExpr::SetOperation { left, .. } => self.body_has_none(left),
            _ => false,
        }
    }

    /// Whether an item is `*` of tables without columns.
    fn is_nothing(&mut self, item: &SelectItem, select: &Select) -> bool {
        match item {
            SelectItem::Wildcard(_) => {
                let mut tables = select.from.iter();
                !select.from.is_empty() && tables.all(|table| self.joined_has_none(table))
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let mut tables = select.from.iter().flat_map(factors);
                let named = tables.find(|table| is_called(table, name));
                named.is_some_and(|table| self.table_has_none(table))
            }
            _ => false,
        }
    }

    fn joined_has_none(&mut self, table: &TableWithJoins) -> bool {
        let mut has_none = self.table_has_none(&table.relation);
        for join in &table.joins {
            match &join.join_operator {
                JoinOperator::Semi(_)
                | JoinOperator::LeftSemi(_)
                | JoinOperator::Anti(_)
                | JoinOperator::LeftAnti(_) => {}
                JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => {
                    has_none = self.table_has_none(&join.relation);
                }
                _ => has_none = has_none && self.table_has_none(&join.relation),
            }
        }
        has_none
    }

    fn table_has_none(&mut self, table: &TableFactor) -> bool {
        let place = std::ptr::from_ref(table).addr();
        if let Some(seen) = self.seen.get(&place) {
            return *seen;
        }
        let has_none = self.factor_has_none(table);
        self.seen.insert(place, has_none);
        has_none
    }

    fn factor_has_none(&mut self, table: &TableFactor) -> bool {
        match table {
            TableFactor::Table {
                name, args: None, ..
            } => self.name_has_none(name),
            TableFactor::Derived { subquery, .. } => self.has_none(subquery),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.joined_has_none(table_with_joins),
            _ => false,
        }
    }

    fn name_has_none(&mut self, name: &ObjectName) -> bool {
        let Some(last) = name.0.last().and_then(|part| part.as_ident()) else {
            return false;
        };
        let last = folded(last);
        let mut nearest = self.with.iter().rev();
        if name.0.len() == 1
            && let Some((_, has_none)) = nearest.find(|(known, _)| *known == last)
        {
            return *has_none;
        }
        let known = self.known;
        match known.table(&last) {
            Some((_, Table::Grid(table))) => table.grid().schema().fields().is_empty(),
            Some((_, Table::View(view))) => self.view_has_none(view),
            None => false,
        }
    }

    fn view_has_none(&mut self, view: &View) -> bool {
        let Statement::Statement(inner) = &view.statement else {
            return false;
        };
        let SqlStatement::CreateView(create) = inner.as_ref() else {
            return false;
        };
        if self.views >= MAX_VIEW_DEPTH {
            return false;
        }
        // It sees no names of WITH but its own.
        let with = std::mem::take(&mut self.with);
        self.views += 1;
        let has_none = self.has_none(&create.query);
        self.views -= 1;
        self.with = with;
        has_none
    }
}

/// The tables of a part of FROM.
fn factors(table: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    let joined = table.joins.iter().map(|join| &join.relation);
    std::iter::once(&table.relation).chain(joined)
}

/// Whether `name.*` means this table.
fn is_called(table: &TableFactor, name: &ObjectName) -> bool {
    let last = |name: &ObjectName| Some(folded(name.0.last()?.as_ident()?));
    let own = match table {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        }
        | TableFactor::NestedJoin {
            alias: Some(alias), ..
        } => Some(folded(&alias.name)),
        TableFactor::Table { name, .. } => last(name),
        _ => None,
    };
    own.is_some() && own == last(name)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn is_refused(text: &str) -> bool {
        let statements = DFParser::parse_sql(text).unwrap();
        let mut statements = statements.iter();
        statements.any(|statement| check(statement, &Known::default()).is_err())
    }

    #[test]
    fn a_value_of_no_column_is_refused() {
        for text in [
            "SELECT (SELECT FROM t)",
            "EXPLAIN SELECT (SELECT FROM t)",
            "SELECT 1 FROM t WHERE a = (SELECT DISTINCT FROM t LIMIT 1)",
            "SELECT 1 FROM t WHERE a IN (SELECT FROM t)",
            "SELECT 1 FROM t ORDER BY (SELECT FROM t UNION ALL SELECT FROM t)",
            "WITH x AS (SELECT FROM t) SELECT (SELECT * FROM x)",
            "WITH x AS (SELECT FROM t), y AS (SELECT * FROM x) SELECT (SELECT y.* FROM t, y)",
            "SELECT (WITH x AS (SELECT FROM t) SELECT * FROM x)",
            "SELECT (SELECT x.* FROM (SELECT FROM t) x)",
            "SELECT (SELECT * FROM (SELECT FROM t) x SEMI JOIN t ON true)",
        ] {
            assert!(is_refused(text), "{text}");
        }
    }

    /// Were each looked through for each `x.*`, this would not end.
    #[test]
    fn a_table_is_looked_through_once_however_often_it_is_named() {
        let mut query = "SELECT FROM t".to_owned();
        for _ in 0..12 {
            query = format!("SELECT {}x.* FROM ({query}) x", "x.*, ".repeat(99));
        }
        assert!(is_refused(&format!("SELECT ({query})")));
    }

    #[test]
    fn columns_and_rows_pass() {
        for text in [
            "SELECT EXISTS (SELECT FROM t)",
            "SELECT FROM t UNION ALL SELECT FROM t",
            "SELECT (SELECT 1), (SELECT * FROM t), (SELECT u.* FROM t)",
            "WITH x AS (SELECT FROM t) SELECT (SELECT count(*) FROM x)",
            "WITH x AS (SELECT FROM t) SELECT (SELECT * FROM x, t)",
            "WITH x AS (SELECT 1) SELECT (WITH x AS (SELECT 2) SELECT * FROM x) FROM (WITH x AS (SELECT FROM t) SELECT 1 FROM x)",
        ] {
            assert!(!is_refused(text), "{text}");
        }
    }
}

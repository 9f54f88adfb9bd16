//! NATURAL joins as joins with USING.
//!
//! Comes in: a statement as it was parsed. Goes out: the same with USING of the columns that both sides have, in the order of the left one, and CROSS JOIN or ON true where there are none. Which columns a side has is asked of the planner, by a query of all of them. Never here: sides that cannot be planned by themselves, since they look at
//! others: these joins stay NATURAL.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SetExpr,
    Statement as SqlStatement, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut, With,
};

use super::one_of::sql_of;
use super::{constraint, folded, open_parentheses};
use crate::error::Result;
use crate::query::standard;

/// How many joins are looked at.
const MAX_JOINS: usize = 64;

/// Writes the columns out.
///
/// # Errors
/// None of the user's.
pub(in crate::query) async fn as_using(
    statement: &mut Statement,
    state: &SessionState,
) -> Result<()> {
    // Those that stay NATURAL.
    let mut skipped = 0;
    let mut left_to_try = MAX_JOINS;
    while left_to_try > 0 {
        left_to_try -= 1;
        let mut found = Natural {
            skipped,
            ..Natural::default()
        };
        found.visit(statement);
        let Some((left, right)) = found.sides else {
            break;
        };
        let (left, right) = (columns(left, state).await, columns(right, state).await);
        let (Some(left), Some(right)) = (left, right) else {
            skipped += 1;
            continue;
        };
        let common = left.into_iter().filter(|name| right.contains(name));
        let mut written = Natural {
            skipped,
            common: Some(common.collect()),
            ..Natural::default()
        };
        written.visit(statement);
    }
    Ok(())
}

/// The names of the columns of a query; `None` where it cannot be planned.
async fn columns(query: Query, state: &SessionState) -> Option<Vec<String>> {
    let statement = SqlStatement::Query(Box::new(query));
    let mut statement = Statement::Statement(Box::new(statement));
    standard::rewrite(&mut statement, state).ok()?;
    let plan = state.statement_to_plan(statement).await.ok()?;
    let fields = plan.schema().fields().iter();
    Some(fields.map(|field| field.name().clone()).collect())
}

/// Looks for the first NATURAL join that is not skipped, inner queries first.
#[derive(Default)]
struct Natural {
    skipped: usize,
    /// The columns that both sides have: what is put into it.
    common: Option<Vec<String>>,
    /// What is found: a query of all columns for each side.
    sides: Option<(Query, Query)>,
    /// Each query that is open.
    open: Vec<Open>,
}

/// A query that is open.
struct Open {
    with: Option<With>,
    /// How many queries within it were opened; those of its WITH come first.
    opened: usize,
}

impl Open {
    /// What its WITH names for the query within it that was opened last: of others of WITH only those before it.
    fn known(&self) -> Option<With> {
        let mut with = self.with.clone()?;
        let known = self.opened.saturating_sub(1);
        if known < with.cte_tables.len() {
            with.cte_tables.truncate(known);
        }
        (!with.cte_tables.is_empty()).then_some(with)
    }
}

impl Natural {
    fn visit(&mut self, statement: &mut Statement) {
        if let Some(statement) = sql_of(statement) {
            let _: ControlFlow<()> = VisitMut::visit(statement, self);
        }
    }

    /// A query of all columns of some tables, with what is named around them.
    fn all_of(&self, table: TableWithJoins) -> Option<Query> {
        let mut query = all()?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return None;
        };
        select.from = vec![table];
        let mut all: Option<With> = None;
        // Of one name the innermost is meant.
        let mut opened = self.open.iter().rev();
        let innermost = opened.next().and_then(|open| open.with.clone());
        for with in innermost.into_iter().chain(opened.filter_map(Open::known)) {
            match &mut all {
                None => all = Some(with),
                Some(all) => {
                    all.recursive |= with.recursive;
                    let is_new = |name: &Ident, all: &With| {
                        let mut known = all.cte_tables.iter();
                        known.all(|cte| folded(&cte.alias.name) != folded(name))
                    };
                    let outer = with.cte_tables.iter();
                    let outer = outer.filter(|cte| is_new(&cte.alias.name, all));
                    let outer: Vec<_> = outer.cloned().collect();
                    all.cte_tables.splice(0..0, outer);
                }
            }
        }
        query.with = all;
        Some(query)
    }

    fn in_table(&mut self, table: &mut TableWithJoins) -> ControlFlow<()> {
        open_parentheses(table);
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in joined.chain([&mut table.relation]) {
            if let TableFactor::NestedJoin {
                table_with_joins, ..
            } = factor
            {
                self.in_table(table_with_joins)?;
            }
        }
        for number in 0..table.joins.len() {
            let (before, rest) = table.joins.split_at_mut(number);
            let Some(join) = rest.first_mut() else {
                continue;
            };
            if !matches!(
                constraint(&mut join.join_operator),
                Some(JoinConstraint::Natural)
            ) {
                continue;
            }
            if self.skipped > 0 {
                self.skipped -= 1;
                continue;
            }
            match self.common.take() {
                Some(common) => put(&mut join.join_operator, common),
                None => {
                    let left = TableWithJoins {
                        relation: table.relation.clone(),
                        joins: before.to_vec(),
                    };
                    let right = TableWithJoins {
                        relation: join.relation.clone(),
                        joins: Vec::new(),
                    };
                    self.sides = self.all_of(left).zip(self.all_of(right));
                }
            }
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Natural {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(around) = self.open.last_mut() {
            around.opened += 1;
        }
        self.open.push(Open {
            with: query.with.clone(),
            opened: 0,
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut tables = select.from.iter_mut();
        tables.try_for_each(|table| self.in_table(table))
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

/// Puts the columns into a join.
fn put(operator: &mut JoinOperator, columns: Vec<String>) {
    let is_inner = matches!(operator, JoinOperator::Join(_) | JoinOperator::Inner(_));
    if columns.is_empty() && is_inner {
        *operator = JoinOperator::CrossJoin(JoinConstraint::None);
        return;
    }
    let Some(constraint) = constraint(operator) else {
        return;
    };
    *constraint = match columns.is_empty() {
        true => JoinConstraint::On(Expr::value(Value::Boolean(true))),
        false => {
            let names = columns.into_iter();
            let names = names.map(|name| ObjectName::from(vec![Ident::with_quote('"', name)]));
            JoinConstraint::Using(names.collect())
        }
    };
}

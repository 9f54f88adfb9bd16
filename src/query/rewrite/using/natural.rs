//! NATURAL joins as joins with USING.
//!
//! Comes in: a statement as it was parsed. Goes out: the same with USING of the columns that both sides have, in the order of the left one, and CROSS JOIN or ON true where there are none. Which columns a side has is asked of the planner, by a query of all of them. Never here: sides that cannot be planned by themselves, since they look at
//! others: these joins stay NATURAL.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::one_of::sql_of;
use super::{constraint, open_parentheses};
use crate::error::Result;
use crate::query::rewrite::around::{Around, planned_alone, statement_of};

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
    let plan = planned_alone(statement_of(query), state).await.ok()?;
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
    around: Around,
}

impl Natural {
    fn visit(&mut self, statement: &mut Statement) {
        if let Some(statement) = sql_of(statement) {
            let _: ControlFlow<()> = VisitMut::visit(statement, self);
        }
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
                    let all_of = |table| self.around.all_of(vec![table]);
                    self.sides = all_of(left).zip(all_of(right));
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
        self.around.open(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.around.close();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut tables = select.from.iter_mut();
        tables.try_for_each(|table| self.in_table(table))
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

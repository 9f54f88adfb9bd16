//! Conditions that stay where they are.
//!
//! Comes in: a condition above groups, windows, distinct rows or joins. Goes out: the same, of which the engine's rule moves further down only what means the same there. A condition that names no column empties what groups are made of,
//! and one without keys is there all the same, `count(*)` 0; what gives another value each time is asked for each row that stands there, and no other. Never here: moving.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The engine's rule, without such conditions.
#[derive(Debug)]
pub(super) struct Staying(pub(super) PushDownFilter);

impl OptimizerRule for Staying {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else {
            return self.0.rewrite(plan, config);
        };
        let (conditions, input) = conditions_above(filter);
        let (staying, others): (Vec<Expr>, Vec<Expr>) = conditions
            .into_iter()
            .partition(|condition| stays(condition, &input));
        let (Some(staying), others) = (conjunction(staying), conjunction(others)) else {
            return self.0.rewrite(plan, config);
        };
        let Some(others) = others else {
            return Ok(Transformed::no(plan));
        };
        let moved = Filter::try_new(others, Arc::clone(&input))?;
        let moved = self.0.rewrite(LogicalPlan::Filter(moved), config)?;
        if !moved.transformed {
            return Ok(Transformed::no(plan));
        }
        let done = Filter::try_new(staying, Arc::new(moved.data))?;
        Ok(Transformed::yes(LogicalPlan::Filter(done)))
    }
}

/// The conditions of one or several filters in a row, the lowest first, and what they stand above.
fn conditions_above(filter: &Filter) -> (Vec<Expr>, Arc<LogicalPlan>) {
    let (mut conditions, input) = match filter.input.as_ref() {
        LogicalPlan::Filter(below) => conditions_above(below),
        _ => (Vec::new(), Arc::clone(&filter.input)),
    };
    conditions.extend(split_conjunction_owned(filter.predicate.clone()));
    (conditions, input)
}

fn stays(condition: &Expr, input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::Aggregate(aggregate) => {
            condition.is_volatile()
                || condition.column_refs().is_empty() && may_be_of_nothing(aggregate)
        }
        LogicalPlan::Window(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Unnest(_) => condition.is_volatile(),
        _ => false,
    }
}

/// Whether there is a group where there are no rows.
fn may_be_of_nothing(aggregate: &Aggregate) -> bool {
    let mut keys = aggregate.group_expr.iter();
    aggregate.group_expr.is_empty() || keys.any(|key| matches!(key, Expr::GroupingSet(_)))
}

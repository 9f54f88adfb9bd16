//! Subqueries in place of a value within aggregates, sort keys and windows, where they become joins.
//!
//! Comes in: a logical plan for several processes, in which the engine makes a join of each such subquery, but only of those in conditions and lists of columns. Goes out: the same plan, in which all others are
//! columns of a projection below the node that has them. Never here: one process, where the engine runs them beside the plan; conditions of joins.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// With what the names of the columns begin.
const VALUE: &str = "__value";

/// Moves subqueries below.
#[derive(Debug)]
pub(in crate::query) struct ValuesBelow;

impl OptimizerRule for ValuesBelow {
    fn name(&self) -> &'static str {
        "values_below"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let has_such = matches!(
            plan,
            LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_)
        );
        let values = if has_such {
            subqueries(&plan)?
        } else {
            Vec::new()
        };
        if values.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let names = values.iter().map(|_| config.alias_generator().next(VALUE));
        let values: Vec<(Expr, String)> = values.iter().cloned().zip(names).collect();
        Ok(Transformed::yes(below(&plan, &values)?))
    }
}

/// All subqueries in place of a value, each once.
fn subqueries(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    for expression in plan.expressions() {
        expression.apply(|part| {
            if matches!(part, Expr::ScalarSubquery(_)) && !found.contains(part) {
                found.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(found)
}

/// The plan over columns of these names.
fn below(plan: &LogicalPlan, values: &[(Expr, String)]) -> Result<LogicalPlan> {
    let named = plan.expressions().into_iter().map(|expression| {
        let named = expression.transform_down(|part| {
            let known = values.iter().find(|(value, _)| *value == part);
            Ok(match known {
                Some((_, name)) => Transformed::yes(Expr::Column(Column::from_name(name))),
                None => Transformed::no(part),
            })
        });
        named.map(|named| named.data)
    });
    let named: Vec<Expr> = named.collect::<Result<_>>()?;
    let mut inputs = Vec::new();
    for input in plan.inputs() {
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let values = values.iter();
        let values = values.map(|(value, name)| value.clone().alias(name));
        let input = LogicalPlanBuilder::from(input.clone()).project(columns.chain(values))?;
        inputs.push(input.build()?);
    }
    let changed = plan.with_new_exprs(named, inputs)?;
    // The columns of before, by their names of before. An aggregation gives none of its input but what it groups by, which may be a value itself.
    let is_aggregation = matches!(plan, LogicalPlan::Aggregate(_));
    let is_value = |column: &Column| values.iter().any(|(_, name)| column.name == *name);
    let now = changed.schema().columns().into_iter();
    let now = now.filter(|column| is_aggregation || !is_value(column));
    let columns = plan.schema().columns().into_iter().zip(now);
    let columns = columns.map(|(before, now)| match before == now {
        true => Expr::Column(now),
        false => Expr::Column(now).alias_qualified(before.relation, before.name),
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(changed).project(columns)?.build()
}

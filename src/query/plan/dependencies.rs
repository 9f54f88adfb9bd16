//! Which columns of a plan determine which others, as far as that is true.
//!
//! Comes in: a logical plan whose operators say that. Goes out: the same plan with operators that say no more than what holds: the keys of GROUP BY determine the rest of its rows, and nothing determines rows that are
//! unnested. Never here: what follows from it; the engine's rules drop keys of GROUP BY and DISTINCT for it.
//!
//! The engine has it that a key of a GROUP BY determines another key, if it was a key of some rows before they were joined (`SELECT c, k … FROM (SELECT DISTINCT k …) JOIN … GROUP BY c, k`), and that a key of rows is
//! one of what is unnested from them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    DFSchema, DFSchemaRef, Dependency, FunctionalDependence, FunctionalDependencies, Result,
};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Takes back what does not hold.
#[derive(Debug)]
pub(in crate::query) struct Dependencies;

impl OptimizerRule for Dependencies {
    fn name(&self) -> &'static str {
        "dependencies"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        that_hold(plan)
    }
}

/// Makes aggregates of DISTINCT, and leaves it out where rows are different anyway.
#[derive(Debug)]
pub(super) struct Distincts(pub(super) ReplaceDistinctWithAggregate);

impl OptimizerRule for Distincts {
    fn name(&self) -> &'static str {
        "replace_distinct_aggregate"
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
        match plan {
            LogicalPlan::Distinct(Distinct::All(input)) => {
                // What lies below may have become an aggregate just now.
                let input = that_hold(Arc::unwrap_or_clone(input))?.data;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(input)));
                self.0.rewrite(plan, config)
            }
            other => self.0.rewrite(other, config),
        }
    }
}

/// A plan that says what holds.
fn that_hold(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !plan.exists(|node| Ok(says_too_much(node)))? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_up(|node| match node {
        LogicalPlan::Aggregate(mut aggregate) => {
            let known = of_groups(&aggregate);
            aggregate.schema = with(&aggregate.schema, known)?;
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        }
        LogicalPlan::Unnest(mut unnest) => {
            unnest.schema = with(&unnest.schema, FunctionalDependencies::empty())?;
            Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
        }
        other => Ok(Transformed::yes(other.recompute_schema()?)),
    })
}

fn says_too_much(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(aggregate) => {
            *aggregate.schema.functional_dependencies() != of_groups(aggregate)
        }
        LogicalPlan::Unnest(unnest) => !unnest.schema.functional_dependencies().is_empty(),
        _ => false,
    }
}

/// The keys, if they are the same for all rows.
fn of_groups(aggregate: &Aggregate) -> FunctionalDependencies {
    let keys = &aggregate.group_expr;
    let has_sets = keys.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
    if keys.is_empty() || has_sets {
        return FunctionalDependencies::empty();
    }
    let fields = aggregate.schema.fields();
    let is_nullable = fields.iter().take(keys.len()).any(|key| key.is_nullable());
    let (keys, all) = ((0..keys.len()).collect(), (0..fields.len()).collect());
    let known = FunctionalDependence::new(keys, all, is_nullable);
    FunctionalDependencies::new(vec![known.with_mode(Dependency::Single)])
}

fn with(schema: &DFSchemaRef, known: FunctionalDependencies) -> Result<DFSchemaRef> {
    let schema = DFSchema::clone(schema);
    Ok(Arc::new(schema.with_functional_dependencies(known)?))
}

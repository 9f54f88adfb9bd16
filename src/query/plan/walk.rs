//! The walk of the rules that rewrite expressions of a logical plan.
//!
//! Comes in: a plan, and what is done to an expression. Goes out: the plan with the rewritten expressions, under the names that they had. Never here: what is done, and why.

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Goes past all expressions of a plan and of its subqueries, from below. `of_node` looks at a node and says what is done to its expressions, which are over the columns of the schema.
pub(super) fn walk<D>(plan: LogicalPlan, of_node: impl Fn(&LogicalPlan) -> D) -> Result<LogicalPlan>
where
    D: Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
{
    let walked = plan.transform_up_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        let rewrite = of_node(&plan);
        let changed = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = rewrite(expression, &schema)?;
            Ok(match changed.transformed {
                true => changed.update_data(|expression| name.restore(expression)),
                false => changed,
            })
        })?;
        match changed.transformed {
            true => changed.map_data(LogicalPlan::recompute_schema),
            false => Ok(changed),
        }
    });
    walked.data()
}

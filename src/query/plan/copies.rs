//! `EXCEPT ALL` and `INTERSECT ALL`, which count how often a row is there.
//!
//! Comes in: a logical plan, in which the SQL planner has made them anti and semi joins over all columns, so that every copy of a row goes or stays. Goes out: the same
//! joins with the number of the copy as one more key: the third copy of a row on the left meets the third on the right, if there is one. Never here: EXCEPT and INTERSECT of distinct rows.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, col};
use datafusion::optimizer::AnalyzerRule;

use crate::query::functions::ranks::row_number;

/// The numbers of copies on the left and on the right.
const COPIES: [&str; 2] = ["__copy_on_the_left", "__copy_on_the_right"];

/// Counts copies. Comes before all other rules: they change the keys that tell these joins from others.
#[derive(Debug, Default)]
pub(in crate::query) struct CountCopies;

impl AnalyzerRule for CountCopies {
    fn name(&self) -> &'static str {
        "count_copies"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let counted = plan.transform_up_with_subqueries(|plan| match &plan {
            LogicalPlan::Join(join) if is_all(join) => Ok(Transformed::yes(counted(join)?)),
            _ => Ok(Transformed::no(plan)),
        })?;
        Ok(counted.data)
    }
}

/// Whether a join is that of a set operation with ALL. Only set operations take two nulls for equal this early, and those without ALL have distinct rows on the left,
/// where the answers are the same.
fn is_all(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.on.len() == join.left.schema().fields().len()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

fn counted(join: &Join) -> Result<LogicalPlan> {
    let [left_copy, right_copy] = COPIES;
    let keys = |plan: &LogicalPlan, copy: &str| {
        let mut keys = plan.schema().columns();
        keys.push(Column::from_name(copy));
        keys
    };
    let left = with_copies(&join.left, left_copy)?;
    let keys = (keys(&join.left, left_copy), keys(&join.right, right_copy));
    LogicalPlanBuilder::from(left)
        .join_detailed(
            with_copies(&join.right, right_copy)?,
            join.join_type,
            keys,
            None,
            NullEquality::NullEqualsNull,
        )?
        .project(join.left.schema().columns().into_iter().map(Expr::Column))?
        .build()
}

/// The rows with the number of the copy that each is.
fn with_copies(plan: &LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns = || plan.schema().columns().into_iter().map(Expr::Column);
    let number = row_number().partition_by(columns().collect()).build()?;
    let numbered = LogicalPlanBuilder::from(plan.clone()).window(vec![number.alias(name)])?;
    numbered.project(columns().chain([col(name)]))?.build()
}

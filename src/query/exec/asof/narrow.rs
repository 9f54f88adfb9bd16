//! Nearest joins of which not all columns go out.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which a join below a projection gives only the columns that this asks for: rows that were found are copied, column by column. Never here: plans of clusters, whose joins travel with all columns; what the inputs read, which follows from the statement.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::AsofJoinExec;

/// The plan whose nearest joins give the columns that are asked for.
///
/// # Errors
/// As the engine says.
pub(super) fn narrowed(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
            return Ok(Transformed::no(node));
        };
        let Some(join) = projection.input().downcast_ref::<AsofJoinExec>() else {
            return Ok(Transformed::no(node));
        };
        let columns = projection.expr().iter();
        let columns = columns.flat_map(|column| collect_columns(&column.expr));
        let columns: BTreeSet<usize> = columns.map(|column| column.index()).collect();
        if join.columns.is_some() || columns.len() == join.schema().fields().len() {
            return Ok(Transformed::no(node));
        }
        let columns: Vec<usize> = columns.into_iter().collect();
        let exprs = projection.expr().iter().map(|column| {
            let expr = over(Arc::clone(&column.expr), &columns)?;
            Ok(ProjectionExpr::new(expr, column.alias.clone()))
        });
        let exprs: Vec<ProjectionExpr> = exprs.collect::<Result<_>>()?;
        let join = join.over(Arc::clone(&join.left), Arc::clone(&join.right))?;
        let join = Arc::new(join.with_columns(columns)?);
        Ok(Transformed::yes(
            Arc::new(ProjectionExec::try_new(exprs, join)?) as _,
        ))
    })
    .data()
}

/// A value of columns of which only some are left.
fn over(value: Arc<dyn PhysicalExpr>, columns: &[usize]) -> Result<Arc<dyn PhysicalExpr>> {
    let value = value.transform_down(|part| {
        let Some(column) = part.downcast_ref::<Column>() else {
            return Ok(Transformed::no(part));
        };
        let place = columns.binary_search(&column.index());
        let place = place.unwrap_or_else(|_| column.index());
        let column = Column::new(column.name(), place);
        Ok(Transformed::yes(Arc::new(column) as _))
    });
    value.data()
}

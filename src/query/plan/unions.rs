//! UNION ALL whose parts have no rows, but one.
//!
//! Comes in: a logical plan. Goes out: that part alone, under the names of the union. The engine's own rule asks the part for columns of these names, and the part may call them otherwise. Never here: parts that have rows.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Leaves out what has no rows.
#[derive(Debug, Default)]
pub(in crate::query) struct WithoutRows(PropagateEmptyRelation);

impl OptimizerRule for WithoutRows {
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
        if let LogicalPlan::Union(union) = &plan
            && let Some(part) = only_part(union)
            && part.schema() != plan.schema()
        {
            return Ok(Transformed::yes(renamed(part, union)?));
        }
        self.0.rewrite(plan, config)
    }
}

/// The one part that may have rows.
fn only_part(union: &Union) -> Option<&Arc<LogicalPlan>> {
    let mut parts = union.inputs.iter().filter(|part| {
        !matches!(part.as_ref(), LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row)
    });
    let part = parts.next()?;
    parts.next().is_none().then_some(part)
}

/// The part under the names of the union.
fn renamed(part: &Arc<LogicalPlan>, union: &Union) -> Result<LogicalPlan> {
    let names = union.schema.iter();
    let columns = part.schema().iter().zip(names);
    let columns = columns.map(|(column, (table, field))| {
        let column = Expr::Column(Column::from(column));
        column.alias_qualified(table.cloned(), field.name())
    });
    let projection = Projection::try_new_with_schema(
        columns.collect(),
        Arc::clone(part),
        Arc::clone(&union.schema),
    )?;
    Ok(LogicalPlan::Projection(projection))
}

//! The names of the parts of a UNION ALL, which may be others than those of the union.
//!
//! Comes in: a logical plan. Goes out: parts that are called as the union is, of which those without rows are left out. The engine's own rules ask parts for columns by the names of the union, and whoever looks at one later
//! takes the names of its first part. Never here: types of parts, rows.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Gives all parts the names of the union.
#[derive(Debug)]
pub(in crate::query) struct NamesOfParts;

impl OptimizerRule for NamesOfParts {
    fn name(&self) -> &'static str {
        "names_of_parts"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Union(union) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let is_named = |part: &Arc<LogicalPlan>| {
            let names = part.schema().fields().iter().map(|field| field.name());
            names.eq(union.schema.fields().iter().map(|field| field.name()))
        };
        if union.inputs.iter().all(is_named) {
            return Ok(Transformed::no(plan));
        }
        let inputs = union.inputs.iter().map(|part| match is_named(part) {
            true => Ok(Arc::clone(part)),
            false => renamed(part, union).map(Arc::new),
        });
        Ok(Transformed::yes(LogicalPlan::Union(Union {
            inputs: inputs.collect::<Result<_>>()?,
            schema: Arc::clone(&union.schema),
        })))
    }
}

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
        let LogicalPlan::Union(union) = &plan else {
            return self.0.rewrite(plan, config);
        };
        let mut parts: Vec<_> = union
            .inputs
            .iter()
            .filter(|part| may_have_rows(part))
            .collect();
        let Some(first) = parts.first() else {
            return self.0.rewrite(plan, config);
        };
        if parts.len() == union.inputs.len() {
            return Ok(Transformed::no(plan));
        }
        let named = match first.schema() == plan.schema() {
            true => Arc::clone(first),
            false => Arc::new(renamed(first, union)?),
        };
        let others = parts.split_off(1).into_iter().map(Arc::clone);
        let mut inputs = vec![named];
        inputs.extend(others);
        Ok(Transformed::yes(match inputs.len() {
            1 => Arc::unwrap_or_clone(inputs.remove(0)),
            _ => LogicalPlan::Union(Union {
                inputs,
                schema: Arc::clone(&union.schema),
            }),
        }))
    }
}

fn may_have_rows(part: &LogicalPlan) -> bool {
    !matches!(part, LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row)
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

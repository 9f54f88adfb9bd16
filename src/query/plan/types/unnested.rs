//! Structs that are taken apart into columns: `unnest(s)`.
//!
//! Comes in: a plan with such a node. Goes out: the same over structs whose fields are null where they are: the engine gives what the fields hold there. Never here: lists.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions::core::{get_field, named_struct};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Unnest, lit};

/// Writes out the fields of the structs.
pub(super) fn unnested(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Unnest(unnest) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let is_written_out = |place: &usize| is_struct_of_fields(&unnest.input, *place);
    let structs = &unnest.struct_type_columns;
    if structs.is_empty() || structs.iter().any(is_written_out) {
        return Ok(Transformed::no(plan));
    }
    let columns = unnest.input.schema().iter().enumerate();
    let columns = columns.map(|(place, (table, field))| {
        let column = Expr::from(Column::from((table, field)));
        match field.data_type() {
            DataType::Struct(fields) if structs.contains(&place) && !fields.is_empty() => {
                let parts = fields.iter().flat_map(|field| {
                    let name = lit(field.name().as_str());
                    let value = get_field().call(vec![column.clone(), name.clone()]);
                    [name, value]
                });
                let whole = named_struct().call(parts.collect());
                whole.alias_qualified(table.cloned(), field.name())
            }
            _ => column,
        }
    });
    let input = Projection::try_new(columns.collect(), Arc::clone(&unnest.input))?;
    let input = Arc::new(LogicalPlan::Projection(input));
    let columns = unnest.exec_columns.clone();
    let unnest = Unnest::try_new(input, columns, unnest.options.clone())?;
    Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
}

/// Whether a column is made of fields already, none of which is of a struct that is null.
fn is_struct_of_fields(plan: &LogicalPlan, place: usize) -> bool {
    let LogicalPlan::Projection(projection) = plan else {
        return false;
    };
    match projection.expr.get(place).cloned().map(Expr::unalias) {
        Some(Expr::ScalarFunction(call)) => call.func.name() == "named_struct",
        _ => false,
    }
}

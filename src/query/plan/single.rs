//! Subqueries in place of a value, where they become joins.
//!
//! Comes in: a logical plan for several processes, in which the engine makes a join of each such subquery. Goes out: the same plan, whose subqueries give one row: if there were more, the statement fails, which a
//! join would not. Never here: one process, where the engine runs them beside the plan and counts their rows itself; subqueries that look at the rows outside.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, internal_err};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::error::{Error, ErrorKind};
use crate::query::traveling;

/// Gives subqueries one row.
#[derive(Debug)]
pub(in crate::query) struct SingleValues;

impl OptimizerRule for SingleValues {
    fn name(&self) -> &'static str {
        "single_values"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.map_expressions(|expression| {
            expression.transform_down(|part| match part {
                Expr::ScalarSubquery(subquery) if may_have_more(&subquery) => {
                    Ok(Transformed::yes(Expr::ScalarSubquery(single(subquery)?)))
                }
                part => Ok(Transformed::no(part)),
            })
        })
    }
}

fn may_have_more(subquery: &Subquery) -> bool {
    let most = subquery.subquery.max_rows();
    subquery.outer_ref_columns.is_empty() && most.is_none_or(|most| most > 1)
}

/// The subquery as an aggregate of all its rows: null without a row, as before.
fn single(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let Some(value) = plan.schema().columns().into_iter().next() else {
        return internal_err!("a subquery in place of a value without a column");
    };
    let (relation, name) = (value.relation.clone(), value.name.clone());
    let first = first_value(Expr::Column(value), Vec::new()).alias("first");
    let rows = count(lit(1_i64)).alias("rows");
    let only = ScalarUDF::from(Only::new()).call(vec![
        Expr::Column(Column::from_name("first")),
        Expr::Column(Column::from_name("rows")),
    ]);
    let plan = LogicalPlanBuilder::from(plan)
        .aggregate(Vec::<Expr>::new(), [first, rows])?
        .project([only.alias_qualified(relation, name)])?
        .build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}

/// Its first argument, if the second, a number of rows, is not more than 1.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Only {
    signature: Signature,
}

impl Only {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Only {
    fn name(&self) -> &'static str {
        "only_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => internal_err!("only_row of {}", types.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [value, _] => Ok(Arc::new(Field::clone(value).with_nullable(true))),
            _ => internal_err!("only_row of {}", arguments.arg_fields.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let num_rows = arguments.number_rows;
        let mut given = arguments.args.into_iter();
        let (Some(value), Some(rows)) = (given.next(), given.next()) else {
            return internal_err!("only_row without arguments");
        };
        let rows = rows.into_array(num_rows)?;
        let has_more = match rows.as_primitive_opt::<Int64Type>() {
            Some(rows) => rows.iter().flatten().any(|rows| rows > 1),
            None => return internal_err!("only_row of rows of type {}", rows.data_type()),
        };
        match has_more {
            false => Ok(value),
            true => {
                let text = "a subquery in place of a value gave more than one row";
                let hint = "give it a LIMIT 1 or an aggregate, or use IN (…)";
                Err(traveling(
                    Error::new(ErrorKind::Query, text).with_hint(hint),
                ))
            }
        }
    }
}

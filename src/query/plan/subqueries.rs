//! Subqueries that have always a row, and those that may have none.
//!
//! Comes in: an expression. Goes out: `EXISTS` over what always has a row as a literal, and scalar subqueries that are null when they have none. Never here: how they become joins.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Exists, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility, lit,
};

/// Rewrites one expression.
pub(super) fn with_rows_or_none(expression: Expr) -> Result<Transformed<Expr>> {
    match expression {
        Expr::Exists(Exists { subquery, negated }) if has_one_row(&subquery.subquery) => {
            Ok(Transformed::yes(lit(!negated)))
        }
        Expr::ScalarSubquery(subquery) => {
            let plan = &subquery.subquery;
            let is_nullable = plan
                .schema()
                .fields()
                .iter()
                .all(|field| field.is_nullable());
            if is_nullable || has_one_row(plan) {
                return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
            }
            Ok(Transformed::yes(Expr::ScalarSubquery(nullable(subquery)?)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether it is an aggregate of all rows, which has one row, however few there are.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => has_one_row(&sort.input),
        _ => false,
    }
}

/// The subquery, whose column says that it may be null.
fn nullable(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let columns: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .map(|column| {
            let function = Arc::new(ScalarUDF::from(MaybeNull::new()));
            let (relation, name) = (column.relation.clone(), column.name.clone());
            let call = ScalarFunction::new_udf(function, vec![Expr::Column(column)]);
            Expr::ScalarFunction(call).alias_qualified(relation, name)
        })
        .collect();
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}

/// Its argument, which may be null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct MaybeNull {
    signature: Signature,
}

impl MaybeNull {
    pub(in crate::query) fn new() -> Self {
        Self {
            // One that is worked out while planning would be a value again.
            signature: Signature::any(1, Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for MaybeNull {
    fn name(&self) -> &'static str {
        "maybe_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [only] => Ok(only.clone()),
            _ => datafusion::common::internal_err!("maybe_null of {}", types.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [only] => Ok(Arc::new(Field::clone(only).with_nullable(true))),
            _ => datafusion::common::internal_err!("maybe_null of {}", arguments.arg_fields.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(value) => Ok(value),
            None => datafusion::common::internal_err!("maybe_null of nothing"),
        }
    }
}

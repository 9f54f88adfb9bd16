//! Casts below aggregates that change the order of values. The engine takes the cast of the least value for the least of all casts: of whole numbers that become texts, `max(m)` of 9 and 12 was '12'.
//!
//! Comes in: the rule that answers aggregates by statistics, and a plan. Goes out: the plan as the rule makes it of those parts in which no such cast stands below. Never here: statistics.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use super::types::bare::values_of;

/// The rule, where it is right.
#[derive(Debug)]
pub(in crate::query) struct InOrder(
    pub(in crate::query) Arc<dyn PhysicalOptimizerRule + Send + Sync>,
);

impl PhysicalOptimizerRule for InOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match changes_order(&plan) {
            false => self.0.optimize(plan, options),
            true => plan
                .map_children(|child| self.optimize(child, options).map(Transformed::yes))
                .data(),
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether a column that is a cast of another order stands in a plan.
fn changes_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let own = plan.downcast_ref::<ProjectionExec>().is_some_and(|node| {
        let schema = node.input().schema();
        let mut columns = node.expr().iter();
        columns.any(|column| is_other_order(column.expr.as_ref(), &schema))
    });
    own || plan.children().into_iter().any(changes_order)
}

fn is_other_order(expr: &dyn PhysicalExpr, schema: &Schema) -> bool {
    let Some(cast) = expr.downcast_ref::<CastExpr>() else {
        return false;
    };
    let inner = cast.expr();
    let keeps = inner
        .data_type(schema)
        .is_ok_and(|kind| keeps_order(values_of(&kind), values_of(cast.cast_type())));
    !keeps || is_other_order(inner.as_ref(), schema)
}

/// Whether of two values that which is not less becomes one that is not less.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    let is_binary = |kind: &DataType| {
        matches!(
            kind,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        )
    };
    from == to
        || from.is_numeric() && to.is_numeric()
        || from.is_string() && to.is_string()
        || is_binary(from) && is_binary(to)
        || matches!(
            (from, to),
            (
                DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None),
                DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None),
            ) | (
                DataType::Timestamp(_, Some(_)),
                DataType::Timestamp(_, Some(_))
            ) | (
                DataType::Time32(_) | DataType::Time64(_),
                DataType::Time32(_) | DataType::Time64(_)
            ) | (DataType::Duration(_), DataType::Duration(_))
        )
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn texts_of_numbers_and_times_of_days_are_in_another_order() {
        let second =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        for (from, to, keeps) in [
            (DataType::Int64, DataType::Utf8View, false),
            (DataType::Utf8, DataType::Int64, false),
            (DataType::Utf8, DataType::Utf8View, true),
            (DataType::Int8, DataType::Float64, true),
            (second(None), DataType::Time32(TimeUnit::Second), false),
            (second(None), DataType::Date32, true),
            (second(Some("UTC")), second(None), false),
            (second(Some("UTC")), second(Some("+01:00")), true),
            (DataType::Boolean, DataType::Utf8, false),
        ] {
            assert_eq!(keeps_order(&from, &to), keeps, "{from} {to}");
        }
    }
}

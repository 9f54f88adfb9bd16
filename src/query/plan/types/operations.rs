//! Operations of two values that the SQL planner would refuse at once, or misread.
//!
//! Comes in: an operation, as the SQL planner meets it, with the types of the values of parameters. Goes out: the same over other types, or the call of a function of ours; NULL in place of a number or an interval
//! where it has no type. Never here: what is looked at again once the whole plan is there (`mod.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawWindowExpr,
};
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::elements::of_group;
use super::spans::scaled;
use super::unsigned::quotient;
use super::{FINEST, are_different_times};
use crate::query::plan::meaning::clocks::in_zone_of;
use crate::query::plan::meaning::units::with_room;
use crate::query::plan::meaning::uuids::as_bytes;

/// A date with hours. In nanoseconds there are none before 1677 and after 2262.
const MOMENT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

const COMPARING: [BinaryOperator; 6] = [
    BinaryOperator::Eq,
    BinaryOperator::NotEq,
    BinaryOperator::Lt,
    BinaryOperator::LtEq,
    BinaryOperator::Gt,
    BinaryOperator::GtEq,
];

/// Operations that the SQL planner would refuse at once.
#[derive(Debug, Default)]
pub(in crate::query) struct Operations {
    /// The types of the values of parameters.
    pub(in crate::query) values: BTreeMap<String, DataType>,
}

impl ExprPlanner for Operations {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let whole = || quotient(&expr, schema, &self.values);
        if let Some(meant) = scaled(&expr, schema).or_else(whole) {
            return Ok(PlannerResult::Planned(meant));
        }
        if COMPARING.contains(&expr.op) {
            let mut parts = [&mut expr.left, &mut expr.right];
            as_bytes(&mut parts, schema, &self.values)?;
        }
        match expr.op {
            BinaryOperator::Plus | BinaryOperator::Minus => {
                let is_date = |side: &Expr| matches!(side.get_type(schema), Ok(DataType::Date32));
                let (left, right) = (is_date(&expr.left), is_date(&expr.right));
                self.beside(&mut expr.left, right);
                self.beside(&mut expr.right, left);
                if left && may_have_hours(&expr.right, schema) {
                    expr.left = cast(expr.left, MOMENT);
                } else if right && may_have_hours(&expr.left, schema) {
                    expr.right = cast(expr.right, MOMENT);
                }
                with_room(&mut expr.left, &expr.right, schema);
                if expr.op == BinaryOperator::Minus {
                    in_zone_of(&mut expr.right, &expr.left, schema);
                }
                if expr.op == BinaryOperator::Plus {
                    with_room(&mut expr.right, &expr.left, schema);
                    let is_before = is_day_at(&expr.left, schema);
                    if is_day_at(&expr.right, schema) {
                        nothing_as_interval(&mut expr.left, schema);
                    }
                    if is_before {
                        nothing_as_interval(&mut expr.right, schema);
                    }
                }
            }
            _ if COMPARING.contains(&expr.op)
                && are_different_times([&expr.left, &expr.right], schema) =>
            {
                expr.left = cast(expr.left, FINEST);
                expr.right = cast(expr.right, FINEST);
            }
            _ => {}
        }
        Ok(PlannerResult::Original(expr))
    }

    fn plan_aggregate(
        &self,
        mut expr: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        nothing_as_number(expr.func.name(), &mut expr.args);
        Ok(of_group(expr))
    }

    fn plan_window(&self, mut expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        nothing_as_number(expr.func_def.name(), &mut expr.args);
        Ok(PlannerResult::Original(expr))
    }
}

/// The sum and the mean of NULL, which the engine refuses.
fn nothing_as_number(function: &str, arguments: &mut [Expr]) {
    if let ("sum" | "avg", [argument @ Expr::Literal(ScalarValue::Null, _)]) = (function, arguments)
    {
        *argument = lit(ScalarValue::Int64(None));
    }
}

impl Operations {
    /// A parameter that is added or subtracted, in the type of its value; the engine would take it for another date. Beside a date a duration is an interval, and a number is so many days.
    fn beside(&self, side: &mut Expr, is_date: bool) {
        let Expr::Placeholder(Placeholder { id, field }) = side else {
            return;
        };
        let Some(kind) = self.values.get(id).filter(|_| field.is_none()) else {
            return;
        };
        let is_duration = matches!(kind, DataType::Duration(_));
        if is_duration || kind.is_integer() && is_date {
            *field = Some(Arc::new(Field::new(id.as_str(), kind.clone(), true)));
        }
        if is_duration && is_date {
            let interval = DataType::Interval(IntervalUnit::MonthDayNano);
            *side = cast(side.clone(), interval);
        }
    }
}

/// A NULL that is added to a date or a timestamp is an interval; the engine refuses the sum.
fn nothing_as_interval(side: &mut Expr, schema: &DFSchema) {
    if matches!(side, Expr::Literal(ScalarValue::Null, _)) {
        *side = lit(ScalarValue::IntervalMonthDayNano(None));
    } else if is_nothing(side, schema) {
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        *side = cast(std::mem::take(side), interval);
    }
}

/// Whether it has only nulls and no type, as a column of a frame may. A parameter has none before its value is known.
pub(super) fn is_nothing(expression: &Expr, schema: &DFSchema) -> bool {
    let is_parameter = |part: &Expr| Ok(matches!(part, Expr::Placeholder(_)));
    matches!(expression.get_type(schema), Ok(DataType::Null))
        && !expression.exists(is_parameter).unwrap_or(true)
}

fn is_day_at(side: &Expr, schema: &DFSchema) -> bool {
    side.get_type(schema)
        .is_ok_and(|data_type| is_day(&data_type))
}

pub(super) fn is_day(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
    )
}

/// Whether a date and this make a timestamp: an interval, unless it is a literal of whole days and months. The engine makes a date of them, and drops the hours.
fn may_have_hours(interval: &Expr, schema: &DFSchema) -> bool {
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => value.nanoseconds != 0,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => value.milliseconds != 0,
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => false,
        other => matches!(other.get_type(schema), Ok(DataType::Interval(_))),
    }
}

/// The state, whose SQL planner knows these operations before its own.
///
/// # Errors
/// None of ours.
pub(in crate::query) fn with_operations(
    mut state: SessionState,
    operations: Operations,
) -> crate::error::Result<SessionState> {
    state.register_expr_planner(Arc::new(operations))?;
    Ok(state)
}

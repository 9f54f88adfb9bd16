//! Operations over types that the engine refuses or misreads, written so that it does not.
//!
//! Comes in: an operation that the SQL planner meets, or a logical plan whose types are not settled yet. Goes out: comparisons of times of different units, durations that are given as
//! parameters, windows that are ordered by what has no distances, and an error for a comparison of a date with a number. Never here: the meaning of nulls, overflow.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::{Between, InList, Placeholder, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, WindowFrame, WindowFrameBound,
    WindowFrameUnits, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::error::{Error, ErrorKind};

/// The unit that times of different units are compared in.
const FINEST: DataType = DataType::Time64(TimeUnit::Nanosecond);

/// Operations that the SQL planner would refuse at once.
#[derive(Debug, Default)]
pub(in crate::query) struct Operations {
    /// The parameters whose values are durations.
    pub(in crate::query) durations: BTreeSet<String>,
}

impl ExprPlanner for Operations {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        match expr.op {
            BinaryOperator::Plus | BinaryOperator::Minus => {
                for side in [&mut expr.left, &mut expr.right] {
                    self.as_interval(side);
                }
            }
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
                if are_different_times([&expr.left, &expr.right], schema) =>
            {
                expr.left = cast(expr.left, FINEST);
                expr.right = cast(expr.right, FINEST);
            }
            _ => {}
        }
        Ok(PlannerResult::Original(expr))
    }
}

impl Operations {
    /// A duration beside a date or a timestamp is an interval; the engine would take it for another date.
    fn as_interval(&self, side: &mut Expr) {
        if let Expr::Placeholder(Placeholder { id, field: None }) = side
            && self.durations.contains(id)
        {
            let interval = DataType::Interval(IntervalUnit::MonthDayNano);
            *side = cast(side.clone(), interval);
        }
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

fn are_different_times<'a>(parts: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> bool {
    let types: Option<BTreeSet<DataType>> = parts
        .into_iter()
        .map(|part| part.get_type(schema).ok().filter(is_time))
        .collect();
    types.is_some_and(|types| types.len() > 1)
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

/// What the SQL planner lets pass, and the rules for types would not. Comes before them.
#[derive(Debug)]
pub(in crate::query) struct Types;

impl AnalyzerRule for Types {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let settled = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            let changed = plan.map_expressions(|expression| {
                let name = names.save(&expression);
                let changed = expression.transform_up(|part| one(part, &schema))?;
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
        settled.data()
    }

    fn name(&self) -> &'static str {
        "types"
    }
}

fn one(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(pair) if compares(pair.op) => {
            check_comparison(&pair, schema)?;
            Ok(Transformed::no(Expr::BinaryExpr(pair)))
        }
        Expr::Between(range)
            if are_different_times([&*range.expr, &*range.low, &*range.high], schema) =>
        {
            let finest = |part: Box<Expr>| Box::new(cast(*part, FINEST));
            let (low, high) = (finest(range.low), finest(range.high));
            let range = Between::new(finest(range.expr), range.negated, low, high);
            Ok(Transformed::yes(Expr::Between(range)))
        }
        Expr::InList(list)
            if are_different_times(list.list.iter().chain([&*list.expr]), schema) =>
        {
            let values = list.list.into_iter().map(|value| cast(value, FINEST));
            let expr = Box::new(cast(*list.expr, FINEST));
            let list = InList::new(expr, values.collect(), list.negated);
            Ok(Transformed::yes(Expr::InList(list)))
        }
        Expr::WindowFunction(mut window) => {
            let is_changed = by_peers(&mut window, schema)?;
            let window = Expr::WindowFunction(window);
            Ok(match is_changed {
                true => Transformed::yes(window),
                false => Transformed::no(window),
            })
        }
        other => Ok(Transformed::no(other)),
    }
}

fn compares(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
    )
}

/// A day is no number, though it is kept as one.
///
/// # Errors
/// `Query` for a comparison of a date or a timestamp with a whole number.
fn check_comparison(pair: &BinaryExpr, schema: &DFSchema) -> Result<()> {
    let of = |part: &Expr| part.get_type(schema).ok();
    let (Some(left), Some(right)) = (of(&pair.left), of(&pair.right)) else {
        return Ok(());
    };
    let is_day = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        )
    };
    if !(is_day(&left) && right.is_numeric() || left.is_numeric() && is_day(&right)) {
        return Ok(());
    }
    let text = format!("these types cannot be compared: {left} {} {right}", pair.op);
    let error = Error::new(ErrorKind::Query, text);
    let hint =
        "write dates as DATE '2013-07-01'; to_timestamp(seconds) makes a timestamp of a number";
    Err(error.with_hint(hint).into())
}

/// A frame that begins and ends with rows of equal value needs no distances between values: GROUPS says the same as RANGE.
fn by_peers(window: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let parameters = &mut window.params;
    let frame = &parameters.window_frame;
    let is_plain = |bound: &WindowFrameBound| {
        matches!(bound, WindowFrameBound::CurrentRow)
            || matches!(
                bound,
                WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) if rows.is_null()
            )
    };
    if frame.units != WindowFrameUnits::Range
        || !is_plain(&frame.start_bound)
        || !is_plain(&frame.end_bound)
    {
        return Ok(false);
    }
    let Some(first) = parameters.order_by.first() else {
        return Ok(false);
    };
    let is_without_distances = matches!(
        first.expr.get_type(schema)?,
        DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
            | DataType::Interval(_)
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
            | DataType::Struct(_)
    );
    if is_without_distances {
        let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
        parameters.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
    }
    Ok(is_without_distances)
}

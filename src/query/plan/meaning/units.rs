//! Timestamps of a coarse unit beside constants of a finer one: `t = TIMESTAMP '2020-01-01 00:00:15.5'` where `t` has whole seconds.
//!
//! Comes in: a comparison whose types are settled, or a sum that is planned. Goes out: the same with constants of whole units, where such a constant is or may be between two of them: the engine compares the column as it lies, and cuts the constant; a sum in a unit that has room for it. Never here: zones (`clocks.rs`), columns of two units, which the engine compares in the finer one.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::datetime::expr_fn::date_trunc;
use datafusion::logical_expr::expr::{InList, WindowFunctionParams};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{disjunction, merge_schema};
use datafusion::logical_expr::{
    Between, Case, Expr, ExprSchemable, LogicalPlan, Operator, WindowFrameBound, WindowFrameUnits,
    binary_expr, cast, lit,
};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::query::plan::types::compares;

/// The engine's simplifier, which cuts constants: conditions get there that others have moved to where a column is made.
#[derive(Debug)]
pub(super) struct Simplifier(pub(super) SimplifyExpressions);

impl OptimizerRule for Simplifier {
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
        let schema = match plan.inputs().as_slice() {
            [] => DFSchema::clone(plan.schema()),
            inputs => merge_schema(inputs),
        };
        let names = NamePreserver::new(&plan);
        let whole = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let whole = expression.transform_up(|part| in_whole_units(part, &schema))?;
            Ok(match whole.transformed {
                true => whole.update_data(|expression| name.restore(expression)),
                false => whole,
            })
        })?;
        whole.transform_data(|plan| self.0.rewrite(plan, config))
    }
}

/// Rewrites one comparison.
pub(super) fn in_whole_units(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match part {
        Expr::BinaryExpr(pair) if compares(pair.op) => {
            match of_pair(&pair.left, pair.op, &pair.right, schema) {
                Some(whole) => Transformed::yes(whole),
                None => Transformed::no(Expr::BinaryExpr(pair)),
            }
        }
        Expr::Between(range) => match between(&range, schema) {
            Some(whole) => Transformed::yes(whole),
            None => Transformed::no(Expr::Between(range)),
        },
        Expr::InList(list) => match within(&list, schema) {
            Some(whole) => Transformed::yes(whole),
            None => Transformed::no(Expr::InList(list)),
        },
        other => Transformed::no(other),
    })
}

/// Gives a timestamp room for what an interval may have: `t + INTERVAL '500 milliseconds'` where `t` has whole seconds. The engine cuts the sum.
pub(in crate::query) fn with_room(moment: &mut Expr, interval: &Expr, schema: &DFSchema) {
    let (Ok(DataType::Timestamp(unit, zone)), Ok(DataType::Interval(_))) =
        (moment.get_type(schema), interval.get_type(schema))
    else {
        return;
    };
    let (milliseconds, nanoseconds) = match interval {
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => return,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => (value.milliseconds, 0),
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => (0, value.nanoseconds),
        _ => (0, 1_000),
    };
    let part = i64::from(milliseconds) * 1_000_000 + nanoseconds;
    if part % (per(TimeUnit::Nanosecond) / per(unit)) == 0 {
        return;
    }
    let finer = match part % 1_000 {
        0 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    };
    *moment = cast(std::mem::take(moment), DataType::Timestamp(finer, zone));
}

/// Gives times room for the distances of a frame: `RANGE INTERVAL '500 milliseconds' PRECEDING` over whole seconds.
pub(in crate::query) fn with_room_for_frame(
    window: &mut WindowFunctionParams,
    schema: &DFSchema,
) -> bool {
    let frame = &window.window_frame;
    let (WindowFrameUnits::Range, [key]) = (frame.units, window.order_by.as_mut_slice()) else {
        return false;
    };
    let before = key.expr.clone();
    for bound in [&frame.start_bound, &frame.end_bound] {
        let (WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance)) = bound
        else {
            continue;
        };
        // It is a text as long as types are not settled.
        let interval = distance.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano));
        if let Ok(interval) = interval {
            with_room(&mut key.expr, &lit(interval), schema);
        }
    }
    key.expr != before
}

/// A comparison of two sides in whole units, where it is one with a constant that is not of these.
fn of_pair(left: &Expr, operator: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    match (unit_of(left, schema), unit_of(right, schema)) {
        (Some(unit), None) => compared(left, operator, right, unit),
        (None, Some(unit)) => compared(right, turned(operator)?, left, unit),
        _ => None,
    }
}

/// The operator with its sides in the other order.
fn turned(operator: Operator) -> Option<Operator> {
    match operator {
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => Some(operator),
        operator => operator.swap(),
    }
}

fn between(range: &Between, schema: &DFSchema) -> Option<Expr> {
    let (low, high) = match range.negated {
        true => (Operator::Lt, Operator::Gt),
        false => (Operator::GtEq, Operator::LtEq),
    };
    let sides = [(low, &range.low), (high, &range.high)];
    let wholes = sides.map(|(operator, end)| of_pair(&range.expr, operator, end, schema));
    if wholes.iter().all(Option::is_none) {
        return None;
    }
    let [low, high] = sides
        .map(|(operator, end)| binary_expr(Expr::clone(&range.expr), operator, Expr::clone(end)));
    let [whole_low, whole_high] = wholes;
    let (low, high) = (whole_low.unwrap_or(low), whole_high.unwrap_or(high));
    Some(match range.negated {
        true => low.or(high),
        false => low.and(high),
    })
}

/// Those of a list that are not of whole units stand beside it.
fn within(list: &InList, schema: &DFSchema) -> Option<Expr> {
    let (mut kept, mut beside) = (Vec::new(), Vec::new());
    for value in &list.list {
        match of_pair(&list.expr, Operator::Eq, value, schema) {
            Some(whole) => beside.push(whole),
            None => kept.push(value.clone()),
        }
    }
    if beside.is_empty() {
        return None;
    }
    if !kept.is_empty() {
        let list = InList::new(list.expr.clone(), kept, false);
        beside.push(Expr::InList(list));
    }
    let is_one = disjunction(beside)?;
    Some(match list.negated {
        true => !is_one,
        false => is_one,
    })
}

/// The unit of what is made finer only to be compared.
fn unit_of(side: &Expr, schema: &DFSchema) -> Option<TimeUnit> {
    let Expr::Cast(cast) = side else {
        return None;
    };
    let DataType::Timestamp(fine, zone) = cast.field.data_type() else {
        return None;
    };
    if is_constant(&cast.expr) {
        return None;
    }
    match cast.expr.get_type(schema).ok()? {
        // Instants are the same in all zones.
        DataType::Timestamp(coarse, own)
            if own.is_some() == zone.is_some() && per(coarse) < per(*fine) =>
        {
            Some(coarse)
        }
        _ => None,
    }
}

/// How many of a unit are a second.
fn per(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// The comparison with constants of whole units; `None` where the constant is one, and where it is none.
fn compared(side: &Expr, operator: Operator, constant: &Expr, unit: TimeUnit) -> Option<Expr> {
    if !is_constant(constant) || is_whole(constant, unit) == Some(true) {
        return None;
    }
    let name = match unit {
        TimeUnit::Second => "second",
        TimeUnit::Millisecond => "millisecond",
        TimeUnit::Microsecond => "microsecond",
        TimeUnit::Nanosecond => return None,
    };
    // The last whole unit that is not after it.
    let whole = date_trunc(lit(name), constant.clone());
    let is = |operator| binary_expr(side.clone(), operator, whole.clone());
    // Where the constant is after that one.
    let between_two = match operator {
        Operator::Lt | Operator::LtEq => is(Operator::LtEq),
        Operator::Gt | Operator::GtEq => is(Operator::Gt),
        // False and true, and null where the side is.
        Operator::Eq => is(Operator::Lt).and(is(Operator::Gt)),
        Operator::NotEq => is(Operator::Lt).or(is(Operator::GtEq)),
        Operator::IsDistinctFrom => lit(true),
        Operator::IsNotDistinctFrom => lit(false),
        _ => return None,
    };
    if is_whole(constant, unit) == Some(false) {
        return Some(between_two);
    }
    let is_at_whole = binary_expr(constant.clone(), Operator::IsNotDistinctFrom, whole.clone());
    Some(Expr::Case(Case {
        expr: None,
        when_then_expr: vec![(Box::new(is_at_whole), Box::new(is(operator)))],
        else_expr: Some(Box::new(between_two)),
    }))
}

/// Whether a value is the same for all rows.
fn is_constant(value: &Expr) -> bool {
    let varies = value.exists(|part| {
        Ok(matches!(
            part,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::LambdaVariable(_)
                | Expr::Placeholder(_)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        ))
    });
    matches!(varies, Ok(false)) && !value.is_volatile()
}

fn value_of(constant: &Expr) -> Option<ScalarValue> {
    match constant {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => {
            let value = value_of(&cast.expr)?;
            value.cast_to(cast.field.data_type()).ok()
        }
        _ => None,
    }
}

/// Whether a constant is null or of whole units, where that is known before anything is worked out.
fn is_whole(constant: &Expr, unit: TimeUnit) -> Option<bool> {
    let (number, own) = match value_of(constant)? {
        ScalarValue::TimestampSecond(number, _) => (number, TimeUnit::Second),
        ScalarValue::TimestampMillisecond(number, _) => (number, TimeUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(number, _) => (number, TimeUnit::Microsecond),
        ScalarValue::TimestampNanosecond(number, _) => (number, TimeUnit::Nanosecond),
        _ => return None,
    };
    let each = (per(own) / per(unit)).max(1);
    Some(number.is_none_or(|number| number % each == 0))
}

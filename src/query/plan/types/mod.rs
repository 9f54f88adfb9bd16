//! Operations over types that the engine refuses or misreads, written so that it does not.
//!
//! Comes in: an operation that the SQL planner meets (`operations.rs`), or a logical plan whose types are not settled yet. Goes out: comparisons of times of different units, durations and days that are given as
//! parameters, windows that are ordered by what has no distances, sums of NULL, and an error for a comparison of a date with a number. Never here: the meaning of nulls, overflow.
//!
//! - Operations as the SQL planner meets them: `operations`, `spans` (times numbers), `unsigned` (quotients), `elements` (of groups).
//! - The whole plan: `bare` (as functions of the engine take values), `centuries`, `decimals` beside floats, `dictionaries`, `distinct_on`, `united` (parts of UNION), `unnested`, `outside` (what subqueries say of types).

pub(in crate::query) mod bare;
mod centuries;
pub(in crate::query) mod decimals;
mod dictionaries;
mod distinct_on;
mod elements;
mod operations;
mod outside;
pub(in crate::query) mod spans;
mod united;
mod unnested;
pub(in crate::query) mod unsigned;

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, InList, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::{
    Case, Expr, ExprSchemable, LogicalPlan, Operator, WindowFrame, WindowFrameBound,
    WindowFrameUnits, cast,
};
use datafusion::optimizer::AnalyzerRule;

use self::bare::bare_arguments;
use self::centuries::of_years;
use self::decimals::{found_by_kind, keys_of_one_kind};
use self::dictionaries::{OF_ONE_ROW, of_several, without_dictionaries, without_repeated};
use self::distinct_on::of_distinct_on;
pub(in crate::query) use self::operations::{Operations, with_operations};
use self::operations::{is_day, is_nothing};
use self::outside::settled;
use self::united::united;
use self::unnested::unnested;
use super::meaning::clocks::midnights;
use super::meaning::lengths::part_of;
use super::meaning::listed_text::{length_of, with_a_type};
use super::meaning::units::with_room_for_frame;
use super::meaning::uuids::as_bytes;
use super::walk::walk;
use crate::error::{Error, ErrorKind};

/// The unit that times of different units are compared in.
pub(in crate::query) const FINEST: DataType = DataType::Time64(TimeUnit::Nanosecond);

fn are_different_times<'a>(parts: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> bool {
    let types = parts.into_iter().map(|part| part.get_type(schema).ok());
    // A NULL goes with any unit.
    let types = types.filter(|data_type| *data_type != Some(DataType::Null));
    let types: Option<BTreeSet<DataType>> =
        types.map(|data_type| data_type.filter(is_time)).collect();
    types.is_some_and(|types| types.len() > 1)
}

pub(in crate::query) fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

/// What the SQL planner lets pass, and the rules for types would not. Comes before them.
#[derive(Debug)]
pub(in crate::query) struct Types;

impl AnalyzerRule for Types {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = of_nodes(plan)?;
        let plan = walk(plan, |_| {
            |expression: Expr, schema: &DFSchema| {
                expression.transform_up(|part| {
                    one(part, schema)?
                        .transform_data(|part| Ok(midnights(part, schema)))?
                        .transform_data(|part| of_several(part, schema))
                })
            }
        })?;
        settled(plan)
    }

    fn name(&self) -> &'static str {
        "types"
    }
}

/// What is settled for a whole node. Those around it know their types by those of what is below.
fn of_nodes(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut is_changed = false;
    let done = plan.transform_up_with_subqueries(|node| {
        let node = match is_changed {
            true => node.recompute_schema()?,
            false => node,
        };
        let done = of_distinct_on(node)?
            .transform_data(united)?
            .transform_data(unnested)?
            .transform_data(keys_of_one_kind)?;
        is_changed |= done.transformed;
        Ok(done)
    })?;
    Ok(done.data)
}

fn one(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(pair) if compares(pair.op) => {
            check_comparison(&pair.left, &pair.right, schema)?;
            Ok(Transformed::no(Expr::BinaryExpr(pair)))
        }
        Expr::Between(range) => {
            check_comparison(&range.expr, &range.low, schema)?;
            check_comparison(&range.expr, &range.high, schema)?;
            Ok(between(range, schema))
        }
        Expr::InList(mut list) => {
            for value in &list.list {
                check_comparison(&list.expr, value, schema)?;
            }
            let parts = list.list.iter_mut().chain([&mut *list.expr]);
            let are_bytes = as_bytes(&mut parts.collect::<Vec<_>>(), schema, &BTreeMap::new())?;
            let mut list = in_list(list, schema);
            list.transformed |= are_bytes;
            Ok(list)
        }
        Expr::Case(case) => {
            if let Some(value) = &case.expr {
                for (wanted, _) in &case.when_then_expr {
                    check_comparison(value, wanted, schema)?;
                }
            }
            Ok(case_of_times(case, schema))
        }
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => {
            if let [value, other] = call.args.as_slice() {
                check_comparison(value, other, schema)?;
            }
            Ok(Transformed::no(Expr::ScalarFunction(call)))
        }
        Expr::ScalarFunction(call) => Ok(of_call(call, schema)),
        Expr::InSubquery(mut found) => {
            let columns = found.subquery.subquery.schema();
            if let [column] = &**columns.fields()
                && let Ok(value) = found.expr.get_type(schema)
            {
                check_types(&value, column.data_type())?;
            }
            let is_changed = found_by_kind(&mut found, schema)?;
            let found = Expr::InSubquery(found);
            Ok(Transformed::new_transformed(found, is_changed))
        }
        Expr::AggregateFunction(aggregate) => of_aggregate(aggregate, schema),
        Expr::WindowFunction(window) => of_window(window, schema),
        other => Ok(Transformed::no(other)),
    }
}

fn of_call(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let rules = [part_of, of_years, with_a_type, length_of];
    let call = Transformed::no(Expr::ScalarFunction(call));
    rules.into_iter().fold(call, |done, rule| match done {
        Transformed {
            data: Expr::ScalarFunction(call),
            transformed: false,
            ..
        } => rule(call, schema),
        done => done,
    })
}

fn of_aggregate(mut aggregate: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let function = aggregate.func.name().to_owned();
    let params = &mut aggregate.params;
    let mut is_changed = nothings_as_numbers(&function, &mut params.args, schema);
    is_changed |= bare_arguments(&function, &mut params.args, schema)?;
    if OF_ONE_ROW.contains(&function.as_str()) || !params.order_by.is_empty() {
        is_changed |= without_repeated(&mut params.order_by);
        let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
        is_changed |= without_dictionaries(keys.chain(&mut params.args), schema)?;
    }
    let aggregate = Expr::AggregateFunction(aggregate);
    Ok(Transformed::new_transformed(aggregate, is_changed))
}

fn of_window(mut window: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let function = window.fun.name().to_owned();
    let mut is_changed = nothings_as_numbers(&function, &mut window.params.args, schema)
        | by_peers(&mut window, schema)?
        | with_room_for_frame(&mut window.params, schema);
    is_changed |= bare_arguments(&function, &mut window.params.args, schema)?;
    if OF_ONE_ROW.contains(&function.as_str()) {
        is_changed |= without_dictionaries(&mut window.params.args, schema)?;
    }
    let window = Expr::WindowFunction(window);
    Ok(Transformed::new_transformed(window, is_changed))
}

/// Columns of nulls that have no type, where they are summed: whole numbers.
fn nothings_as_numbers(function: &str, arguments: &mut [Expr], schema: &DFSchema) -> bool {
    let [argument] = arguments else {
        return false;
    };
    let is_sum = matches!(function, "sum" | "avg") && is_nothing(argument, schema);
    if is_sum {
        *argument = cast(std::mem::take(argument), DataType::Int64);
    }
    is_sum
}

fn between(range: Between, schema: &DFSchema) -> Transformed<Expr> {
    if !are_different_times([&*range.expr, &*range.low, &*range.high], schema) {
        return Transformed::no(Expr::Between(range));
    }
    let finest = |part: Box<Expr>| Box::new(cast(*part, FINEST));
    let (low, high) = (finest(range.low), finest(range.high));
    let range = Between::new(finest(range.expr), range.negated, low, high);
    Transformed::yes(Expr::Between(range))
}

fn in_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    if !are_different_times(list.list.iter().chain([&*list.expr]), schema) {
        return Transformed::no(Expr::InList(list));
    }
    let values = list.list.into_iter().map(|value| cast(value, FINEST));
    let expr = Box::new(cast(*list.expr, FINEST));
    let list = InList::new(expr, values.collect(), list.negated);
    Transformed::yes(Expr::InList(list))
}

/// CASE, all values of which that are times have one unit, and so have those that they are compared with.
fn case_of_times(mut case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let branches = case.when_then_expr.iter();
    let compared = branches.clone().map(|(when, _)| when).chain(&case.expr);
    let given = branches.map(|(_, then)| then).chain(&case.else_expr);
    let is_of_compared =
        case.expr.is_some() && are_different_times(compared.map(|part| part.as_ref()), schema);
    let is_of_given = are_different_times(given.map(|part| part.as_ref()), schema);
    if !is_of_compared && !is_of_given {
        return Transformed::no(Expr::Case(case));
    }
    let finest = |part: &mut Expr| *part = cast(std::mem::take(part), FINEST);
    let wanted = case.when_then_expr.iter_mut();
    for (when, then) in wanted {
        if is_of_compared {
            finest(when);
        }
        if is_of_given {
            finest(then);
        }
    }
    case.expr
        .iter_mut()
        .filter(|_| is_of_compared)
        .for_each(|part| finest(part));
    case.else_expr
        .iter_mut()
        .filter(|_| is_of_given)
        .for_each(|part| finest(part));
    Transformed::yes(Expr::Case(case))
}

pub(super) fn compares(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// A day is no number, though it is kept as one.
///
/// # Errors
/// `Query` for a comparison of a date or a timestamp with a whole number.
fn check_comparison(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<()> {
    let of = |part: &Expr| part.get_type(schema).ok();
    match (of(left), of(right)) {
        (Some(left), Some(right)) => check_types(&left, &right),
        _ => Ok(()),
    }
}

/// As [`check_comparison`].
fn check_types(left: &DataType, right: &DataType) -> Result<()> {
    if !(is_day(left) && right.is_numeric() || left.is_numeric() && is_day(right)) {
        return Ok(());
    }
    let text = format!("these types cannot be compared: {left} and {right}");
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
    let data_type = first.expr.get_type(schema)?;
    let is_without_distances = data_type.is_nested()
        || matches!(
            data_type,
            DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Duration(_)
                | DataType::Interval(_)
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        );
    if is_without_distances {
        let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
        parameters.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
    }
    Ok(is_without_distances)
}

//! One value of a group by its place: `nth_value(x, 2 ORDER BY y)`, and `array_agg(x ORDER BY y)[2]`, which is written so before (`rewrite/standard.rs`).
//!
//! Comes in: such a call as the SQL planner meets it. Goes out: the first or the last value of the group, or an element of all of them. The engine's own function for it wants its rows in order, and two of these with another
//! ORDER BY each are refused. Never here: `nth_value` over windows, elements of other lists.

use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::planner::{PlannerResult, RawAggregateExpr};

use crate::query::functions::gathered::array_agg;

/// A value of a group, counted from its first.
pub(super) fn of_group(mut call: RawAggregateExpr) -> PlannerResult<RawAggregateExpr> {
    let is_one = call.func.name() == "nth_value" && call.args.len() == 2;
    let Some(place) = call.args.pop_if(|_| is_one) else {
        return PlannerResult::Original(call);
    };
    let params = AggregateFunctionParams {
        args: call.args,
        distinct: call.distinct,
        filter: call.filter,
        order_by: call.order_by,
        null_treatment: call.null_treatment,
    };
    PlannerResult::Planned(element(params, place))
}

fn element(params: AggregateFunctionParams, place: Expr) -> Expr {
    let literal = match &place {
        Expr::Literal(ScalarValue::Int64(place), _) => *place,
        Expr::Negative(inner) => match inner.as_ref() {
            Expr::Literal(ScalarValue::Int64(Some(place)), _) => place.checked_neg(),
            _ => None,
        },
        _ => None,
    };
    let at_end = match literal {
        Some(1) => Some(first_value_udaf()),
        Some(-1) => Some(last_value_udaf()),
        _ => None,
    };
    match at_end {
        Some(func) if params.null_treatment.is_none() => {
            let params = AggregateFunctionParams {
                distinct: false,
                ..params
            };
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        _ => {
            let func = array_agg();
            let all = Expr::AggregateFunction(AggregateFunction { func, params });
            array_element(all, place)
        }
    }
}

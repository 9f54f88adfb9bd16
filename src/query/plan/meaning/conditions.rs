//! Conditions of aggregates over windows.
//!
//! Comes in: an expression whose types are settled. Goes out: `sum(x) FILTER (WHERE c) OVER (…)` as `sum(CASE WHEN c THEN x END) OVER (…)`, which is the same for aggregates that leave nulls out. The engine tells nobody
//! of such conditions, and forgets them where it writes a part of a plan down for another process. Never here: aggregates without windows.

use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Case, Expr, WindowFunctionDefinition};

/// Aggregates of the engine that leave out rows whose first argument is null.
const LEAVE_NULLS_OUT: [&str; 33] = [
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "max",
    "median",
    "min",
    "percentile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
];

/// Rewrites one expression.
pub(super) fn without_condition(expression: Expr) -> Transformed<Expr> {
    let Expr::WindowFunction(mut window) = expression else {
        return Transformed::no(expression);
    };
    let is_changed = move_condition(&mut window);
    Transformed::new_transformed(Expr::WindowFunction(window), is_changed)
}

fn move_condition(window: &mut WindowFunction) -> bool {
    let WindowFunctionDefinition::AggregateUDF(function) = &window.fun else {
        return false;
    };
    if LEAVE_NULLS_OUT.binary_search(&function.name()).is_err() {
        return false;
    }
    let parameters = &mut window.params;
    let Some(value) = parameters.args.first_mut() else {
        return false;
    };
    let Some(condition) = parameters.filter.take() else {
        return false;
    };
    let then = Box::new(std::mem::take(value));
    *value = Expr::Case(Case::new(None, vec![(condition, then)], None));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::functions_aggregate::all_default_aggregate_functions;

    #[test]
    fn the_names_are_sorted_and_those_of_aggregates() {
        assert!(LEAVE_NULLS_OUT.is_sorted());
        let all = all_default_aggregate_functions();
        let known: Vec<&str> = all.iter().map(|function| function.name()).collect();
        for name in LEAVE_NULLS_OUT {
            assert!(known.contains(&name), "{name}");
        }
        // Each new one of the engine is looked at: does it leave nulls out?
        let is_other = |name: &&str| LEAVE_NULLS_OUT.binary_search(name).is_err();
        let mut others: Vec<&str> = known.into_iter().filter(is_other).collect();
        others.sort_unstable();
        let wanted = [
            "any_value",
            "array_agg",
            "first_value",
            "grouping",
            "last_value",
            "nth_value",
        ];
        assert_eq!(others, wanted);
    }
}

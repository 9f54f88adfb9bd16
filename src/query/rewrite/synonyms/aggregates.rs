//! Aggregates that are written with others, and those of lists.
//!
//! Comes in: a call. Goes out: `max(x, 3)` as the first three of a list in order, `list_aggregate(l, 'sum')` as the function of lists that it is, and any expression of aggregates with the FILTER and the window of the call in each of them. Never here: which functions there are (`known.rs`).

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, Value, visit_expressions,
    visit_expressions_mut,
};

use super::known::{LARGEST, LEAST, OF_LIST};
use super::put;
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::using::folded;
use crate::query::rewrite::written::without_parentheses;

/// The arguments of a call that has so many, and says nothing else but FILTER and OVER.
pub(in crate::query::rewrite) fn plain_arguments<const N: usize>(
    call: &Function,
) -> Option<[Expr; N]> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let is_plain = list.clauses.is_empty()
        && list.duplicate_treatment.is_none()
        && call.within_group.is_empty()
        && call.null_treatment.is_none();
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values: Vec<Expr> = values.collect::<Option<_>>()?;
    values.try_into().ok().filter(|_| is_plain)
}

/// A call of an aggregate in words of its own: of several values, or of the first one.
pub(super) enum Worded {
    /// `max(x, n)` and `min(x, n)`: what they stand for, and the arguments.
    Ends(&'static str, Box<[Expr; 2]>),
    /// `quantile_cont(x, [0.1, 0.9])`: the function, the value and the shares.
    Shares(&'static str, Box<Expr>, Vec<Expr>),
    /// `any_value(x ORDER BY y)`: the first value that is not null.
    First(Box<Expr>),
}

/// The functions that take shares of the values, and what they are to the engine.
const OF_SHARES: [(&str, &str); 4] = [
    ("approx_quantile", "approx_percentile_cont"),
    ("quantile", "quantile_disc"),
    ("quantile_cont", "quantile_cont"),
    ("quantile_disc", "quantile_disc"),
];

/// What a call says in such words.
pub(super) fn worded(call: &Function, state: &SessionState) -> Option<Worded> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return None;
    };
    let name = folded(name);
    match name.as_str() {
        "any_value" => first_in_order(call).map(Worded::First),
        "max" => Some(Worded::Ends(LARGEST, Box::new(plain_arguments(call)?))),
        "min" => Some(Worded::Ends(LEAST, Box::new(plain_arguments(call)?))),
        name => {
            let (said, name) = OF_SHARES.iter().find(|(known, _)| *known == name)?;
            // Somebody may have a function of this name.
            if said != name && state.aggregate_functions().contains_key(*said) {
                return None;
            }
            let [value, shares] = plain_arguments(call)?;
            match without_parentheses(&shares) {
                Expr::Array(shares) if !shares.elem.is_empty() => {
                    Some(Worded::Shares(name, Box::new(value), shares.elem.clone()))
                }
                _ => None,
            }
        }
    }
}

/// What `any_value` of rows in an order is: to the engine's they have none.
fn first_in_order(call: &Function) -> Option<Box<Expr>> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_slice() else {
        return None;
    };
    let mut clauses = list.clauses.iter();
    if !clauses.any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)))
        || call.over.is_some()
    {
        return None;
    }
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(Box::new(value.clone()))));
    let mut first = call.clone();
    first.name = ObjectName::from(vec![Ident::new("first_value")]);
    let filter = call.filter.as_deref().cloned();
    first.filter = Some(Box::new(match filter {
        Some(filter) => and(filter, is_there),
        None => is_there,
    }));
    if let FunctionArguments::List(list) = &mut first.args {
        // The first one is the first of the different ones.
        list.duplicate_treatment = None;
    }
    Some(Box::new(Expr::Function(first)))
}

/// A list of the largest, or least, values, or of those at several shares; or the first one in an order.
pub(super) fn in_words_of_the_engine(
    call: &Function,
    state: &SessionState,
) -> Result<Option<Expr>> {
    match worded(call, state) {
        Some(Worded::Ends(text, values)) => {
            of_aggregates(text, &["value", "number"], values.as_slice(), call, state).map(Some)
        }
        Some(Worded::Shares(name, value, shares)) => {
            let names: Vec<String> = (0..shares.len())
                .map(|place| format!("share{place}"))
                .collect();
            let each = names.iter().map(|share| format!("{name}(value, {share})"));
            let each = each.collect::<Vec<_>>().join(", ");
            let text = format!("CASE WHEN count(value) > 0 THEN make_array({each}) END");
            let takes = ["value"]
                .into_iter()
                .chain(names.iter().map(String::as_str));
            let takes: Vec<&str> = takes.collect();
            let values: Vec<Expr> = [*value].into_iter().chain(shares).collect();
            of_aggregates(&text, &takes, &values, call, state).map(Some)
        }
        Some(Worded::First(first)) => Ok(Some(*first)),
        None => Ok(None),
    }
}

/// What gathers the values of rows: it has the order of the call, and its DISTINCT.
pub(super) const GATHERED: &str = "array_agg(";

/// An expression of aggregates, of the rows and over the window of a call.
///
/// # Errors
/// `Unsupported` for windows of values that are ordered.
pub(super) fn of_aggregates(
    text: &str,
    takes: &[&str],
    values: &[Expr],
    call: &Function,
    state: &SessionState,
) -> Result<Expr> {
    let mut meant = put(text, takes, values)?;
    let is_ordered = text.contains("ORDER BY");
    if call.over.is_some() && is_ordered {
        let text = format!("{} over a window is not supported", call.name);
        return Err(Error::unsupported(text).with_hint(
            "first_value(value) OVER (PARTITION BY … ORDER BY by DESC) has its value in each row",
        ));
    }
    // What stands among the arguments has no aggregates of its own, but may have queries that do.
    let _: ControlFlow<()> = visit_expressions_mut(&mut meant, |part| {
        if let Expr::Function(function) = part
            && values.iter().all(|value| !contains(value, function))
            && state
                .aggregate_functions()
                .contains_key(&function.name.to_string())
        {
            function.over.clone_from(&call.over);
            if let (FunctionArguments::List(own), FunctionArguments::List(given)) =
                (&mut function.args, &call.args)
                && function.name.to_string() == "array_agg"
                && !is_ordered
            {
                own.clauses.clone_from(&given.clauses);
                own.duplicate_treatment = given.duplicate_treatment;
            }
            if let Some(filter) = &call.filter {
                let own = function.filter.take();
                function.filter = Some(match own {
                    Some(own) => Box::new(and(*own, filter.as_ref().clone())),
                    None => filter.clone(),
                });
            }
        }
        ControlFlow::Continue(())
    });
    Ok(meant)
}

/// Whether a call stands within an expression.
fn contains(expr: &Expr, wanted: &Function) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Function(function) if function == wanted => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// What an aggregate makes of a list: `list_aggregate(l, 'sum')`.
pub(super) fn of_list(name: &str, call: &Function) -> Result<Expr> {
    let known = || {
        let known = OF_LIST.iter().map(|(name, _)| format!("'{name}'"));
        let known = known.collect::<Vec<_>>().join(", ");
        let text = format!("{name} takes a list and one of {known}, got `{call}`");
        Error::new(ErrorKind::Query, text)
            .with_hint("of others write a query: (SELECT stddev(x) FROM unnest(list) AS u(x))")
    };
    let (list, aggregate, separator) = match plain_arguments(call) {
        Some([list, aggregate]) => (list, aggregate, None),
        None => match plain_arguments(call) {
            Some([list, aggregate, separator]) => (list, aggregate, Some(separator)),
            None => return Err(known()),
        },
    };
    let Expr::Value(aggregate) = without_parentheses(&aggregate) else {
        return Err(known());
    };
    let Value::SingleQuotedString(aggregate) = &aggregate.value else {
        return Err(known());
    };
    let mut all = OF_LIST.iter();
    let text = all.find(|(name, _)| name.eq_ignore_ascii_case(aggregate));
    let (aggregate, text) = text.ok_or_else(known)?;
    let comma = || Expr::value(Value::SingleQuotedString(",".to_owned()));
    if separator.is_some() && *aggregate != "string_agg" {
        return Err(known());
    }
    let separator = separator.unwrap_or_else(comma);
    put(text, &["list", "separator"], &[list, separator])
}

fn and(one: Expr, other: Expr) -> Expr {
    let nested = |part| Box::new(Expr::Nested(Box::new(part)));
    Expr::BinaryOp {
        left: nested(one),
        op: BinaryOperator::And,
        right: nested(other),
    }
}

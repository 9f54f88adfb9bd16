//! `lag(x, 1, y)` and `lead(x, 1, y)` where `y` is another value for each row. The engine knows one for all of them.
//!
//! Comes in: a call over a window. Goes out: what it means: `y` where there is no such row. Never here: literals, which the engine takes; IGNORE NULLS, with which the row that is asked for is another one.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Puts a CASE in place of a call with such a value.
pub(super) fn with_values_of_rows(expr: &mut Expr) {
    let Expr::Function(call) = expr else {
        return;
    };
    let Some(values) = values_of(call) else {
        return;
    };
    let read = Parser::new(&GenericDialect {})
        .try_with_sql("CASE WHEN is_there THEN shifted ELSE otherwise END");
    let Ok(mut case) = read.and_then(|mut parser| parser.parse_expr()) else {
        return;
    };
    let [value, distance, otherwise] = values;
    let one = Expr::value(Value::Boolean(true));
    let one = FunctionArg::Unnamed(FunctionArgExpr::Expr(one));
    let is_there = called(call, vec![one, distance.clone()]);
    let shifted = called(call, vec![value, distance]);
    if let (
        Expr::Case {
            conditions,
            else_result,
            ..
        },
        FunctionArg::Unnamed(FunctionArgExpr::Expr(otherwise)),
    ) = (&mut case, otherwise)
    {
        for when in conditions {
            when.condition = Expr::IsNotNull(Box::new(is_there.clone()));
            when.result = shifted.clone();
        }
        *else_result = Some(Box::new(otherwise));
        *expr = Expr::Nested(Box::new(case));
    }
}

/// The arguments of a call whose third is no literal.
fn values_of(call: &Function) -> Option<[FunctionArg; 3]> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return None;
    };
    let is_shift = ["lag", "lead"]
        .iter()
        .any(|shift| name.value.eq_ignore_ascii_case(shift));
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let is_plain = call.over.is_some()
        && call.null_treatment.is_none()
        && call.filter.is_none()
        && list.clauses.is_empty();
    let values: &[FunctionArg; 3] = list.args.as_slice().try_into().ok()?;
    let [_, _, FunctionArg::Unnamed(FunctionArgExpr::Expr(otherwise))] = values else {
        return None;
    };
    (is_shift && is_plain && !is_literal(otherwise)).then(|| values.clone())
}

fn is_literal(value: &Expr) -> bool {
    match value {
        Expr::Value(_) | Expr::TypedString(_) | Expr::Interval(_) => true,
        Expr::Nested(value) | Expr::UnaryOp { expr: value, .. } => is_literal(value),
        Expr::Cast { expr, .. } => is_literal(expr),
        _ => false,
    }
}

/// The same call with other arguments.
fn called(call: &Function, args: Vec<FunctionArg>) -> Expr {
    let mut call = call.clone();
    if let FunctionArguments::List(list) = &mut call.args {
        list.args = args;
    }
    Expr::Function(call)
}

//! JSON within JSON: `json_object('a', json_array(1, 2))` has a list at its key, and not the text of one.
//!
//! Comes in: a call of a function that makes JSON. Goes out: the same, whose arguments that are JSON say so: they stand in a struct with a name that nobody else gives. A column is never taken for JSON, whatever it is made of: `json(x)` says that it is. Never here: how JSON is made (`functions/simple/json_texts.rs`).

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectNamePart, Value,
};

use super::called::called;
use super::dialect::ARROW;
use super::using::folded;
use super::written::without_parentheses;
use crate::query::functions::JSON_MARK;

/// The functions that make JSON of values.
const MAKERS: [&str; 8] = [
    "array_to_json",
    "json_array",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_quote",
    "row_to_json",
    "to_json",
];

/// Others whose values are JSON.
const OTHERS: [&str; 4] = ["json", "json_extract", "json_extract_path", "json_get_json"];

/// Whether [`marked`] has something to do with it.
pub(super) fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) if is_one_of(call, &MAKERS) => arguments(call).any(is_json),
        _ => false,
    }
}

/// Marks the arguments that are JSON.
pub(super) fn marked(expr: &mut Expr) {
    let Expr::Function(call) = expr else {
        return;
    };
    if !is_one_of(call, &MAKERS) {
        return;
    }
    let FunctionArguments::List(list) = &mut call.args else {
        return;
    };
    for argument in &mut list.args {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument
            && is_json(value)
        {
            let name = Expr::value(Value::SingleQuotedString(JSON_MARK.to_owned()));
            *value = called("named_struct", [name, value.clone()]);
        }
    }
}

fn is_one_of(call: &Function, names: &[&str]) -> bool {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => names.contains(&folded(name).as_str()),
        _ => false,
    }
}

fn arguments(call: &Function) -> impl Iterator<Item = &Expr> {
    let arguments = match &call.args {
        FunctionArguments::List(list) => list.args.as_slice(),
        _ => &[],
    };
    arguments.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    })
}

/// Whether a value is JSON by what is written.
fn is_json(value: &Expr) -> bool {
    match without_parentheses(value) {
        Expr::Function(call) => is_one_of(call, &MAKERS) || is_one_of(call, &OTHERS),
        Expr::BinaryOp {
            op: BinaryOperator::Custom(name),
            ..
        } => name == ARROW,
        Expr::Case {
            conditions,
            else_result,
            ..
        } => {
            let results = conditions.iter().map(|when| &when.result);
            let mut results = results.chain(else_result.as_deref()).peekable();
            let is_one = |value: &Expr| is_json(value) || is_null(value);
            results.clone().any(is_json) && results.all(is_one)
        }
        _ => false,
    }
}

fn is_null(value: &Expr) -> bool {
    matches!(without_parentheses(value), Expr::Value(value) if value.value == Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::rewrite::row_in::parsed;

    #[test]
    fn arguments_that_are_json_say_so() {
        let cases = [
            ("json_object('a', x)", "json_object('a', x)"),
            (
                "JSON_ARRAY((json(x)), 'y')",
                "JSON_ARRAY(named_struct('__json', (json(x))), 'y')",
            ),
            (
                "to_json(CASE WHEN a THEN json_array() ELSE NULL END)",
                "to_json(named_struct('__json', CASE WHEN a THEN json_array() ELSE NULL END))",
            ),
            (
                "to_json(CASE WHEN a THEN json_array() ELSE 'x' END)",
                "to_json(CASE WHEN a THEN json_array() ELSE 'x' END)",
            ),
            ("upper(json_array())", "upper(json_array())"),
        ];
        for (text, expected) in cases {
            let mut expr = parsed(text).unwrap();
            assert_eq!(is_written(&expr), text != expected, "{text}");
            marked(&mut expr);
            assert_eq!(expr.to_string(), expected);
        }
    }
}

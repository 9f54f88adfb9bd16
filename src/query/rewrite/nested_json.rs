//! JSON within JSON: `json_object('a', json_array(1, 2))` has a list at its key, and not the text of one.
//!
//! Comes in: a call of a function that makes JSON. Goes out: the same, whose arguments that are JSON say so: a function makes values of them whose type says so. A column is never taken for JSON, whatever it is made of: `json(x)` says that it is. Never here: how JSON is made (`functions/simple/json_texts.rs`).

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectNamePart, SelectItem, SetExpr, TypedString, Value,
};

use super::called::called;
use super::dialect::ARROW;
use super::using::folded;
use super::written::without_parentheses;
use crate::query::functions::{JSON_CAST, JSON_MARK, JSON_TRY_CAST};

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
const OTHERS: [&str; 8] = [
    "json",
    "json_extract",
    "json_extract_path",
    "json_get_json",
    "json_merge_patch",
    "json_structure",
    JSON_CAST,
    JSON_TRY_CAST,
];

/// Functions of JSON whose values are that, too: of one of their arguments, from so many on.
const PASS_ON: [(&str, usize); 3] = [("coalesce", 0), ("if", 1), ("ifnull", 0)];

/// The same of the first argument.
const PASS_FIRST_ON: [&str; 12] = [
    "any_value",
    "arbitrary",
    "first",
    "first_value",
    "lag",
    "last",
    "last_value",
    "lead",
    "max",
    "min",
    "mode",
    "nullif",
];

/// Lists of values: of those of several rows, and of several arguments.
const LISTS: [&str; 4] = ["array_agg", "list", "list_value", "make_array"];

/// Whether [`marked`] has something to do with it.
pub(super) fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) if is_one_of(call, &MAKERS) => {
            arguments(call).any(|value| mark(&mut value.clone()))
        }
        Expr::Cast {
            expr: value,
            data_type: DataType::JSON | DataType::JSONB,
            ..
        } => mark(&mut value.as_ref().clone()),
        _ => false,
    }
}

/// Marks the arguments that are JSON, and what in lists, structs and maps of them is.
pub(super) fn marked(expr: &mut Expr) {
    match expr {
        Expr::Function(call) if is_one_of(call, &MAKERS) => {
            arguments_mut(call).for_each(|value| {
                mark(value);
            });
        }
        Expr::Cast {
            expr: value,
            data_type: DataType::JSON | DataType::JSONB,
            ..
        } => {
            mark(value);
        }
        _ => {}
    }
}

/// Whether there is something to mark.
fn mark(value: &mut Expr) -> bool {
    if is_json(value) {
        *value = called(JSON_MARK, [value.clone()]);
        return true;
    }
    match value {
        Expr::Nested(inner) => mark(inner),
        Expr::Array(list) => mark_elements(list.elem.iter_mut().collect()),
        Expr::Map(map) => {
            let values = map.entries.iter_mut();
            mark_elements(values.map(|entry| entry.value.as_mut()).collect())
        }
        Expr::Dictionary(fields) => {
            let fields = fields.iter_mut().map(|field| field.value.as_mut());
            fields.fold(false, |any, field| mark(field) | any)
        }
        Expr::Function(call) if is_one_of(call, &LISTS) => {
            mark_elements(arguments_mut(call).collect())
        }
        _ => false,
    }
}

/// The same of values of one type: all of them are JSON, or null, or none is.
fn mark_elements(values: Vec<&mut Expr>) -> bool {
    let are_json = values.iter().any(|value| is_json(value));
    if are_json && !values.iter().all(|value| is_json(value) || is_null(value)) {
        return false;
    }
    let values = values.into_iter().filter(|value| !is_null(value));
    values.fold(false, |any, value| mark(value) | any)
}

fn arguments_mut(call: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let arguments = match &mut call.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    arguments.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    })
}

fn is_one_of(call: &Function, names: &[&str]) -> bool {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => names.contains(&folded(name).as_str()),
        _ => false,
    }
}

fn arguments(call: &Function) -> impl Iterator<Item = &Expr> + Clone {
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
        Expr::Function(call) => {
            let passed_on = PASS_ON.iter().find(|(name, _)| is_one_of(call, &[name]));
            match passed_on {
                Some((_, first)) => are_json(arguments(call).skip(*first)),
                None if is_one_of(call, &PASS_FIRST_ON) => {
                    arguments(call).next().is_some_and(is_json)
                }
                None => is_one_of(call, &MAKERS) || is_one_of(call, &OTHERS),
            }
        }
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.as_slice() {
                [
                    SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. },
                ] => is_json(value),
                _ => false,
            },
            _ => false,
        },
        Expr::BinaryOp {
            op: BinaryOperator::Custom(name),
            ..
        } => name == ARROW,
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            matches!(data_type, DataType::JSON | DataType::JSONB)
        }
        Expr::Case {
            conditions,
            else_result,
            ..
        } => {
            let results = conditions.iter().map(|when| &when.result);
            are_json(results.chain(else_result.as_deref()))
        }
        _ => false,
    }
}

/// Whether some are, and all others null.
fn are_json<'a>(mut values: impl Iterator<Item = &'a Expr> + Clone) -> bool {
    values.clone().any(is_json) && values.all(|value| is_json(value) || is_null(value))
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
                "JSON_ARRAY(__json((json(x))), 'y')",
            ),
            (
                "to_json(CASE WHEN a THEN json_array() ELSE NULL END)",
                "to_json(__json(CASE WHEN a THEN json_array() ELSE NULL END))",
            ),
            (
                "to_json(CASE WHEN a THEN json_array() ELSE 'x' END)",
                "to_json(CASE WHEN a THEN json_array() ELSE 'x' END)",
            ),
            (
                "json_array(CAST(x AS JSON), CAST(x AS TEXT))",
                "json_array(__json(CAST(x AS JSON)), CAST(x AS TEXT))",
            ),
            (
                "to_json({'a': [json(x), NULL], 'b': x})",
                "to_json({'a': [__json(json(x)), NULL], 'b': x})",
            ),
            (
                "json_array(list(to_json(x) ORDER BY x), [json(x), y])",
                "json_array(list(__json(to_json(x)) ORDER BY x), [json(x), y])",
            ),
            (
                "to_json(coalesce(NULL, if(a, json(x), (SELECT to_json(s) FROM s))))",
                "to_json(__json(coalesce(NULL, if(a, json(x), (SELECT to_json(s) FROM s)))))",
            ),
            (
                "to_json(coalesce(json(x), y))",
                "to_json(coalesce(json(x), y))",
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

//! `regexp_extract` with names for its groups, and with flags.
//!
//! Comes in: a call. Goes out: a struct of what the groups match, or one group of a pattern that begins with its flags. Never here: the pattern itself.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};
use regex::Regex;

use super::put;
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::called::called;
use crate::query::rewrite::written::without_parentheses;

/// What a call with names or flags stands for, by the text of one without; `None` where it has neither.
pub(super) fn with_names_or_flags(call: &Function, text: &str) -> Result<Option<Expr>> {
    let Some(values) = arguments(call) else {
        return Ok(None);
    };
    let (pieces, group, flags) = match values.as_slice() {
        [text, pattern, group] => ([text, pattern], group, None),
        [text, pattern, group, flags] => ([text, pattern], group, Some(flags)),
        _ => return Ok(None),
    };
    let names = names(group);
    if names.is_none() && (text_of(group).is_some() || is_negative(group)) {
        let text =
            format!("group of regexp_extract must be a number or a list of names, got {group}");
        return Err(Error::new(ErrorKind::Query, text));
    }
    if names.is_none() && flags.is_none() {
        return Ok(None);
    }
    let [subject, pattern] = pieces.map(Clone::clone);
    let pattern = match flags {
        Some(flags) => flagged(pattern, flags)?,
        None => pattern,
    };
    let takes = ["text", "pattern", "group"];
    let Some(names) = names else {
        let values = [subject, pattern, group.clone()];
        return put(text, &takes, &values).map(Some);
    };
    check_groups(&pattern, &names)?;
    let mut fields = Vec::new();
    for (group, name) in (1..).zip(names) {
        let group = Expr::value(Value::Number(group.to_string(), false));
        let values = [subject.clone(), pattern.clone(), group];
        fields.push(Expr::value(Value::SingleQuotedString(name)));
        fields.push(put(text, &takes, &values)?);
    }
    let fields = called("named_struct", fields);
    let text = "CASE WHEN text IS NOT NULL AND pattern IS NOT NULL THEN fields END";
    let takes = ["text", "pattern", "fields"];
    put(text, &takes, &[subject, pattern, fields]).map(Some)
}

/// All arguments, where they are nothing but expressions.
fn arguments(call: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let is_plain = list.clauses.is_empty()
        && list.duplicate_treatment.is_none()
        && call.filter.is_none()
        && call.over.is_none();
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    values.collect::<Option<_>>().filter(|_| is_plain)
}

fn text_of(expr: &Expr) -> Option<&String> {
    match without_parentheses(expr) {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn is_negative(expr: &Expr) -> bool {
    match without_parentheses(expr) {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => matches!(expr.as_ref(), Expr::Value(_)),
        _ => false,
    }
}

/// The names in a list of texts.
fn names(group: &Expr) -> Option<Vec<String>> {
    match without_parentheses(group) {
        Expr::Array(list) if !list.elem.is_empty() => list
            .elem
            .iter()
            .map(|name| text_of(name).cloned())
            .collect(),
        _ => None,
    }
}

/// A pattern that begins with its flags.
fn flagged(pattern: Expr, flags: &Expr) -> Result<Expr> {
    let refused = || {
        let text = format!(
            "the flags of regexp_extract must be a text of 'i', 'c', 's' and 'm', got {flags}"
        );
        Error::new(ErrorKind::Query, text)
            .with_hint("'i' for letters large or small, 'c' for letters as they are, 's' where '.' is a line break too, 'm' where it is none")
    };
    let said = text_of(flags).ok_or_else(refused)?;
    if said.is_empty() {
        return Ok(pattern);
    }
    let mut set = String::new();
    for flag in said.chars() {
        match flag {
            'i' | 's' if set.contains(flag) => {}
            'i' | 's' => set.push(flag),
            'c' => set.retain(|other| other != 'i'),
            'm' | 'n' | 'p' => set.retain(|other| other != 's'),
            _ => return Err(refused()),
        }
    }
    if set.is_empty() {
        return Ok(pattern);
    }
    match text_of(&pattern) {
        Some(text) => Ok(Expr::value(Value::SingleQuotedString(format!(
            "(?{set}:{text})"
        )))),
        None => put(
            &format!("('(?{set}:' || pattern || ')')"),
            &["pattern"],
            &[pattern],
        ),
    }
}

/// Refuses a name that is there twice, and more names than a pattern that is known has groups.
fn check_groups(pattern: &Expr, names: &[String]) -> Result<()> {
    let mut known = HashSet::new();
    if let Some(again) = names.iter().find(|name| !known.insert(name.as_str())) {
        let text = format!("regexp_extract takes each name once, got '{again}' twice");
        return Err(Error::new(ErrorKind::Query, text));
    }
    let known = text_of(pattern).and_then(|text| Regex::new(text).ok());
    match known.map(|pattern| pattern.captures_len() - 1) {
        Some(groups) if groups < names.len() => Err(Error::new(
            ErrorKind::Query,
            format!(
                "regexp_extract got {} names, and its pattern has {groups} groups",
                names.len()
            ),
        )
        .with_hint("put what each name is for in parentheses")),
        _ => Ok(()),
    }
}

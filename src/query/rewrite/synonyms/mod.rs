//! Functions that are other ones by another name, or are written with them: `year(d)` is `date_part('year', d)`, `count_if(x)` is `count(*) FILTER (WHERE x)`. DuckDB has them, and most others some of them.
//!
//! Comes in: a statement. Goes out: the same with what they stand for in their place; columns that are called as they are written keep that name. A function that somebody has registered comes before one of these. Never here: functions of
//! which the engine has what they do under several names (`functions/aliases.rs`).

mod aggregates;
mod extracts;
mod known;

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    Statement, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::called::called;
use super::chained;
use super::nested_json;
use super::row_in::parsed;
use super::using::folded;
use super::written::{Meant, name_items, without_parentheses};
use crate::error::{Error, ErrorKind, Result};
use crate::query::functions::json;
pub(super) use aggregates::plain_arguments;
use aggregates::{GATHERED, in_words_of_the_engine, of_aggregates, of_list, worded};
use extracts::with_names_or_flags;
use known::{AGGREGATE, BETWEEN, OF_LARGEST, OF_LEAST, OF_MICROSECONDS};
pub(in crate::query) use known::{SYNONYMS, Synonym};

/// Puts what they stand for in their place.
///
/// # Errors
/// `Query` for a wrong number of arguments, and for a part of time that there is not; `Unsupported` for windows of `arg_max` and `arg_min`.
pub(super) fn written_out(statement: &mut Statement, state: &SessionState) -> Result<()> {
    if Visit::visit(statement, &mut Calls { state }).is_continue() {
        return Ok(());
    }
    let mut writing = Writing {
        state,
        meant: Vec::new(),
    };
    match VisitMut::visit(statement, &mut writing) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The same of one value.
///
/// # Errors
/// As [`written_out`].
pub(super) fn in_value(value: &mut Expr, state: &SessionState) -> Result<()> {
    let mut writing = Writing {
        state,
        meant: Vec::new(),
    };
    match VisitMut::visit(value, &mut writing) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The synonym that a call is of.
fn synonym_of(call: &Function, state: &SessionState) -> Option<&'static Synonym> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return None;
    };
    let name = folded(name);
    let place = SYNONYMS.binary_search_by(|known| known.name.cmp(&name));
    let synonym = SYNONYMS.get(place.ok()?)?;
    let is_taken = state.scalar_functions().contains_key(&name)
        || state.aggregate_functions().contains_key(&name)
        || state.window_functions().contains_key(&name);
    (!is_taken).then_some(synonym)
}

/// Whether there is a function of a name, by that or as a synonym.
pub(super) fn is_known(name: &str, state: &SessionState) -> bool {
    state.scalar_functions().contains_key(name)
        || state.aggregate_functions().contains_key(name)
        || state.window_functions().contains_key(name)
        || SYNONYMS
            .binary_search_by(|known| known.name.cmp(name))
            .is_ok()
}

/// Looks for one.
struct Calls<'a> {
    state: &'a SessionState,
}

impl Visitor for Calls<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call)
                if synonym_of(call, self.state).is_some() || worded(call, self.state).is_some() =>
            {
                ControlFlow::Break(())
            }
            expr if list_of_any(expr).is_some()
                || json::is_written(expr)
                || nested_json::is_written(expr)
                || chained::is_written(expr, self.state) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Writing<'a> {
    state: &'a SessionState,
    /// The names in the ORDER BY of each query that is open.
    meant: Vec<Meant>,
}

impl VisitorMut for Writing<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.meant.push(Meant::of(&query.order_by));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.meant.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        name_items(select, self.meant.last().unwrap_or(&Meant::default()));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        chained::as_call(expr, self.state);
        nested_json::marked(expr);
        if let Expr::Function(call) = expr {
            let meant = match synonym_of(call, self.state) {
                Some(synonym) if worded(call, self.state).is_none() => {
                    synonym.in_place_of(call, self.state).map(Some)
                }
                _ => in_words_of_the_engine(call, self.state),
            };
            match meant {
                Ok(Some(meant)) => *expr = meant,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Some(list) = list_of_any(expr) {
            match or_unknown(expr, list) {
                Ok(meant) => *expr = meant,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        match json::in_words(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The list of `x = ANY(list)` and its like.
fn list_of_any(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::AnyOp { right, .. } if !matches!(right.as_ref(), Expr::Subquery(_)) => {
            Some(right.as_ref())
        }
        _ => None,
    }
}

/// What no element meets may still be met by one that is null; the engine says that it is not.
fn or_unknown(any: &Expr, list: &Expr) -> Result<Expr> {
    let text = "CASE WHEN list_has_null(list) THEN NULL ELSE FALSE END";
    let unknown = put(text, &["list"], std::slice::from_ref(list))?;
    let nested = |part| Box::new(Expr::Nested(Box::new(part)));
    Ok(Expr::Nested(Box::new(Expr::BinaryOp {
        left: nested(any.clone()),
        op: BinaryOperator::Or,
        right: nested(unknown),
    })))
}

/// The expression that a text is, with values in place of names.
pub(super) fn put(text: &str, takes: &[&str], values: &[Expr]) -> Result<Expr> {
    let mut meant = parsed(text)?;
    let visited: ControlFlow<()> = VisitMut::visit(&mut meant, &mut Putting { takes, values });
    debug_assert!(visited.is_continue());
    Ok(meant)
}

impl Synonym {
    /// How it is called.
    pub(in crate::query) fn syntax(&self) -> String {
        match self.takes {
            [] if self.stands_for.is_empty() => format!("{}()", self.name),
            [] => format!("{}(…), as {}", self.name, self.stands_for),
            takes => format!("{}({})", self.name, takes.join(", ")),
        }
    }

    fn in_place_of(&self, call: &Function, state: &SessionState) -> Result<Expr> {
        if self.takes.is_empty() && self.stands_for.is_empty() {
            return self.of_session(call, state);
        }
        if self.takes.is_empty() {
            let mut meant = Function {
                name: ObjectName::from(Ident::new(self.stands_for)),
                ..call.clone()
            };
            // Without a text between texts it is a comma.
            if self.stands_for == "string_agg"
                && let FunctionArguments::List(list) = &mut meant.args
                && list.args.len() == 1
            {
                let comma = Expr::value(Value::SingleQuotedString(",".to_owned()));
                list.args
                    .push(FunctionArg::Unnamed(FunctionArgExpr::Expr(comma)));
            }
            return Ok(Expr::Function(meant));
        }
        match self.name {
            "struct_pack" | "struct_insert" | "struct_update" => return self.of_fields(call),
            "regexp_extract" => {
                if let Some(meant) = with_names_or_flags(call, self.stands_for)? {
                    return Ok(meant);
                }
            }
            _ => {}
        }
        if matches!(
            self.name,
            "arg_max" | "arg_min" | "argmax" | "argmin" | "max_by" | "min_by"
        ) && let Some([value, by, number]) = plain_arguments(call)
        {
            let text = match self.name {
                "arg_max" | "argmax" | "max_by" => OF_LARGEST,
                _ => OF_LEAST,
            };
            let takes = ["value", "by", "number"];
            return of_aggregates(text, &takes, &[value, by, number], call, state);
        }
        if self.stands_for.is_empty() && self.takes == ["list", "name"] {
            return of_list(self.name, call);
        }
        let mut values = self.values(call)?;
        let text = match self.name {
            "date_diff" | "datediff" => between(self.name, &mut values)?,
            "make_timestamp" if values.len() == 1 => {
                return put(OF_MICROSECONDS, &["number"], &values);
            }
            _ => self.stands_for,
        };
        // Either order is known.
        if self.name == "strftime" && is_text(values.first()) && !is_text(values.get(1)) {
            values.reverse();
        }
        match self.kind == AGGREGATE {
            true => of_aggregates(text, self.takes, &values, call, state),
            false => put(text, self.takes, &values),
        }
    }

    /// A name of the session: `current_schema()`.
    fn of_session(&self, call: &Function, state: &SessionState) -> Result<Expr> {
        self.values(call)?;
        let names = &state.config_options().catalog;
        let name = match self.name {
            "current_schema" => &names.default_schema,
            _ => &names.default_catalog,
        };
        Ok(Expr::value(Value::SingleQuotedString(name.clone())))
    }

    /// The arguments of a call that says nothing else.
    fn plain<'a>(&self, call: &'a Function) -> Result<&'a [FunctionArg]> {
        match &call.args {
            FunctionArguments::List(list)
                if list.duplicate_treatment.is_none()
                    && list.clauses.is_empty()
                    && call.filter.is_none()
                    && call.over.is_none()
                    && call.within_group.is_empty()
                    && call.null_treatment.is_none() =>
            {
                Ok(list.args.as_slice())
            }
            _ => {
                let takes = self.takes.join(", ");
                let text = format!("{} takes {takes}, got `{call}`", self.name);
                Err(Error::new(ErrorKind::Query, text))
            }
        }
    }

    /// A struct of fields that are named, `struct_pack(a := 1)`, behind those of another one: `struct_insert(s, a := 1)`.
    fn of_fields(&self, call: &Function) -> Result<Expr> {
        let fields = self.plain(call)?;
        let (before, fields) = match (self.stands_for, fields) {
            ("", fields) => (None, fields),
            (
                _,
                [
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(before)),
                    fields @ ..,
                ],
            ) if !fields.is_empty() => (Some(before), fields),
            (_, _) => {
                let text = format!(
                    "{} takes a struct and fields with names, got {call}",
                    self.name
                );
                let hint = format!("{}(s, a := 1)", self.name);
                return Err(Error::new(ErrorKind::Query, text).with_hint(hint));
            }
        };
        let mut parts = Vec::new();
        for field in fields {
            match field {
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(value),
                    ..
                } => {
                    let name = Value::SingleQuotedString(folded(name));
                    parts.extend([Expr::value(name), value.clone()]);
                }
                other => {
                    let text = format!("{} takes fields with names, got {other}", self.name);
                    return Err(Error::new(ErrorKind::Query, text)
                        .with_hint("struct_pack(a := 1, b := 'x'), or {'a': 1, 'b': 'x'}"));
                }
            }
        }
        let fields = called("named_struct", parts);
        Ok(match before {
            Some(before) => called(self.stands_for, [before.clone(), fields]),
            None => fields,
        })
    }

    /// The arguments of a call.
    fn values(&self, call: &Function) -> Result<Vec<Expr>> {
        let wrong = |got: &str| {
            let text = format!("{} takes ({}), got {got}", self.name, self.takes.join(", "));
            Error::new(ErrorKind::Query, text)
        };
        let FunctionArguments::List(list) = &call.args else {
            return Err(wrong(&call.args.to_string()));
        };
        // A list of all rows can have an order, and each value once.
        let is_gathered = self.stands_for.contains(GATHERED) && !self.stands_for.contains(" BY ");
        let is_order = |clause| matches!(clause, &FunctionArgumentClause::OrderBy(_));
        let is_plain = (list.clauses.is_empty()
            || is_gathered && list.clauses.iter().all(is_order))
            && (is_gathered
                || matches!(
                    list.duplicate_treatment,
                    None | Some(DuplicateTreatment::All)
                ))
            && call.within_group.is_empty()
            && call.null_treatment.is_none()
            && (self.kind == AGGREGATE || call.filter.is_none() && call.over.is_none());
        let values = list.args.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
            _ => None,
        });
        let values: Option<Vec<Expr>> = values.collect();
        let mut values = match values {
            Some(values) if is_plain => values,
            _ => return Err(wrong(&format!("`{call}`"))),
        };
        // Without a group it is the whole.
        if self.name == "regexp_extract" && values.len() == 2 {
            values.push(Expr::value(Value::Number("0".to_owned(), false)));
        }
        let may_have = match self.name {
            "make_timestamp" => 1,
            _ => self.takes.len(),
        };
        match values.len() == self.takes.len() || values.len() == may_have {
            true => Ok(values),
            false => Err(wrong(&format!("{} arguments", values.len()))),
        }
    }
}

fn is_text(value: Option<&Expr>) -> bool {
    matches!(value, Some(Expr::Value(value)) if matches!(value.value, Value::SingleQuotedString(_)))
}

/// What `date_diff` stands for.
fn between(name: &str, values: &mut [Expr]) -> Result<&'static str> {
    let part = values.first().map(without_parentheses);
    let said = match part {
        Some(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.to_lowercase()),
            _ => None,
        },
        _ => None,
    };
    let known = |said: &String| {
        let one = said.strip_suffix('s').unwrap_or(said);
        let mut all = BETWEEN.iter();
        all.find(|(part, _)| *part == one).map(|(_, text)| *text)
    };
    said.as_ref().and_then(known).ok_or_else(|| {
        let parts: Vec<String> = BETWEEN
            .iter()
            .map(|(part, _)| format!("'{part}'"))
            .collect();
        let got = part.map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "the part of {name} must be one of {}, got {got}",
            parts.join(", ")
        );
        Error::new(ErrorKind::Query, text)
    })
}

/// Puts arguments in place of their names.
struct Putting<'a> {
    takes: &'a [&'a str],
    values: &'a [Expr],
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    // After what is within it: an argument may name a column that is called as an argument is.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr {
            let mut takes = self.takes.iter();
            let place = takes.position(|known| *known == name.value);
            if let Some(value) = place.and_then(|place| self.values.get(place)) {
                *expr = match value {
                    Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => {
                        value.clone()
                    }
                    other => Expr::Nested(Box::new(other.clone())),
                };
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::known::{LARGEST, LEAST, OF_LIST};
    use super::*;

    #[test]
    fn they_are_sorted_and_can_be_read() {
        assert!(SYNONYMS.is_sorted_by(|one, other| one.name < other.name));
        let all = SYNONYMS.iter().filter(|synonym| !synonym.takes.is_empty());
        let texts = all
            .map(|synonym| synonym.stands_for)
            .filter(|text| !text.is_empty());
        let others = BETWEEN.iter().chain(OF_LIST).map(|(_, text)| *text);
        let several = [LARGEST, LEAST, OF_LARGEST, OF_LEAST, OF_MICROSECONDS];
        for text in texts.chain(others).chain(several) {
            assert!(parsed(text).is_ok(), "{text}");
        }
    }
}

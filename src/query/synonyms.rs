//! Functions that are other ones by another name, or are written with them: `year(d)` is `date_part('year', d)`, `count_if(x)` is `count(*) FILTER (WHERE x)`. DuckDB has them, and most others some of them.
//!
//! Comes in: a statement. Goes out: the same with what they stand for in their place; columns that are called as they are written keep that name. A function that somebody has registered comes before one of these. Never here: functions of
//! which the engine has what they do under several names (`aliases.rs`).

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, Select, Statement, Value, Visit, VisitMut, Visitor,
    VisitorMut,
};

use super::called::called;
use super::row_in::parsed;
use super::using::folded;
use super::written::{Meant, name_items, without_parentheses};
use crate::error::{Error, ErrorKind, Result};

/// A function that is written with others.
pub(super) struct Synonym {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// What it takes: names that stand in the expression.
    pub(super) takes: &'static [&'static str],
    /// What it stands for: an expression, or, without arguments of its own, the name of a function.
    stands_for: &'static str,
    pub(super) about: &'static str,
}

const SCALAR: &str = "scalar";
const AGGREGATE: &str = "aggregate";

const fn synonym(
    name: &'static str,
    kind: &'static str,
    takes: &'static [&'static str],
    stands_for: &'static str,
    about: &'static str,
) -> Synonym {
    Synonym {
        name,
        kind,
        takes,
        stands_for,
        about,
    }
}

/// A part of a point in time.
const fn part(name: &'static str, stands_for: &'static str, about: &'static str) -> Synonym {
    synonym(name, SCALAR, &["moment"], stands_for, about)
}

#[rustfmt::skip]
pub(super) const SYNONYMS: &[Synonym] = &[
    synonym("apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("arg_max", AGGREGATE, &["value", "by"], LATEST, "The value of a row with the largest `by`; rows where one of both is null are left out."),
    synonym("arg_min", AGGREGATE, &["value", "by"], EARLIEST, "The value of a row with the least `by`; rows where one of both is null are left out."),
    synonym("array_apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("count_if", AGGREGATE, &["condition"], COUNTED, "The number of rows for which a condition is true."),
    synonym("countif", AGGREGATE, &["condition"], COUNTED, "The number of rows for which a condition is true."),
    synonym("date_diff", SCALAR, &["part", "begin", "end"], "", "How many borders of a part of time lie between two points, or whole weeks: 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute' or 'second'."),
    synonym("datediff", SCALAR, &["part", "begin", "end"], "", "How many borders of a part of time lie between two points, or whole weeks: 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute' or 'second'."),
    part("day", "CAST(date_part('day', moment) AS BIGINT)", "The day of the month."),
    part("dayname", "to_char(moment, '%A')", "The English name of the day of the week."),
    part("dayofmonth", "CAST(date_part('day', moment) AS BIGINT)", "The day of the month."),
    part("dayofweek", "CAST(date_part('dow', moment) AS BIGINT)", "The day of the week, 0 being Sunday."),
    part("dayofyear", "CAST(date_part('doy', moment) AS BIGINT)", "The day of the year."),
    part("epoch", "CAST(date_part('epoch', moment) AS DOUBLE)", "The seconds since 1970-01-01."),
    synonym("filter", SCALAR, &[], "list_filter", "The elements of a list for which a lambda is true."),
    synonym("first", AGGREGATE, &[], "first_value", "The value of the first row."),
    part("hour", "CAST(date_part('hour', moment) AS BIGINT)", "The hour."),
    part("isodow", "CAST(date_part('isodow', moment) AS BIGINT)", "The day of the week, 1 being Monday."),
    synonym("last", AGGREGATE, &[], "last_value", "The value of the last row."),
    part("last_day", "CAST(date_trunc('month', moment) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)", "The last day of the month."),
    synonym("list", AGGREGATE, &[], "array_agg", "A list of all values."),
    synonym("list_apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("make_timestamp", SCALAR, &["year", "month", "day", "hour", "minute", "seconds"], MADE, "A timestamp of its parts."),
    synonym("max_by", AGGREGATE, &["value", "by"], LATEST, "The value of a row with the largest `by`; rows where one of both is null are left out."),
    synonym("min_by", AGGREGATE, &["value", "by"], EARLIEST, "The value of a row with the least `by`; rows where one of both is null are left out."),
    part("minute", "CAST(date_part('minute', moment) AS BIGINT)", "The minute."),
    part("month", "CAST(date_part('month', moment) AS BIGINT)", "The month of the year."),
    part("monthname", "to_char(moment, '%B')", "The English name of the month."),
    synonym("prefix", SCALAR, &[], "starts_with", "Whether a text begins with another."),
    part("quarter", "CAST(date_part('quarter', moment) AS BIGINT)", "The quarter of the year."),
    synonym("regexp_extract", SCALAR, &["text", "pattern", "group"], EXTRACTED, "What a group of a regular expression matches, or without one the whole; an empty text where nothing does."),
    synonym("regexp_matches", SCALAR, &[], "regexp_like", "Whether a regular expression matches a part of a text."),
    part("second", "CAST(date_part('second', moment) AS BIGINT)", "The whole second."),
    synonym("strftime", SCALAR, &["moment", "format"], "to_char(moment, regexp_replace(format, '(^|[^%])%f', '${1}%6f', 'g'))", "The text of a point in time by a format such as '%Y-%m-%d'."),
    synonym("strptime", SCALAR, &["text", "format"], PARSED, "The timestamp of a text by a format such as '%Y-%m-%d'."),
    synonym("struct_pack", SCALAR, &["name := value"], "", "A struct of fields with names."),
    synonym("suffix", SCALAR, &[], "ends_with", "Whether a text ends with another."),
    part("week", "CAST(date_part('week', moment) AS BIGINT)", "The week of the year, by ISO 8601."),
    part("weekday", "CAST(date_part('dow', moment) AS BIGINT)", "The day of the week, 0 being Sunday."),
    part("weekofyear", "CAST(date_part('week', moment) AS BIGINT)", "The week of the year, by ISO 8601."),
    part("year", "CAST(date_part('year', moment) AS BIGINT)", "The year."),
];

/// A text, so that parts out of range are refused.
const MADE: &str = "CAST(CAST(make_date(year, month, day) AS VARCHAR) || ' ' || CAST(hour AS VARCHAR) || ':' || CAST(minute AS VARCHAR) || ':' || CAST(seconds AS VARCHAR) AS TIMESTAMP)";
/// Of the groups that `regexp_match` gives, those that match nothing are left out.
const EXTRACTED: &str = "CASE WHEN regexp_like(text, pattern) THEN regexp_replace(text, '(?s)^.*?((?-s:' || pattern || ')).*$', '${' || CAST(group + 1 AS VARCHAR) || '}') WHEN text IS NOT NULL AND pattern IS NOT NULL THEN '' END";
/// The engine takes `%f` for nanoseconds, and leaves out hours without minutes.
const PARSED: &str = "CAST(to_timestamp(text || CASE WHEN regexp_like(format, '%-?[HIkl]') AND NOT regexp_like(format, '%-?[MTRXcrs+]') THEN ' 00' ELSE '' END, replace(format, '.%f', '%.f') || CASE WHEN regexp_like(format, '%-?[HIkl]') AND NOT regexp_like(format, '%-?[MTRXcrs+]') THEN ' %M' ELSE '' END) AS TIMESTAMP)";
const COUNTED: &str = "count(*) FILTER (WHERE condition)";
const LATEST: &str =
    "first_value(value ORDER BY by DESC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL)";
const EARLIEST: &str =
    "first_value(value ORDER BY by ASC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL)";

/// What `date_diff` stands for, by the part.
const BETWEEN: &[(&str, &str)] = &[
    (
        "year",
        "CAST(date_part('year', end) - date_part('year', begin) AS BIGINT)",
    ),
    (
        "quarter",
        "CAST(date_part('year', end) * 4 + date_part('quarter', end) - date_part('year', begin) * 4 - date_part('quarter', begin) AS BIGINT)",
    ),
    (
        "month",
        "CAST(date_part('year', end) * 12 + date_part('month', end) - date_part('year', begin) * 12 - date_part('month', begin) AS BIGINT)",
    ),
    ("week", "((CAST(end AS DATE) - CAST(begin AS DATE)) / 7)"),
    ("day", "(CAST(end AS DATE) - CAST(begin AS DATE))"),
    (
        "hour",
        "CAST(date_part('epoch', date_trunc('hour', end) - date_trunc('hour', begin)) / 3600 AS BIGINT)",
    ),
    (
        "minute",
        "CAST(date_part('epoch', date_trunc('minute', end) - date_trunc('minute', begin)) / 60 AS BIGINT)",
    ),
    (
        "second",
        "CAST(date_part('epoch', date_trunc('second', end) - date_trunc('second', begin)) AS BIGINT)",
    ),
];

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

/// Looks for one.
struct Calls<'a> {
    state: &'a SessionState,
}

impl Visitor for Calls<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if synonym_of(call, self.state).is_some() => {
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
        if let Expr::Function(call) = expr
            && let Some(synonym) = synonym_of(call, self.state)
        {
            match synonym.in_place_of(call) {
                Ok(meant) => *expr = meant,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

impl Synonym {
    /// How it is called.
    pub(super) fn syntax(&self) -> String {
        match self.takes {
            [] => format!("{}(…), as {}", self.name, self.stands_for),
            takes => format!("{}({})", self.name, takes.join(", ")),
        }
    }

    fn in_place_of(&self, call: &Function) -> Result<Expr> {
        if self.takes.is_empty() {
            return Ok(Expr::Function(Function {
                name: ObjectName::from(Ident::new(self.stands_for)),
                ..call.clone()
            }));
        }
        if self.name == "struct_pack" {
            return self.of_fields(call);
        }
        let mut values = self.values(call)?;
        let text = match self.name {
            "date_diff" | "datediff" => between(self.name, &mut values)?,
            _ => self.stands_for,
        };
        let mut meant = parsed(text)?;
        let visited: ControlFlow<()> = VisitMut::visit(
            &mut meant,
            &mut Putting {
                takes: self.takes,
                values: &values,
            },
        );
        debug_assert!(visited.is_continue());
        if let Expr::Function(whole) = &mut meant
            && self.kind == AGGREGATE
        {
            if call.over.is_some() && whole.name.to_string() == "first_value" {
                let text = format!("{} over a window is not supported", self.name);
                return Err(Error::unsupported(text)
                    .with_hint("first_value(value) OVER (PARTITION BY … ORDER BY by DESC) has its value in each row"));
            }
            whole.over.clone_from(&call.over);
            if let Some(filter) = &call.filter {
                let own = whole.filter.take();
                whole.filter = Some(match own {
                    Some(own) => Box::new(and(*own, filter.as_ref().clone())),
                    None => filter.clone(),
                });
            }
        }
        Ok(meant)
    }

    /// A struct of fields that are named: `struct_pack(a := 1)`.
    fn of_fields(&self, call: &Function) -> Result<Expr> {
        let fields = match &call.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
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
        Ok(called("named_struct", parts))
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
        let is_plain = list.clauses.is_empty()
            && matches!(
                list.duplicate_treatment,
                None | Some(DuplicateTreatment::All)
            )
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
        match values.len() == self.takes.len() {
            true => Ok(values),
            false => Err(wrong(&format!("{} arguments", values.len()))),
        }
    }
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

fn and(one: Expr, other: Expr) -> Expr {
    let nested = |part| Box::new(Expr::Nested(Box::new(part)));
    Expr::BinaryOp {
        left: nested(one),
        op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
        right: nested(other),
    }
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
    use super::*;

    #[test]
    fn they_are_sorted_and_can_be_read() {
        assert!(SYNONYMS.is_sorted_by(|one, other| one.name < other.name));
        let all = SYNONYMS.iter().filter(|synonym| !synonym.takes.is_empty());
        let texts = all
            .map(|synonym| synonym.stands_for)
            .filter(|text| !text.is_empty());
        for text in texts.chain(BETWEEN.iter().map(|(_, text)| *text)) {
            assert!(parsed(text).is_ok(), "{text}");
        }
    }
}

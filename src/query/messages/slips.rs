//! Texts of the engine about slips in a statement, in our words.
//!
//! Comes in: a text. Goes out: what is wrong, what came, the remedy. Never here: types of arguments, what runs find.

use super::words::Worded;
use crate::error::ErrorKind;
use crate::query::error::near;
use crate::query::rewrite::one_value::ONE_COLUMN;

/// What can be done where two queries of WITH have one name.
pub(in crate::query) const TWO_OF_WITH: &str = "give one of them another name";

/// The text in our words, if it is about one of the slips that people make.
pub(super) fn slips(text: &str) -> Option<Worded> {
    statements(text)
        .or_else(|| rows(text))
        .or_else(|| frames(text))
        .or_else(|| columns(text))
        .or_else(|| unknown(text))
        .or_else(|| named(text))
        .or_else(|| fields(text))
        .or_else(|| times(text))
        .or_else(|| values(text))
}

fn worded(message: impl Into<String>, hint: &str) -> Option<Worded> {
    Some(Worded {
        kind: Some(ErrorKind::Query),
        message: message.into(),
        hint: Some(hint.to_owned()),
    })
}

/// Words that other engines begin statements and clauses with.
fn statements(text: &str) -> Option<Worded> {
    let (_, found) = text.split_once(", found: ")?;
    let word: String = found
        .chars()
        .take_while(|letter| letter.is_alphanumeric())
        .collect();
    let word = word.to_uppercase();
    let hint = match word.as_str() {
        "PIVOT" => {
            "say by what: PIVOT t ON k USING sum(x) GROUP BY g, or FROM t PIVOT (sum(x) FOR k IN ('a', 'b'))"
        }
        "UNPIVOT" => {
            "say which columns: UNPIVOT t ON a, b INTO NAME n VALUE v, or FROM t UNPIVOT (value FOR name IN (a, b))"
        }
        "SUMMARIZE" => "a statement begins with it: SUMMARIZE t, or SUMMARIZE SELECT …",
        "TABLE" => "write SELECT * FROM t",
        "ATTACH" | "DETACH" | "USE" => {
            "grids are registered under names: `register` of a session, `partgrid serve name=path`"
        }
        "PRAGMA" | "CALL" | "INSTALL" | "LOAD" => {
            "settings and extensions are no statements: a session or a query takes timeout, memory_limit and others when it is made"
        }
        "USING" => "WHERE random() < 0.01 takes a sample of 1 %",
        "MATERIALIZED" => {
            "leave it out: what a statement says twice, and is worth it, is made once"
        }
        "ON" if text.contains("MATCH_CONDITION") => ASOF,
        _ => return None,
    };
    worded(text, hint)
}

/// How nearest rows are joined.
pub(in crate::query) const ASOF: &str = "… FROM a ASOF JOIN b ON a.key = b.key AND a.at >= b.at, or USING (key, at), beside each row of a the last one of b until then; ASOF LEFT JOIN keeps rows of a without one";

/// Clauses that choose and order rows.
fn rows(text: &str) -> Option<Worded> {
    if let Some(rest) = text.strip_prefix("HAVING clause references: ") {
        let (condition, _) = rest.split_once(" must appear in the GROUP BY")?;
        return worded(
            format!("HAVING is about groups, and {condition} is neither grouped nor aggregated"),
            "use WHERE for rows, or aggregate within HAVING",
        );
    }
    if text == "invalid digit found in string" {
        return worded(
            "a number in ORDER BY is that of a column, and no whole number",
            "leave it out, since rows have no order by it; ORDER BY 2 is by the second column",
        );
    }
    if text.starts_with("For SELECT DISTINCT, ORDER BY expressions") {
        return worded(
            "with DISTINCT, rows are in the order of what SELECT gives, and ORDER BY asks for something else",
            "add it to SELECT, or group, and sort by one value of each group: SELECT a … GROUP BY a ORDER BY min(b)",
        );
    }
    if let Some(rest) = text.strip_prefix("Join condition must be boolean type, but got ") {
        let kind = rest.split(['(', ' ']).next().unwrap_or(rest);
        return worded(
            format!("the condition of a join must be true or false, got a {kind}"),
            "compare something: ON a.x = b.x",
        );
    }
    if let Some(rest) = text.strip_prefix("Order by column out of bounds, specified: ") {
        let (number, most) = rest.split_once(", max: ")?;
        return worded(
            format!("ORDER BY {number} means column {number} of the answer, which has {most}"),
            "write a number from 1, or the name of a column",
        );
    }
    if let Some(rest) = text.strip_prefix("Cannot find column with position ") {
        let (number, rest) = rest.split_once(" in SELECT clause. Valid columns: ")?;
        return worded(
            format!("GROUP BY {number} means column {number} of SELECT, which has columns {rest}"),
            "write a number of those, or the name of a column",
        );
    }
    for clause in ["LIMIT", "OFFSET"] {
        if let Some(rest) = text
            .strip_prefix(&format!("{clause} must be >= 0, '"))
            .or_else(|| text.strip_prefix(&format!("{clause} must be >=0, '")))
        {
            let given = rest.split('\'').next().unwrap_or(rest);
            return worded(
                format!("{clause} must be a number from 0, got {given}"),
                "leave the clause out for all rows",
            );
        }
        let wrong = format!("Expected {clause} to be an integer or null, but got ");
        if let Some(kind) = text.strip_prefix(&wrong) {
            return worded(
                format!("{clause} must be a whole number, got a {kind}"),
                "leave the clause out for all rows",
            );
        }
    }
    None
}

/// Frames of windows that count from the value of each row.
fn frames(text: &str) -> Option<Worded> {
    let hint = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW counts rows, GROUPS those of equal values";
    // The engine takes it for a fault of its own.
    if let Some((_, rest)) = text.split_once("Cannot run range queries on datatype: ") {
        let kind = rest.split(['(', '.']).next().unwrap_or(rest);
        return worded(
            format!(
                "RANGE with a distance needs an ORDER BY of numbers or times that have one, got a {kind}"
            ),
            hint,
        );
    }
    if text.starts_with("RANGE requires exactly one ORDER BY column") {
        return worded("RANGE with a distance needs an ORDER BY of one value", hint);
    }
    None
}

/// What has a name.
fn named(text: &str) -> Option<Worded> {
    let name = text
        .strip_prefix("WITH query name \"")
        .and_then(|rest| rest.strip_suffix("\" specified more than once"));
    if let Some(name) = name {
        return worded(
            format!("two queries of WITH have the name `{name}`"),
            TWO_OF_WITH,
        );
    }
    let name = text
        .strip_prefix("The window ")
        .and_then(|rest| rest.strip_suffix(" is not defined!"));
    if let Some(name) = name {
        return worded(
            format!("there is no window `{name}`"),
            &format!("define it behind the other clauses: WINDOW {name} AS (ORDER BY …)"),
        );
    }
    None
}

/// Tables and parts of time that there are not.
fn unknown(text: &str) -> Option<Worded> {
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        return worded(
            format!("no table `{name}` in FROM, in {name}.*"),
            &format!("the fields of a struct are unnest({name}), one of them {name}.field"),
        );
    }
    if let Some(rest) = text.strip_prefix("Unsupported date_trunc granularity: ") {
        let (got, known) = rest.split_once(". Supported values are: ")?;
        return worded(
            format!("date_trunc takes one of {known}, got {got}"),
            "decades are date_trunc('year', x) - to_years(year(x) % 10)",
        );
    }
    None
}

/// How many columns there are, and where they may stand.
fn columns(text: &str) -> Option<Worded> {
    if let Some(rest) = text.strip_prefix("Source table contains ") {
        let (there, rest) = rest.split_once(" columns but only ")?;
        let (given, _) = rest.split_once(" names given as column alias")?;
        return worded(
            format!("there must be a name for each of the {there} columns, got {given}"),
            "write as many names behind the name of the table as SELECT has columns, or none",
        );
    }
    if let Some(rest) =
        text.strip_prefix("Too many columns! The subquery should only return one column: ")
    {
        return worded(
            format!("{ONE_COLUMN} {rest}"),
            "select one, or compare rows: (a, b) IN (SELECT c, d …)",
        );
    }
    if text.starts_with("SELECT list is empty after resolving * expressions") {
        return worded(
            "`*` leaves no column",
            "leave out fewer of them with EXCLUDE; SELECT count(*) FROM … counts rows",
        );
    }
    if let Some((kind, _)) = text.split_once(" queries have different number of columns") {
        return worded(
            format!("both sides of {kind} must have as many columns"),
            "select the same columns on both sides; NULL AS name fills one in",
        );
    }
    if let Some(rest) =
        text.strip_prefix("Incompatible inputs for Union: Previous inputs were of type ")
    {
        let (before, rest) = rest.split_once(", but got incompatible type ")?;
        let (now, column) = rest.split_once(" on column ")?;
        return worded(
            format!(
                "the sides of UNION must have types that go together, column {column} has {before} and {now}"
            ),
            "cast one of them: cast(… AS …)",
        );
    }
    if let Some(rest) = text.strip_prefix("Argument ") {
        let (argument, keys) =
            rest.split_once(" to grouping function is not in grouping columns")?;
        let keys = match keys.trim() {
            "" => "there are none".to_owned(),
            keys => format!("they are {keys}"),
        };
        return worded(
            format!("grouping() takes keys of GROUP BY, got {argument}"),
            &keys,
        );
    }
    if text == "COUNT DISTINCT with multiple arguments" {
        return Some(Worded {
            kind: Some(ErrorKind::Unsupported),
            message: "count(DISTINCT …) of several values is not supported".to_owned(),
            hint: Some("write SELECT count(*) FROM (SELECT DISTINCT a, b …)".to_owned()),
        });
    }
    None
}

/// Parts of values.
fn fields(text: &str) -> Option<Worded> {
    if let Some(rest) = text.strip_prefix("Field ") {
        let name = rest.strip_suffix(" not found in struct")?;
        return worded(
            format!("the struct has no field `{name}`"),
            "arrow_typeof(…) shows its fields",
        );
    }
    if text.starts_with("Cannot access field at argument ") {
        let (_, rest) = text.split_once(": type ")?;
        let kind = rest
            .strip_suffix(" is not Struct, Map, or Null")
            .unwrap_or(rest);
        return worded(
            format!("only structs and maps have fields by name, got {kind}"),
            "a list has elements by number, from 1: x[1]; where a table was meant that is called as a column is, call it otherwise: FROM t AS u",
        );
    }
    if text.starts_with("Dot access not supported for non-string expr") {
        return worded(
            "behind a dot stands the name of a field",
            "write x.name, or x['name'] where the name is no plain word; elements of lists are x[1]",
        );
    }
    None
}

/// Dates, times and intervals.
fn times(text: &str) -> Option<Worded> {
    if text.starts_with("Unsupported interval argument") {
        return worded(
            "INTERVAL takes a text or a number with a unit",
            "write it as INTERVAL '1 day 2 hours'",
        );
    }
    if let Some(rest) = text.strip_prefix("Parser error: Invalid timezone ") {
        let (zone, _) = rest.rsplit_once(": ").unwrap_or((rest, ""));
        let known = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
        let hint = match near(zone.trim_matches('"'), known) {
            Some(name) => format!("did you mean '{name}'?"),
            None => "write it as 'Europe/Berlin', 'UTC' or '+02:00'".to_owned(),
        };
        return worded(format!("no time zone {zone}"), &hint);
    }
    if let Some(rest) = text.strip_prefix("Date part '") {
        let (part, _) = rest.split_once("' not supported")?;
        return worded(
            format!("a time has no part {}", part.to_lowercase()),
            "parts are millennium, century, decade, year, isoyear, quarter, month, week, day, doy, dow, isodow, hour, minute, second, millisecond, microsecond, nanosecond and epoch",
        );
    }
    if let Some(rest) = text.strip_prefix("Cannot get result type for temporal operation ") {
        let (types, _) = rest.split_once(": ").unwrap_or((rest, ""));
        return worded(
            format!("these types do not go together: {types}"),
            "a time goes with an interval: x + INTERVAL '1 day'; the difference of two times is one",
        );
    }
    if let Some(kind) = text.strip_prefix("Invalid argument error: Invalid arithmetic operation: !")
    {
        return worded(
            format!("there is no `-` before a {kind}"),
            "numbers and intervals have a sign",
        );
    }
    if text.starts_with("Parser error: Unable to cast to Date32") {
        return worded(
            "the text is no date, or one that has no room in a date",
            "write it as 2013-07-01; try_cast(… AS DATE) gives NULL there",
        );
    }
    if text == "Cast error: Format error" {
        return worded(
            "the format of times is wrong",
            "parts are written as %Y-%m-%d %H:%M:%S",
        );
    }
    None
}

/// Values that have no room in a type, or no meaning.
fn values(text: &str) -> Option<Worded> {
    // The engine takes it for a fault of its own.
    if let Some((_, rest)) = text.split_once("Failed to coerce types ") {
        let types = rest.split_once(" in BETWEEN").map(|(types, _)| types)?;
        return worded(
            format!("these types cannot be compared: {types} in BETWEEN"),
            "cast one of them: cast(… AS …); write AND between two BETWEEN in parentheses",
        );
    }
    if let Some(rest) = text.strip_prefix("Cast error: Can't cast value ") {
        let (value, kind) = rest.split_once(" to type ")?;
        return worded(
            format!("the value {value} has no room in {kind}"),
            "cast to a larger type; try_cast(… AS …) gives NULL there",
        );
    }
    if let Some(rest) = text.strip_prefix("Overflow happened on ") {
        return worded(
            format!("the value of {rest} has no room in its type"),
            "cast to a larger type before: cast(… AS DOUBLE)",
        );
    }
    if let Some(rest) = text.strip_prefix("Unsupported CAST from ") {
        let (from, to) = rest.split_once(" to ")?;
        return worded(
            format!("there is no cast from {from} to {to}"),
            "arrow_typeof(…) shows the type of a value",
        );
    }
    if text == "Expected an integer value" {
        return worded(
            "how many rows away, of lag() and lead(), must be a whole number",
            "write lag(x, 1)",
        );
    }
    None
}

//! Texts of DataFusion and Arrow in our words, where they are common.
//!
//! Comes in: a text. Goes out: what is wrong, what came, the remedy. Never here: kinds that the error itself tells, slips in the form of statements (`slips.rs`), arguments of functions (`calls.rs`), values (`values.rs`).

use arrow::temporal_conversions::date32_to_datetime;

use super::calls::calls;
use super::limits::remedy;
use super::slips::slips;
use crate::error::ErrorKind;

/// A text in our words.
pub(in crate::query) struct Worded {
    /// In place of what the error says.
    pub(in crate::query) kind: Option<ErrorKind>,
    pub(in crate::query) message: String,
    pub(in crate::query) hint: Option<String>,
}

/// What the engine calls a window function.
const WINDOW: &str = "WindowFunction";

/// What is said of a window function elsewhere, and what helps.
pub(super) const WINDOW_STANDS: &str =
    "a window function stands in SELECT, ORDER BY and QUALIFY only";
pub(super) const NAME_A_WINDOW: &str = "give it a name in a subquery, and compare that: SELECT … FROM (SELECT …, row_number() OVER (…) AS n …) WHERE n > 1";

/// The text in our words, if it is one of those that people meet.
pub(in crate::query) fn in_our_words(text: &str) -> Option<Worded> {
    let text = text
        .strip_prefix("Optimizer rule '")
        .and_then(|rest| rest.split_once("caused by\n"))
        .map_or(text, |(_, rest)| rest);
    let worded = |message: String, hint: &str| {
        Some(Worded {
            kind: None,
            message,
            hint: Some(hint.to_owned()),
        })
    };
    if let Some(hint) = remedy(text) {
        return worded(text.to_owned(), &hint);
    }
    if text.contains("Divide by zero error") {
        let text = "divide by zero: a whole number or a decimal was divided by 0".to_owned();
        return worded(text, "x / nullif(y, 0) gives NULL there");
    }
    if let Some(rest) = text.strip_prefix("Cast error: Cannot cast string ") {
        let (value, kind) = rest.rsplit_once(" to value of ")?;
        let value = without_end(value);
        let kind = kind.strip_suffix(" type").unwrap_or(kind);
        return worded(
            format!("the text {value} is no {kind}"),
            "try_cast(… AS …) gives NULL there",
        );
    }
    if let Some(rest) = text.strip_prefix("Cannot coerce arithmetic expression ") {
        let types = rest.strip_suffix(" to valid types").unwrap_or(rest);
        return worded(
            format!("these types do not go together: {types}"),
            "cast one of them: cast(… AS …)",
        );
    }
    if let Some(rest) =
        text.strip_prefix("Cannot infer common argument type for comparison operation ")
    {
        return worded(
            format!("these types cannot be compared: {rest}"),
            "cast one of them: cast(… AS …)",
        );
    }
    if let Some(rest) = text.strip_prefix("Arithmetic overflow: Overflow happened on: ") {
        return worded(
            format!("the value of {rest} has no room in its type"),
            "cast to a larger type before: cast(… AS DECIMAL(38, 0)), cast(… AS DOUBLE)",
        );
    }
    grouping(text)
        .or_else(|| calls(text))
        .or_else(|| same_name(text))
        .or_else(|| of_json(text))
        .or_else(|| others(text))
        .or_else(|| mistakes(text))
        .or_else(|| slips(text))
        .or_else(|| of_lambdas(text))
        .or_else(|| unsupported(text))
        .or_else(|| of_rows(text))
}

/// A text in quotes, without the blanks at its end.
fn without_end(value: &str) -> String {
    let bare = value
        .strip_prefix('\'')
        .and_then(|value| value.strip_suffix('\''));
    bare.map_or_else(|| value.to_owned(), |bare| format!("'{}'", bare.trim_end()))
}

/// Texts that need little more than a remedy.
fn others(text: &str) -> Option<Worded> {
    let worded = |message: String, hint: &str| {
        Some(Worded {
            kind: None,
            message,
            hint: Some(hint.to_owned()),
        })
    };
    if let Some(rest) = text.strip_prefix("Cannot create filter with non-boolean predicate '") {
        let (condition, kind) = rest.split_once("' returning ")?;
        return worded(
            format!("a condition must be true or false, got {condition}, a {kind}"),
            "compare it with something",
        );
    }
    if let Some(rest) = text.strip_prefix("Parser error: Error parsing timestamp from ") {
        let (value, _) = rest.rsplit_once(": ")?;
        let value = without_end(value);
        return worded(
            format!("the text {value} is no timestamp"),
            "write it as 2013-07-01 06:30:00; try_cast(… AS TIMESTAMP) gives NULL there",
        );
    }
    if let Some(value) = beyond_nanoseconds(text) {
        return worded(
            format!(
                "{value} has no room in a timestamp of nanoseconds, which ends in 2262 and begins in 1677"
            ),
            "compare dates with dates: CAST(x AS DATE) > current_date; CAST(… AS TIMESTAMP(6)) goes further",
        );
    }
    if let Some((_, rest)) = text.split_once("regex parse error:") {
        return Some(pattern(rest));
    }
    if text.starts_with("Scalar subquery returned more than one row") {
        return worded(
            "a subquery in place of a value gave more than one row".to_owned(),
            "give it a LIMIT 1 or an aggregate, or use IN (…)",
        );
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return worded(
            "WHERE comes before the rows are grouped, it cannot have aggregates".to_owned(),
            "use HAVING",
        );
    }
    if text.starts_with("SELECT DISTINCT ON expressions must match") {
        return worded(
            "ORDER BY must begin with all keys of DISTINCT ON".to_owned(),
            "put them first; another order of the answer is one of a query around it: SELECT * FROM (SELECT DISTINCT ON (a) … ORDER BY a, b) ORDER BY b",
        );
    }
    if text.starts_with("Substring without for/from is not valid") {
        return worded(
            "substr() takes a text and where to start".to_owned(),
            "write substr(text, 1, 3)",
        );
    }
    None
}

/// What is no text of JSON.
fn of_json(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("Unexpected argument type to 'json_")?;
    let (_, found) = rest.split_once("at position 1, expected a string, got ")?;
    let found = without_end(found);
    Some(Worded {
        kind: None,
        message: format!(
            "`->`, `->>` and functions of JSON take a text, got {}",
            found.trim_end_matches('.')
        ),
        hint: Some(
            "a field of a struct is s['name']; a lambda is an argument of a function of lists: list_transform(l, x -> x + 1)"
                .to_owned(),
        ),
    })
}

/// Two columns of one name.
fn same_name(text: &str) -> Option<Worded> {
    let worded = |message: String| Worded {
        kind: None,
        message,
        hint: Some("give one of them another name with AS".to_owned()),
    };
    let rest =
        text.strip_prefix("Projections require unique expression names but the expression ")?;
    let (first, rest) = rest.split_once(" at position ")?;
    let (_, rest) = rest.split_once(" and ")?;
    let (second, _) = rest.split_once(" at position ")?;
    let name = first
        .trim_matches('"')
        .rsplit_once(" AS ")
        .filter(|_| first == second);
    Some(worded(match name {
        Some((_, name)) => format!("two columns have the name \"{name}\""),
        None => format!("the columns {first} and {second} have the same name"),
    }))
}

/// The date or time that is too far away to be counted in nanoseconds.
fn beyond_nanoseconds(text: &str) -> Option<String> {
    if let Some((_, rest)) = text.split_once("Overflow converting ") {
        let (value, _) = rest.split_once(" to Nanosecond")?;
        return Some(format!("the time {value}"));
    }
    let (value, _) = text.split_once(" to Timestamp(ns): converted value exceeds")?;
    if let Some((_, days)) = value.split_once("Cannot cast Date32 value ") {
        let date = date32_to_datetime(days.parse().ok()?)?.date();
        return Some(format!("the date {date}"));
    }
    Some("a date or time".to_owned())
}

/// Values, types and names that are wrong in themselves.
fn mistakes(text: &str) -> Option<Worded> {
    let worded = |message: String, hint: &str| {
        Some(Worded {
            kind: None,
            message,
            hint: Some(hint.to_owned()),
        })
    };
    if let Some(rest) = text.strip_prefix("Unsupported SQL type ") {
        return worded(
            format!("no type {rest}"),
            "types are BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT (UBIGINT and the like without a sign), HUGEINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE, TIME, TIMESTAMP, INTERVAL, BYTEA",
        );
    }
    if let Some((_, rest)) = text.split_once("There isn't a common type to coerce ") {
        let types = rest.split(" in ").next().unwrap_or(rest);
        let form = match rest {
            rest if rest.contains(" in LIKE ") => "LIKE compares texts",
            _ => "a pattern is compared with texts",
        };
        return worded(
            format!("{form}, got {types}"),
            "cast the values: cast(… AS VARCHAR)",
        );
    }
    if text.contains("CompiledTooBig") {
        return worded(
            "the pattern is too large to compile".to_owned(),
            "use fewer or smaller repetitions, such as {1,100}",
        );
    }
    if let Some((_, rest)) = text.split_once("Invalid input syntax for type interval") {
        let value = rest.trim_start_matches([':', ' ']);
        return worded(
            format!("the text {value} is no interval").replace("  ", " "),
            "write it as INTERVAL '1 day 2 hours'",
        );
    }
    None
}

/// Lambdas that are none here.
fn of_lambdas(text: &str) -> Option<Worded> {
    let (message, hint) = if text.starts_with("Unsupported ast node in sqltorel: Lambda") {
        (
            "a lambda is an argument of a function of lists".to_owned(),
            "write list_transform(l, x -> x + 1) or list_filter(l, x -> x > 1); a field of a struct is s['name']",
        )
    } else {
        // "2 params but UDF support only 1"
        let rest = text.strip_prefix("lambda defined ")?;
        let (count, most) = rest.split_once(" params but UDF support only ")?;
        let most: String = most.chars().take_while(char::is_ascii_digit).collect();
        let values = if most == "1" { "value" } else { "values" };
        (
            format!(
                "the function gives its lambda {most} {values} at most, got {count} parameters"
            ),
            "list_transform and list_filter give the element and its place, list_reduce what was made before, the element and its place; others are told by FROM t, unnest(t.list) WITH ORDINALITY AS u(x, place)",
        )
    };
    Some(Worded {
        kind: Some(ErrorKind::Unsupported),
        message,
        hint: Some(hint.to_owned()),
    })
}

/// What the engine does not do.
fn unsupported(text: &str) -> Option<Worded> {
    let unsupported = |message: String, hint: &str| {
        Some(Worded {
            kind: Some(ErrorKind::Unsupported),
            message,
            hint: Some(hint.to_owned()),
        })
    };
    if let Some(rest) = text.strip_prefix("Unsupported ast node ") {
        let rest = rest.strip_prefix("in sqltorel: ").unwrap_or(rest);
        let node: String = rest
            .chars()
            .take_while(|letter| letter.is_alphanumeric())
            .collect();
        return unsupported(
            format!("{node} is not supported"),
            "write it with joins, CASE and aggregates",
        );
    }
    // Of conditions, which it takes for a fault of its own; aggregates there are refused before.
    if text.contains("Unsupported predicate type") {
        return Some(misplaced(WINDOW));
    }
    if let Some((_, rest)) = text.split_once("Physical plan does not support logical expression ") {
        return Some(misplaced(rest));
    }
    if text.starts_with("DDL not supported: CreateMemoryTable") {
        return unsupported(
            "SELECT … INTO is not supported".to_owned(),
            "CREATE TABLE name AS SELECT … makes a table",
        );
    }
    if text == "TOP" || text.starts_with("FETCH clause is not supported") {
        return unsupported(
            format!(
                "{} is not supported",
                text.split(' ').next().unwrap_or(text)
            ),
            "write LIMIT",
        );
    }
    if let Some(rest) = text.strip_prefix("Unsupported JOIN operator ") {
        let kind = rest.split([' ', '(', '{']).next().unwrap_or(rest);
        return unsupported(
            format!("joins of the kind {kind} are not supported as they are written here"),
            "there are JOIN, LEFT, RIGHT, FULL, SEMI and ANTI JOIN with ON or USING, and CROSS JOIN without",
        );
    }
    if text.contains("can not be used as a sliding accumulator because `retract_batch`") {
        return unsupported(
            "this aggregate cannot follow a frame whose first row moves".to_owned(),
            "let the frame begin at the first row: ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        );
    }
    None
}

/// What the engine does not do with several rows.
fn of_rows(text: &str) -> Option<Worded> {
    let unsupported = |message: &str, hint: &str| {
        Some(Worded {
            kind: Some(ErrorKind::Unsupported),
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        })
    };
    if text.starts_with("There is only support Literal types for field at idx: 2") {
        return unsupported(
            "lag and lead take one value for all rows that have none before or behind them, not another one for each",
            "coalesce(lag(x, 1) OVER (…), y)",
        );
    }
    if text.starts_with("There is only support Literal types for field at idx: 1") {
        return unsupported(
            "lag and lead take one distance for all rows, not another one for each",
            "write a number: lag(x, 2) OVER (…)",
        );
    }
    None
}

/// An expression where the engine does none of its kind.
fn misplaced(rest: &str) -> Worded {
    let unsupported = |message: String, hint: &str| Worded {
        kind: Some(ErrorKind::Unsupported),
        message,
        hint: Some(hint.to_owned()),
    };
    if rest.starts_with(WINDOW) {
        return unsupported(WINDOW_STANDS.to_owned(), NAME_A_WINDOW);
    }
    if rest.starts_with("Wildcard") {
        return unsupported(
            "`*` is no value, only count(*) takes it".to_owned(),
            "name a column",
        );
    }
    let form = match rest {
        rest if rest.starts_with("InSubquery") => "IN (SELECT …)",
        rest if rest.starts_with("Exists") => "EXISTS (SELECT …)",
        rest if rest.starts_with("ScalarSubquery") => "a subquery that names columns from outside",
        _ => "a subquery",
    };
    unsupported(
        format!("{form} is not supported in this place"),
        "write it as a join, or as a condition of WHERE by itself or with AND",
    )
}

/// A wrong regular expression, of what the library says of it.
fn pattern(rest: &str) -> Worded {
    let said = rest
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("error: "));
    Worded {
        kind: Some(ErrorKind::Query),
        message: format!(
            "the pattern is no regular expression: {}",
            said.unwrap_or_else(|| rest.trim())
        ),
        hint: Some("a backslash takes the meaning from ( ) [ ] { } * + ? . ^ $ |".to_owned()),
    }
}

/// A column that is neither grouped nor aggregated.
fn grouping(text: &str) -> Option<Worded> {
    let (_, rest) = text.split_once("must be in GROUP BY or an aggregate function")?;
    let (_, rest) = rest.split_once("column \"")?;
    let (column, _) = rest.split_once("\" must appear in the GROUP BY")?;
    Some(Worded {
        kind: None,
        message: format!("the column {column} must be in GROUP BY, or within an aggregate"),
        hint: Some(format!(
            "add it to GROUP BY, or take one value of each group: first_value({column})"
        )),
    })
}

//! Texts of the engine about arguments of functions, in our words.
//!
//! Comes in: a text. Goes out: the call that no function takes, and what it takes. The engine has one text where it knows the types from the start, and others where it settles them later, of subqueries and of CASE
//! with values of several types; some of these it takes for faults of its own. Never here: values that are wrong while a query runs.

use super::words::Worded;
use crate::error::ErrorKind;

/// What can be done where nothing is known of the forms that a function has.
const CAST: &str = "cast the arguments: cast(… AS …)";

/// The text in our words, if it is about arguments.
pub(super) fn calls(text: &str) -> Option<Worded> {
    let text = text.strip_prefix("Internal error: ").unwrap_or(text);
    arguments(text)
        .or_else(|| of_function(text))
        .or_else(|| coerced(text))
        .or_else(|| cast(text))
}

fn worded(message: String, hint: impl Into<String>) -> Worded {
    Worded {
        kind: Some(ErrorKind::Query),
        message,
        hint: Some(hint.into()),
    }
}

/// A call with arguments of other types than the function takes.
fn arguments(text: &str) -> Option<Worded> {
    let (_, rest) = text.split_once("No function matches the given name and argument types '")?;
    let (call, candidates) = rest.split_once('\'')?;
    let candidates = candidates
        .split_once("Candidate functions:")
        .map(|(_, list)| list);
    let candidates: Vec<&str> = candidates
        .into_iter()
        .flat_map(str::lines)
        .map(str::trim)
        // Types that the engine has no name for.
        .filter(|line| !line.is_empty() && !line.contains("UserDefined") && !line.contains("(Any)"))
        .collect();
    if let [form] = candidates.as_slice()
        && let Some((function, wanted)) = of_any_types(form)
    {
        let got = call.strip_prefix(function)?;
        let got = if got == "()" {
            0
        } else {
            depth_0_commas(got) + 1
        };
        return Some(worded(
            format!("the number of arguments of {function}() must be {wanted}, got {got}"),
            "SHOW FUNCTIONS lists what functions take",
        ));
    }
    let hint = match candidates.as_slice() {
        [] => reason(text).unwrap_or(CAST).to_owned(),
        candidates => format!("it takes {}", listed(candidates)),
    };
    Some(worded(
        format!("no function takes these arguments: {call}"),
        hint,
    ))
}

/// What a function says itself of arguments that it does not take.
fn reason(text: &str) -> Option<&str> {
    let (_, said) = text.split_once("user-defined coercion failed with: ")?;
    let (said, _) = said.split_once(" No function matches")?;
    let said = said.strip_prefix("Error during planning: ")?;
    let is_plain = [
        "Internal error",
        "Function '",
        "The function '",
        "Execution error",
    ]
    .into_iter()
    .all(|begin| !said.contains(begin));
    is_plain.then_some(said.trim_end_matches('.'))
}

/// The name of a function, and how many arguments of any type it takes.
fn of_any_types(form: &str) -> Option<(&str, usize)> {
    let (function, arguments) = form.strip_suffix(')')?.split_once('(')?;
    let are_any = arguments.split(", ").all(|argument| argument == "Any");
    are_any.then(|| (function, arguments.split(", ").count()))
}

/// The commas between the arguments of `(Utf8, Struct("a": Int64, "b": Int64))`.
fn depth_0_commas(arguments: &str) -> usize {
    let mut depth = 0_usize;
    let mut commas = 0;
    for letter in arguments.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => commas += 1,
            _ => {}
        }
    }
    commas
}

/// The most forms of a function that are listed.
const MOST_FORMS: usize = 6;

/// The forms that a function has, the first of them where there are many.
fn listed(candidates: &[&str]) -> String {
    let forms = candidates.iter().take(MOST_FORMS).map(|form| numeric(form));
    let mut forms: Vec<String> = forms.collect();
    if candidates.len() > MOST_FORMS {
        forms.push("…".to_owned());
    }
    forms.join(" or ")
}

/// `abs(Numeric(1))` of the engine: a number.
fn numeric(form: &str) -> String {
    let Some((name, count)) = form.split_once("(Numeric(") else {
        return form.to_owned();
    };
    let count = count.trim_end_matches(')').parse().unwrap_or(1);
    format!("{name}({})", vec!["number"; count].join(", "))
}

/// `Function 'upper' requires String, but received …`, and the like.
fn of_function(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("The function '");
    let rest = rest.or_else(|| text.strip_prefix("Function '"));
    let (function, said) = rest.or_else(|| text.strip_prefix('\''))?.split_once('\'')?;
    if let Some(inner) = said.strip_prefix(" user-defined coercion failed with: ") {
        let inner = inner
            .strip_prefix("Error during planning: ")
            .unwrap_or(inner);
        let inner = inner.strip_prefix("Internal error: ").unwrap_or(inner);
        return of_function(inner).or_else(|| cast(inner)).or_else(|| {
            let said = first_line(inner);
            let message = format!("{function}() does not take these arguments: {said}");
            Some(worded(message, CAST))
        });
    }
    // One text for each form that the function has.
    let forms = said.strip_prefix(" failed to match any signature, errors: ");
    let again = format!("Function '{function}'");
    let forms: Vec<&str> = forms.unwrap_or(said).split(&again).collect();
    let refused: Vec<(&str, &str)> = forms.iter().filter_map(|form| refused(form)).collect();
    let Some((_, got)) = refused.first() else {
        let (wanted, got) = forms.iter().find_map(|form| other_number(form))?;
        return Some(worded(
            format!("the number of arguments of {function}() must be {wanted}, got {got}"),
            "SHOW FUNCTIONS lists what functions take",
        ));
    };
    let mut wanted: Vec<&str> = Vec::new();
    for (kind, _) in &refused {
        if !wanted.contains(kind) {
            wanted.push(kind);
        }
    }
    Some(worded(
        format!("no function takes these arguments: {function}(… {got} …)"),
        format!("in its place goes {}: cast(… AS …)", wanted.join(" or ")),
    ))
}

/// The type that a form of a function takes, and the one that it got.
fn refused(said: &str) -> Option<(&str, &str)> {
    if let Some(rest) = said.strip_prefix(" requires ") {
        let (wanted, rest) = rest.split_once(", but received ")?;
        let (_, got) = rest.split_once(" (DataType: ")?;
        let (got, _) = got.split_once(").")?;
        return Some((wanted, got));
    }
    let (wanted, got) = said
        .strip_prefix(" expects ")?
        .split_once(" but received ")?;
    let got = got.split(",Error during planning").next()?;
    let got = first_line(got).trim_end_matches('.');
    (!wanted.contains(" argument")).then_some((wanted, got))
}

/// How many arguments a form of a function takes, and how many it got.
fn other_number(said: &str) -> Option<(&str, &str)> {
    if said.ends_with(" does not support zero arguments") {
        return Some(("at least one", "0"));
    }
    let rest = said.strip_prefix(" expects ");
    let rest = rest.or_else(|| said.strip_prefix(" expected "))?;
    let (wanted, got) = rest.split_once(" but received ")?;
    let (wanted, _) = wanted.split_once(" argument")?;
    let got = got.split(|letter: char| !letter.is_ascii_digit()).next()?;
    Some((wanted, got))
}

/// Values that have no type in common.
fn coerced(text: &str) -> Option<Worded> {
    let rest = text.strip_prefix("Failed to coerce ")?;
    if let Some(rest) = rest.strip_prefix("arguments to satisfy a call to '") {
        let (function, rest) = rest.split_once("' function: coercion from ")?;
        let (types, _) = rest.split_once(" to the signature ")?;
        let message = format!("no function takes these arguments: {function}({types})");
        return Some(worded(message, CAST));
    }
    let parts = rest.strip_suffix(" to common types in CASE WHEN expression")?;
    let mut parts = parts.replace(" and else (None)", "");
    for word in ["case", "when", "then", "else"] {
        parts = parts.replace(&format!("{word} ("), &format!("{} (", word.to_uppercase()));
    }
    Some(worded(
        format!("the parts of CASE must have types that go together, got {parts}"),
        "cast one of them: cast(… AS …)",
    ))
}

/// Types of which the one cannot become the other.
fn cast(text: &str) -> Option<Worded> {
    let (from, to) = match text.strip_prefix("Unavailable default cast for native type ") {
        Some(rest) => {
            let (to, from) = rest.split_once(" from physical type ")?;
            (first_line(from).trim_end_matches('.'), to)
        }
        None => {
            let rest = text.strip_prefix("Cast error: Casting from ")?;
            rest.strip_suffix(" not supported")?.split_once(" to ")?
        }
    };
    Some(worded(
        format!("there is no cast from {from} to {to}"),
        "arrow_typeof(…) shows the type of a value",
    ))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn calls_that_no_function_takes_are_told_in_our_words() {
        for (engine, message, hint) in [
            (
                "Internal error: Function 'sum' failed to match any signature, errors: Error during planning: Function 'sum' requires Decimal, but received String (DataType: Utf8).,Error during planning: Function 'sum' requires Int64, but received String (DataType: Utf8)..\nThis issue was likely caused by a bug",
                "no function takes these arguments: sum(… Utf8 …)",
                "in its place goes Decimal or Int64: cast(… AS …)",
            ),
            (
                "Function 'upper' requires String, but received Struct(\"a\": Int64) (DataType: Struct(\"a\": Int64)).",
                "no function takes these arguments: upper(… Struct(\"a\": Int64) …)",
                "in its place goes String: cast(… AS …)",
            ),
            (
                "No function matches the given name and argument types 'timezone(Struct(\"a\": Int64, \"b\": Int64))'. You might need to add explicit type casts.\n\tCandidate functions:\n\ttimezone(Any, Any)",
                "the number of arguments of timezone() must be 2, got 1",
                "SHOW FUNCTIONS lists what functions take",
            ),
            (
                "Function 'abs' expects Numeric but received String",
                "no function takes these arguments: abs(… String …)",
                "in its place goes Numeric: cast(… AS …)",
            ),
            (
                "Function 'nullif' user-defined coercion failed with: Error during planning: Function 'nullif' expects 2 arguments but received 1",
                "the number of arguments of nullif() must be 2, got 1",
                "SHOW FUNCTIONS lists what functions take",
            ),
            (
                "Failed to coerce arguments to satisfy a call to 'sqrt' function: coercion from Utf8 to the signature Uniform(1, [Float64, Float32]) failed",
                "no function takes these arguments: sqrt(Utf8)",
                "cast the arguments: cast(… AS …)",
            ),
            (
                "Execution error: Function 'hex' user-defined coercion failed with: Error during planning: it is hex(value), got 0 arguments No function matches the given name and argument types 'hex()'. You might need to add explicit type casts.\n\tCandidate functions:\n\thex(UserDefined)",
                "no function takes these arguments: hex()",
                "it is hex(value), got 0 arguments",
            ),
            (
                "Failed to coerce then (Int64) and else (List(Int64)) to common types in CASE WHEN expression",
                "the parts of CASE must have types that go together, got THEN (Int64) and ELSE (List(Int64))",
                "cast one of them: cast(… AS …)",
            ),
            (
                "Internal error: Unavailable default cast for native type String from physical type Struct(\"c0\": Int64).\nThis issue was likely caused by a bug",
                "there is no cast from Struct(\"c0\": Int64) to String",
                "arrow_typeof(…) shows the type of a value",
            ),
        ] {
            let worded = calls(engine).unwrap();
            assert_eq!(
                (worded.message.as_str(), worded.hint.as_deref()),
                (message, Some(hint))
            );
        }
        assert!(calls("Function names are words").is_none());
    }
}

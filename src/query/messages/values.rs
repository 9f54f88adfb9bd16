//! Values as SQL writes them, in texts of the engine.
//!
//! Comes in: a text in which values stand with their types, as the engine prints them (`Int64(1)`, `Utf8("x")`), and now and then structures of Rust. Goes out: the text as people write SQL. Never here:
//! what the text says, names of columns.

use std::fmt::Write;

/// Types whose values stand as they are between the parentheses.
const PLAIN: [&str; 12] = [
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float16", "Float32",
    "Float64", "Boolean",
];

/// Types whose values stand in quotes.
const QUOTED: [&str; 5] = ["Utf8", "LargeUtf8", "Utf8View", "Date32", "Date64"];

/// Types whose values stand in quotes, byte for byte in decimal.
const BYTES: [&str; 3] = ["Binary", "LargeBinary", "BinaryView"];

/// Intervals stand in quotes, as structures.
const INTERVALS: [&str; 3] = [
    "IntervalMonthDayNano",
    "IntervalDayTime",
    "IntervalYearMonth",
];

/// Times stand as numbers, with their zone.
const TIMES: [(&str, &str); 4] = [
    ("TimestampSecond", "s"),
    ("TimestampMillisecond", "ms"),
    ("TimestampMicrosecond", "µs"),
    ("TimestampNanosecond", "ns"),
];

/// The text with its values as SQL writes them, up to where a structure of Rust begins.
pub(in crate::query) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let (mut is_within_word, mut is_quoted) = (false, false);
    while let Some(letter) = rest.chars().next() {
        if !is_within_word && letter.is_ascii_uppercase() {
            if let Some((value, after)) = value(rest) {
                out.push_str(&value);
                rest = after;
                continue;
            }
            // What people wrote stands in quotes.
            if !is_quoted && begins_structure(rest) {
                return cut(&out);
            }
        }
        if letter == '\'' {
            is_quoted = !is_quoted && !is_within_word;
        }
        is_within_word = letter.is_alphanumeric() || letter == '_';
        out.push(letter);
        rest = rest.strip_prefix(letter).unwrap_or_default();
    }
    out
}

/// The value with which a text begins, if it does, and what comes behind it.
fn value(text: &str) -> Option<(String, &str)> {
    let (name, inner) = text.split_once('(')?;
    if BYTES.contains(&name) || QUOTED.contains(&name) || INTERVALS.contains(&name) {
        if let Some(after) = inner.strip_prefix("NULL)") {
            return Some(("NULL".to_owned(), after));
        }
        let (content, after) = inner.strip_prefix('"')?.split_once("\")")?;
        let written = match name {
            _ if BYTES.contains(&name) => format!("x'{}'", hex(content)?),
            _ if INTERVALS.contains(&name) => interval(content)?,
            _ => format!("'{}'", content.replace('\'', "''")),
        };
        return Some((written, after));
    }
    if name.starts_with("Decimal") {
        let (content, after) = inner.strip_prefix("Some(")?.split_once(')')?;
        let (places, after) = after.split_once(')')?;
        let scale = places.rsplit(',').next()?.trim().parse().ok()?;
        return Some((decimal(content, scale)?, after));
    }
    if let Some((_, unit)) = TIMES.iter().find(|(known, _)| *known == name) {
        let (number, after) = inner.split_once(", ")?;
        let number: i64 = number.parse().ok()?;
        let (zone, after) = match after.strip_prefix("None)") {
            Some(after) => (String::new(), after),
            None => {
                let (zone, after) = after.strip_prefix("Some(\"")?.split_once("\"))")?;
                (format!(", \"{zone}\""), after)
            }
        };
        let written = format!("arrow_cast({number}, 'Timestamp({unit}{zone})')");
        return Some((written, after));
    }
    let (content, after) = inner.split_once(')')?;
    let is_value = ["true", "false", "NULL"].contains(&content) || content.parse::<f64>().is_ok();
    (PLAIN.contains(&name) && is_value).then(|| (content.to_owned(), after))
}

fn hex(bytes: &str) -> Option<String> {
    let mut out = String::new();
    for byte in bytes.split(',').filter(|byte| !byte.is_empty()) {
        let byte: u8 = byte.trim().parse().ok()?;
        // Writing into a text does not fail.
        write!(out, "{byte:02x}").ok()?;
    }
    Some(out)
}

/// `IntervalDayTime { days: 1, milliseconds: 0 }`, or months alone.
fn interval(content: &str) -> Option<String> {
    let Some((_, fields)) = content.split_once('{') else {
        return Some(format!("INTERVAL '{content} months'"));
    };
    let fields = fields.strip_suffix('}')?.split(',').map(|field| {
        let (unit, number) = field.trim().split_once(": ")?;
        Some((number, unit))
    });
    let fields: Vec<(&str, &str)> = fields.collect::<Option<_>>()?;
    let there = fields.iter().filter(|(number, _)| *number != "0");
    let mut parts: Vec<String> = there
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    if parts.is_empty() {
        parts.push("0 days".to_owned());
    }
    Some(format!("INTERVAL '{}'", parts.join(" ")))
}

/// A whole number with its point some digits from the right.
fn decimal(number: &str, scale: i32) -> Option<String> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let scale = usize::try_from(scale).ok().filter(|scale| *scale <= 100)?;
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at_checked(digits.len() - scale)?;
    Some(match fraction {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    })
}

/// Whether a text begins with a structure of Rust: `Name { field: …`, perhaps within others (`Some(Name { …`).
fn begins_structure(text: &str) -> bool {
    let word = |text: &str| {
        text.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .map(char::len_utf8)
            .sum::<usize>()
    };
    let Some((name, after)) = text.split_at_checked(word(text)) else {
        return false;
    };
    if let Some(fields) = after.strip_prefix(" { ")
        && name.contains(|letter: char| letter.is_lowercase())
    {
        let name = fields.split(':').next().unwrap_or_default();
        return fields.contains(": ") && word(name) == name.len() && !name.is_empty();
    }
    let inner = after
        .strip_prefix('(')
        .map(|inner| inner.trim_start_matches('['));
    inner.is_some_and(|inner| {
        inner.starts_with(|letter: char| letter.is_ascii_uppercase()) && begins_structure(inner)
    })
}

/// What was said before a structure began.
fn cut(text: &str) -> String {
    let text = text.trim_end_matches([' ', ':', ',', '(', '[', '"', '\'']);
    let text = ["but got", "got", "found"]
        .iter()
        .find_map(|word| text.strip_suffix(word))
        .unwrap_or(text);
    text.trim_end_matches([' ', ':', ',', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn values_are_written_as_in_sql() {
        for (engine, sql) in [
            ("t.a > Int64(-1) AND b", "t.a > -1 AND b"),
            ("struct(Int64(1), Utf8(\"it's\"))", "struct(1, 'it''s')"),
            (
                "CAST(Utf8(\"2013-01-01\") AS Date32)",
                "CAST('2013-01-01' AS Date32)",
            ),
            (
                "Boolean(true), Float64(1.5), Utf8(NULL), Int64(NULL)",
                "true, 1.5, NULL, NULL",
            ),
            ("Binary(\"171,0\")", "x'ab00'"),
            ("Decimal128(Some(-5),5,2)", "-0.05"),
            ("Decimal128(Some(12),5,0)", "12"),
            (
                "IntervalMonthDayNano(\"IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }\") AS a",
                "INTERVAL '1 days' AS a",
            ),
            (
                "TimestampNanosecond(5, None) < TimestampSecond(5, Some(\"UTC\"))",
                "arrow_cast(5, 'Timestamp(ns)') < arrow_cast(5, 'Timestamp(s, \"UTC\")')",
            ),
        ] {
            assert_eq!(plain(engine), sql);
        }
    }

    #[test]
    fn types_and_other_words_stay() {
        for text in [
            "a List(Int64), a Decimal128(5, 2), a Timestamp(ns, \"UTC\")",
            "sum(Int64) or abs(MyInt64(1)), Utf8(\"open",
            "the text '{' is no JSON { a: 1 }",
            "Union {a}",
            "the text 'Point { x: 1 }' is no Int64",
        ] {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn a_structure_of_rust_ends_what_is_said() {
        for (engine, said) in [
            (
                "Dot access not supported for non-string expr: Value(ValueWithSpan { value: Number(\"5\", false) })",
                "Dot access not supported for non-string expr",
            ),
            (
                "Expected string literal or number, got: Identifier(Ident { value: \"x\" })",
                "Expected string literal or number",
            ),
            (
                "must be boolean type, but got Struct([Field { name: \"c0\", data_type: Int64 }])",
                "must be boolean type",
            ),
        ] {
            assert_eq!(plain(engine), said);
        }
    }
}

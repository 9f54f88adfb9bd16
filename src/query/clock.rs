//! Points in time that are written without seconds: `TIMESTAMP '2013-07-01 06:30'`. The engine wants them.
//!
//! Comes in: an expression. Goes out: the same, with `:00` in a text that becomes a timestamp where it is written. Never here: texts that are compared with timestamps, texts in columns.

use datafusion::sql::sqlparser::ast::{DataType, Expr, TypedString, Value};

/// Adds seconds to a literal.
pub(super) fn with_seconds(expr: &mut Expr) {
    let (kind, value) = match expr {
        Expr::TypedString(TypedString {
            data_type, value, ..
        }) => (data_type, &mut value.value),
        Expr::Cast {
            data_type, expr, ..
        } => match expr.as_mut() {
            Expr::Value(value) => (data_type, &mut value.value),
            _ => return,
        },
        _ => return,
    };
    if let (DataType::Timestamp(..) | DataType::Datetime(_), Value::SingleQuotedString(text)) =
        (kind, value)
        && let Some(whole) = completed(text)
    {
        *text = whole;
    }
}

/// The text with seconds, where it has a day, hours and minutes, and perhaps a zone.
fn completed(text: &str) -> Option<String> {
    const FORM: &[u8] = b"dddd-dd-dd dd:dd";
    let (moment, zone) = text.split_at_checked(FORM.len())?;
    let is_moment = moment
        .bytes()
        .zip(FORM)
        .all(|(found, wanted)| match wanted {
            b'd' => found.is_ascii_digit(),
            b' ' => matches!(found, b' ' | b'T'),
            wanted => found == *wanted,
        });
    let is_zone = zone.is_empty() || zone.starts_with(['Z', '+', '-', ' ']);
    (is_moment && is_zone).then(|| format!("{moment}:00{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_added_where_they_are_missing() {
        for (text, expected) in [
            ("2013-07-01 06:30", Some("2013-07-01 06:30:00")),
            ("2013-07-01T06:30Z", Some("2013-07-01T06:30:00Z")),
            ("2013-07-01 06:30+02:00", Some("2013-07-01 06:30:00+02:00")),
            (
                "2013-07-01 06:30 America/New_York",
                Some("2013-07-01 06:30:00 America/New_York"),
            ),
            ("2013-07-01 06:30:15", None),
            ("2013-07-01", None),
            ("2013-07-01 6:30", None),
            ("2013-07-01 ü6:30", None),
            ("", None),
        ] {
            assert_eq!(completed(text).as_deref(), expected, "{text}");
        }
    }
}

//! A text -> its statements.
//!
//! Comes in: text as it is typed or piped in. Goes out: what a `;` ends, and the rest. A `;` within quotes, comments and `$$` ends nothing. Never here: SQL.

/// The statements of a text that are ended, without their `;`, and what follows the last one.
pub(super) fn split(text: &str) -> (Vec<String>, String) {
    let (mut statements, mut start, mut place) = (Vec::new(), 0, 0);
    while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
        let skipped = skip(rest);
        if rest.starts_with(';') {
            statements.push(text.get(start..place).unwrap_or_default().trim().to_owned());
            start = place + 1;
        }
        match skipped {
            Some(length) => place += length,
            // A quote or comment that does not end yet.
            None => break,
        }
    }
    let rest = text.get(start..).unwrap_or_default().to_owned();
    (statements, rest)
}

/// The bytes of the quote, comment or letter that a text begins with.
fn skip(text: &str) -> Option<usize> {
    let after = |opening: usize, closing: &str| {
        let rest = text.get(opening..)?;
        Some(opening + rest.find(closing)? + closing.len())
    };
    match text.as_bytes() {
        [b'\'', ..] => after(1, "'"),
        [b'"', ..] => after(1, "\""),
        [b'$', b'$', ..] => after(2, "$$"),
        [b'-', b'-', ..] => after(2, "\n"),
        [b'/', b'*', ..] => after(2, "*/"),
        _ => Some(text.chars().next().map_or(1, char::len_utf8)),
    }
}

/// Whether a rest holds a statement: anything but blanks and comments.
pub(super) fn holds_statement(rest: &str) -> bool {
    let mut place = 0;
    while let Some(rest) = rest.get(place..).filter(|rest| !rest.is_empty()) {
        let comment = rest.starts_with("--") || rest.starts_with("/*");
        if !comment && !rest.starts_with(char::is_whitespace) {
            return true;
        }
        place += skip(rest).unwrap_or(rest.len());
    }
    false
}

/// Whether a rest ends within a comment of several lines.
pub(super) fn ends_in_comment(rest: &str) -> bool {
    let mut place = 0;
    while let Some(rest) = rest.get(place..).filter(|rest| !rest.is_empty()) {
        match skip(rest) {
            Some(length) => place += length,
            None => return rest.starts_with("/*"),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_unless_it_is_quoted_or_commented() {
        for (text, statements, rest) in [
            ("SELECT 1; SELECT 2;", vec!["SELECT 1", "SELECT 2"], ""),
            (
                "SELECT ';' ; SELECT 'it''s;'",
                vec!["SELECT ';'"],
                " SELECT 'it''s;'",
            ),
            ("SELECT \";\"; x", vec!["SELECT \";\""], " x"),
            ("SELECT 1 -- ;\n + 1; y", vec!["SELECT 1 -- ;\n + 1"], " y"),
            ("SELECT /* ; */ 1;", vec!["SELECT /* ; */ 1"], ""),
            ("SELECT 'open ; ", vec![], "SELECT 'open ; "),
            ("SELECT $$;$$; ü", vec!["SELECT $$;$$"], " ü"),
        ] {
            assert_eq!(
                split(text),
                (
                    statements.into_iter().map(str::to_owned).collect(),
                    rest.to_owned()
                )
            );
        }
        assert!(holds_statement(" -- x\n y"));
        assert!(!holds_statement(" -- x\n /* y */ -- z"));
        assert!(ends_in_comment("/* x\n"));
        assert!(ends_in_comment("SELECT 1 /* x\n"));
        assert!(!ends_in_comment("/* x\n */ '/*'"));
    }
}

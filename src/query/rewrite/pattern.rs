//! Patterns of LIKE and SIMILAR TO as the engine takes them.
//!
//! Comes in: a pattern and its escape. Goes out: the pattern of LIKE with the backslash as escape, or that of SIMILAR TO as a regular expression for the whole text. Never here:
//! matching.

use crate::error::{Error, ErrorKind, Result};

/// One character of a pattern.
#[derive(Clone, Copy)]
enum Piece {
    /// As it is.
    Escaped(char),
    /// As the pattern means it.
    Plain(char),
}

/// The same pattern of LIKE with the backslash as escape.
pub(super) fn with_backslashes(pattern: &str, escape: &str) -> Result<String> {
    let mut text = String::with_capacity(pattern.len());
    for piece in pieces(pattern, escape)? {
        match piece {
            Piece::Escaped(letter) | Piece::Plain(letter @ '\\') => {
                if matches!(letter, '%' | '_' | '\\') {
                    text.push('\\');
                }
                text.push(letter);
            }
            Piece::Plain(letter) => text.push(letter),
        }
    }
    Ok(text)
}

/// A pattern of SIMILAR TO as a regular expression.
pub(super) fn regular(pattern: &str, escape: &str) -> Result<String> {
    let mut text = String::from("^(?s:");
    let mut in_brackets = false;
    for piece in pieces(pattern, escape)? {
        match piece {
            Piece::Plain(letter) if in_brackets => {
                in_brackets = letter != ']';
                if matches!(letter, '[' | '\\' | '&' | '~') {
                    text.push('\\');
                }
                text.push(letter);
            }
            Piece::Plain('%') => text.push_str(".*"),
            Piece::Plain('_') => text.push('.'),
            Piece::Plain(letter @ ('|' | '*' | '+' | '?' | '{' | '}' | '(' | ')')) => {
                text.push(letter);
            }
            Piece::Plain('[') => {
                in_brackets = true;
                text.push('[');
            }
            Piece::Plain(letter) | Piece::Escaped(letter) => {
                if r"\.+*?()|[]{}^$#&-~".contains(letter) {
                    text.push('\\');
                }
                text.push(letter);
            }
        }
    }
    text.push_str(")$");
    Ok(text)
}

fn pieces(pattern: &str, escape: &str) -> Result<Vec<Piece>> {
    let mut letters = escape.chars();
    let (escape, None) = (letters.next(), letters.next()) else {
        let text = format!("an escape is one character, got `{escape}`");
        return Err(Error::new(ErrorKind::Query, text));
    };
    let mut letters = pattern.chars();
    let mut pieces = Vec::new();
    while let Some(letter) = letters.next() {
        pieces.push(if Some(letter) == escape {
            let Some(next) = letters.next() else {
                let text = format!("the pattern `{pattern}` ends with its escape");
                return Err(Error::new(ErrorKind::Query, text));
            };
            Piece::Escaped(next)
        } else {
            Piece::Plain(letter)
        });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_like_take_the_backslash() {
        let cases = [
            ("a#_c", "#", "a\\_c"),
            ("##%", "#", "#%"),
            ("#a\\", "#", "a\\\\"),
            ("50%", "", "50%"),
            ("\\_", "", "\\\\_"),
        ];
        for (pattern, escape, wanted) in cases {
            assert_eq!(with_backslashes(pattern, escape).unwrap(), wanted);
        }
    }

    #[test]
    fn patterns_of_similar_to_hold_for_the_whole_text() {
        let cases = [
            ("a(b|c)+", "^(?s:a(b|c)+)$"),
            ("[a-c]{2,3}", "^(?s:[a-c]{2,3})$"),
            ("%.x_", "^(?s:.*\\.x.)$"),
            ("\\%[a-z^]", "^(?s:%[a-z^])$"),
        ];
        for (pattern, wanted) in cases {
            assert_eq!(regular(pattern, "\\").unwrap(), wanted);
        }
    }

    #[test]
    fn wrong_escapes_are_refused() {
        assert!(with_backslashes("a", "xy").is_err());
        assert!(regular("a\\", "\\").is_err());
    }
}

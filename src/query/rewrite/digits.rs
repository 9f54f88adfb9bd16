//! Numbers that are written in groups of digits: `1_000_000`, `0.000_1`. The engine takes what follows the first group for a name.
//!
//! Comes in: the words of a text. Goes out: the same, with each such number as one word. Never here: what numbers mean.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The words, with groups of digits that follow a number without a blank as part of it.
pub(in crate::query) fn joined(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Whether the last one was in groups, so that a point behind it is that of the number.
    let mut is_grouped = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let follows = joined
            .last()
            .is_some_and(|last| last.span.end == token.span.start);
        let rest = match &token.token {
            Token::Word(word) if word.quote_style.is_none() => groups(&word.value),
            // Behind what the tokenizer takes for a name.
            Token::Period if is_grouped => match tokens.peek().map(|next| &next.token) {
                Some(Token::Number(_, false)) => Some(".".to_owned()),
                _ => None,
            },
            Token::Number(digits, false) if is_grouped => Some(digits.clone()),
            _ => None,
        };
        if follows
            && let Some(rest) = rest
            && let Some(last) = joined.last_mut()
            && let Token::Number(number, false) = &mut last.token
        {
            number.push_str(&rest);
            last.span.end = token.span.end;
            is_grouped = true;
        } else {
            is_grouped = false;
            joined.push(token);
        }
    }
    joined
}

/// The digits of `_000_000`.
fn groups(word: &str) -> Option<String> {
    let mut groups = word.split('_');
    let is_group =
        |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    let are_groups = groups.next() == Some("") && groups.all(is_group);
    are_groups.then(|| word.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut tokens = Tokenizer::new(&GenericDialect {}, text);
        let tokens = joined(tokens.tokenize_with_location().unwrap());
        let words = tokens.iter().map(|token| token.token.to_string());
        words.filter(|word| !word.trim().is_empty()).collect()
    }

    #[test]
    fn groups_of_digits_are_one_number() {
        assert_eq!(words("1_000_000"), ["1000000"]);
        assert_eq!(words("1_000.5"), ["1000.5"]);
        assert_eq!(words("1_000.25_5,0.000_1"), ["1000.255", ",", "0.0001"]);
        assert_eq!(words("1e1_0+1_0"), ["1e10", "+", "10"]);
    }

    #[test]
    fn names_stay_names() {
        assert_eq!(words("1 _000"), ["1", "_000"]);
        assert_eq!(
            words("1_a, 1__0, 1_, a_1"),
            ["1", "_a", ",", "1", "__0", ",", "1", "_", ",", "a_1"]
        );
        assert_eq!(words("1\"_0\""), ["1", "\"_0\""]);
        assert_eq!(words("x[1_0].a"), ["x", "[", "10", "]", ".", "a"]);
    }
}

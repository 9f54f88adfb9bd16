//! `sum(x) FILTER (x > 1)`, without the WHERE that the standard has there.
//!
//! Comes in: the words of a text. Goes out: the same, with the WHERE that is meant. Never here: what is filtered.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::from_first::Words;

/// The words, with `WHERE` where it is meant.
pub(in crate::query) fn with_where(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, keyword| {
        matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && word.keyword == keyword)
    };
    if !tokens.iter().any(|token| is(token, Keyword::FILTER)) {
        return tokens;
    }
    let words = Words::of(&tokens);
    let meant = (0..words.len()).filter_map(|place| {
        let (_, filter) = words.at(place)?;
        let (_, bracket) = words.at(place + 1)?;
        let (first, begin) = words.at(place + 2)?;
        let is_meant = is(filter, Keyword::FILTER)
            && bracket.token == Token::LParen
            && !is(begin, Keyword::WHERE)
            && words.ends_call(place.checked_sub(1)?);
        is_meant.then_some((first, begin.span))
    });
    let meant: Vec<_> = meant.collect();
    let mut with = Vec::with_capacity(tokens.len() + 2 * meant.len());
    let mut meant = meant.into_iter().peekable();
    for (place, token) in tokens.into_iter().enumerate() {
        if let Some((_, span)) = meant.next_if(|(known, _)| *known == place) {
            let token = Token::make_keyword("WHERE");
            with.push(TokenWithSpan { token, span });
        }
        with.push(token);
    }
    with
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn where_is_put_behind_filter_of_calls_alone() {
        for (text, expected) in [
            (
                "SELECT sum(x) FILTER (x > 1), filter(l, x -> x > 1)",
                "SELECT sum(x) FILTER (WHEREx > 1), filter(l, x -> x > 1)",
            ),
            (
                "SELECT sum(x) FILTER (WHERE x > 1) FROM (SELECT 1) filter (x) JOIN range(3) filter (y)",
                "SELECT sum(x) FILTER (WHERE x > 1) FROM (SELECT 1) filter (x) JOIN range(3) filter (y)",
            ),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
            let with = with_where(tokens.unwrap());
            let with: String = with.iter().map(|token| token.token.to_string()).collect();
            assert_eq!(with, expected);
        }
    }
}

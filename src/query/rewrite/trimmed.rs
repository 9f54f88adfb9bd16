//! `trim(LEADING FROM s)`, which takes blanks away, as the standard has it.
//!
//! Comes in: the words of a text. Goes out: the same, with the blank that is meant, which the parser wants to be written. Never here: `trim` with letters, or with nothing before FROM.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The words, with `' '` where it is meant.
pub(in crate::query) fn with_blanks(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = tokens.iter().enumerate();
    let words = words.filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
    let words: Vec<(usize, &TokenWithSpan)> = words.collect();
    let meant = words.windows(4).filter_map(|words| {
        let [(_, trim), (_, bracket), (_, side), (place, from)] = words else {
            return None;
        };
        let is = |token: &TokenWithSpan, known: &[Keyword]| match &token.token {
            Token::Word(word) => word.quote_style.is_none() && known.contains(&word.keyword),
            _ => false,
        };
        let is_meant = is(trim, &[Keyword::TRIM])
            && bracket.token == Token::LParen
            && is(side, &[Keyword::LEADING, Keyword::TRAILING, Keyword::BOTH])
            && is(from, &[Keyword::FROM]);
        is_meant.then_some((*place, from.span))
    });
    let meant: Vec<_> = meant.collect();
    if meant.is_empty() {
        return tokens;
    }
    let mut with = Vec::with_capacity(tokens.len() + meant.len());
    let mut meant = meant.into_iter().peekable();
    for (place, token) in tokens.into_iter().enumerate() {
        if let Some((_, span)) = meant.next_if(|(known, _)| *known == place) {
            let token = Token::SingleQuotedString(" ".to_owned());
            with.push(TokenWithSpan { token, span });
        }
        with.push(token);
    }
    with
}

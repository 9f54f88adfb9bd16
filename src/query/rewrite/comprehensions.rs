//! Lists that are made of others as in Python: `[x * 2 FOR x IN list IF x > 1]`.
//!
//! Comes in: the words of a text. Goes out: the same with `list_transform(list_filter(list, x -> (x > 1)), x -> (x * 2))`. Never here: what lambdas mean.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// More of them, one in the other, are left as they are: brackets are not nested that deep.
const MAX_DEPTH: usize = 40;

/// The words, with functions of lists where they are meant.
pub(in crate::query) fn as_functions(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_for = |token: &TokenWithSpan| is(&token.token, Keyword::FOR);
    if !tokens.iter().any(is_for) {
        return tokens;
    }
    for _ in 0..MAX_DEPTH {
        let mut begin = 0;
        let mut has_changed = false;
        // Of those that are one in the other the innermost is first.
        while let Some(found) = Found::innermost(&tokens, begin) {
            let written = found.written(&tokens);
            begin = found.open + written.len();
            tokens.splice(found.open..=found.close, written);
            has_changed = true;
        }
        if !has_changed {
            break;
        }
    }
    tokens
}

fn is(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.keyword == keyword)
}

/// Whether nothing stands between two words.
fn is_blank(tokens: &[TokenWithSpan], from: usize, to: usize) -> bool {
    let mut between = tokens.iter().take(to).skip(from + 1);
    between.all(|token| matches!(token.token, Token::Whitespace(_)))
}

/// Where the parts of one are.
struct Found {
    open: usize,
    /// `FOR`.
    each: usize,
    /// `IN`.
    of: usize,
    /// `IF`, if it has one.
    only: Option<usize>,
    close: usize,
}

impl Found {
    /// The first one from a word on that has none within it.
    fn innermost(tokens: &[TokenWithSpan], begin: usize) -> Option<Self> {
        // The brackets that are open: where, of which kind, and what was seen in them.
        let mut open: Vec<(usize, bool, [Option<usize>; 3])> = Vec::new();
        for (place, token) in tokens.iter().enumerate().skip(begin) {
            match &token.token {
                Token::LBracket => open.push((place, true, [None; 3])),
                Token::LParen | Token::LBrace => open.push((place, false, [None; 3])),
                Token::RBracket | Token::RParen | Token::RBrace => {
                    if let Some((open, true, [Some(each), Some(of), only])) = open.pop() {
                        return Some(Self {
                            open,
                            each,
                            of,
                            only,
                            close: place,
                        });
                    }
                }
                word => {
                    let Some((_, true, seen)) = open.last_mut() else {
                        continue;
                    };
                    match seen {
                        [each @ None, ..] if is(word, Keyword::FOR) => *each = Some(place),
                        [Some(_), of @ None, _] if is(word, Keyword::IN) => *of = Some(place),
                        // Behind IN it is a function.
                        [Some(_), Some(of), only @ None]
                            if is(word, Keyword::IF) && !is_blank(tokens, *of, place) =>
                        {
                            *only = Some(place);
                        }
                        _ => {}
                    }
                }
            }
        }
        None
    }

    /// It as functions.
    fn written(&self, tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
        let span = tokens.get(self.open).map(|token| token.span);
        let own = |token: Token| TokenWithSpan {
            token,
            span: span.unwrap_or_else(datafusion::sql::sqlparser::tokenizer::Span::empty),
        };
        let part = |from: usize, to: usize| tokens.get(from + 1..to).unwrap_or_default();
        let names = part(self.each, self.of);
        let (list, condition) = match self.only {
            Some(only) => (part(self.of, only), Some(part(only, self.close))),
            None => (part(self.of, self.close), None),
        };
        let word = |text: &str| {
            own(Token::Word(Word {
                value: text.to_owned(),
                quote_style: None,
                keyword: Keyword::NoKeyword,
            }))
        };
        let mut written = Vec::new();
        let by = |lambda: &[TokenWithSpan], written: &mut Vec<TokenWithSpan>| {
            written.push(own(Token::Comma));
            written.push(own(Token::LParen));
            written.extend_from_slice(names);
            written.extend([own(Token::RParen), own(Token::Arrow), own(Token::LParen)]);
            written.extend_from_slice(lambda);
            written.extend([own(Token::RParen), own(Token::RParen)]);
        };
        written.extend([word("list_transform"), own(Token::LParen)]);
        if condition.is_some() {
            written.extend([word("list_filter"), own(Token::LParen)]);
        }
        written.extend_from_slice(list);
        if let Some(condition) = condition {
            by(condition, &mut written);
        }
        by(part(self.open, self.each), &mut written);
        written
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn written(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let words = as_functions(tokens.unwrap()).into_iter();
        let words = words.map(|token| token.token.to_string());
        let words: Vec<String> = words.filter(|word| !word.trim().is_empty()).collect();
        words.join(" ")
    }

    #[test]
    fn they_are_functions_of_lists() {
        assert_eq!(
            written("[x * 2 FOR x IN l]"),
            "list_transform ( l , ( x ) -> ( x * 2 ) )"
        );
        assert_eq!(
            written("SELECT [x for x in [1, 2] if x > 1][1]"),
            "SELECT list_transform ( list_filter ( [ 1 , 2 ] , ( x ) -> ( x > 1 ) ) , ( x ) -> ( x ) ) [ 1 ]"
        );
        assert_eq!(
            written("[[y FOR y IN x] FOR x IN ll]"),
            "list_transform ( ll , ( x ) -> ( list_transform ( x , ( y ) -> ( y ) ) ) )"
        );
        assert_eq!(
            written("[x FOR x IN if(c, l, m)]"),
            "list_transform ( if ( c , l , m ) , ( x ) -> ( x ) )"
        );
        assert_eq!(
            written("[x FOR x, place IN l]"),
            "list_transform ( l , ( x , place ) -> ( x ) )"
        );
    }

    #[test]
    fn others_stay_as_they_are() {
        for text in [
            "substring ( s FROM 1 FOR 2 )",
            "[ substring ( s FROM 1 FOR 2 ) IN ( 'a' ) ]",
            "a [ 1 ] IN ( 2 )",
            "[ 1 , 2",
        ] {
            assert_eq!(written(text), text);
        }
    }
}

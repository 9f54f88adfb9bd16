//! Queries without SELECT: `FROM t WHERE x > 1`. The parser takes the tables and stumbles over what follows them.
//!
//! Comes in: the words of a text. Goes out: the same, with `SELECT *` before the FROM that a query begins with, unless its SELECT stands behind. Never here: the FROM of functions and of IS DISTINCT FROM.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

/// The words, with `SELECT *` where it is meant.
pub(super) fn with_select(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let places: Vec<usize> = (0..tokens.len())
        .filter(|&place| {
            keyword(tokens.get(place)) == Some(Keyword::FROM)
                && begins_query(&tokens, place)
                && !has_select(&tokens, place)
        })
        .collect();
    if places.is_empty() {
        return tokens;
    }
    let all = Tokenizer::new(&GenericDialect {}, "SELECT * ").tokenize();
    let all = all.unwrap_or_default();
    let mut with = Vec::with_capacity(tokens.len() + places.len() * all.len());
    let mut places = places.into_iter().peekable();
    for (place, token) in tokens.into_iter().enumerate() {
        if places.next_if_eq(&place).is_some() {
            let span = token.span;
            let words = all.iter().cloned();
            with.extend(words.map(|token| TokenWithSpan { token, span }));
        }
        with.push(token);
    }
    with
}

fn word(token: Option<&TokenWithSpan>) -> Option<&Word> {
    match &token?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    }
}

fn keyword(token: Option<&TokenWithSpan>) -> Option<Keyword> {
    word(token).map(|word| word.keyword)
}

/// The word before a place, and where it stands.
fn before(tokens: &[TokenWithSpan], place: usize) -> Option<usize> {
    let is_word = |&place: &usize| {
        let token = tokens.get(place).map(|token| &token.token);
        token.is_some_and(|token| !matches!(token, Token::Whitespace(_)))
    };
    (0..place).rev().find(is_word)
}

/// Whether a query may begin with the word at a place.
fn begins_query(tokens: &[TokenWithSpan], place: usize) -> bool {
    let Some(last) = before(tokens, place) else {
        return true;
    };
    let earlier = || before(tokens, last).and_then(|place| tokens.get(place));
    match tokens.get(last).map(|token| &token.token) {
        // `trim(FROM x)`.
        Some(Token::LParen) => keyword(earlier()) != Some(Keyword::TRIM),
        Some(Token::RParen) => ends_with(tokens, last),
        _ => match keyword(tokens.get(last)) {
            Some(
                Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::EXPLAIN
                | Keyword::ANALYZE
                | Keyword::VERBOSE
                | Keyword::AS,
            ) => true,
            Some(Keyword::ALL | Keyword::DISTINCT) => matches!(
                keyword(earlier()),
                Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)
            ),
            _ => false,
        },
    }
}

/// Whether a bracket closes the last query of a WITH: `WITH a AS (…), b (x) AS (…) FROM b`.
fn ends_with(tokens: &[TokenWithSpan], closed: usize) -> bool {
    let mut place = closed;
    loop {
        let Some(opened) = opening(tokens, place) else {
            return false;
        };
        let Some(said) = before(tokens, opened) else {
            return false;
        };
        let mut said = said;
        // `AS MATERIALIZED (…)`.
        while matches!(
            keyword(tokens.get(said)),
            Some(Keyword::MATERIALIZED | Keyword::NOT)
        ) {
            match before(tokens, said) {
                Some(earlier) => said = earlier,
                None => return false,
            }
        }
        if keyword(tokens.get(said)) != Some(Keyword::AS) {
            return false;
        }
        let Some(mut name) = before(tokens, said) else {
            return false;
        };
        if tokens.get(name).map(|token| &token.token) == Some(&Token::RParen) {
            let columns = opening(tokens, name).and_then(|opened| before(tokens, opened));
            match columns {
                Some(earlier) => name = earlier,
                None => return false,
            }
        }
        let Some(start) = before(tokens, name) else {
            return false;
        };
        match tokens.get(start).map(|token| &token.token) {
            Some(Token::Comma) => match before(tokens, start) {
                Some(earlier)
                    if tokens.get(earlier).map(|token| &token.token) == Some(&Token::RParen) =>
                {
                    place = earlier;
                }
                _ => return false,
            },
            _ => {
                return matches!(
                    keyword(tokens.get(start)),
                    Some(Keyword::WITH | Keyword::RECURSIVE)
                );
            }
        }
    }
}

/// Where the bracket opens that closes at a place.
fn opening(tokens: &[TokenWithSpan], closed: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for place in (0..=closed).rev() {
        match tokens.get(place).map(|token| &token.token) {
            Some(Token::RParen) => depth += 1,
            Some(Token::LParen) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether the query that begins at a place has a SELECT behind its tables.
fn has_select(tokens: &[TokenWithSpan], place: usize) -> bool {
    let mut depth = 0_usize;
    for token in tokens.iter().skip(place) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            _ if depth > 0 => {}
            _ => match keyword(Some(token)) {
                Some(Keyword::SELECT) => return true,
                Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT) => return false,
                _ => {}
            },
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let tokens = with_select(tokens.unwrap());
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn queries_that_begin_with_from_select_all() {
        for (text, expected) in [
            ("FROM t", "SELECT * FROM t"),
            (" from t WHERE x > 1", " SELECT * from t WHERE x > 1"),
            (
                "EXPLAIN ANALYZE FROM t UNION ALL FROM u LIMIT 1",
                "EXPLAIN ANALYZE SELECT * FROM t UNION ALL SELECT * FROM u LIMIT 1",
            ),
            (
                "SELECT x FROM (FROM t ORDER BY x LIMIT 3) WHERE x IN (FROM u)",
                "SELECT x FROM (SELECT * FROM t ORDER BY x LIMIT 3) WHERE x IN (SELECT * FROM u)",
            ),
            (
                "WITH a AS (FROM t), b (x) AS NOT MATERIALIZED (SELECT 1) FROM a JOIN b ON a.x = b.x",
                "WITH a AS (SELECT * FROM t), b (x) AS NOT MATERIALIZED (SELECT 1) SELECT * FROM a JOIN b ON a.x = b.x",
            ),
            (
                "CREATE VIEW v AS FROM t WHERE (x = 1)",
                "CREATE VIEW v AS SELECT * FROM t WHERE (x = 1)",
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }

    #[test]
    fn all_others_stay_as_they_are() {
        for text in [
            "SELECT x FROM t",
            "FROM t SELECT x WHERE x > 1",
            "SELECT extract(year FROM x), trim(FROM x), trim(BOTH ' ' FROM x), substring(x FROM 2) FROM t",
            "SELECT x IS DISTINCT FROM y, DISTINCT FROM t",
            "SELECT f(x) FROM t",
            "WITH a AS (SELECT 1) SELECT (x) FROM a",
            "WITH a AS (SELECT 1) SELECT CAST(x AS DECIMAL(2)) FROM a",
            "SELECT 'FROM', \"from\" FROM t",
        ] {
            assert_eq!(read(text), text);
        }
    }
}

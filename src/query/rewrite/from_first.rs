//! Queries without SELECT: `FROM t WHERE x > 1`, `TABLE t`. The parser takes the tables and stumbles over what follows them.
//!
//! Comes in: the words of a text. Goes out: the same, with FROM in place of the TABLE that it begins with, and `SELECT *` before the FROM that a query begins with, unless its SELECT stands behind. Never here: the FROM of functions and of IS DISTINCT FROM.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The words, with `SELECT *` where it is meant.
pub(in crate::query) fn with_select(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    begin_with_from(&mut tokens);
    if !tokens.iter().any(|token| is(token, Keyword::FROM)) {
        return tokens;
    }
    let places = Words::of(&tokens).places();
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

/// Puts FROM in place of the TABLE that a text begins with.
fn begin_with_from(tokens: &mut [TokenWithSpan]) {
    let mut words = tokens.iter_mut();
    let first = words.find(|token| !matches!(token.token, Token::Whitespace(_)));
    if let Some(first) = first
        && is(first, Keyword::TABLE)
    {
        first.token = Token::make_keyword("FROM");
    }
}

fn is(token: &TokenWithSpan, keyword: Keyword) -> bool {
    word(token) == Some(keyword)
}

pub(super) fn word(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

fn set(found: &mut [bool], value: bool) {
    if let Some(last) = found.last_mut() {
        *last = value;
    }
}

/// The words without blanks, each looked at once or twice, however many they are.
pub(super) struct Words<'a> {
    /// With their places among all tokens.
    words: Vec<(usize, &'a TokenWithSpan)>,
    /// Where the bracket opens that closes at a word.
    opened: Vec<Option<usize>>,
    /// Whether there is a SELECT behind a word, in the same brackets and the same query.
    has_select: Vec<bool>,
}

impl<'a> Words<'a> {
    pub(super) fn of(tokens: &'a [TokenWithSpan]) -> Self {
        let words = tokens.iter().enumerate();
        let words = words.filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
        let words: Vec<(usize, &TokenWithSpan)> = words.collect();
        let mut open = Vec::new();
        let opened = words.iter().enumerate().map(|(place, (_, token))| {
            match token.token {
                Token::LParen => open.push(place),
                Token::RParen => return open.pop(),
                _ => {}
            }
            None
        });
        let opened = opened.collect();
        // From the end: what is found in the brackets that are open there.
        let mut found = vec![false];
        let mut has_select = vec![false; words.len()];
        for ((_, token), has) in words.iter().zip(&mut has_select).rev() {
            match (&token.token, word(token)) {
                (Token::RParen, _) => found.push(false),
                (Token::LParen, _) => {
                    found.pop();
                    if found.is_empty() {
                        found.push(false);
                    }
                }
                (_, Some(Keyword::SELECT)) => set(&mut found, true),
                (_, Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)) => {
                    set(&mut found, false);
                }
                _ => {}
            }
            *has = found.last().copied().unwrap_or(false);
        }
        Self {
            words,
            opened,
            has_select,
        }
    }

    /// Where SELECT is missing, among all tokens.
    fn places(&self) -> Vec<usize> {
        let words = self.words.iter().enumerate();
        let found = words.filter(|(place, (_, token))| {
            is(token, Keyword::FROM)
                && self.begins_query(*place)
                && !self.has_select.get(*place).copied().unwrap_or(false)
        });
        found.map(|(_, (token, _))| *token).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// One of them, with its place among all tokens.
    pub(super) fn at(&self, place: usize) -> Option<(usize, &TokenWithSpan)> {
        self.words.get(place).copied()
    }

    pub(super) fn keyword(&self, place: Option<usize>) -> Option<Keyword> {
        word(self.words.get(place?)?.1)
    }

    /// Where the bracket opens that closes at a word.
    pub(super) fn opened(&self, closed: usize) -> Option<usize> {
        self.opened.get(closed).copied().flatten()
    }

    pub(super) fn is_token(&self, place: Option<usize>, token: &Token) -> bool {
        let found = place.and_then(|place| self.words.get(place));
        found.is_some_and(|(_, found)| found.token == *token)
    }

    /// Whether a bracket closes the arguments of a function, not a query in FROM.
    pub(super) fn ends_call(&self, closed: usize) -> bool {
        let Some(name) = self.opened(closed).and_then(|opened| opened.checked_sub(1)) else {
            return false;
        };
        let is_of_from = |place: Option<usize>| {
            matches!(
                self.keyword(place),
                Some(Keyword::FROM | Keyword::JOIN | Keyword::LATERAL | Keyword::AS | Keyword::IN)
            )
        };
        let is_name = matches!(
            self.at(name).map(|(_, name)| &name.token),
            Some(Token::Word(_))
        );
        // `FROM range(3) filter (x)` calls a table so.
        is_name && !is_of_from(Some(name)) && !is_of_from(name.checked_sub(1))
    }

    /// Whether a query may begin with a word.
    pub(super) fn begins_query(&self, place: usize) -> bool {
        let Some(last) = place.checked_sub(1) else {
            return true;
        };
        let earlier = self.keyword(last.checked_sub(1));
        if self.is_token(Some(last), &Token::LParen) {
            // `trim(FROM x)`.
            return earlier != Some(Keyword::TRIM);
        }
        if self.is_token(Some(last), &Token::RParen) {
            return self.ends_with(last);
        }
        match self.keyword(Some(last)) {
            // `DESCRIBE FROM t`, and what stands for `SUMMARIZE FROM t`.
            Some(Keyword::DESCRIBE | Keyword::DESC) => last == 0,
            Some(Keyword::ESTIMATE) => last == 1 && earlier == Some(Keyword::DESCRIBE),
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
                earlier,
                Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)
            ),
            _ => false,
        }
    }

    /// Whether a bracket closes the last query of a WITH: `WITH a AS (…), b (x) AS (…) FROM b`.
    fn ends_with(&self, closed: usize) -> bool {
        let mut closed = Some(closed);
        while let Some(place) = closed {
            let Some(name) = self.name_of_query(place) else {
                return false;
            };
            let before = name.checked_sub(1);
            let starts = matches!(
                self.keyword(before),
                Some(Keyword::WITH | Keyword::RECURSIVE)
            );
            if starts {
                return true;
            }
            let earlier = before.and_then(|before| before.checked_sub(1));
            let goes_on =
                self.is_token(before, &Token::Comma) && self.is_token(earlier, &Token::RParen);
            closed = earlier.filter(|_| goes_on);
        }
        false
    }

    /// The name of the query of WITH whose bracket closes at a word.
    fn name_of_query(&self, closed: usize) -> Option<usize> {
        let mut said = self.opened.get(closed).copied()??.checked_sub(1)?;
        // `AS MATERIALIZED (…)`.
        while matches!(
            self.keyword(Some(said)),
            Some(Keyword::MATERIALIZED | Keyword::NOT)
        ) {
            said = said.checked_sub(1)?;
        }
        if self.keyword(Some(said)) != Some(Keyword::AS) {
            return None;
        }
        let name = said.checked_sub(1)?;
        match self.is_token(Some(name), &Token::RParen) {
            true => self.opened.get(name).copied()??.checked_sub(1),
            false => Some(name),
        }
    }
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

    #[test]
    fn long_texts_are_read_word_by_word() {
        // Hours, if each FROM looked at all words.
        for (part, expected) in [
            (")FROM ", ")FROM "),
            ("AS FROM ", "AS SELECT * FROM "),
            ("(FROM t) ", "(SELECT * FROM t) "),
        ] {
            let text = read(&part.repeat(500_000));
            assert!(text == expected.repeat(500_000), "{part}");
        }
    }
}

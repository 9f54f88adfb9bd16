//! Statements of PIVOT and UNPIVOT as words that the parser knows: `PIVOT t ON k USING sum(x) GROUP BY g`, `UNPIVOT t ON a, b INTO NAME n VALUE v`.
//!
//! Comes in: the words of a text. Goes out: the same with a SELECT in place of such a statement: `SELECT __pivot_on(k), sum(x) FROM t GROUP BY g`, `SELECT __unpivot_into(n, v), a, b FROM t`, whose items say what is turned. Never here: what
//! becomes of these items (`statement.rs`, `rows.rs`); tables of FROM that are turned, which the parser knows.

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::begins::{MAX_STATEMENTS, Turn, starts, turns};
use super::{IN, INTO, ON, OUT_OF};
use crate::error::{Error, ErrorKind, Result};
use crate::query::rewrite::from_first::{Words, word};

/// How deep such statements may stand in one another; brackets may be no deeper.
const MAX_DEPTH: usize = 40;

/// Puts queries in place of the statements. Whether something is turned at all, in FROM or so.
///
/// # Errors
/// `Query` for the words of ours that stand for these statements, `ResourcesExhausted` for too many statements.
pub(in crate::query) fn as_queries(tokens: &mut Vec<TokenWithSpan>) -> Result<bool> {
    let (mut is_turned, mut may_begin) = (false, false);
    for token in tokens.iter() {
        if let Token::Word(word) = &token.token {
            if [ON, IN, OUT_OF, INTO].contains(&word.value.as_str()) {
                let text = format!("no function `{}`", word.value);
                return Err(Error::new(ErrorKind::Query, text));
            }
            may_begin |= turns(token).is_some();
            is_turned |= matches!(word.keyword, Keyword::PIVOT | Keyword::UNPIVOT);
        }
    }
    if !may_begin {
        return Ok(is_turned);
    }
    let starts = starts(&Words::of(tokens));
    if starts.len() > MAX_STATEMENTS {
        let text = format!("PIVOT and UNPIVOT may stand {MAX_STATEMENTS} times in a text");
        return Err(Error::new(ErrorKind::ResourcesExhausted, text)
            .with_hint("CREATE TABLE … AS keeps the rows of some of them"));
    }
    if !starts.is_empty() {
        let text = Text { tokens, starts };
        *tokens = text.of(0..tokens.len(), 0);
    }
    Ok(true)
}

/// A text, and where its statements begin.
struct Text<'a> {
    tokens: &'a [TokenWithSpan],
    starts: Vec<usize>,
}

/// The parts of a statement, as places among all tokens.
struct Clauses {
    table: Range<usize>,
    on: Range<usize>,
    using: Option<Range<usize>>,
    into: Option<Range<usize>>,
    /// GROUP BY, ORDER BY, LIMIT, OFFSET.
    rest: Range<usize>,
}

impl Text<'_> {
    /// A part of the text with queries in place of statements.
    fn of(&self, range: Range<usize>, depth: usize) -> Vec<TokenWithSpan> {
        let mut with = Vec::with_capacity(range.len());
        let mut place = range.start;
        while let Some(token) = self.tokens.get(place).filter(|_| place < range.end) {
            let turn = turns(token).filter(|_| self.starts.binary_search(&place).is_ok());
            let clauses = turn
                .filter(|_| depth < MAX_DEPTH)
                .and_then(|turn| Some((turn, self.clauses(place, turn)?)));
            match clauses {
                Some((turn, clauses)) => {
                    place = clauses.rest.end;
                    let mut out = Out {
                        begin: token,
                        with: &mut with,
                    };
                    self.put(turn, clauses, depth + 1, &mut out);
                }
                None => {
                    with.push(token.clone());
                    place += 1;
                }
            }
        }
        with
    }

    /// The parts of the statement that begins at a place; none where it has no ON.
    fn clauses(&self, start: usize, turn: Turn) -> Option<Clauses> {
        let (marks, end) = self.marks(start, turn);
        let mut marks = marks.into_iter().peekable();
        let (_, on) = marks.next()?;
        let mut clauses = Clauses {
            table: start + 1..on,
            on: on + 1..marks.peek().map_or(end, |(_, next)| *next),
            using: None,
            into: None,
            rest: end..end,
        };
        while let Some((keyword, place)) = marks.next() {
            let until = marks.peek().map_or(end, |(_, next)| *next);
            match keyword {
                Keyword::USING => clauses.using = Some(place + 1..until),
                Keyword::INTO => clauses.into = Some(place + 1..until),
                _ => {
                    clauses.rest = place..end;
                    break;
                }
            }
        }
        let is_said = |range: &Range<usize>| self.words(range).next().is_some();
        let is_whole = is_said(&clauses.table)
            && self.items(clauses.on.clone()).iter().all(is_said)
            && clauses.using.as_ref().is_none_or(is_said)
            && clauses
                .into
                .as_ref()
                .is_none_or(|into| self.names(into).is_some());
        is_whole.then_some(clauses)
    }

    /// The words with which the parts of the statement begin, and where it ends.
    fn marks(&self, start: usize, turn: Turn) -> (Vec<(Keyword, usize)>, usize) {
        let mut marks: Vec<(Keyword, usize)> = Vec::new();
        let (mut depth, mut before) = (0_usize, None);
        for (place, token) in self.tokens.iter().enumerate().skip(start + 1) {
            match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace if depth == 0 => {
                    return (marks, place);
                }
                Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
                Token::SemiColon if depth == 0 => return (marks, place),
                Token::Word(found) if depth == 0 && found.quote_style.is_none() => {
                    let keyword = found.keyword;
                    if matches!(
                        keyword,
                        Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT
                    ) {
                        return (marks, place);
                    }
                    let last = marks.last().map(|(keyword, _)| *keyword);
                    // `percentile_cont(0.5) WITHIN GROUP (…)`.
                    if before != Some(Keyword::WITHIN) && turn.is_begun(keyword, last) {
                        marks.push((keyword, place));
                    }
                    before = Some(keyword);
                }
                _ => {}
            }
        }
        (marks, self.tokens.len())
    }

    /// Puts the query behind other words.
    fn put(&self, turn: Turn, clauses: Clauses, depth: usize, out: &mut Out<'_>) {
        out.say("SELECT ");
        match turn {
            Turn::Wider => {
                for item in self.items(clauses.on) {
                    self.put_on(item, depth, out);
                }
                match clauses.using {
                    Some(using) => out.take(self.of(using, depth)),
                    None => out.say(" count(*)"),
                }
            }
            Turn::Longer => {
                out.say(&format!("{INTO}("));
                if let Some(names) = clauses.into {
                    out.take(self.names(&names).unwrap_or_default());
                }
                out.say(")");
                for item in self.items(clauses.on) {
                    out.say(", ");
                    self.put_columns(item, depth, out);
                }
            }
        }
        out.say(" FROM ");
        out.take(self.of(clauses.table, depth));
        out.say(" ");
        out.take(self.of(clauses.rest, depth));
    }

    /// Columns that become rows: `a`, `(a, b) AS c`, `COLUMNS(…)`, and `*` as COLUMNS.
    fn put_columns(&self, item: Range<usize>, depth: usize, out: &mut Out<'_>) {
        let mut words = self.words(&item);
        let is_star = words
            .next()
            .is_some_and(|(_, token)| token.token == Token::Mul);
        drop(words);
        if is_star {
            out.say("COLUMNS(");
        }
        out.take(self.of(item, depth));
        if is_star {
            out.say(")");
        }
    }

    /// What is turned by: `k`, `k IN (1, 2 AS two)`, `k IN (SELECT …)`.
    fn put_on(&self, item: Range<usize>, depth: usize, out: &mut Out<'_>) {
        let (columns, values) = self.parted(item);
        out.say(&format!("{ON}("));
        out.take(self.of(columns, depth));
        out.say("), ");
        let Some(values) = values else {
            return;
        };
        let begins = self
            .words(&values)
            .next()
            .and_then(|(_, token)| word(token));
        let is_query = matches!(
            begins,
            Some(Keyword::SELECT | Keyword::FROM | Keyword::WITH | Keyword::VALUES)
        );
        if is_query {
            out.say(&format!("{OUT_OF}(("));
            out.take(self.of(values, depth));
            out.say(")), ");
            return;
        }
        for value in self.items(values) {
            let named = self.at_level(value.clone(), |token| word(token) == Some(Keyword::AS));
            let named = named.last().copied().unwrap_or(value.end);
            out.say(&format!("{IN}("));
            out.take(self.of(value.start..named, depth));
            out.say(")");
            out.take(self.of(named..value.end, depth));
            out.say(", ");
        }
    }

    /// The columns, and what stands in the brackets behind the IN at the end.
    fn parted(&self, item: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
        let within = self.at_level(item.clone(), |token| word(token) == Some(Keyword::IN));
        let is_named = |place: &&usize| self.is_name(item.start..**place);
        let parted = within.last().filter(is_named).and_then(|place| {
            let behind = place + 1..item.end;
            let mut words = self.words(&behind);
            let (opened, first) = words.next()?;
            let (closed, last) = words.last()?;
            let is_list = first.token == Token::LParen && last.token == Token::RParen;
            is_list.then_some((item.start..*place, opened + 1..closed))
        });
        match parted {
            Some((columns, values)) => (columns, Some(values)),
            None => (item, None),
        }
    }

    /// Whether a column stands there, or several in brackets: `a + 1 IN (1, 2)` is a condition, as in DuckDB.
    fn is_name(&self, range: Range<usize>) -> bool {
        let mut words = self.words(&range).map(|(_, token)| &token.token);
        match words.next() {
            Some(Token::LParen) => words.last() == Some(&Token::RParen),
            Some(Token::Word(_)) => {
                words.all(|token| matches!(token, Token::Word(_) | Token::Period))
            }
            _ => false,
        }
    }

    /// `NAME n VALUE v, w` as names alone, if that stands there.
    fn names(&self, range: &Range<usize>) -> Option<Vec<TokenWithSpan>> {
        let is = |token: &TokenWithSpan, name: &str| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case(name));
        let is_name = |token: &TokenWithSpan| matches!(token.token, Token::Word(_));
        let words: Vec<&TokenWithSpan> = self.words(range).map(|(_, token)| token).collect();
        let [said, name, value, names @ ..] = words.as_slice() else {
            return None;
        };
        let are_names = names
            .iter()
            .enumerate()
            .all(|(place, token)| match place % 2 {
                0 => is_name(token),
                _ => token.token == Token::Comma,
            });
        let is_whole = is(said, "name") && is_name(name) && is(value, "value");
        if !is_whole || !are_names || names.len() % 2 == 0 {
            return None;
        }
        let comma = TokenWithSpan {
            token: Token::Comma,
            span: value.span,
        };
        let all = [*name, &comma].into_iter().chain(names.iter().copied());
        Some(all.cloned().collect())
    }

    /// The parts between commas.
    fn items(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let commas = self.at_level(range.clone(), |token| token.token == Token::Comma);
        let mut start = range.start;
        let mut items = Vec::with_capacity(commas.len() + 1);
        for end in commas.into_iter().chain([range.end]) {
            items.push(start..end);
            start = end + 1;
        }
        items
    }

    /// Where such tokens stand outside of brackets.
    fn at_level(&self, range: Range<usize>, is: impl Fn(&TokenWithSpan) -> bool) -> Vec<usize> {
        let mut depth = 0_usize;
        let mut found = Vec::new();
        for (place, token) in self.words(&range) {
            match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace => {
                    depth = depth.saturating_sub(1);
                }
                _ if depth == 0 && is(token) => found.push(place),
                _ => {}
            }
        }
        found
    }

    /// The tokens that are no blanks.
    fn words(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, &TokenWithSpan)> {
        let start = range.start;
        let tokens = self.tokens.get(range.clone()).unwrap_or_default();
        let tokens = tokens.iter().enumerate();
        tokens
            .map(move |(place, token)| (start + place, token))
            .filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)))
    }
}

/// Words that are put behind others.
struct Out<'a> {
    /// The word in whose place those of ours stand.
    begin: &'a TokenWithSpan,
    with: &'a mut Vec<TokenWithSpan>,
}

impl Out<'_> {
    fn say(&mut self, text: &str) {
        let words = Tokenizer::new(&GenericDialect {}, text).tokenize();
        let span = self.begin.span;
        let words = words.unwrap_or_default().into_iter();
        self.with
            .extend(words.map(|token| TokenWithSpan { token, span }));
    }

    fn take(&mut self, tokens: Vec<TokenWithSpan>) {
        self.with.extend(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let mut tokens = tokens.unwrap();
        as_queries(&mut tokens).unwrap();
        let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn statements_become_queries() {
        for (text, expected) in [
            (
                "PIVOT t ON k USING sum(x) GROUP BY g ORDER BY g LIMIT 2",
                "SELECT __pivot_on( k ), sum(x) FROM t GROUP BY g ORDER BY g LIMIT 2",
            ),
            ("pivot t ON k", "SELECT __pivot_on( k), count(*) FROM t"),
            (
                "PIVOT t ON k IN (1, 2 AS two), l IN (SELECT 1) USING max(x) AS m;",
                "SELECT __pivot_on( k ), __pivot_in(1), __pivot_in( 2 )AS two, __pivot_on( l ), __pivot_out_of((SELECT 1)), max(x) AS m FROM t ;",
            ),
            (
                "WITH a AS (PIVOT (FROM t) ON k) FROM a UNION ALL PIVOT_WIDER b ON l || m",
                "WITH a AS (SELECT __pivot_on( k), count(*) FROM (FROM t) ) FROM a UNION ALL SELECT __pivot_on( l || m), count(*) FROM b",
            ),
            (
                "UNPIVOT t ON a, (b, c) AS d, * EXCLUDE (k) INTO NAME n VALUE v, w ORDER BY n",
                "SELECT __unpivot_into(n,v,w), a, (b, c) AS d, COLUMNS( * EXCLUDE (k) ) FROM t ORDER BY n",
            ),
            (
                "CREATE VIEW v AS UNPIVOT t ON a",
                "CREATE VIEW v AS SELECT __unpivot_into(), a FROM t",
            ),
            (
                "PIVOT (PIVOT t ON k GROUP BY g) ON g",
                "SELECT __pivot_on( g), count(*) FROM (SELECT __pivot_on( k ), count(*) FROM t GROUP BY g)",
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn all_others_stay_as_they_are() {
        for text in [
            "SELECT a AS pivot FROM t JOIN u ON t.a = u.a",
            "SELECT * FROM t AS u JOIN v AS pivot (a) ON a = u.b",
            "SELECT (pivot) FROM t JOIN u ON true",
            "SELECT pivot.a FROM pivot JOIN unpivot ON pivot.a = unpivot.a",
            "SELECT * FROM t PIVOT (sum(x) FOR k IN (1, 2))",
            "PIVOT t USING sum(x)",
            "PIVOT t ON k USING",
            "PIVOT t ON k, USING sum(x)",
            "PIVOT ON k",
            "UNPIVOT t ON a INTO VALUE v NAME n",
            "UNPIVOT t ON a INTO NAME n",
            "UNPIVOT t ON a INTO NAME n VALUE v,",
            "SELECT \"pivot\" FROM t JOIN u ON true",
        ] {
            assert_eq!(read(text), text);
        }
    }
}

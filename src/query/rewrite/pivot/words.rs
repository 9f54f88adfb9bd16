//! Statements of PIVOT and UNPIVOT as words that the parser knows: `PIVOT t ON k USING sum(x) GROUP BY g`, `UNPIVOT t ON a, b INTO NAME n VALUE v`.
//!
//! Comes in: the words of a text. Goes out: the same with a SELECT in place of such a statement: `SELECT __pivot_on(k), sum(x) FROM t GROUP BY g`, `SELECT __unpivot_into(n, v), a, b FROM t`, whose items say what is turned. Never here: what
//! becomes of these items (`statement.rs`, `rows.rs`); tables of FROM that are turned, which the parser knows.

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::{IN, INTO, ON, OUT_OF};
use crate::query::rewrite::from_first::{Words, word};

/// So many such statements may stand in a text.
const MAX_STATEMENTS: usize = 64;

/// How deep such statements may stand in one another; brackets may be no deeper.
const MAX_DEPTH: usize = 40;

/// Puts queries in place of the statements. Whether something is turned at all, in FROM or so.
pub(in crate::query) fn as_queries(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let is_turned = tokens.iter().any(|token| {
        let Token::Word(word) = &token.token else {
            return false;
        };
        matches!(word.keyword, Keyword::PIVOT | Keyword::UNPIVOT)
            || turns(token).is_some()
            || [ON, INTO].contains(&word.value.as_str())
    });
    if is_turned && tokens.iter().any(|token| turns(token).is_some()) {
        let starts = {
            let words = Words::of(tokens);
            starts(&words)
        };
        if !starts.is_empty() {
            let text = Text { tokens, starts };
            *tokens = text.of(0..tokens.len(), 0);
        }
    }
    is_turned
}

/// Which of the two a word begins, if it may.
fn turns(token: &TokenWithSpan) -> Option<Turn> {
    let Token::Word(word) = &token.token else {
        return None;
    };
    if word.quote_style.is_some() {
        return None;
    }
    let is = |name: &str| word.value.eq_ignore_ascii_case(name);
    match () {
        () if is("pivot") || is("pivot_wider") => Some(Turn::Wider),
        () if is("unpivot") || is("pivot_longer") => Some(Turn::Longer),
        () => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Wider,
    Longer,
}

/// Where such statements begin, among all tokens: where a query may begin, and a table follows.
fn starts(words: &Words<'_>) -> Vec<usize> {
    let is_as = |place: &usize| words.keyword(Some(*place)) == Some(Keyword::AS);
    // `CREATE VIEW v AS PIVOT …`; any other AS stands before a name.
    let first_as = (0..words.len()).find(is_as);
    let begins = |place: &usize| {
        let is_it = words
            .at(*place)
            .is_some_and(|(_, token)| turns(token).is_some());
        let before = place.checked_sub(1);
        is_it
            && words.begins_query(*place)
            && is_table(words.at(place + 1))
            && before.is_none_or(|before| !is_as(&before) || first_as == Some(before))
    };
    let starts = (0..words.len()).filter(begins).take(MAX_STATEMENTS);
    starts
        .filter_map(|place| Some(words.at(place)?.0))
        .collect()
}

/// Whether a table may begin with a word.
fn is_table(word: Option<(usize, &TokenWithSpan)>) -> bool {
    match word.map(|(_, token)| &token.token) {
        Some(Token::LParen | Token::SingleQuotedString(_)) => true,
        Some(Token::Word(word)) => word.quote_style.is_some() || !is_clause(word.keyword),
        _ => false,
    }
}

/// Whether no table is called so without quotes.
fn is_clause(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::FROM
            | Keyword::JOIN
            | Keyword::LEFT
            | Keyword::RIGHT
            | Keyword::FULL
            | Keyword::INNER
            | Keyword::CROSS
            | Keyword::NATURAL
            | Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::ON
            | Keyword::USING
            | Keyword::AS
            | Keyword::AND
            | Keyword::OR
            | Keyword::IS
            | Keyword::IN
            | Keyword::NOT
            | Keyword::BETWEEN
            | Keyword::LIKE
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
    )
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
                    self.put(token, turn, clauses, depth + 1, &mut with);
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
        let mut marks: Vec<(Keyword, usize)> = Vec::new();
        let (mut depth, mut end) = (0_usize, self.tokens.len());
        for (place, token) in self.tokens.iter().enumerate().skip(start + 1) {
            let last = marks.last().map(|(keyword, _)| *keyword);
            match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace => match depth.checked_sub(1) {
                    Some(outer) => depth = outer,
                    None => {
                        end = place;
                        break;
                    }
                },
                Token::SemiColon if depth == 0 => {
                    end = place;
                    break;
                }
                Token::Word(found) if depth == 0 && found.quote_style.is_none() => {
                    let keyword = found.keyword;
                    let follows = match keyword {
                        Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => {
                            end = place;
                            break;
                        }
                        Keyword::ON => last.is_none(),
                        Keyword::USING => turn == Turn::Wider && last == Some(Keyword::ON),
                        Keyword::INTO => turn == Turn::Longer && last == Some(Keyword::ON),
                        Keyword::GROUP => {
                            turn == Turn::Wider
                                && matches!(last, Some(Keyword::ON | Keyword::USING))
                        }
                        Keyword::ORDER | Keyword::LIMIT | Keyword::OFFSET => {
                            last.is_some_and(|last| last != Keyword::GROUP || keyword != last)
                        }
                        _ => false,
                    };
                    if follows {
                        marks.push((keyword, place));
                    }
                }
                _ => {}
            }
        }
        let mut marks = marks.into_iter().peekable();
        let (_, on) = marks.next()?;
        let mut clauses = Clauses {
            table: start + 1..on,
            on: on + 1..end,
            using: None,
            into: None,
            rest: end..end,
        };
        if let Some((_, next)) = marks.peek() {
            clauses.on.end = *next;
        }
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
        Some(clauses)
    }

    /// Puts the query behind others words.
    fn put(
        &self,
        begin: &TokenWithSpan,
        turn: Turn,
        clauses: Clauses,
        depth: usize,
        with: &mut Vec<TokenWithSpan>,
    ) {
        let mut out = Out { begin, with };
        out.say("SELECT ");
        match turn {
            Turn::Wider => {
                for item in self.items(clauses.on) {
                    self.put_on(item, depth, &mut out);
                }
                match clauses.using {
                    Some(using) => out.take(self.of(using, depth)),
                    None => out.say(" count(*)"),
                }
            }
            Turn::Longer => {
                out.say(&format!("{INTO}("));
                if let Some(names) = clauses.into {
                    let is_said = |token: &TokenWithSpan| {
                        let word = |name: &str| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case(name));
                        word("name") || word("value")
                    };
                    let names = self.tokens.get(names).unwrap_or_default();
                    out.take(into(names, is_said));
                }
                out.say(")");
                for item in self.items(clauses.on) {
                    out.say(", ");
                    let is_star = self
                        .words(&item)
                        .next()
                        .is_some_and(|(_, token)| token.token == Token::Mul);
                    let item = self.of(item, depth);
                    match is_star {
                        true => {
                            out.say("COLUMNS(");
                            out.take(item);
                            out.say(")");
                        }
                        false => out.take(item),
                    }
                }
            }
        }
        out.say(" FROM ");
        out.take(self.of(clauses.table, depth));
        out.say(" ");
        out.take(self.of(clauses.rest, depth));
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
        let parted = within.last().and_then(|place| {
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

/// `NAME n VALUE v, w` as names alone.
fn into(tokens: &[TokenWithSpan], is_said: impl Fn(&TokenWithSpan) -> bool) -> Vec<TokenWithSpan> {
    let is_word = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let words: Vec<&TokenWithSpan> = tokens.iter().filter(is_word).collect();
    let mut names = Vec::with_capacity(words.len());
    for (place, token) in words.iter().enumerate() {
        match place {
            0 if is_said(token) => {}
            2 if is_said(token) => names.push(TokenWithSpan {
                token: Token::Comma,
                span: token.span,
            }),
            _ => names.push((*token).clone()),
        }
    }
    names
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
        as_queries(&mut tokens);
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
            "SELECT \"pivot\" FROM t JOIN u ON true",
        ] {
            assert_eq!(read(text), text);
        }
    }
}

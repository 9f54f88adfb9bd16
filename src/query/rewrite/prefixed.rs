//! Names before the items of SELECT, as in DuckDB: `SELECT total: sum(x), n: count(*) FROM t`.
//!
//! Comes in: the words of a text. Goes out: the same with AS and the name behind the item. Never here: colons that stand elsewhere.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::from_first::word;

/// The words, with names behind the items.
pub(in crate::query) fn with_names_behind(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| token.token == Token::Colon) {
        return tokens;
    }
    let mut moving = Moving {
        open: vec![Level::default()],
        with: Vec::with_capacity(tokens.len()),
    };
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if moving.may_name(&token) {
            let blanks: Vec<TokenWithSpan> =
                std::iter::from_fn(|| tokens.next_if(is_blank)).collect();
            if tokens.next_if(|next| next.token == Token::Colon).is_some() {
                moving.name(token);
                continue;
            }
            moving.put(token);
            moving.with.extend(blanks);
            continue;
        }
        moving.put(token);
    }
    moving.end_item();
    moving.with
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// What stands between two brackets.
#[derive(Default)]
struct Level {
    is_list: bool,
    /// Whether an item begins here.
    is_start: bool,
    /// Whether the brackets that come belong to DISTINCT ON.
    is_on: bool,
    /// The word before.
    before: Option<Keyword>,
    name: Option<TokenWithSpan>,
}

struct Moving {
    open: Vec<Level>,
    with: Vec<TokenWithSpan>,
}

impl Moving {
    /// Whether a word may be the name before an item.
    fn may_name(&self, token: &TokenWithSpan) -> bool {
        let is_start = self
            .open
            .last()
            .is_some_and(|level| level.is_list && level.is_start);
        is_start
            && matches!(token.token, Token::Word(_))
            && !matches!(
                word(token),
                Some(Keyword::DISTINCT | Keyword::ALL | Keyword::ON)
            )
    }

    fn name(&mut self, name: TokenWithSpan) {
        if let Some(level) = self.open.last_mut() {
            level.name = Some(name);
            level.is_start = false;
        }
    }

    /// Puts the name of the item behind it.
    fn end_item(&mut self) {
        let Some(name) = self.open.last_mut().and_then(|level| level.name.take()) else {
            return;
        };
        let span = name.span;
        let blank = || Token::Whitespace(Whitespace::Space);
        for token in [blank(), Token::make_keyword("AS"), blank()] {
            self.with.push(TokenWithSpan { token, span });
        }
        self.with.push(name);
        let token = blank();
        self.with.push(TokenWithSpan { token, span });
    }

    fn put(&mut self, token: TokenWithSpan) {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::LParen | Token::LBracket | Token::LBrace => {
                if let Some(level) = self.open.last_mut() {
                    level.is_start &= level.is_on;
                    level.is_on = false;
                }
                self.open.push(Level::default());
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                self.end_item();
                if self.open.len() > 1 {
                    self.open.pop();
                }
            }
            Token::Comma | Token::SemiColon => {
                self.end_item();
                if let Some(level) = self.open.last_mut() {
                    level.is_start = level.is_list;
                }
            }
            Token::Word(_) => self.begin(word(&token)),
            _ => {
                if let Some(level) = self.open.last_mut() {
                    level.is_start = false;
                }
            }
        }
        self.with.push(token);
    }

    fn begin(&mut self, keyword: Option<Keyword>) {
        let before = self
            .open
            .last_mut()
            .map(|level| (level.is_start, level.before));
        // `IS DISTINCT FROM x`, `WITHIN GROUP (ORDER BY x)`.
        let is_within = matches!(
            (keyword, before),
            (Some(Keyword::FROM), Some((false, Some(Keyword::DISTINCT))))
                | (Some(Keyword::GROUP), Some((_, Some(Keyword::WITHIN))))
        );
        let ends = !is_within
            && matches!(
                keyword,
                Some(
                    Keyword::FROM
                        | Keyword::WHERE
                        | Keyword::GROUP
                        | Keyword::HAVING
                        | Keyword::QUALIFY
                        | Keyword::WINDOW
                        | Keyword::ORDER
                        | Keyword::LIMIT
                        | Keyword::OFFSET
                        | Keyword::UNION
                        | Keyword::EXCEPT
                        | Keyword::INTERSECT
                )
            );
        if ends {
            self.end_item();
        }
        let Some(level) = self.open.last_mut() else {
            return;
        };
        level.before = keyword;
        match keyword {
            Some(Keyword::SELECT) => {
                level.is_list = true;
                level.is_start = true;
            }
            Some(Keyword::DISTINCT | Keyword::ALL) if level.is_start => {}
            Some(Keyword::ON) if level.is_start => level.is_on = true,
            _ => {
                level.is_list &= !ends;
                level.is_start = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn read(text: &str) -> String {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        let with = with_names_behind(tokens.unwrap());
        let with: String = with.iter().map(|token| token.token.to_string()).collect();
        with.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_before_items_stand_behind_them() {
        for (text, expected) in [
            (
                "SELECT n: count(*), \"a b\" : x + 1 FROM t",
                "SELECT count(*) AS n , x + 1 AS \"a b\" FROM t",
            ),
            (
                "SELECT DISTINCT ON (a, b) m: a, (SELECT k: 1) UNION ALL SELECT ALL m: 2",
                "SELECT DISTINCT ON (a, b) a AS m , (SELECT 1 AS k ) UNION ALL SELECT ALL 2 AS m",
            ),
            (
                "SELECT a: x IS NOT DISTINCT FROM y, m: mode() WITHIN GROUP (ORDER BY g), n: 1 FROM t",
                "SELECT x IS NOT DISTINCT FROM y AS a , mode() WITHIN GROUP (ORDER BY g) AS m , 1 AS n FROM t",
            ),
            (
                "FROM (SELECT s: {'a': 1, 'b': l[1:2]}) SELECT s.a; ",
                "FROM (SELECT {'a': 1, 'b': l[1:2]} AS s ) SELECT s.a;",
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }

    #[test]
    fn other_colons_stay() {
        for text in [
            "SELECT {'a': x}, l[1:2], a::INT FROM t",
            "SELECT f(a := 1), lambda x: x + 1",
            "SELECT a, {a: 1} FROM t WHERE l[a:b] = 1",
        ] {
            assert_eq!(read(text), text);
        }
    }
}

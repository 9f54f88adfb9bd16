//! Where statements of PIVOT and UNPIVOT begin, and where their parts do.
//!
//! Comes in: the words of a text. Goes out: places among them. Never here: what is put there (`words.rs`).

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::query::rewrite::from_first::Words;

/// So many such statements may stand in a text.
pub(super) const MAX_STATEMENTS: usize = 64;

/// Which of the two a word begins, if it may.
pub(super) fn turns(token: &TokenWithSpan) -> Option<Turn> {
    match &token.token {
        Token::Word(word) => Turn::of(word),
        _ => None,
    }
}

/// What is turned into what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Turn {
    Wider,
    Longer,
}

impl Turn {
    /// What a word begins, if it may.
    pub(in crate::query) fn of(word: &Word) -> Option<Self> {
        if word.quote_style.is_some() {
            return None;
        }
        let is = |name: &str| word.value.eq_ignore_ascii_case(name);
        match () {
            () if is("pivot") || is("pivot_wider") => Some(Self::Wider),
            () if is("unpivot") || is("pivot_longer") => Some(Self::Longer),
            () => None,
        }
    }

    /// Whether a part begins with a word, behind the part that began with another one.
    pub(super) fn is_begun(self, keyword: Keyword, last: Option<Keyword>) -> bool {
        match keyword {
            Keyword::ON => last.is_none(),
            Keyword::USING => self == Self::Wider && last == Some(Keyword::ON),
            Keyword::INTO => self == Self::Longer && last == Some(Keyword::ON),
            Keyword::GROUP => {
                self == Self::Wider && matches!(last, Some(Keyword::ON | Keyword::USING))
            }
            Keyword::ORDER | Keyword::LIMIT | Keyword::OFFSET => last.is_some(),
            _ => false,
        }
    }
}

/// Where such statements begin, among all tokens: where a query may begin, and a table follows.
pub(super) fn starts(words: &Words<'_>) -> Vec<usize> {
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
    let starts = (0..words.len()).filter(begins).take(MAX_STATEMENTS + 1);
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

//! How deep and how long texts may be.
//!
//! Comes in: the words of a text. Goes out: an error for a text whose tree the parser or the planner could not bear. Never here: the tree itself (`shape.rs`).

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::guard::{MAX_EXPRESSION_DEPTH, too_much};
use crate::error::{Error, ErrorKind, Result};

/// The longest run of operators between commas and clause words that is parsed at all. Higher than the depth, since `a = 1 AND b = 2` is a run of 3 and 2 deep.
const MAX_OPERATOR_RUN: usize = 4 * MAX_EXPRESSION_DEPTH;

/// The deepest nesting of parentheses, brackets, braces and CASE, together. From about 48 on, the parser tries each level twice, which doubles its time with every one, and takes the word CASE for a name.
const MAX_NESTING: usize = 40;

/// Refuses deep nesting on the tokens, before the parser meets it.
pub(super) fn check_nesting(tokens: &[TokenWithSpan]) -> Result<()> {
    // How many CASE are open within each bracket that is, and outside of all.
    let mut open = vec![0_usize];
    let (mut depth, mut is_part_of_name) = (0_usize, false);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(0);
                depth += 1;
            }
            Token::RParen | Token::RBracket | Token::RBrace if open.len() > 1 => {
                let cases = open.pop().unwrap_or_default();
                depth = depth.saturating_sub(cases + 1);
            }
            // A column that is called `case` has no END.
            Token::Comma | Token::SemiColon => {
                let cases = open.last_mut().map_or(0, std::mem::take);
                depth = depth.saturating_sub(cases);
            }
            Token::Word(word) if word.keyword == Keyword::CASE && !is_part_of_name => {
                if let Some(cases) = open.last_mut() {
                    *cases += 1;
                    depth += 1;
                }
            }
            Token::Word(word) if word.keyword == Keyword::END => {
                if let Some(cases) = open.last_mut().filter(|cases| **cases > 0) {
                    *cases -= 1;
                    depth = depth.saturating_sub(1);
                }
            }
            _ => {}
        }
        is_part_of_name = token.token == Token::Period;
        if depth > MAX_NESTING {
            let text = format!(
                "parentheses, brackets and CASE may be nested {MAX_NESTING} deep, these are deeper"
            );
            return Err(Error::new(ErrorKind::ResourcesExhausted, text).with_hint(
                "name the parts: WITH part AS (SELECT …); one CASE takes any number of WHEN",
            ));
        }
    }
    Ok(())
}

/// Refuses long runs of operators on the tokens, so that the parser never builds a tree that is too deep to walk or drop.
pub(super) fn check_runs(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![Level::default()];
    for token in tokens.iter().map(|token| &token.token) {
        match token {
            Token::LParen => levels.push(Level::default()),
            Token::RParen if levels.len() > 1 => {
                levels.pop();
            }
            _ => {}
        }
        let Some(level) = levels.last_mut() else {
            continue;
        };
        level.count(token);
        let longest = level.operators.max(level.members);
        if longest > MAX_OPERATOR_RUN {
            return Err(too_much(format!(
                "a chain of operators may be {MAX_EXPRESSION_DEPTH} deep, got more than {MAX_OPERATOR_RUN} operators in a row"
            )));
        }
    }
    Ok(())
}

/// What was counted since the parenthesis that opened this level.
#[derive(Default)]
struct Level {
    /// Operators since the last comma or clause word.
    operators: usize,
    /// Joins and set operations; clause words do not end such a chain.
    members: usize,
}

impl Level {
    fn count(&mut self, token: &Token) {
        match token {
            Token::Comma | Token::SemiColon => self.operators = 0,
            Token::Word(word) => match word.keyword {
                Keyword::SELECT
                | Keyword::FROM
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::ON
                | Keyword::WHEN
                | Keyword::THEN
                | Keyword::ELSE
                | Keyword::END => self.operators = 0,
                Keyword::JOIN | Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    self.members += 1;
                }
                Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::RLIKE
                | Keyword::REGEXP
                | Keyword::SIMILAR
                | Keyword::BETWEEN
                | Keyword::IN
                | Keyword::DIV
                | Keyword::AT
                | Keyword::COLLATE => self.operators += 1,
                _ => {}
            },
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Whitespace(_)
            | Token::LParen
            | Token::RParen
            | Token::RBracket
            | Token::RBrace
            | Token::EOF => {}
            _ => self.operators += 1,
        }
    }
}

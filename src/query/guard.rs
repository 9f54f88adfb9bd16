//! Checks SQL text before anything plans it.
//!
//! Comes in: a text from anywhere. Goes out: one parsed statement that only reads, whose size and nesting the planner can bear. Needed because a flat chain of
//! 20,000 operators is legal for the parser, overflows the stack of the planner, and planning time grows with the square of the chain. Never here: planning.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Statement as SqlStatement, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, ErrorKind, Result};

/// The longest SQL text that is read, in bytes.
pub const MAX_SQL_BYTES: usize = 256 * 1024;

/// The deepest nesting of expressions; a chain of `n` operators without parentheses is `n` deep.
pub const MAX_EXPRESSION_DEPTH: usize = 500;

/// The longest run of operators between commas and clause words that is parsed at all. Higher than the depth, since `a = 1 AND b = 2` is a run of 3 and 2 deep.
const MAX_OPERATOR_RUN: usize = 4 * MAX_EXPRESSION_DEPTH;

/// Parses one statement that only reads, within the limits.
///
/// # Errors
/// `ResourcesExhausted` past a limit, `Query` for text that is not SQL, holds no statement or several, or would change something.
pub(crate) fn parse(state: &SessionState, text: &str) -> Result<Statement> {
    if text.len() > MAX_SQL_BYTES {
        return Err(too_much(format!(
            "a SQL text may have {MAX_SQL_BYTES} bytes, got {}",
            text.len()
        )));
    }
    check_runs(text)?;
    let nesting = state.config().options().sql_parser.recursion_limit.get();
    let mut statements = DFParserBuilder::new(text)
        .with_dialect(&GenericDialect {})
        .with_recursion_limit(nesting)
        .build()?
        .parse_statements()?;
    let (Some(statement), 0) = (statements.pop_front(), statements.len()) else {
        let count = if statements.is_empty() {
            "none"
        } else {
            "several"
        };
        return Err(Error::new(
            ErrorKind::Query,
            format!("a SQL text must hold one statement, got {count}"),
        ));
    };
    check_kind(&statement)?;
    check_depth(&statement)?;
    Ok(statement)
}

fn too_much(message: String) -> Error {
    Error::new(ErrorKind::ResourcesExhausted, message)
        .with_hint("register the values as a grid and join, or use IN (…) for long lists")
}

/// Refuses long runs of operators on the tokens, so that the parser never builds a tree that is too deep to walk or drop.
fn check_runs(text: &str) -> Result<()> {
    let tokens = Tokenizer::new(&GenericDialect {}, text)
        .tokenize()
        .map_err(|error| Error::new(ErrorKind::Query, error.to_string()))?;
    let mut levels = vec![Level::default()];
    for token in &tokens {
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

fn check_kind(statement: &Statement) -> Result<()> {
    let refused = match statement {
        Statement::Statement(inner) => match inner.as_ref() {
            SqlStatement::Query(_) | SqlStatement::ExplainTable { .. } => return Ok(()),
            other => first_word(&other.to_string()),
        },
        Statement::Explain(explain) => return check_kind(&explain.statement),
        other => first_word(&other.to_string()),
    };
    Err(Error::new(
        ErrorKind::Query,
        format!("only statements that read are allowed (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE), got {refused}"),
    )
    .with_hint("grids never change: build a new one, and register it under the name"))
}

fn first_word(text: &str) -> String {
    text.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn check_depth(statement: &Statement) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return check_depth(&explain.statement),
        _ => return Ok(()),
    };
    let mut depth = Depth::default();
    match inner.visit(&mut depth) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(too_much(format!(
            "an expression may be {MAX_EXPRESSION_DEPTH} operators deep, this one is deeper"
        ))),
    }
}

#[derive(Default)]
struct Depth {
    now: usize,
}

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.now += 1;
        // An operator chain of depth n ends in a leaf that is visited one level below.
        if self.now > MAX_EXPRESSION_DEPTH + 1 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.now -= 1;
        ControlFlow::Continue(())
    }
}

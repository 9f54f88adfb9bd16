//! `ASOF JOIN`: beside each row of the left table the nearest one of the right table.
//!
//! Comes in: the words of a text, and FROM clauses. Goes out: words that the parser knows (behind `ASOF JOIN` it wants a MATCH_CONDITION), and joins whose condition is the one argument of a function that the plan knows (`plan/asof.rs`). Never
//! here: which column is of which side, USING (`using/`).

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, TableFactor, TableWithJoins,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::called::called;
use super::plan::asof::CONDITION;
use super::slips::ASOF;
use crate::error::{Error, Result};

/// The word that the parser takes in front of all joins, and that means nothing to us.
const STANDS_FOR_ASOF: Keyword = Keyword::GLOBAL;

/// The words, in which `ASOF` in front of a join is one that the parser takes there.
///
/// # Errors
/// `Unsupported` for `GLOBAL JOIN`.
pub(super) fn with_known_words(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    let words: Vec<(usize, Option<Keyword>)> = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)))
        .map(|(place, token)| (place, keyword(token)))
        .collect();
    let has_condition = words
        .iter()
        .any(|(_, word)| *word == Some(Keyword::MATCH_CONDITION));
    for pair in words.windows(2) {
        let [(place, Some(word)), (_, Some(next))] = pair else {
            continue;
        };
        let is_join = matches!(
            next,
            Keyword::JOIN
                | Keyword::INNER
                | Keyword::LEFT
                | Keyword::RIGHT
                | Keyword::FULL
                | Keyword::SEMI
                | Keyword::ANTI
        );
        match word {
            _ if !is_join => {}
            Keyword::ASOF if *next == Keyword::JOIN && has_condition => {}
            Keyword::ASOF => {
                if let Some(TokenWithSpan {
                    token: Token::Word(word),
                    ..
                }) = tokens.get_mut(*place)
                {
                    word.keyword = STANDS_FOR_ASOF;
                }
            }
            word if *word == STANDS_FOR_ASOF => {
                let text = "GLOBAL in front of a join is not supported";
                return Err(Error::unsupported(text)
                    .with_hint("leave it out: where rows are joined is up to the engine"));
            }
            _ => {}
        }
    }
    Ok(tokens)
}

/// Puts conditions of a join of the engine in place of ASOF; one by USING stays for [`using_last`].
///
/// # Errors
/// `Unsupported` for kinds of joins that are not nearest ones, `Query` for one without a condition.
pub(super) fn in_words(from: &mut [TableWithJoins]) -> Result<()> {
    for table in from {
        within(&mut table.relation, false)?;
        joins_in_words(table, false)?;
    }
    Ok(())
}

/// Joins in parentheses, which have no USING if they stand where it would stay what it is.
fn within(factor: &mut TableFactor, is_apart: bool) -> Result<()> {
    let TableFactor::NestedJoin {
        table_with_joins,
        alias,
    } = factor
    else {
        return Ok(());
    };
    let is_apart = is_apart || alias.is_some();
    within(&mut table_with_joins.relation, is_apart)?;
    joins_in_words(table_with_joins, is_apart)
}

fn joins_in_words(table: &mut TableWithJoins, is_apart: bool) -> Result<()> {
    for join in &mut table.joins {
        within(&mut join.relation, true)?;
        if let JoinOperator::AsOf {
            match_condition,
            constraint,
        } = &join.join_operator
        {
            join.join_operator = matched(match_condition, constraint)?;
        } else if join.global {
            join.global = marked(&mut join.join_operator)?;
            if join.global && is_apart {
                let text = "ASOF JOIN with USING is not supported within parentheses";
                return Err(
                    Error::unsupported(text).with_hint("write ON a.key = b.key AND a.at >= b.at")
                );
            }
        }
    }
    Ok(())
}

/// `ASOF JOIN … MATCH_CONDITION (a.t >= b.t) ON …`, which keeps all rows of the left table.
fn matched(condition: &Expr, constraint: &JoinConstraint) -> Result<JoinOperator> {
    let condition = match constraint {
        JoinConstraint::None => condition.clone(),
        JoinConstraint::On(equal) => and(equal.clone(), condition.clone()),
        JoinConstraint::Using(_) | JoinConstraint::Natural => {
            let text = "ASOF JOIN with MATCH_CONDITION and USING is not supported";
            return Err(Error::unsupported(text).with_hint("write ON a.x = b.x"));
        }
    };
    Ok(JoinOperator::Left(JoinConstraint::On(called(
        CONDITION,
        [condition],
    ))))
}

/// Marks the condition of a nearest join; whether it is one by USING, which has none yet.
fn marked(operator: &mut JoinOperator) -> Result<bool> {
    let constraint = match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => constraint,
        _ => return Err(unsupported()),
    };
    match constraint {
        JoinConstraint::On(condition) => {
            let condition = condition.clone();
            *constraint = JoinConstraint::On(called(CONDITION, [condition]));
            Ok(false)
        }
        JoinConstraint::Using(_) => Ok(true),
        JoinConstraint::Natural | JoinConstraint::None => Err(unsupported()),
    }
}

fn unsupported() -> Error {
    Error::unsupported("an ASOF JOIN of this kind is not supported").with_hint(ASOF)
}

/// The condition of a nearest join by USING: pairs of columns that are equal, but for the last one.
pub(super) fn using_last(mut pairs: Vec<(Expr, Expr)>) -> Option<Expr> {
    let (left, right) = pairs.pop()?;
    let last = binary(left, BinaryOperator::GtEq, right);
    let equal = pairs.into_iter().rev();
    let equal = equal.map(|(left, right)| binary(left, BinaryOperator::Eq, right));
    let all = equal.fold(last, |all, one| and(one, all));
    Some(called(CONDITION, [all]))
}

fn and(one: Expr, other: Expr) -> Expr {
    let one = Expr::Nested(Box::new(one));
    let other = Expr::Nested(Box::new(other));
    binary(one, BinaryOperator::And, other)
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

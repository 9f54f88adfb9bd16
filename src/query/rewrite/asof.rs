//! `ASOF JOIN`: beside each row of the left table the nearest one of the right table.
//!
//! Comes in: the words of a text, and FROM clauses. Goes out: words that the parser knows (behind `ASOF JOIN` it wants a MATCH_CONDITION), joins whose condition is the one argument of a function that the plan knows (`plan/asof/`), and what was written, for names and views. Never
//! here: which column is of which side, USING (`using/`).

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint,
    JoinOperator, Select, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::called::called;
use crate::error::{Error, Result};
use crate::query::messages::slips::ASOF;
use crate::query::plan::asof::CONDITION;

/// The word that the parser takes in front of all joins, and that means nothing to us.
const STANDS_FOR_ASOF: Keyword = Keyword::GLOBAL;

/// The words that a join may begin with.
const JOINS: [Keyword; 7] = [
    Keyword::JOIN,
    Keyword::INNER,
    Keyword::LEFT,
    Keyword::RIGHT,
    Keyword::FULL,
    Keyword::SEMI,
    Keyword::ANTI,
];

/// Whether what stands behind a word is a name.
fn is_behind(token: &Token) -> bool {
    match token {
        Token::Comma | Token::LParen | Token::Period => true,
        Token::Word(word) => {
            matches!(word.keyword, Keyword::FROM | Keyword::JOIN | Keyword::AS)
        }
        _ => false,
    }
}

/// The words, in which `ASOF` in front of a join is one that the parser takes there.
///
/// # Errors
/// `Unsupported` for `GLOBAL JOIN`.
pub(in crate::query) fn with_known_words(
    mut tokens: Vec<TokenWithSpan>,
) -> Result<Vec<TokenWithSpan>> {
    let places: Vec<usize> = (0..tokens.len())
        .filter(|place| {
            let token = tokens.get(*place).map(|token| &token.token);
            !matches!(token, Some(Token::Whitespace(_)))
        })
        .collect();
    let word = |tokens: &[TokenWithSpan], place: usize| match &tokens.get(place)?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    let has_condition = places
        .iter()
        .any(|place| word(&tokens, *place) == Some(Keyword::MATCH_CONDITION));
    for around in places.windows(3) {
        let [before, place, next] = around else {
            continue;
        };
        let (Some(found), Some(next)) = (word(&tokens, *place), word(&tokens, *next)) else {
            continue;
        };
        let is_join = JOINS.contains(&next);
        if !is_join
            || tokens
                .get(*before)
                .is_none_or(|before| is_behind(&before.token))
        {
            continue;
        }
        match found {
            Keyword::ASOF if next == Keyword::JOIN && has_condition => {}
            Keyword::ASOF => {
                if let Some(token) = tokens.get_mut(*place)
                    && let Token::Word(word) = &mut token.token
                {
                    word.keyword = STANDS_FOR_ASOF;
                }
            }
            STANDS_FOR_ASOF => {
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
/// `Unsupported` for kinds of joins that are not nearest ones, and for USING where it cannot be told apart.
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

/// A text of a statement in which joins are called as the user did.
pub(super) fn as_called(mut text: String) -> String {
    for join in ["JOIN", "LEFT JOIN", "INNER JOIN", "LEFT OUTER JOIN"] {
        let (ours, theirs) = (format!(" GLOBAL {join} "), format!(" ASOF {join} "));
        if text.contains(&ours) {
            text = text.replace(&ours, &theirs);
        }
    }
    text
}

/// The text of a statement that was rewritten, with nearest joins as they are written.
pub(in crate::query) fn as_written(statement: &Statement) -> String {
    let Statement::Statement(inner) = statement else {
        return statement.to_string();
    };
    let mut inner = inner.clone();
    let _: ControlFlow<()> = inner.visit(&mut Written);
    as_called(inner.to_string())
}

struct Written;

impl VisitorMut for Written {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.from.iter_mut().for_each(unmarked);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            unmarked(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

/// Puts the conditions of nearest joins in place of the calls that they are.
fn unmarked(table: &mut TableWithJoins) {
    for join in &mut table.joins {
        let (JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))) = &mut join.join_operator
        else {
            continue;
        };
        if let Expr::Function(call) = condition
            && call.name.to_string() == CONDITION
            && let FunctionArguments::List(list) = &call.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_slice()
        {
            *condition = inner.clone();
            join.global = true;
        }
    }
}

/// The condition of a nearest join by USING: pairs of columns that are equal, but for the last one.
pub(super) fn using_last(mut pairs: Vec<(Expr, Expr)>) -> Option<Expr> {
    let (left, right) = pairs.pop()?;
    let last = binary(left, BinaryOperator::GtEq, right);
    let equal = pairs.into_iter().rev();
    let equal = equal.map(|(left, right)| binary(left, BinaryOperator::Eq, right));
    let all = equal.fold(last, |all, one| binary(one, BinaryOperator::And, all));
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

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    /// How many words became others.
    fn marks(text: &str) -> Result<usize> {
        let mut tokens = Tokenizer::new(&GenericDialect {}, text);
        let tokens = with_known_words(tokens.tokenize_with_location().unwrap())?;
        let is_mark = |token: &&TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == STANDS_FOR_ASOF && word.value.eq_ignore_ascii_case("asof"));
        Ok(tokens.iter().filter(is_mark).count())
    }

    #[test]
    fn asof_is_a_word_in_front_of_joins_and_a_name_elsewhere() {
        for (text, expected) in [
            ("SELECT 1 FROM a ASOF JOIN b USING (k)", 1),
            (
                "SELECT 1 FROM a asof /* */ left join b ON x ASOF INNER JOIN c ON y",
                2,
            ),
            (
                "SELECT 1 FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t)",
                0,
            ),
            ("SELECT 1 FROM asof JOIN b ON x", 0),
            ("SELECT 1 FROM a AS asof LEFT JOIN b ON x", 0),
            ("SELECT 1 FROM a, asof JOIN b ON x", 0),
            ("SELECT 1 FROM global JOIN b ON global.x = b.x", 0),
            ("SELECT 1 FROM a AS global LEFT JOIN b ON x", 0),
            ("SELECT \"asof\" FROM a", 0),
            ("SELECT asof, left(a, 1) FROM t", 0),
        ] {
            assert_eq!(marks(text).unwrap(), expected, "{text}");
        }
        assert!(marks("SELECT 1 FROM a GLOBAL LEFT JOIN b ON x").is_err());
    }
}

//! Stars that are more than all columns: `f(*COLUMNS(…))`, `* RENAME (a AS b)`, and `* EXCLUDE (…)` over joins by names.
//!
//! Comes in: the words of a text, and items of a SELECT. Goes out: `*COLUMNS` as one word, and the others as COLUMNS. Never here: which columns are meant.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, Select, SelectItem,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{COLUMNS, SEVERAL};
use crate::query::rewrite::called::called;
use crate::query::rewrite::using::constraint;

/// Marks `*COLUMNS(…)` as one word. Whether the text may name columns so at all, or leaves out some of a join by names.
pub(in crate::query) fn with_known_words(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let is_blank = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut seen = false;
    // The last two that are not blank.
    let mut before: [Option<usize>; 2] = [None; 2];
    let (mut has_names, mut has_options, mut is_renamed) = (false, false, false);
    let mut stars = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        if is_blank(token) {
            continue;
        }
        if is_word(&token.token) && follows_parenthesis(tokens, place) {
            seen = true;
            if let [Some(two), Some(one)] = before
                && is_at(tokens, one, &Token::Mul)
                && (is_at(tokens, two, &Token::LParen) || is_at(tokens, two, &Token::Comma))
            {
                stars.push((one, place));
            }
        }
        if let Token::Word(word) = &token.token {
            has_names |= matches!(word.keyword, Keyword::USING | Keyword::NATURAL);
            has_options |= matches!(word.keyword, Keyword::EXCLUDE | Keyword::REPLACE);
            is_renamed |= word.keyword == Keyword::RENAME;
        }
        before = [before[1], Some(place)];
    }
    for (star, word) in stars.into_iter().rev() {
        if let Some(token) = tokens.get_mut(word) {
            token.token = Token::Word(Word {
                value: SEVERAL.to_owned(),
                quote_style: None,
                keyword: Keyword::NoKeyword,
            });
        }
        tokens.remove(star);
    }
    seen || is_renamed || has_names && has_options
}

fn is_word(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(COLUMNS))
}

fn is_at(tokens: &[TokenWithSpan], place: usize, wanted: &Token) -> bool {
    tokens
        .get(place)
        .is_some_and(|token| token.token == *wanted)
}

fn follows_parenthesis(tokens: &[TokenWithSpan], place: usize) -> bool {
    let mut rest = tokens.iter().skip(place + 1).map(|token| &token.token);
    let next = rest.find(|token| !matches!(token, Token::Whitespace(_)));
    next == Some(&Token::LParen)
}

/// Whether `*` of a SELECT has columns that several of its tables have.
pub(super) fn is_joined_by_names(select: &Select) -> bool {
    let mut joins = select.from.iter().flat_map(|table| &table.joins);
    joins.any(|join| {
        let mut operator = join.join_operator.clone();
        matches!(
            constraint(&mut operator),
            Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
        )
    })
}

/// Writes `* RENAME (…)`, and over joins by names `* EXCLUDE (…)` and `* REPLACE (…)`, as COLUMNS, which knows the columns. Whether it is that.
pub(super) fn turn_star(item: &mut SelectItem, is_joined_by_names: bool) -> bool {
    let SelectItem::Wildcard(options) = item else {
        return false;
    };
    let has_options = options.opt_exclude.is_some() || options.opt_replace.is_some();
    if options.opt_rename.is_none() && !(is_joined_by_names && has_options) {
        return false;
    }
    let options = FunctionArgExpr::WildcardWithOptions(options.clone());
    let mut columns = called(COLUMNS, []);
    if let Expr::Function(function) = &mut columns
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.args.push(FunctionArg::Unnamed(options));
    }
    *item = SelectItem::UnnamedExpr(columns);
    true
}

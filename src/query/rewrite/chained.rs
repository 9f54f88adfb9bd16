//! Calls behind a dot, as in DuckDB: `name.upper()` is `upper(name)`, `x.round(2).abs()` is `abs(round(x, 2))`.
//!
//! Comes in: an expression. Goes out: the call of a function that there is, with what stands before the dot as first argument. Never here: functions that there are not, of which the engine says so.

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::dialect::BY_LAMBDA;
use super::synonyms::is_known;
use super::using::folded;

/// Puts the call in place of what is written so.
pub(super) fn as_call(expr: &mut Expr, state: &SessionState) {
    match expr {
        Expr::Function(call) => {
            let Some((first, name)) = behind_name(call, state) else {
                return;
            };
            put_first(call, first);
            call.name = ObjectName::from(name);
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            let is_call = |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Function(call)) if is_of(call, state));
            let Some(place) = access_chain.iter().rposition(is_call) else {
                return;
            };
            let rest = access_chain.split_off(place + 1);
            let Some(AccessExpr::Dot(Expr::Function(mut call))) = access_chain.pop() else {
                return;
            };
            // Fields before the last dot: `(s).a.upper()`.
            let mut parts: Vec<Ident> = names_of(&call).unwrap_or_default();
            let name = parts.pop();
            let fields = parts.into_iter().map(Expr::Identifier).map(AccessExpr::Dot);
            access_chain.extend(fields);
            call.name.0 = name.map(ObjectNamePart::Identifier).into_iter().collect();
            let nothing = Expr::Tuple(Vec::new());
            let root = std::mem::replace(root.as_mut(), nothing);
            let first = with(root, std::mem::take(access_chain));
            put_first(&mut call, first);
            *expr = with(Expr::Function(call), rest);
        }
        _ => {}
    }
}

/// Whether something is written so.
pub(super) fn is_written(expr: &Expr, state: &SessionState) -> bool {
    match expr {
        Expr::Function(call) => behind_name(call, state).is_some(),
        Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter().any(
            |access| matches!(access, AccessExpr::Dot(Expr::Function(call)) if is_of(call, state)),
        ),
        _ => false,
    }
}

/// The name before the dot of a function that there is, and the name of that.
fn behind_name(call: &Function, state: &SessionState) -> Option<(Expr, Ident)> {
    let mut parts = names_of(call)?;
    let name = parts.pop().filter(|name| is_callable(name, state))?;
    let first = match parts.len() {
        0 => return None,
        1 => Expr::Identifier(parts.pop()?),
        _ => Expr::CompoundIdentifier(parts),
    };
    Some((first, name))
}

/// Whether it is a function that there is.
fn is_of(call: &Function, state: &SessionState) -> bool {
    let name = call.name.0.last().and_then(|name| name.as_ident());
    name.is_some_and(|name| is_callable(name, state))
}

fn is_callable(name: &Ident, state: &SessionState) -> bool {
    let name = folded(name);
    is_known(&name, state) || BY_LAMBDA.contains(&name.as_str()) || name == "unnest"
}

fn names_of(call: &Function) -> Option<Vec<Ident>> {
    let parts = call.name.0.iter();
    parts.map(|part| part.as_ident().cloned()).collect()
}

/// The words, of which those between a dot and a bracket are plain ones: `x.trim()` is no TRIM of the standard.
pub(in crate::query) fn as_plain_words(tokens: &mut [TokenWithSpan]) {
    let mut before: [Option<usize>; 2] = [None; 2];
    let mut plain = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        if let [Some(period), Some(word)] = before
            && token.token == Token::LParen
            && tokens
                .get(period)
                .is_some_and(|token| token.token == Token::Period)
        {
            plain.push(word);
        }
        before = [before[1], Some(place)];
    }
    for place in plain {
        if let Some(Token::Word(word)) = tokens.get_mut(place).map(|token| &mut token.token) {
            word.keyword = Keyword::NoKeyword;
        }
    }
}

fn put_first(call: &mut Function, first: Expr) {
    let first = FunctionArg::Unnamed(FunctionArgExpr::Expr(first));
    match &mut call.args {
        FunctionArguments::List(list) => list.args.insert(0, first),
        other => {
            *other = FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment: None,
                args: vec![first],
                clauses: Vec::new(),
            });
        }
    }
}

/// A value with what is taken out of it.
fn with(root: Expr, access_chain: Vec<AccessExpr>) -> Expr {
    match access_chain.is_empty() {
        true => root,
        false => Expr::CompoundFieldAccess {
            root: Box::new(root),
            access_chain,
        },
    }
}

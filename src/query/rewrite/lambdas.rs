//! Fields of what lambdas are given: `list_transform(l, s -> s.a)`.
//!
//! Comes in: a lambda. Goes out: the same with `s['a']` in their place: the engine takes what stands before a dot for a table. Never here: fields of columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, LambdaFunction, Subscript, Value, visit_expressions_mut,
};

use super::row_in::parsed;
use super::using::{folded, same};
use crate::error::{Error, Result};

/// Writes the fields in brackets.
///
/// # Errors
/// None of the user's.
pub(super) fn with_fields(function: &mut LambdaFunction) -> Result<()> {
    let params: Vec<Ident> = function
        .params
        .iter()
        .map(|param| param.name.clone())
        .collect();
    let visited = visit_expressions_mut(&mut function.body, |expr| {
        let is_param = |name: &Ident| params.iter().any(|param| same(param, name));
        match expr {
            Expr::CompoundIdentifier(names) => {
                if let [first, fields @ ..] = names.as_slice()
                    && is_param(first)
                {
                    match field_of(first, fields) {
                        Ok(field) => *expr = field,
                        Err(error) => return ControlFlow::Break(error),
                    }
                }
            }
            // `x.l[1]`: the engine takes what stands before a dot for a table here, too.
            Expr::CompoundFieldAccess { root, access_chain } => {
                if let Expr::Identifier(first) = root.as_ref()
                    && is_param(first)
                {
                    access_chain.iter_mut().for_each(in_brackets);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn in_brackets(access: &mut AccessExpr) {
    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
        let name = Expr::value(Value::SingleQuotedString(folded(name)));
        *access = AccessExpr::Subscript(Subscript::Index { index: name });
    }
}

fn field_of(value: &Ident, fields: &[Ident]) -> Result<Expr, Error> {
    let fields = fields.iter().map(|field| {
        let name = Expr::value(Value::SingleQuotedString(folded(field)));
        format!("[{name}]")
    });
    parsed(&format!("{value}{}", fields.collect::<String>()))
}

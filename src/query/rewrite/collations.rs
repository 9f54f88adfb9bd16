//! Texts that are compared by other rules: `ORDER BY name COLLATE NOCASE`, `name COLLATE NOACCENT = 'e'`.
//!
//! Comes in: a statement. Goes out: the same, in which both sides of such a comparison, and what rows are ordered by, are texts of small letters, or without accents: whichever the collation leaves out of account. Never here: the order of letters of a language, and groups: rows that are the same by a collation have several texts.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, NamedWindowExpr, ObjectName, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, Value, Visit, VisitMut, Visitor, VisitorMut, WindowType,
};

use super::called::called;
use super::written::{Meant, name_items, without_parentheses};
use crate::error::{Error, ErrorKind, Result};

/// Puts what they mean in their place.
///
/// # Errors
/// `Unsupported` for collations that there are not, and where none counts; `Query` for two in one comparison.
pub(super) fn in_words(statement: &mut Statement) -> Result<()> {
    if Visit::visit(statement, &mut Looking).is_continue() {
        return Ok(());
    }
    let mut writing = Writing { meant: Vec::new() };
    match VisitMut::visit(statement, &mut writing) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Looking;

impl Visitor for Looking {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Collate { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Writing {
    /// The names in the ORDER BY of each query that is open.
    meant: Vec<Meant>,
}

impl VisitorMut for Writing {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.meant.push(Meant::of(&query.order_by));
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            if let SetExpr::Select(select) = query.body.as_ref() {
                keys.iter_mut().for_each(|key| of_item(key, select));
            }
            return ordered(keys);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.meant.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        name_items(select, self.meant.last().unwrap_or(&Meant::default()));
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(window) = &mut window.1 {
                ordered(&mut window.order_by)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::BinaryOp { left, op, right } if compares(op) => {
                all_by_one([left.as_mut(), right.as_mut()])
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                all_by_one([left.as_mut(), right.as_mut()])
            }
            Expr::Between {
                expr, low, high, ..
            } => all_by_one([expr.as_mut(), low.as_mut(), high.as_mut()]),
            Expr::Like { expr, pattern, .. } | Expr::ILike { expr, pattern, .. } => {
                all_by_one([expr.as_mut(), pattern.as_mut()])
            }
            Expr::InList { expr, list, .. } => {
                all_by_one(std::iter::once(expr.as_mut()).chain(list))
            }
            Expr::Case {
                operand: Some(operand),
                conditions,
                ..
            } => {
                let wanted = conditions.iter_mut().map(|when| &mut when.condition);
                all_by_one(std::iter::once(operand.as_mut()).chain(wanted))
            }
            Expr::Function(call) => in_call(call),
            Expr::Collate { collation, .. } => {
                let text = format!(
                    "COLLATE {collation} counts in comparisons of values (=, <, BETWEEN, IN (…), LIKE, CASE x WHEN) and in ORDER BY"
                );
                let hint = "elsewhere, as in GROUP BY and DISTINCT: lower(x), or strip_accents(x)";
                ControlFlow::Break(Error::unsupported(text).with_hint(hint))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn compares(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

/// `ORDER BY 1 COLLATE NOCASE` is by the first item.
fn of_item(key: &mut OrderByExpr, select: &Select) {
    let Expr::Collate { expr, .. } = &mut key.expr else {
        return;
    };
    let Expr::Value(value) = expr.as_ref() else {
        return;
    };
    let place = match &value.value {
        Value::Number(number, _) => number.parse::<usize>().ok(),
        _ => None,
    };
    let item = place.and_then(|place| select.projection.get(place.checked_sub(1)?));
    if let Some(SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }) = item
    {
        **expr = item.clone();
    }
}

/// What rows are ordered by, within a call and its window, and what a pattern is looked for in.
fn in_call(call: &mut Function) -> ControlFlow<Error> {
    ordered(&mut call.within_group)?;
    let is_pattern = call.name.to_string() == "glob_matches";
    if let FunctionArguments::List(list) = &mut call.args {
        if is_pattern {
            let texts = list.args.iter_mut().filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(text)) => Some(text),
                _ => None,
            });
            all_by_one(texts)?;
        }
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(keys) = clause {
                ordered(keys)?;
            }
        }
    }
    match &mut call.over {
        Some(WindowType::WindowSpec(window)) => ordered(&mut window.order_by),
        _ => ControlFlow::Continue(()),
    }
}

fn ordered(keys: &mut [OrderByExpr]) -> ControlFlow<Error> {
    for key in keys {
        all_by_one([&mut key.expr])?;
    }
    ControlFlow::Continue(())
}

/// Texts that are compared, by the collation that one of them has.
fn all_by_one<'a>(texts: impl IntoIterator<Item = &'a mut Expr>) -> ControlFlow<Error> {
    let mut texts: Vec<&mut Expr> = texts.into_iter().collect();
    let collations = texts.iter().filter_map(|text| collation_of(text));
    let collations: Vec<ObjectName> = collations.collect();
    let Some(collation) = collations.first().cloned() else {
        return ControlFlow::Continue(());
    };
    let name = |collation: &ObjectName| collation.to_string().to_lowercase();
    if let Some(other) = collations
        .iter()
        .find(|other| name(other) != name(&collation))
    {
        let text = format!("a comparison has one collation, got {collation} and {other}");
        return ControlFlow::Break(Error::new(ErrorKind::Query, text));
    }
    for text in &mut texts {
        while let Some((inner, _)) = collated(text) {
            **text = inner.clone();
        }
        match by(text.clone(), &collation) {
            Ok(meant) => **text = meant,
            Err(error) => return ControlFlow::Break(error),
        }
    }
    ControlFlow::Continue(())
}

fn collation_of(text: &Expr) -> Option<ObjectName> {
    collated(text).map(|(_, collation)| collation.clone())
}

fn collated(text: &Expr) -> Option<(&Expr, &ObjectName)> {
    match without_parentheses(text) {
        Expr::Collate { expr, collation } => Some((expr, collation)),
        _ => None,
    }
}

/// A text as a collation sees it: `NOCASE`, `NOACCENT`, both with a dot between them, or as it is.
fn by(text: Expr, collation: &ObjectName) -> Result<Expr> {
    let mut seen = text;
    for part in &collation.0 {
        let name = part.as_ident().map(|name| name.value.to_lowercase());
        seen = match name.as_deref().unwrap_or_default() {
            "nocase" => called("lower", [seen]),
            "noaccent" => called("strip_accents", [seen]),
            "binary" | "c" | "posix" => seen,
            _ => {
                let text = format!("the collation {collation} is not known");
                let hint = "NOCASE, NOACCENT, NOCASE.NOACCENT or BINARY";
                return Err(Error::unsupported(text).with_hint(hint));
            }
        };
    }
    Ok(seen)
}

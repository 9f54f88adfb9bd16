//! `COLUMNS(…)`: one expression for each of several columns of FROM, as in `SELECT max(COLUMNS('dep_.*'))`.
//!
//! Comes in: the words of a text, and a statement as it was parsed. Goes out: the statement with the columns written out: in SELECT an item for each, called like the column or as the alias says; in GROUP BY, ORDER BY and DISTINCT ON a key for each; in WHERE, HAVING and QUALIFY all of them with AND. `f(*COLUMNS(…))` has each as an
//! argument. Which columns there are is asked of the planner, by a query of all of them. Never here: which of them are meant (`chosen.rs`).

mod asked;
mod chosen;
mod stars;

use std::cell::Cell;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    OrderByKind, Query, Select, SelectItem, SetExpr, Visit, VisitMut, VisitorMut,
    visit_expressions, visit_expressions_mut,
};

pub(super) use self::asked::planned;
pub(in crate::query) use self::stars::with_known_words;

use self::asked::tables_of;
use self::chosen::{Chosen, Meant, columns_of};
use self::stars::{is_joined_by_names, turn_star};
use super::around::Around;
use super::using::sql_of;
use crate::error::{Error, ErrorKind, Result};

/// The function of which the arguments say which columns are meant.
pub(super) const COLUMNS: &str = "columns";

/// The same as several arguments of another one.
const SEVERAL: &str = "__columns";

/// So many queries of a statement may name columns so.
const MAX_QUERIES: usize = 64;

/// So many items and keys may come of one query.
const MAX_WRITTEN: usize = 2_000;

/// So many parts of expressions may be written in all: planning takes time by more than their number.
const MAX_PARTS: usize = 20_000;

/// Writes the columns out.
///
/// # Errors
/// `Query` for columns that there are not, and where there is no FROM to have any; `ResourcesExhausted` for too many.
pub(in crate::query) async fn written_out(
    statement: &mut Statement,
    state: &SessionState,
) -> Result<()> {
    if state.scalar_functions().contains_key(COLUMNS) {
        return Ok(());
    }
    let mut leaves_stars = false;
    let mut parts_left = MAX_PARTS;
    for _ in 0..MAX_QUERIES {
        let before = statement.clone();
        let mut finding = Writing {
            leaves_stars,
            ..Writing::default()
        };
        finding.visit(statement)?;
        let Some(query) = finding.found else {
            return Ok(());
        };
        let plan = match planned((*query).clone(), state).await {
            Ok(plan) => plan,
            // Tables that look at others around them: their `*` is the engine's.
            Err(_) if finding.has_turned_stars => {
                *statement = before;
                leaves_stars = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        let tables = tables_of(&finding.calls, &query, state).await?;
        let columns = columns_of(plan.schema(), &tables, &finding.calls, state).await?;
        let columns = InFrom {
            columns,
            parts_left: Cell::new(parts_left),
        };
        let mut writing = Writing {
            columns: Some(columns),
            leaves_stars,
            ..Writing::default()
        };
        writing.visit(statement)?;
        if let Some(columns) = writing.columns {
            parts_left = columns.parts_left.get();
        }
    }
    let text = format!("COLUMNS(…) may stand in {MAX_QUERIES} queries of a statement");
    let error = Error::new(ErrorKind::ResourcesExhausted, text);
    Err(error.with_hint("name the columns of some of them"))
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, text)
}

/// The columns of a query, for each way in which it names them.
struct InFrom {
    columns: Meant,
    /// How much may still be written.
    parts_left: Cell<usize>,
}

impl InFrom {
    /// The columns that a call means, each of which is written with so many parts around it.
    fn chosen(&self, wanted: &Expr, parts: usize) -> Result<&[Chosen]> {
        let chosen = self.columns.chosen(wanted)?;
        let of_all: usize = chosen.iter().map(|chosen| chosen.parts).sum();
        let written = parts.saturating_mul(chosen.len()).saturating_add(of_all);
        let left = self.parts_left.get().checked_sub(written);
        self.parts_left.set(left.ok_or_else(too_many)?);
        Ok(chosen)
    }
}

/// Looks for the first query that names columns so, those within it before it.
#[derive(Default)]
struct Writing {
    around: Around,
    /// Whether `*` stays as it is.
    leaves_stars: bool,
    has_turned_stars: bool,
    /// What is put into it: the columns for each way in which they are named.
    columns: Option<InFrom>,
    /// A query of all its columns.
    found: Option<Box<Query>>,
    /// How they are named in it.
    calls: Vec<Expr>,
}

type Step = ControlFlow<Box<Error>>;

impl Writing {
    fn visit(&mut self, statement: &mut Statement) -> Result<()> {
        let Some(statement) = sql_of(statement) else {
            return Ok(());
        };
        // It also ends where there is no more to do.
        match VisitMut::visit(statement, self) {
            ControlFlow::Break(Some(error)) => Err(*error),
            _ => Ok(()),
        }
    }

    /// One query, by its SELECT.
    fn at(
        &mut self,
        select: &mut Select,
        has: impl Fn(&Select) -> Vec<Expr>,
        put: impl FnOnce(&mut Select, &InFrom) -> Result<()>,
    ) -> ControlFlow<Option<Box<Error>>> {
        let calls = has(select);
        if calls.is_empty() {
            return ControlFlow::Continue(());
        }
        let done = match &self.columns {
            Some(columns) => put(select, columns),
            None if select.from.is_empty() => {
                let text = "COLUMNS(…) names columns of FROM, which the query has not";
                Err(wrong(text))
            }
            None => {
                self.found = self.around.all_of(select.from.clone()).map(Box::new);
                self.calls = calls;
                Ok(())
            }
        };
        ControlFlow::Break(done.err().map(Box::new))
    }
}

impl VisitorMut for Writing {
    type Break = Option<Box<Error>>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.around.open(query);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        if !self.leaves_stars {
            let is_joined = is_joined_by_names(select);
            for item in &mut select.projection {
                self.has_turned_stars |= turn_star(item, is_joined);
            }
        }
        self.at(select, calls_in, in_select)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let keys = query.order_by.as_mut().map(|order| &mut order.kind);
        if let SetExpr::Select(select) = query.body.as_mut()
            && let Some(OrderByKind::Expressions(keys)) = keys
        {
            let mut calls = Vec::new();
            for key in keys.iter() {
                calls_of(&key.expr, &mut calls);
            }
            let in_keys = |_: &mut Select, columns: &InFrom| {
                each_in(
                    keys,
                    columns,
                    |key, expr| {
                        let mut key = key.clone();
                        key.expr = expr;
                        key
                    },
                    |key| &mut key.expr,
                )
            };
            self.at(select, |_| calls.clone(), in_keys)?;
        }
        self.around.close();
        ControlFlow::Continue(())
    }
}

/// The call, if it is one.
fn call(expr: &Expr) -> Option<(&Function, bool)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let [name] = function.name.0.as_slice() else {
        return None;
    };
    let name = name.as_ident().filter(|name| name.quote_style.is_none())?;
    let is_several = name.value == SEVERAL;
    (is_several || name.value.eq_ignore_ascii_case(COLUMNS)).then_some((function, is_several))
}

fn calls_of(part: &impl Visit, calls: &mut Vec<Expr>) {
    let _: ControlFlow<()> = visit_expressions(part, |expr| {
        if call(expr).is_some() && !calls.contains(expr) {
            calls.push(expr.clone());
        }
        ControlFlow::Continue(())
    });
}

/// How a SELECT names columns so. Its FROM is done.
fn calls_in(select: &Select) -> Vec<Expr> {
    let mut calls = Vec::new();
    let conditions = [&select.selection, &select.having, &select.qualify];
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            calls_of(expr, &mut calls);
        }
    }
    for condition in conditions.into_iter().flatten() {
        calls_of(condition, &mut calls);
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        calls_of(keys, &mut calls);
    }
    if let Some(Distinct::On(keys)) = &select.distinct {
        calls_of(keys, &mut calls);
    }
    calls
}

fn in_select(select: &mut Select, columns: &InFrom) -> Result<()> {
    let mut items = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        in_item(item, columns, &mut items)?;
        if items.len() > MAX_WRITTEN {
            return Err(too_many());
        }
    }
    select.projection = items;
    let conditions = [
        &mut select.selection,
        &mut select.having,
        &mut select.qualify,
    ];
    for condition in conditions.into_iter().flatten() {
        as_arguments(condition, columns)?;
        as_condition(condition, columns)?;
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        for key in keys.iter_mut() {
            in_sets(key, columns)?;
        }
        each_in(keys, columns, |_, expr| expr, |key| key)?;
    }
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        each_in(keys, columns, |_, expr| expr, |key| key)?;
    }
    Ok(())
}

/// Puts what an item of SELECT stands for behind others.
fn in_item(mut item: SelectItem, columns: &InFrom, items: &mut Vec<SelectItem>) -> Result<()> {
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = &mut item {
        as_arguments(expr, columns)?;
    }
    match item {
        SelectItem::UnnamedExpr(expr) => match written(&expr, columns)? {
            None => items.push(SelectItem::UnnamedExpr(expr)),
            Some(all) => items.extend(all.into_iter().map(|(expr, chosen)| {
                // Those of two tables may have one name.
                if expr == chosen.expr && !chosen.is_replaced {
                    return SelectItem::UnnamedExpr(expr);
                }
                let alias = Ident::with_quote('"', chosen.name.clone());
                SelectItem::ExprWithAlias { expr, alias }
            })),
        },
        SelectItem::ExprWithAlias { expr, alias } => match written(&expr, columns)? {
            None => items.push(SelectItem::ExprWithAlias { expr, alias }),
            Some(all) => items.extend(all.into_iter().map(|(expr, chosen)| {
                let name = chosen.called(&alias.value);
                let alias = Ident::with_quote('"', name);
                SelectItem::ExprWithAlias { expr, alias }
            })),
        },
        other => items.push(other),
    }
    Ok(())
}

/// Puts keys in place within ROLLUP, CUBE and GROUPING SETS; a set of one there is one for each.
fn in_sets(key: &mut Expr, columns: &InFrom) -> Result<()> {
    match key {
        Expr::Rollup(sets) | Expr::Cube(sets) => {
            let mut all = Vec::new();
            for mut set in std::mem::take(sets) {
                let is_one = set.len() == 1;
                each_in(&mut set, columns, |_, expr| expr, |key| key)?;
                match is_one {
                    true => all.extend(set.into_iter().map(|key| vec![key])),
                    false => all.push(set),
                }
            }
            *sets = all;
        }
        Expr::GroupingSets(sets) => {
            for set in sets {
                each_in(set, columns, |_, expr| expr, |key| key)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn too_many() -> Error {
    let text = format!(
        "COLUMNS(…) may stand for {MAX_WRITTEN} items of a query, and for {MAX_PARTS} parts of expressions in all"
    );
    Error::new(ErrorKind::ResourcesExhausted, text).with_hint("name fewer columns")
}

/// Puts several keys in place of those that stand for several.
fn each_in<K>(
    keys: &mut Vec<K>,
    columns: &InFrom,
    made: impl Fn(&K, Expr) -> K,
    expr_of: impl Fn(&mut K) -> &mut Expr,
) -> Result<()> {
    let mut all = Vec::new();
    for mut key in std::mem::take(keys) {
        let expr = expr_of(&mut key);
        as_arguments(expr, columns)?;
        match written(expr, columns)? {
            None => all.push(key),
            Some(each) => all.extend(each.into_iter().map(|(expr, _)| made(&key, expr))),
        }
        if all.len() > MAX_WRITTEN {
            return Err(too_many());
        }
    }
    *keys = all;
    Ok(())
}

/// How many expressions stand within one.
fn num_parts(expr: &Expr) -> usize {
    let mut count = 0;
    let _: ControlFlow<()> = visit_expressions(expr, |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    count
}

/// Conditions that all hold, as a tree that is not deep.
fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let right = conditions.split_off(conditions.len() / 2);
    let (left, right) = (all_of(conditions)?, all_of(right)?);
    Some(Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
        right: Box::new(right),
    })))
}

/// Puts the condition for all columns in place of one.
fn as_condition(condition: &mut Expr, columns: &InFrom) -> Result<()> {
    if let Some(all) = written(condition, columns)? {
        let all = all
            .into_iter()
            .map(|(expr, _)| Expr::Nested(Box::new(expr)));
        if let Some(all) = all_of(all.collect()) {
            *condition = all;
        }
    }
    Ok(())
}

/// Puts columns in place of `*COLUMNS(…)` among arguments, and in FILTER.
fn as_arguments(expr: &mut Expr, columns: &InFrom) -> Result<()> {
    let visited = visit_expressions_mut(expr, |expr| {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        if let Some(filter) = &mut function.filter
            && let Err(error) = as_condition(filter, columns)
        {
            return Step::Break(Box::new(error));
        }
        let FunctionArguments::List(list) = &mut function.args else {
            return ControlFlow::Continue(());
        };
        let is_several = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                call(expr).is_some_and(|(_, is_several)| is_several)
            }
            _ => false,
        };
        if !list.args.iter().any(is_several) {
            return ControlFlow::Continue(());
        }
        let mut arguments = Vec::new();
        for argument in std::mem::take(&mut list.args) {
            match &argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if is_several(&argument) => {
                    let chosen = match columns.chosen(expr, 1) {
                        Ok(chosen) => chosen,
                        Err(error) => return Step::Break(Box::new(error)),
                    };
                    let each = chosen.iter().map(|chosen| chosen.expr.clone());
                    let each = each.map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)));
                    arguments.extend(each);
                }
                _ => arguments.push(argument),
            }
        }
        list.args = arguments;
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// An expression for each column; `None` where it names none so.
fn written<'a>(expr: &Expr, columns: &'a InFrom) -> Result<Option<Vec<(Expr, &'a Chosen)>>> {
    let mut calls = Vec::new();
    calls_of(expr, &mut calls);
    let wanted = match calls.as_slice() {
        [] => return Ok(None),
        [wanted] => wanted,
        [one, other, ..] => {
            let text = format!("{one} and {other} stand in one expression");
            let hint = "all COLUMNS(…) of an expression are the same columns; write two items";
            return Err(wrong(text).with_hint(hint));
        }
    };
    if let Some((_, true)) = call(wanted) {
        let text = "*COLUMNS(…) stands among the arguments of a function";
        return Err(wrong(text).with_hint("write coalesce(*COLUMNS('x.*')), or COLUMNS('x.*')"));
    }
    let chosen = columns.chosen(wanted, num_parts(expr))?;
    let each = chosen.iter().map(|chosen| {
        let mut expr = expr.clone();
        let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
            if part == wanted {
                *part = chosen.expr.clone();
            }
            ControlFlow::Continue(())
        });
        (expr, chosen)
    });
    Ok(Some(each.collect()))
}

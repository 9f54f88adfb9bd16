//! SQL that the engine misreads or does not know, in words that it does.
//!
//! Comes in: a parsed statement. Goes out: one that means the same: `OVER (w …)` with what the window `w` says, `ANY` and `ALL` over a query whose
//! column cannot be taken for one outside, `FETCH FIRST` as a limit, patterns with another escape, `SIMILAR TO` as a regular expression, SEMI and ANTI JOIN
//! with their side, ASOF JOIN with a condition of its own (`asof.rs`), names of fields behind a dot as texts, columns of USING as what they stand for (`using/`), queries in FROM with a name where they need one (`derived.rs`), numbers of columns within ROLLUP as these (`positions.rs`), `LATERAL unnest` as UNNEST (`laterals.rs`), items that are called the same where they are named from outside (`renamed.rs`), what follows IS DISTINCT FROM around it (`distinct_from.rs`), `ARRAY(SELECT …)` (`array_of.rs`), PIVOT and UNPIVOT (`pivot/`), rows IN queries, and those that begin with something worked out (`row_in.rs`), names of WITH that stand for something else within (`inner_with.rs`), `AT TIME ZONE` as a function (`functions/timezone.rs`), elements of `array_agg` as values of the group, `lag` and `lead` with another value for each row (`shifts.rs`), columns without a name by what is written (`written.rs`), what ORDER BY says once more by its number (`order.rs`), subqueries in place of values with a name of their own (`value_names.rs`). Never here: what only the plan shows (`plan/copies.rs`).

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Fetch, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, LimitClause, NamedWindowDefinition,
    NamedWindowExpr, ObjectName, Query, Select, SelectItem, SetExpr, Subscript, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::array_of;
use super::asof;
use super::called::called;
use super::collations;
use super::derived;
use super::distinct_from;
use super::fields;
use super::inner_with::Withs;
use super::lambdas;
use super::laterals;
use super::long_numbers;
use super::named_windows;
use super::of_one_row;
use super::operators;
use super::order;
use super::pattern;
use super::pivot;
use super::positions;
use super::renamed;
use super::row_in;
use super::samples;
use super::shifts;
use super::synonyms;
use super::type_words;
use super::using::{self, folded};
use super::value_names;
use super::written;
use crate::error::{Error, Result};
use crate::query::functions::timezone;
use crate::query::messages::group_keys;

/// Rewrites a statement in place.
///
/// # Errors
/// `Query` for a window that is not defined or defined twice over, for a wrong escape, and for wrong arguments of a synonym; `Unsupported` for a pattern of SIMILAR TO that is no literal.
pub(in crate::query) fn rewrite(statement: &mut Statement, state: &SessionState) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_mut(),
        Statement::Explain(explain) => return rewrite(&mut explain.statement, state),
        _ => return Ok(()),
    };
    fields::told(inner)?;
    type_words::of_parameters(inner);
    collations::in_words(inner)?;
    synonyms::written_out(inner, state)?;
    let mut rewriting = Rewriting {
        state,
        withs: Withs::default(),
        windows: Vec::new(),
        meant: Vec::new(),
        named: 0,
        derived: 0,
        items: 0,
        unnested: 0,
        rows: 0,
    };
    match inner.visit(&mut rewriting) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Rewriting<'a> {
    /// The functions.
    state: &'a SessionState,
    /// The names of WITH of each query that is open.
    withs: Withs,
    /// The named windows of each query and SELECT that is open.
    windows: Vec<Vec<NamedWindowDefinition>>,
    /// The names in the ORDER BY of each query that is open.
    meant: Vec<written::Meant>,
    /// How many columns got a name.
    named: usize,
    /// How many queries in FROM got one.
    derived: usize,
    /// How many items got one.
    items: usize,
    /// How many lists in FROM got one.
    unnested: usize,
    /// How many queries are compared with rows.
    rows: usize,
}

impl VisitorMut for Rewriting<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.withs.open(query);
        // The ORDER BY of a query may name the windows of its SELECT.
        self.windows.push(match query.body.as_ref() {
            SetExpr::Select(select) => select.named_window.clone(),
            _ => Vec::new(),
        });
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            renamed::tell_apart(&mut cte.query, &cte.alias, &mut self.items);
        }
        renamed::tell_parts_apart(&mut query.body, &mut self.items);
        fetch_as_limit(query);
        order::keys_as_ordered(query);
        order::as_numbers(query);
        self.meant.push(written::Meant::of(&query.order_by));
        let lists = array_of::as_queries(&mut query.order_by);
        value_names::name_in_order(query);
        match lists.and_then(|()| using::rewrite_order(query)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.withs.close(query);
        self.windows.pop();
        self.meant.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if let Err(error) = pivot::rows_of_statement(select) {
            return ControlFlow::Break(error);
        }
        // Before anything else is written in their place.
        let meant = self.meant.last();
        written::name_items(select, meant.unwrap_or(&written::Meant::default()));
        positions::all_as_numbers(select, |item| {
            group_keys::is_of_several_rows(item, self.state)
        });
        positions::named_numbers_as_casts(select);
        let joins = asof::in_words(&mut select.from);
        if let Err(error) = joins.and_then(|()| laterals::series_as_lists(&mut select.from)) {
            return ControlFlow::Break(error);
        }
        laterals::behind_others(&mut select.from);
        let mut tables = select.from.iter_mut();
        let turned = tables.try_for_each(|table| pivot::in_joins(table, self.state));
        if let Err(error) = turned.and_then(|()| array_of::as_queries(select)) {
            return ControlFlow::Break(error);
        }
        value_names::name_in_select(select);
        let all = select.named_window.clone();
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &mut window.1
                && let Err(error) = named_windows::complete(spec, &all, all.len())
            {
                return ControlFlow::Break(error);
            }
        }
        let condition = select.selection.as_mut().map_or(Ok(()), |condition| {
            row_in::rewrite_condition(condition, &mut self.rows)
        });
        let condition = condition.and_then(|()| positions::as_columns(select));
        if let Err(error) = condition.and_then(|()| using::rewrite_select(select)) {
            return ControlFlow::Break(error);
        }
        select.from.iter_mut().for_each(with_side);
        derived::name(select, &mut self.derived);
        self.windows.push(select.named_window.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<Error> {
        self.windows.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        laterals::unnest_without_lateral(factor);
        let sampled = samples::as_query(factor);
        if let Err(error) = sampled.and_then(|()| laterals::with_places(factor)) {
            return ControlFlow::Break(error);
        }
        written::name_unnested(factor, &mut self.unnested);
        match factor {
            TableFactor::Derived {
                subquery,
                alias: Some(alias),
                ..
            } => renamed::tell_apart(subquery, alias, &mut self.items),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => with_side(table_with_joins),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match self.rewrite(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        distinct_from::regroup(expr);
        operators::in_words(expr);
        list_as_call(expr);
        match type_words::in_words(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// A list with more than literals is a call: the engine does not know names from outside in others, nor names of WITH.
fn list_as_call(expr: &mut Expr) {
    let Expr::Array(list) = expr else {
        return;
    };
    let is_literal = |element: &Expr| matches!(element, Expr::Value(_));
    if !list.elem.iter().all(is_literal) {
        *expr = called("make_array", std::mem::take(&mut list.elem));
    }
}

/// SEMI and ANTI JOIN keep rows of the left table where they do not say of which; the engine knows only those that do.
fn with_side(table: &mut TableWithJoins) {
    for join in &mut table.joins {
        let operator = match &mut join.join_operator {
            JoinOperator::Semi(constraint) => {
                JoinOperator::LeftSemi(std::mem::replace(constraint, JoinConstraint::None))
            }
            JoinOperator::Anti(constraint) => {
                JoinOperator::LeftAnti(std::mem::replace(constraint, JoinConstraint::None))
            }
            _ => continue,
        };
        join.join_operator = operator;
    }
}

/// `list[2:]` and `list[:2]` to the last value, and from the first.
fn with_both_ends(access: &mut AccessExpr) {
    let AccessExpr::Subscript(Subscript::Slice {
        lower_bound,
        upper_bound,
        ..
    }) = access
    else {
        return;
    };
    let number = |number: &str| Expr::value(Value::Number(number.to_owned(), false));
    lower_bound.get_or_insert_with(|| number("1"));
    upper_bound.get_or_insert_with(|| number("-1"));
}

/// `array_agg(x ORDER BY y)[2]` as the second value of the group, of which the engine makes something that wants its rows in order.
fn value_of_group(root: &mut Expr, chain: &mut Vec<AccessExpr>) {
    let [AccessExpr::Subscript(Subscript::Index { index }), ..] = chain.as_slice() else {
        return;
    };
    let place = FunctionArg::Unnamed(FunctionArgExpr::Expr(index.clone()));
    let Expr::Function(call) = written::without_parentheses(root) else {
        return;
    };
    let mut call = call.clone();
    let name = call.name.0.last().and_then(|name| name.as_ident());
    let is_list = name.is_some_and(|name| name.value.eq_ignore_ascii_case("array_agg"));
    if let FunctionArguments::List(list) = &mut call.args
        && is_list
        && call.over.is_none()
    {
        list.args.push(place);
        call.name = ObjectName::from(Ident::new("nth_value"));
        *root = Expr::Function(call);
        chain.remove(0);
    }
}

/// `(…).name` and `x[1].name` as `(…)['name']`: the engine knows names behind a dot only of columns.
fn name_fields(root: &Expr, chain: &mut [AccessExpr]) {
    let is_name = |access: &&AccessExpr| matches!(access, AccessExpr::Dot(Expr::Identifier(_)));
    // What stands at the beginning says which column it is.
    let of_column = match root {
        Expr::Identifier(_) => chain.iter().take_while(is_name).count(),
        _ => 0,
    };
    for access in chain.iter_mut().skip(of_column) {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            let name = folded(name);
            *access = AccessExpr::Dot(literal(name));
        }
    }
}

impl Rewriting<'_> {
    fn rewrite(&mut self, expr: &mut Expr) -> Result<()> {
        shifts::with_values_of_rows(expr);
        long_numbers::exact(expr)?;
        if let Expr::Function(call) = expr {
            of_one_row::check(call, self.state)?;
        }
        match expr {
            Expr::Function(Function {
                over: Some(over), ..
            }) => {
                let windows = self.windows.last().map_or(&[][..], Vec::as_slice);
                named_windows::in_place(over, windows)
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Expr::Subquery(query) = right.as_mut() {
                    self.named += 1;
                    name_column(query, self.named);
                }
                Ok(())
            }
            Expr::Like {
                pattern,
                escape_char,
                ..
            }
            | Expr::ILike {
                pattern,
                escape_char,
                ..
            } => {
                if let (Some(text), Some(escape)) =
                    (text_of(pattern), escape_char.as_deref().and_then(text_in))
                {
                    **pattern = literal(pattern::with_backslashes(text, escape)?);
                    *escape_char = None;
                }
                Ok(())
            }
            Expr::AtTimeZone { .. } => {
                timezone::as_call(expr);
                Ok(())
            }
            Expr::SimilarTo { .. } => similar(expr),
            Expr::Lambda(function) => lambdas::with_fields(function),
            Expr::CompoundFieldAccess { root, access_chain } => {
                name_fields(root, access_chain);
                access_chain.iter_mut().for_each(with_both_ends);
                value_of_group(root, access_chain);
                if access_chain.is_empty() {
                    *expr = std::mem::replace(root.as_mut(), Expr::value(Value::Null));
                }
                Ok(())
            }
            Expr::InSubquery { .. } => row_in::rewrite(expr, &mut self.rows),
            Expr::Tuple(_) => {
                row_in::as_struct(expr);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Gives the one column of a query a name that no column outside has: the engine compares by name.
fn name_column(query: &mut Query, number: usize) {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    if let [item] = select.projection.as_mut_slice()
        && let SelectItem::UnnamedExpr(expr) = item
    {
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', format!("__compared_{number}")),
        };
    }
}

fn fetch_as_limit(query: &mut Query) {
    let plain = |fetch: &&mut Fetch| !fetch.with_ties && !fetch.percent;
    let Some(fetch) = query.fetch.as_mut().filter(plain) else {
        return;
    };
    let rows = fetch.quantity.take().unwrap_or_else(|| number("1"));
    let (limit, offset) = match query.limit_clause.take() {
        None => (Some(rows), None),
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) if limit_by.is_empty() => (Some(rows), offset),
        other => {
            fetch.quantity = Some(rows);
            query.limit_clause = other;
            return;
        }
    };
    query.fetch = None;
    query.limit_clause = Some(LimitClause::LimitOffset {
        limit,
        offset,
        limit_by: Vec::new(),
    });
}

fn similar(expr: &mut Expr) -> Result<()> {
    let Expr::SimilarTo {
        negated,
        expr: text,
        pattern,
        escape_char,
    } = expr
    else {
        return Ok(());
    };
    let escape = match escape_char.as_deref() {
        None => Some("\\"),
        Some(escape) => text_in(escape),
    };
    let (Some(wanted), Some(escape)) = (text_of(pattern), escape) else {
        let said = "SIMILAR TO takes a pattern that is a literal";
        return Err(Error::unsupported(said).with_hint("~ takes regular expressions of any kind"));
    };
    let op = if *negated {
        BinaryOperator::PGRegexNotMatch
    } else {
        BinaryOperator::PGRegexMatch
    };
    let regular = literal(pattern::regular(wanted, escape)?);
    let text = Box::new(Expr::Nested(std::mem::replace(text, Box::new(number("0")))));
    *expr = Expr::BinaryOp {
        left: text,
        op,
        right: Box::new(regular),
    };
    Ok(())
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => text_in(&value.value),
        _ => None,
    }
}

fn text_in(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

fn literal(text: String) -> Expr {
    Expr::value(Value::SingleQuotedString(text))
}

fn number(digits: &str) -> Expr {
    Expr::value(Value::Number(digits.to_owned(), false))
}

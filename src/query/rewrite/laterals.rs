//! Lists and queries in FROM that look at the tables before them.
//!
//! Comes in: a FROM clause, or a table of one. Goes out: `LATERAL unnest(l)` as UNNEST, `t, generate_series(1, t.n)` as `t, unnest(generate_series(1, t.n))`, `json_each(t.j)` as a query of the rows of a list, `unnest(l) WITH ORDINALITY` as `unnest(l, range(1, array_length(l) + 1))`, and `a, unnest(a.l) AS u(x) JOIN b` as `a CROSS JOIN unnest(a.l) AS u(x) JOIN b`: the engine knows none that begins a chain of joins. Never
//! here: what they stand for (`plan/apply/each.rs`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Value, visit_expressions,
};

use super::called::called;
use super::pivot::query_of;
use super::row_in::parsed;
use crate::error::{Error, ErrorKind, Result};
use crate::query::functions::{JSON_COLUMNS, JSON_ORDINALITY, JSON_ROWS};

/// Functions that are tables and lists.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Puts what begins a chain of joins behind the tables before it.
pub(super) fn behind_others(from: &mut Vec<TableWithJoins>) {
    let begins = |table: &TableWithJoins| {
        !table.joins.is_empty() && may_look(&table.relation) && table.joins.iter().all(is_forward)
    };
    let Some(last) = from.iter().rposition(begins).filter(|last| *last > 0) else {
        return;
    };
    let is_simple = |table: &TableWithJoins| table.joins.iter().all(is_forward);
    if !from.iter().take(last).all(is_simple) {
        return;
    }
    let rest = from.split_off(last + 1);
    let mut tables = std::mem::take(from).into_iter();
    if let Some(mut whole) = tables.next() {
        for table in tables {
            whole.joins.push(Join {
                relation: table.relation,
                global: false,
                join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
            });
            whole.joins.extend(table.joins);
        }
        from.push(whole);
    }
    from.extend(rest);
}

/// Puts the places of the elements beside a list.
///
/// # Errors
/// `Unsupported` beside several lists.
pub(super) fn with_places(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::UNNEST {
        alias,
        array_exprs,
        with_ordinality,
        ..
    } = factor
    else {
        return Ok(());
    };
    if !*with_ordinality {
        return Ok(());
    }
    let [list] = array_exprs.as_slice() else {
        let text = "WITH ORDINALITY of several lists is not supported";
        return Err(Error::unsupported(text)
            .with_hint("unnest(a, b, range(1, array_length(a) + 1)) AS u(a, b, place)"));
    };
    let places = places_of(list);
    array_exprs.push(parsed(&places)?);
    *with_ordinality = false;
    let alias = alias.get_or_insert_with(|| table_named("unnest"));
    let own = alias.name.clone();
    for name in [own, Ident::new("ordinality")]
        .into_iter()
        .skip(alias.columns.len())
    {
        alias.columns.push(column_named(name));
    }
    Ok(())
}

/// Whether a table may look at others.
fn may_look(table: &TableFactor) -> bool {
    match table {
        TableFactor::UNNEST { .. } => true,
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::Table { .. } => series_beside(table).is_some(),
        _ => false,
    }
}

/// The call of a table of numbers, or moments, that are told by columns of other tables, parameters or queries, or are counted: `generate_series(1, t.n)`.
fn series_beside(factor: &TableFactor) -> Option<String> {
    let (name, arguments, is_counted) = match factor {
        TableFactor::Table {
            name,
            args: Some(given),
            with_ordinality,
            sample: None,
            ..
        } if given.settings.is_none() => (name, &given.args, *with_ordinality),
        TableFactor::Function {
            name,
            args,
            with_ordinality,
            ..
        } => (name, args, *with_ordinality),
        _ => return None,
    };
    let [name] = name.0.as_slice() else {
        return None;
    };
    let is_series = name.as_ident().is_some_and(|name| {
        let is = |other| name.value.eq_ignore_ascii_case(other);
        SERIES.into_iter().any(is)
    });
    let is_made = visit_expressions(arguments, |part| match part {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::Subquery(_) => ControlFlow::Break(()),
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    let is_made = is_made.is_break() || is_counted;
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    (is_series && is_made).then(|| format!("{name}({})", arguments.join(", ")))
}

/// Puts lists in place of such tables in a FROM clause.
///
/// # Errors
/// None of the user's.
pub(super) fn series_as_lists(from: &mut [TableWithJoins]) -> Result<()> {
    for table in from {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in joined.chain([&mut table.relation]) {
            match factor {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => series_as_lists(std::slice::from_mut(table_with_joins.as_mut()))?,
                factor => {
                    series_as_list(factor)?;
                    json_as_query(factor)?;
                }
            }
        }
    }
    Ok(())
}

/// `json_each(j)` and `json_tree(j)` as queries of the rows of a list.
///
/// # Errors
/// `Query` for a wrong number of arguments.
fn json_as_query(factor: &mut TableFactor) -> Result<()> {
    let Some(Called {
        name,
        arguments,
        alias,
        with_ordinality,
    }) = Called::of(factor)
    else {
        return Ok(());
    };
    let mut all = JSON_ROWS.iter();
    let Some((known, function)) = all.find(|(known, _)| name.eq_ignore_ascii_case(known)) else {
        return Ok(());
    };
    let values = arguments.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values: Option<Vec<Expr>> = values.collect();
    let Some(values) = values.filter(|values| matches!(values.len(), 1 | 2)) else {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let got = arguments.join(", ");
        let text = format!("{known} takes (json[, path]), got ({got})");
        return Err(Error::new(ErrorKind::Query, text));
    };
    let names = JSON_COLUMNS.into_iter();
    let names: Vec<&str> = names
        .chain(with_ordinality.then_some(JSON_ORDINALITY))
        .collect();
    let column = |name: &&str| format!("get_field(__row, '{name}') AS \"{name}\"");
    let columns: Vec<String> = names.iter().map(column).collect();
    let text = format!(
        "(SELECT {} FROM UNNEST(NULL) AS __rows(__row))",
        columns.join(", ")
    );
    let mut subquery = query_of(&text)?;
    if let SetExpr::Select(select) = subquery.body.as_mut()
        && let Some(table) = select.from.first_mut()
        && let TableFactor::UNNEST { array_exprs, .. } = &mut table.relation
    {
        *array_exprs = vec![called(function, values)];
    }
    let mut alias = alias.take().unwrap_or_else(|| table_named(known));
    if !alias.columns.is_empty() {
        let others = names.into_iter().skip(alias.columns.len());
        let others = others.map(|name| column_named(Ident::with_quote('"', name)));
        alias.columns.extend(others);
    }
    *factor = TableFactor::Derived {
        lateral: true,
        subquery: Box::new(subquery),
        alias: Some(alias),
        sample: None,
    };
    Ok(())
}

/// A function that is called in FROM. One of which a sample is taken is called in a query of its own first.
struct Called<'a> {
    name: String,
    arguments: &'a [FunctionArg],
    alias: &'a mut Option<TableAlias>,
    with_ordinality: bool,
}

impl<'a> Called<'a> {
    fn of(factor: &'a mut TableFactor) -> Option<Self> {
        let (name, arguments, alias, with_ordinality) = match factor {
            TableFactor::Table {
                name,
                args: Some(given),
                alias,
                with_ordinality,
                sample: None,
                ..
            } if given.settings.is_none() => (name, &given.args, alias, *with_ordinality),
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality,
                ..
            } => (name, &*args, alias, *with_ordinality),
            _ => return None,
        };
        match name.0.as_slice() {
            [part] => Some(Self {
                name: part.as_ident()?.value.clone(),
                arguments,
                alias,
                with_ordinality,
            }),
            _ => None,
        }
    }
}

/// The numbers of the elements of a list.
fn places_of(list: &Expr) -> String {
    format!("range(1, CAST(array_length({list}) AS BIGINT) + 1)")
}

/// The alias of a table that has none.
fn table_named(name: &str) -> TableAlias {
    TableAlias {
        explicit: true,
        name: Ident::new(name),
        columns: Vec::new(),
        at: None,
    }
}

fn column_named(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef {
        name,
        data_type: None,
    }
}

/// A table of numbers as the list of these, where it looks at other tables: the engine's has constants only.
///
/// # Errors
/// None of the user's.
fn series_as_list(factor: &mut TableFactor) -> Result<()> {
    let Some(call) = series_beside(factor) else {
        return Ok(());
    };
    let (TableFactor::Table {
        alias,
        with_ordinality,
        ..
    }
    | TableFactor::Function {
        alias,
        with_ordinality,
        ..
    }) = factor
    else {
        return Ok(());
    };
    let own = || table_named(call.split('(').next().unwrap_or_default());
    let mut alias = alias.take().unwrap_or_else(own);
    if alias.columns.is_empty() {
        // As that of the table of constants.
        alias.columns.push(column_named(Ident::new("value")));
    }
    *factor = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![parsed(&call)?],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: *with_ordinality,
    };
    Ok(())
}

/// Whether a join goes on from the rows on its left, so that it does not matter what else stands beside these, and its columns are not found by their names.
fn is_forward(join: &Join) -> bool {
    match &join.join_operator {
        JoinOperator::CrossJoin(_) => true,
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => matches!(constraint, JoinConstraint::On(_)),
        _ => false,
    }
}

/// `LATERAL unnest(…)`, which is no function of the engine, as its UNNEST, which may name columns of what stands before it all the same.
pub(super) fn unnest_without_lateral(factor: &mut TableFactor) {
    let TableFactor::Function {
        lateral: true,
        name,
        args,
        with_ordinality,
        alias,
    } = factor
    else {
        return;
    };
    let is_unnest = match name.0.as_slice() {
        [part] => part
            .as_ident()
            .is_some_and(|name| name.value.eq_ignore_ascii_case("unnest")),
        _ => false,
    };
    let values = args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values: Option<Vec<Expr>> = values.collect();
    let Some(array_exprs) = values.filter(|_| is_unnest) else {
        return;
    };
    let unnest = TableFactor::UNNEST {
        alias: alias.take(),
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: *with_ordinality,
    };
    *factor = unnest;
}

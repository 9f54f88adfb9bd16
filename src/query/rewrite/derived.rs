//! Names for queries in FROM that have none.
//!
//! Comes in: a SELECT. Goes out: the same, in which a query in FROM has a name of ours where another table or a subquery stands beside it: the engine could not tell its columns, which belong to no table, from
//! theirs of the same names (`FROM (SELECT … UNION …) WHERE x IN (SELECT x …)`). Never here: queries with names; those whose inner names are used outside.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins,
    visit_expressions,
};

/// With what the names begin.
const DERIVED: &str = "__derived";

/// Names them, counting on.
pub(super) fn name(select: &mut Select, named: &mut usize) {
    let is_without =
        |factor: &TableFactor| matches!(factor, TableFactor::Derived { alias: None, .. });
    if !select.from.iter().flat_map(factors).any(is_without) || !needs_names(select) {
        return;
    }
    for table in &mut select.from {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut table.relation).chain(joined) {
            if let TableFactor::Derived {
                alias: alias @ None,
                subquery,
                ..
            } = factor
                && has_one_of_each_name(&subquery.body)
            {
                *named += 1;
                *alias = Some(TableAlias {
                    explicit: true,
                    name: Ident::new(format!("{DERIVED}_{named}")),
                    columns: Vec::new(),
                    at: None,
                });
            }
        }
    }
}

fn factors(table: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    let joined = table.joins.iter().map(|join| &join.relation);
    std::iter::once(&table.relation).chain(joined)
}

/// Whether something stands beside the tables of a SELECT, or several of them, and no name is used that they do not have: it may be one within a query.
fn needs_names(select: &Select) -> bool {
    let mut outside = select.clone();
    let from = std::mem::take(&mut outside.from);
    let names: BTreeSet<String> = from.iter().flat_map(factors).filter_map(name_of).collect();
    let is_many = from.iter().flat_map(factors).nth(1).is_some();
    let mut has_subquery = false;
    let known = visit_expressions(&outside, |expression| {
        match expression {
            Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) => {
                has_subquery = true;
            }
            Expr::CompoundIdentifier(parts) => {
                let table = parts.iter().rev().nth(1).map(folded);
                if table.is_some_and(|table| !names.contains(&table)) && !has_subquery {
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    known.is_continue() && (is_many || has_subquery)
}

fn name_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => Some(folded(&alias.name)),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().map(folded),
        _ => None,
    }
}

/// Whether the columns of a query have names, no two of them the same: a table with a name cannot have others.
fn has_one_of_each_name(body: &SetExpr) -> bool {
    match body {
        SetExpr::Query(query) => has_one_of_each_name(&query.body),
        SetExpr::SetOperation { left, .. } => has_one_of_each_name(left),
        SetExpr::Select(select) => match select.projection.as_slice() {
            [SelectItem::Wildcard(_)] => select.from.iter().flat_map(factors).nth(1).is_none(),
            items => {
                let mut names = BTreeSet::new();
                items.iter().all(|item| match item {
                    SelectItem::UnnamedExpr(Expr::Identifier(name)) => names.insert(folded(name)),
                    SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                        parts.last().is_some_and(|name| names.insert(folded(name)))
                    }
                    SelectItem::UnnamedExpr(other) => names.insert(other.to_string()),
                    SelectItem::ExprWithAlias { alias, .. } => names.insert(folded(alias)),
                    _ => false,
                })
            }
        },
        _ => false,
    }
}

fn folded(name: &Ident) -> String {
    name.value.to_lowercase()
}

//! `*` over `JOIN … USING (…)`: the columns of the tables from the left, that of USING once, where its first table has it.
//!
//! Comes in: a SELECT and its columns of USING. Goes out: the same, in which `*` is `a.*, b.* EXCLUDE (k)`; where the text does not say which tables have the column (NATURAL, several tables on the left), or the user
//! leaves out or replaces columns, `*` with the value in place of what the engine takes. Never here: names of columns.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Ident, JoinConstraint, ObjectName, ReplaceSelectElement, ReplaceSelectItem,
    Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};

use crate::error::{Error, Result};

use super::{Column, constraint, folded, of_table, put, same, value};

/// Writes out each `*`. `has_conditions` says that the engine has more columns than there are, since some joins have conditions.
///
/// # Errors
/// `Unsupported` for those, where columns are left out or replaced.
pub(super) fn rewrite(select: &mut Select, columns: &[Column], has_conditions: bool) -> Result<()> {
    let is_wild = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    if !select.projection.iter().any(is_wild) {
        return Ok(());
    }
    let items = std::mem::take(&mut select.projection);
    for item in items {
        let SelectItem::Wildcard(mut options) = item else {
            select.projection.push(item);
            continue;
        };
        let left_out = left_out(&options, columns);
        if let Some(all) = left_out.and_then(|out| written_out(&mut select.from, columns, &out)) {
            select.projection.extend(all);
        } else if has_conditions {
            let text = "* over USING of three tables and more, and of ASOF JOIN, is not supported with EXCLUDE or REPLACE of other columns, nor where the text does not say which table has a column";
            return Err(Error::unsupported(text).with_hint("name the columns, or write a.*, b.*"));
        } else {
            replace(&mut options, columns);
            select.projection.push(SelectItem::Wildcard(options));
        }
    }
    Ok(())
}

/// The columns of USING that `* EXCLUDE (…)` leaves out, or none; `None` if it leaves out others, or says more.
fn left_out(options: &WildcardAdditionalOptions, columns: &[Column]) -> Option<Vec<Ident>> {
    let mut rest = options.clone();
    let names = match rest.opt_exclude.take() {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    let names = names.iter().map(|name| match name.0.as_slice() {
        [part] => part.as_ident().cloned(),
        _ => None,
    });
    let names: Vec<Ident> = names.collect::<Option<_>>()?;
    let is_joined = |name: &Ident| columns.iter().any(|column| same(&column.name, name));
    (is_plain(&rest) && names.iter().all(is_joined)).then_some(names)
}

/// Whether it is `*` alone.
fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    let text = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        ..WildcardAdditionalOptions::default()
    };
    *options == text
}

/// `*` of each table; `None` if a table has no name, or one of a kind for which that is something else.
fn written_out(
    from: &mut [TableWithJoins],
    columns: &[Column],
    left_out: &[Ident],
) -> Option<Vec<SelectItem>> {
    let mut items = Vec::new();
    for (number, table) in from.iter_mut().enumerate() {
        items.push(all_of(&table.relation, columns, left_out)?);
        for join in &mut table.joins {
            let constraint = constraint(&mut join.join_operator)?;
            let is_known = match constraint {
                JoinConstraint::Natural => false,
                JoinConstraint::Using(names) => {
                    let mut names = names.iter();
                    names.all(|name| has_tables(name, number, columns))
                }
                JoinConstraint::On(_) | JoinConstraint::None => true,
            };
            if !is_known {
                return None;
            }
            items.push(all_of(&join.relation, columns, left_out)?);
        }
    }
    Some(items)
}

/// Whether the tables of a column of USING are known.
fn has_tables(name: &ObjectName, from: usize, columns: &[Column]) -> bool {
    let name = name.0.last().and_then(|part| part.as_ident());
    let is_it = |column: &Column, name: &Ident| column.from == from && same(&column.name, name);
    name.is_some_and(|name| {
        let mut columns = columns.iter().filter(|column| is_it(column, name));
        columns.any(|column| !column.tables.is_empty())
    })
}

/// `t.* EXCLUDE (…) REPLACE (…)`: without the columns that a table on the left has, with what those are that it has first.
fn all_of(table: &TableFactor, columns: &[Column], left_out: &[Ident]) -> Option<SelectItem> {
    let (name, full) = match table {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => (&alias.name, ObjectName::from(alias.name.clone())),
        TableFactor::Table {
            name, args: None, ..
        } => (name.0.last()?.as_ident()?, name.clone()),
        _ => return None,
    };
    let mut options = WildcardAdditionalOptions::default();
    let (mut excluded, mut replaced) = (Vec::new(), Vec::new());
    for column in columns {
        match column.tables.iter().position(|table| same(table, name)) {
            None => {}
            Some(_) if left_out.iter().any(|out| same(out, &column.name)) => {
                excluded.push(ObjectName::from(folded_name(&column.name)));
            }
            Some(0) if column.value == of_table(name, &column.name) => {}
            Some(0) => replaced.push(element(column)),
            Some(_) => excluded.push(ObjectName::from(folded_name(&column.name))),
        }
    }
    if !excluded.is_empty() {
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
    }
    options.opt_replace = (!replaced.is_empty()).then_some(ReplaceSelectItem { items: replaced });
    let kind = SelectItemQualifiedWildcardKind::ObjectName(full);
    Some(SelectItem::QualifiedWildcard(kind, options))
}

/// A name in quotes: the engine compares those of EXCLUDE and REPLACE as they are written.
fn folded_name(name: &Ident) -> Ident {
    Ident::with_quote('"', folded(name))
}

fn element(column: &Column) -> Box<ReplaceSelectElement> {
    Box::new(ReplaceSelectElement {
        expr: column.value.clone(),
        column_name: folded_name(&column.name),
        as_keyword: true,
    })
}

/// `*` has the column once, with what the left table has; a REPLACE of the user comes before ours.
fn replace(options: &mut WildcardAdditionalOptions, columns: &[Column]) {
    let items = options.opt_replace.take().map(|replace| replace.items);
    let mut items = items.unwrap_or_default();
    for item in &mut items {
        put(columns, value, &mut item.expr);
    }
    for column in columns.iter().filter(|column| column.differs) {
        let mut names = items.iter().map(|item| &item.column_name);
        if !names.any(|name| same(name, &column.name)) {
            items.push(element(column));
        }
    }
    options.opt_replace = (!items.is_empty()).then_some(ReplaceSelectItem { items });
}

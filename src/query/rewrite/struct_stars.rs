//! All fields of a struct as columns: `SELECT s.*`, `t.s.* EXCLUDE (a)`, `s.inner.*`.
//!
//! Comes in: a statement, in which a name before `.*` is that of no table. Goes out: the same with a column for each field, called like the field. Which fields there are is asked of the planner, by a query of all columns of FROM.
//! Never here: `unnest(s)`, which the engine knows.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::around::Around;
use super::each_column::planned;
use super::fields::Tables;
use super::row_in::parsed;
use super::using::{folded, sql_of};
use crate::error::{Error, ErrorKind, Result};
use crate::query::functions::type_names::name_of;

/// So many queries of a statement may name structs so.
const MAX_QUERIES: usize = 64;

/// Writes the fields out.
///
/// # Errors
/// `Query` for a column that is no struct, and for fields left out that it has not; what the planner says of FROM.
pub(in crate::query) async fn written_out(
    statement: &mut Statement,
    state: &SessionState,
) -> Result<()> {
    for _ in 0..MAX_QUERIES {
        let mut finding = Writing::default();
        finding.visit(statement)?;
        let Some(query) = finding.found else {
            return Ok(());
        };
        // Tables that look at others around them: the engine says what it does not find.
        let Ok(plan) = planned(*query, state).await else {
            return Ok(());
        };
        let mut writing = Writing {
            columns: Some(plan.schema().as_ref().clone()),
            ..Writing::default()
        };
        writing.visit(statement)?;
    }
    Ok(())
}

/// Looks for the first query that has such an item, those within it before it.
#[derive(Default)]
struct Writing {
    around: Around,
    /// What is put into it: the columns of its FROM.
    columns: Option<DFSchema>,
    /// A query of all its columns.
    found: Option<Box<Query>>,
}

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
}

impl VisitorMut for Writing {
    type Break = Option<Box<Error>>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.around.open(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.around.close();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let tables = Tables::of_from(&select.from);
        if select.from.is_empty() || !select.projection.iter().any(|item| is_star(item, &tables)) {
            return ControlFlow::Continue(());
        }
        let Some(columns) = &self.columns else {
            self.found = self.around.all_of(select.from.clone()).map(Box::new);
            return ControlFlow::Break(None);
        };
        let done = in_select(select, &tables, columns);
        ControlFlow::Break(done.err().map(Box::new))
    }
}

/// The names before `.*`, and what is said behind it.
fn star(item: &SelectItem) -> Option<(Vec<Ident>, &WildcardAdditionalOptions)> {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) =
        item
    else {
        return None;
    };
    let parts = name.0.iter().map(ObjectNamePart::as_ident);
    Some((
        parts.map(Option::<&Ident>::cloned).collect::<Option<_>>()?,
        options,
    ))
}

/// Whether what stands before `.*` is no table.
fn is_star(item: &SelectItem, tables: &Tables) -> bool {
    star(item).is_some_and(|(names, _)| names.last().is_some_and(|last| !tables.has(last)))
}

fn in_select(select: &mut Select, tables: &Tables, columns: &DFSchema) -> Result<()> {
    let mut items = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        match star(&item).filter(|_| is_star(&item, tables)) {
            Some((names, options)) => items.extend(fields_of(&names, options, columns)?),
            None => items.push(item),
        }
    }
    select.projection = items;
    Ok(())
}

/// The items of a star.
fn fields_of(
    names: &[Ident],
    options: &WildcardAdditionalOptions,
    columns: &DFSchema,
) -> Result<Vec<SelectItem>> {
    let written = joined(names);
    let (root, within) = root_of(names, columns).ok_or_else(|| {
        let text = format!("{written}.* is of no table and no column of FROM");
        wrong(text).with_hint("write the name of a table, or of a column that is a struct")
    })?;
    let (mut kind, mut access) = (root, String::new());
    for name in within {
        let field = field(kind, name).ok_or_else(|| not_a_struct(&written, kind))?;
        access += &bracket(field.name());
        kind = field.data_type();
    }
    let DataType::Struct(fields) = kind else {
        return Err(not_a_struct(&written, kind));
    };
    let left_out = left_out(options, &written)?;
    if let Some(unknown) = left_out.iter().find(|name| field(kind, name).is_none()) {
        let has = fields.iter().map(|field| field.name().as_str());
        let has = has.collect::<Vec<_>>().join(", ");
        return Err(wrong(format!(
            "{written} has no field {unknown}; it has {has}"
        )));
    }
    let (root, _) = names.split_at(names.len() - within.len());
    let stays = |name: &str| !left_out.iter().any(|out| is_named(out, name));
    let kept = fields.iter().filter(|field| stays(field.name()));
    kept.map(|field| {
        let text = format!("{}{access}{}", joined(root), bracket(field.name()));
        Ok(SelectItem::ExprWithAlias {
            expr: parsed(&text)?,
            alias: Ident::with_quote('"', field.name()),
        })
    })
    .collect()
}

/// The type of the column that the names begin with, and the names behind it. A table goes before a column.
fn root_of<'a, 'b>(
    names: &'a [Ident],
    columns: &'b DFSchema,
) -> Option<(&'b DataType, &'a [Ident])> {
    let of = |table: Option<&Ident>, column: &Ident| {
        let mut found = columns.iter().filter(|(qualifier, field)| {
            let is_of_table = table.is_none_or(|table| {
                qualifier.is_some_and(|qualifier| is_named(table, qualifier.table()))
            });
            is_of_table && is_named(column, field.name())
        });
        let (_, field) = found.next().filter(|_| found.next().is_none())?;
        Some(field.data_type())
    };
    if let [table, column, within @ ..] = names
        && let Some(kind) = of(Some(table), column)
    {
        return Some((kind, within));
    }
    let [column, within @ ..] = names else {
        return None;
    };
    Some((of(None, column)?, within))
}

fn field<'a>(kind: &'a DataType, name: &Ident) -> Option<&'a arrow::datatypes::FieldRef> {
    let DataType::Struct(fields) = kind else {
        return None;
    };
    fields.iter().find(|field| is_named(name, field.name()))
}

/// Names without quotes mean what differs in the case of letters, too.
fn is_named(name: &Ident, of: &str) -> bool {
    folded(name) == of || name.quote_style.is_none() && name.value.eq_ignore_ascii_case(of)
}

/// What EXCLUDE names.
fn left_out<'a>(options: &'a WildcardAdditionalOptions, written: &str) -> Result<Vec<&'a Ident>> {
    let others = WildcardAdditionalOptions {
        opt_exclude: None,
        ..options.clone()
    };
    let is_more = others.opt_ilike.is_some()
        || others.opt_except.is_some()
        || others.opt_replace.is_some()
        || others.opt_rename.is_some()
        || others.opt_alias.is_some();
    if is_more {
        let text = format!("{written}.* of a struct takes EXCLUDE and nothing else");
        return Err(wrong(text).with_hint("write the fields one by one"));
    }
    let names: Vec<&ObjectName> = match &options.opt_exclude {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().collect(),
    };
    let of_one_part = |name: &'a ObjectName| match name.0.as_slice() {
        [part] => part.as_ident(),
        _ => None,
    };
    let names = names.into_iter().map(|name| {
        of_one_part(name).ok_or_else(|| wrong(format!("{written} has no field {name}")))
    });
    names.collect()
}

fn not_a_struct(written: &str, kind: &DataType) -> Error {
    let text = format!(
        "{written}.* takes a table or a struct, got {}",
        name_of(kind)
    );
    wrong(text)
}

fn joined(names: &[Ident]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.join(".")
}

fn bracket(field: &str) -> String {
    format!("['{}']", field.replace('\'', "''"))
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Query, text)
}

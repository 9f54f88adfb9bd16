//! All fields of a struct as columns: `SELECT s.*`, `t.s.* EXCLUDE (a)`, `s.inner.*`.
//!
//! Comes in: a statement, in which a name before `.*` is that of no table. Goes out: the same with a column for each field, called like the field. Which fields there are is asked of the planner, by a query of all columns of FROM.
//! Never here: `unnest(s)`, which the engine knows.

use std::collections::HashSet;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, FieldRef};
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

/// So many columns may come of one statement.
const MAX_WRITTEN: usize = 10_000;

/// Writes the fields out.
///
/// # Errors
/// `Query` for a column that is no struct, and for fields left out that it has not; `ResourcesExhausted` for too many.
pub(in crate::query) async fn written_out(
    statement: &mut Statement,
    state: &SessionState,
) -> Result<()> {
    let (mut skipped, mut left, mut num_queries) = (0, MAX_WRITTEN, 0);
    loop {
        let mut finding = Writing::after(skipped, left);
        finding.visit(statement)?;
        let Some(query) = finding.found else {
            return Ok(());
        };
        // Tables that look at others around them, or that the planner does not know yet: the engine says what it does not find.
        let Ok(plan) = planned(*query, state).await else {
            skipped += 1;
            if skipped > MAX_QUERIES {
                return Ok(());
            }
            continue;
        };
        num_queries += 1;
        if num_queries > MAX_QUERIES {
            return Err(too_many());
        }
        let mut writing = Writing {
            columns: Some(plan.schema().as_ref().clone()),
            ..Writing::after(skipped, left)
        };
        writing.visit(statement)?;
        left = writing.left;
    }
}

fn too_many() -> Error {
    let text = format!(
        "`.*` of structs may stand in {MAX_QUERIES} queries of a statement, and come to {MAX_WRITTEN} columns"
    );
    let error = Error::new(ErrorKind::ResourcesExhausted, text);
    error.with_hint("name the fields of some of them")
}

/// Looks for the first query that has such an item, those within it before it.
struct Writing {
    around: Around,
    /// How many of these are passed by.
    skipped: usize,
    /// How many columns may still be written.
    left: usize,
    /// What is put into it: the columns of its FROM.
    columns: Option<DFSchema>,
    /// A query of all its columns.
    found: Option<Box<Query>>,
}

impl Writing {
    fn after(skipped: usize, left: usize) -> Self {
        Self {
            around: Around::default(),
            skipped,
            left,
            columns: None,
            found: None,
        }
    }

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
        if let Some(skipped) = self.skipped.checked_sub(1) {
            self.skipped = skipped;
            return ControlFlow::Continue(());
        }
        let Some(columns) = &self.columns else {
            self.found = self.around.all_of(select.from.clone()).map(Box::new);
            return ControlFlow::Break(None);
        };
        let done = in_select(select, &tables, columns, &mut self.left);
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

/// Whether what stands before `.*` is no table. A table may have the name of its schema before its own.
fn is_star(item: &SelectItem, tables: &Tables) -> bool {
    star(item).is_some_and(|(names, _)| names.last().is_some_and(|last| !tables.has(last)))
}

fn in_select(
    select: &mut Select,
    tables: &Tables,
    columns: &DFSchema,
    left: &mut usize,
) -> Result<()> {
    let mut items = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        match star(&item).filter(|_| is_star(&item, tables)) {
            Some((names, options)) => {
                let fields = fields_of(&names, options, columns)?;
                *left = left.checked_sub(fields.len()).ok_or_else(too_many)?;
                if fields.is_empty() {
                    let text = format!("{}.* EXCLUDE (…) leaves no column", joined(&names));
                    return Err(wrong(text));
                }
                items.extend(fields);
            }
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
    let (root, within) = root_of(names, columns)?;
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
    let mut out = HashSet::new();
    for name in left_out {
        let Some(field) = field(kind, name) else {
            let has = fields.iter().map(|field| field.name().as_str());
            let has = has.collect::<Vec<_>>().join(", ");
            return Err(wrong(format!(
                "{written} has no field {name}; it has {has}"
            )));
        };
        out.insert(field.name());
    }
    let (root, _) = names.split_at(names.len() - within.len());
    let kept = fields.iter().filter(|field| !out.contains(field.name()));
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
) -> Result<(&'b DataType, &'a [Ident])> {
    let of = |table: Option<&Ident>, column: &Ident| {
        let of_table = columns.iter().filter(|(qualifier, _)| {
            table.is_none_or(|table| {
                qualifier.is_some_and(|qualifier| is_named(table, qualifier.table()))
            })
        });
        let fields: Vec<&FieldRef> = of_table.map(|(_, field)| field).collect();
        one_of(&fields, column)
    };
    let written = joined(names);
    let found = match names {
        [table, column, within @ ..] => of(Some(table), column).map(|found| (found, within)),
        _ => None,
    };
    let found = found.or_else(|| {
        let (column, within) = names.split_first()?;
        Some((of(None, column)?, within))
    });
    match found {
        Some((Ok(field), within)) => Ok((field.data_type(), within)),
        Some((Err(Several), _)) => {
            let text = format!("{written}.* is of several columns of FROM");
            Err(wrong(text).with_hint("write the name of the table before it"))
        }
        None => {
            let text = format!("{written}.* is of no table and no column of FROM");
            Err(wrong(text).with_hint("write the name of a table, or of a column that is a struct"))
        }
    }
}

fn field<'a>(kind: &'a DataType, name: &Ident) -> Option<&'a FieldRef> {
    let DataType::Struct(fields) = kind else {
        return None;
    };
    one_of(&fields.iter().collect::<Vec<_>>(), name)?.ok()
}

/// Several fields are meant by one name.
struct Several;

/// The field of that name; of none the one whose name differs in the case of letters only.
fn one_of<'a>(
    fields: &[&'a FieldRef],
    name: &Ident,
) -> Option<std::result::Result<&'a FieldRef, Several>> {
    let of_all = |is: &dyn Fn(&str) -> bool| {
        let mut named = fields.iter().filter(|field| is(field.name()));
        let first = named.next()?;
        Some(named.next().map_or(Ok(*first), |_| Err(Several)))
    };
    let folded = folded(name);
    of_all(&|of| of == folded).or_else(|| of_all(&|of| is_named(name, of)))
}

/// Names without quotes mean what differs in the case of letters, too.
fn is_named(name: &Ident, of: &str) -> bool {
    match name.quote_style {
        None => name.value.eq_ignore_ascii_case(of),
        Some(_) => name.value == of,
    }
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

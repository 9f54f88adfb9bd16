//! Which columns `COLUMNS(…)` means.
//!
//! Comes in: the columns of FROM, and the arguments: `*`, `* EXCLUDE (a)`, `* REPLACE (a + 1 AS a)`, `* RENAME (a AS b)`, `t.*`, a regular expression that a part of the name matches, a list of names, or a lambda that is true for the name. Goes out: what stands for each column that is meant. Never here: where it is put.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LambdaFunction, ObjectName, RenameSelectItem, ReplaceSelectItem, Select, SelectItem, SetExpr,
    Value, WildcardAdditionalOptions, visit_expressions_mut,
};
use regex::Regex;

use super::{call, num_parts, wrong};
use crate::error::{Error, Result};
use crate::query::error::near;
use crate::query::rewrite::around::{Around, planned_alone, statement_of};
use crate::query::rewrite::row_in::parsed;
use crate::query::rewrite::using::{folded, same};

/// So many names are told where none is meant.
const MAX_TOLD: usize = 20;

/// A column that is meant.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) expr: Expr,
    pub(super) name: String,
    /// Whether the expression is another one than the column.
    pub(super) is_replaced: bool,
    /// How many expressions stand within that one.
    pub(super) parts: usize,
    /// What the groups of the regular expression match in the name; the first is the name itself.
    groups: Vec<String>,
}

impl Chosen {
    /// The name of an item whose alias is this: `\1` is what the first group matches.
    pub(super) fn called(&self, alias: &str) -> String {
        let mut name = String::new();
        let mut letters = alias.chars().peekable();
        while let Some(letter) = letters.next() {
            let digit = letters.peek().and_then(|next| next.to_digit(10));
            match digit.filter(|_| letter == '\\') {
                Some(digit) => {
                    letters.next();
                    let group = self.groups.get(digit as usize);
                    name.push_str(group.map_or("", String::as_str));
                }
                None => name.push(letter),
            }
        }
        match name.is_empty() {
            true => self.name.clone(),
            false => name,
        }
    }
}

/// The columns for each way in which a query names them.
pub(super) struct Meant(Vec<(Expr, Vec<Chosen>)>);

impl Meant {
    pub(super) fn chosen(&self, wanted: &Expr) -> Result<&[Chosen]> {
        let mut all = self.0.iter();
        let found = all.find(|(call, _)| call == wanted);
        found
            .map(|(_, chosen)| chosen.as_slice())
            .ok_or_else(|| Error::internal(format!("nobody asked for {wanted}")))
    }
}

/// A column of FROM.
struct Column {
    name: String,
    expr: Expr,
}

/// The columns that each of some calls means.
///
/// # Errors
/// `Query` where one means none, names one that there is not, or is none of the forms.
pub(super) async fn columns_of(
    schema: &DFSchema,
    tables: &[OfTable],
    calls: &[Expr],
    state: &SessionState,
) -> Result<Meant> {
    let all = all_in(schema)?;
    let mut found = Vec::with_capacity(calls.len());
    for wanted in calls {
        let Some((function, _)) = call(wanted) else {
            continue;
        };
        let chosen = match table_of(function) {
            Some(table) => of_table(table, tables)?,
            None => meant(function, wanted, &all, state).await?,
        };
        if chosen.is_empty() {
            return Err(none(wanted, &all));
        }
        found.push((wanted.clone(), chosen));
    }
    Ok(Meant(found))
}

fn none(wanted: &Expr, all: &[Column]) -> Error {
    let mut names: Vec<&str> = all.iter().map(|column| column.name.as_str()).collect();
    let rest = names.len().saturating_sub(MAX_TOLD);
    names.truncate(MAX_TOLD);
    let mut told = names.join(", ");
    if rest > 0 {
        told += &format!(" and {rest} more");
    }
    wrong(format!("no column of FROM is one of {wanted}")).with_hint(format!("there are {told}"))
}

fn all_in(schema: &DFSchema) -> Result<Vec<Column>> {
    let mut seen = std::collections::HashMap::new();
    for field in schema.fields() {
        *seen.entry(field.name().as_str()).or_insert(0) += 1;
    }
    let columns = schema.iter().map(|(table, field)| {
        let name = field.name().clone();
        let table = table.map(|table| table.table().to_owned());
        let written = match (&table, seen.get(name.as_str())) {
            (Some(table), Some(2..)) => format!("{}.{}", quoted(table), quoted(&name)),
            _ => plain(&name),
        };
        Ok(Column {
            expr: parsed(&written)?,
            name,
        })
    });
    columns.collect()
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}

/// A name without quotes where it means the same.
fn plain(name: &str) -> String {
    let is_same = |expr: Expr| matches!(expr, Expr::Identifier(read) if folded(&read) == name);
    match parsed(name).is_ok_and(is_same) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

async fn meant(
    function: &Function,
    wanted: &Expr,
    all: &[Column],
    state: &SessionState,
) -> Result<Vec<Chosen>> {
    let forms = || {
        let text = format!(
            "{wanted}: it takes *, t.*, a regular expression, a list of names or a lambda over a name"
        );
        wrong(text).with_hint("COLUMNS('price|size'), COLUMNS(['price', 'size']), COLUMNS(* EXCLUDE (id)), COLUMNS(c -> c LIKE 'dep%')")
    };
    let FunctionArguments::List(list) = &function.args else {
        return Err(forms());
    };
    let [FunctionArg::Unnamed(argument)] = list.args.as_slice() else {
        return Err(forms());
    };
    if !is_plain(function) {
        return Err(forms());
    }
    match argument {
        FunctionArgExpr::Wildcard => Ok(all.iter().map(chosen).collect()),
        FunctionArgExpr::QualifiedWildcard(_) => Err(forms()),
        FunctionArgExpr::WildcardWithOptions(options) => with_options(options, wanted, all),
        FunctionArgExpr::Expr(Expr::Array(names)) => {
            let names = names.elem.iter().map(text_of);
            let names: Option<Vec<&str>> = names.collect();
            named(&names.ok_or_else(forms)?, all)
        }
        FunctionArgExpr::Expr(Expr::Lambda(lambda)) => by_lambda(lambda, all, state).await,
        FunctionArgExpr::Expr(expr) => matching(text_of(expr).ok_or_else(forms)?, all),
    }
}

/// Whether a call says nothing but its arguments.
fn is_plain(function: &Function) -> bool {
    let has_plain_arguments = match &function.args {
        FunctionArguments::List(list) => {
            list.clauses.is_empty() && list.duplicate_treatment.is_none()
        }
        _ => false,
    };
    has_plain_arguments
        && function.over.is_none()
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty()
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn chosen(column: &Column) -> Chosen {
    Chosen {
        expr: column.expr.clone(),
        name: column.name.clone(),
        is_replaced: false,
        parts: 1,
        groups: vec![column.name.clone()],
    }
}

/// The table whose columns are meant, in `COLUMNS(t.*)`.
pub(super) fn table_of(function: &Function) -> Option<&ObjectName> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(table))] if is_plain(function) => {
            Some(table)
        }
        _ => None,
    }
}

/// The columns of a table in FROM.
pub(super) struct OfTable {
    table: ObjectName,
    columns: Vec<Column>,
}

impl OfTable {
    /// From what `t.*` is.
    pub(super) fn of(table: &ObjectName, schema: &DFSchema) -> Result<Self> {
        let columns = schema.fields().iter().map(|field| {
            let name = field.name().clone();
            Ok(Column {
                expr: parsed(&format!("{table}.{}", quoted(&name)))?,
                name,
            })
        });
        Ok(Self {
            table: table.clone(),
            columns: columns.collect::<Result<_>>()?,
        })
    }
}

fn of_table(table: &ObjectName, tables: &[OfTable]) -> Result<Vec<Chosen>> {
    let mut tables = tables.iter();
    let found = tables.find(|known| known.table == *table);
    let found = found.ok_or_else(|| Error::internal(format!("nobody asked for {table}")))?;
    Ok(found.columns.iter().map(chosen).collect())
}

/// What `*` leaves out, replaces and renames.
struct Options {
    excluded: Vec<String>,
    replaced: Vec<(String, Expr)>,
    renamed: Vec<(String, String)>,
}

impl Options {
    fn of(options: &WildcardAdditionalOptions, wanted: &Expr) -> Result<Self> {
        let mut rest = options.clone();
        let excluded = match rest.opt_exclude.take() {
            None => Vec::new(),
            Some(ExcludeSelectItem::Single(name)) => vec![name],
            Some(ExcludeSelectItem::Multiple(names)) => names,
        };
        let one = |name: &ObjectName| match name.0.as_slice() {
            [name] => name.as_ident().map(folded),
            _ => None,
        };
        let excluded: Option<Vec<String>> = excluded.iter().map(one).collect();
        let excluded = excluded.ok_or_else(|| {
            let text =
                format!("* EXCLUDE takes names of columns without those of tables, got {wanted}");
            wrong(text).with_hint("write a.* EXCLUDE (x), b.*")
        })?;
        let replaced = match rest.opt_replace.take() {
            None => Vec::new(),
            Some(ReplaceSelectItem { items }) => {
                let items = items.into_iter();
                items
                    .map(|item| (folded(&item.column_name), item.expr))
                    .collect()
            }
        };
        let renamed = match rest.opt_rename.take() {
            None => Vec::new(),
            Some(RenameSelectItem::Single(one)) => vec![one],
            Some(RenameSelectItem::Multiple(all)) => all,
        };
        let names = renamed.iter();
        let renamed = names.map(|one| (folded(&one.ident), folded(&one.alias)));
        let renamed = renamed.collect();
        let plain = WildcardAdditionalOptions {
            wildcard_token: rest.wildcard_token.clone(),
            ..WildcardAdditionalOptions::default()
        };
        if rest != plain {
            let text = format!("{wanted}: `*` takes EXCLUDE, REPLACE and RENAME there");
            return Err(wrong(text));
        }
        Ok(Self {
            excluded,
            replaced,
            renamed,
        })
    }

    /// Refuses columns that there are not, and those that are named twice.
    fn check(&self, all: &[Column]) -> Result<()> {
        let is_known = |name: &str| all.iter().any(|column| column.name == name);
        let mut seen = HashSet::new();
        let replaced = self.replaced.iter().map(|(name, _)| name);
        let renamed = self.renamed.iter().map(|(name, _)| name);
        for name in self.excluded.iter().chain(replaced).chain(renamed) {
            if !is_known(name) {
                return Err(unknown_column(name, all));
            }
            if !seen.insert(name) {
                let text = format!("`*` leaves out, replaces or renames the column `{name}` twice");
                return Err(wrong(text).with_hint("name it once"));
            }
        }
        Ok(())
    }
}

fn with_options(
    options: &WildcardAdditionalOptions,
    wanted: &Expr,
    all: &[Column],
) -> Result<Vec<Chosen>> {
    let options = Options::of(options, wanted)?;
    options.check(all)?;
    // Of several columns of one name the first is replaced, and the others are left out.
    let mut done = HashSet::new();
    let columns = all.iter().filter(|column| {
        let is_replaced = options
            .replaced
            .iter()
            .any(|(name, _)| *name == column.name);
        !options.excluded.contains(&column.name) && (!is_replaced || done.insert(&column.name))
    });
    let columns = columns.map(|column| {
        let mut chosen = chosen(column);
        let mut names = options.replaced.iter();
        if let Some((_, value)) = names.find(|(name, _)| *name == column.name) {
            chosen.expr = Expr::Nested(Box::new(value.clone()));
            chosen.is_replaced = true;
            chosen.parts = num_parts(value);
        }
        let mut names = options.renamed.iter();
        if let Some((_, alias)) = names.find(|(name, _)| *name == column.name) {
            chosen.name.clone_from(alias);
            // It is written with its new name.
            chosen.is_replaced = true;
        }
        chosen
    });
    Ok(columns.collect())
}

fn unknown_column(name: &str, all: &[Column]) -> Error {
    let error = wrong(format!("no column `{name}` in FROM, in COLUMNS(…) or `*`"));
    match near(name, all.iter().map(|column| column.name.as_str())) {
        Some(name) => error.with_hint(format!("did you mean `{name}`?")),
        None => error,
    }
}

/// Those that a list names, in the order of FROM, as in DuckDB.
fn named(names: &[&str], all: &[Column]) -> Result<Vec<Chosen>> {
    let is_known = |name: &str| all.iter().any(|column| column.name == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(unknown_column(unknown, all));
    }
    let is_named = |column: &&Column| names.contains(&column.name.as_str());
    Ok(all.iter().filter(is_named).map(chosen).collect())
}

/// Those of which a part of the name matches.
fn matching(pattern: &str, all: &[Column]) -> Result<Vec<Chosen>> {
    let regex = Regex::new(pattern).map_err(|error| {
        wrong(format!(
            "no regular expression in COLUMNS('{pattern}'): {error}"
        ))
    })?;
    let columns = all.iter().filter_map(|column| {
        let found = regex.captures(&column.name)?;
        let group = |group: Option<regex::Match<'_>>| {
            group.map_or_else(String::new, |text| text.as_str().to_owned())
        };
        let mut meant = chosen(column);
        meant.groups.extend(found.iter().skip(1).map(group));
        Some(meant)
    });
    Ok(columns.collect())
}

/// Those for whose name a lambda is true.
async fn by_lambda(
    lambda: &LambdaFunction,
    all: &[Column],
    state: &SessionState,
) -> Result<Vec<Chosen>> {
    let params: Vec<&Ident> = lambda.params.iter().map(|param| &param.name).collect();
    let [param] = params.as_slice() else {
        return Err(wrong("the lambda of COLUMNS(…) takes one name"));
    };
    let mut found = Vec::new();
    for column in all {
        let mut body = lambda.body.as_ref().clone();
        let name = Expr::value(Value::SingleQuotedString(column.name.clone()));
        let _: ControlFlow<()> = visit_expressions_mut(&mut body, |part| {
            if matches!(part, Expr::Identifier(ident) if same(ident, param)) {
                *part = name.clone();
            }
            ControlFlow::Continue(())
        });
        if is_true(body, column, state).await? {
            found.push(chosen(column));
        }
    }
    Ok(found)
}

/// What an expression of constants comes to.
async fn is_true(body: Expr, column: &Column, state: &SessionState) -> Result<bool> {
    let no_word = || {
        wrong(format!(
            "the lambda of COLUMNS(…) must be true or false for each name, and is not for `{}`",
            column.name
        ))
    };
    let mut query = Around::default().all_of(Vec::new()).ok_or_else(no_word)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let select: &mut Select = select;
        select.projection = vec![SelectItem::UnnamedExpr(body)];
    }
    let plan = planned_alone(statement_of(query), state).await?;
    let LogicalPlan::Projection(projection) = state.optimize(&plan)? else {
        return Err(no_word());
    };
    let [value] = projection.expr.as_slice() else {
        return Err(no_word());
    };
    match value.clone().unalias() {
        Planned::Literal(ScalarValue::Boolean(value), _) => Ok(value.unwrap_or(false)),
        _ => Err(no_word()),
    }
}

//! Rows of a table as one value: `SELECT to_json(t) FROM t`, `SELECT t FROM t`.
//!
//! Comes in: a statement, in which a name that stands alone is that of a table in FROM. Goes out: the same with a struct of the columns of that table in its place, unless there is a column of that name; of a function with one column, that column. Which columns there are is asked of the planner, by a query of all of them. Never here: `t.*` (the engine knows it), `s.*` of structs (`struct_stars.rs`), conditions of joins, and tables of queries around.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, GroupByExpr, Ident, LambdaFunction, OneOrManyWithParens, OrderBy, Query,
    Select, SelectItem, SetExpr, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::around::Around;
use super::called::called;
use super::each_column::planned;
use super::fields::Tables;
use super::using::{folded, sql_of};
use super::written::{Meant, name_items};
use crate::error::{Error, ErrorKind, Result};

/// So many parts of queries of a statement may have such names.
const MAX_QUERIES: usize = 64;

/// So many columns may be written in one of them.
const MAX_WRITTEN: usize = 10_000;

/// Writes the structs out.
///
/// # Errors
/// `ResourcesExhausted` for too many columns.
pub(in crate::query) async fn written_out(
    statement: &mut Statement,
    state: &SessionState,
) -> Result<()> {
    let mut skipped = 0;
    while skipped < MAX_QUERIES {
        let mut finding = Writing::after(skipped);
        finding.visit(statement)?;
        let Some(asked) = finding.found else {
            return Ok(());
        };
        // Tables that look at others around them, or that the planner does not know yet: the engine says what it does not find.
        if let Ok(columns) = Box::pin(columns_of(*asked, state)).await {
            let mut writing = Writing {
                columns: Some(columns),
                ..Writing::after(skipped)
            };
            writing.visit(statement)?;
            if writing.has_written {
                continue;
            }
        }
        skipped += 1;
    }
    Ok(())
}

/// What is asked of the planner.
struct Asked {
    /// All columns of FROM.
    all: Query,
    /// Those of each table that is named. Of a join by names, FROM has the columns of both only once.
    tables: Vec<(Ident, TableFactor, Query)>,
}

/// What it says.
struct Columns {
    /// The names of all columns.
    all: Vec<String>,
    /// A row of each table that is named.
    rows: Vec<(Ident, Row)>,
}

/// A row of a table as one value.
struct Row {
    num_columns: usize,
    value: Expr,
}

async fn columns_of(asked: Asked, state: &SessionState) -> Result<Columns> {
    let all = names_of(asked.all, state).await?;
    let mut rows = Vec::new();
    for (name, table, query) in asked.tables {
        let columns = names_of(query, state).await?;
        rows.extend(row_of(&name, &table, &columns).map(|row| (name, row)));
    }
    Ok(Columns { all, rows })
}

/// The names of all columns of a query.
async fn names_of(query: Query, state: &SessionState) -> Result<Vec<String>> {
    let plan = planned(query, state).await?;
    let fields = plan.schema().fields().iter();
    Ok(fields.map(|field| field.name().clone()).collect())
}

impl Columns {
    /// The rows of tables whose names are those of no column.
    fn meant(&self) -> Vec<&(Ident, Row)> {
        let is_column = |name: &Ident| {
            self.all.iter().any(|column| match name.quote_style {
                Some(_) => *column == name.value,
                None => column.eq_ignore_ascii_case(&name.value),
            })
        };
        let rows = self.rows.iter();
        rows.filter(|(name, _)| !is_column(name)).collect()
    }
}

/// A struct of all columns of a table; nothing where it has none, or two of one name.
fn row_of(table: &Ident, factor: &TableFactor, names: &[String]) -> Option<Row> {
    let different: HashSet<&String> = names.iter().collect();
    if names.is_empty() || different.len() < names.len() {
        return None;
    }
    let column = |name: &str| {
        let column = Ident::with_quote('"', name);
        Expr::CompoundIdentifier(vec![table.clone(), column])
    };
    let is_of_values = matches!(
        factor,
        TableFactor::Table { args: Some(_), .. }
            | TableFactor::Function { .. }
            | TableFactor::UNNEST { .. }
    );
    let value = match names {
        [only] if is_of_values => column(only),
        _ => {
            let parts = names.iter().flat_map(|name| {
                let text = Value::SingleQuotedString(name.clone());
                [Expr::value(text), column(name)]
            });
            called("named_struct", parts)
        }
    };
    Some(Row {
        num_columns: names.len(),
        value,
    })
}

/// Looks for the first part of a query that has such a name, those within it before it.
struct Writing {
    around: Around,
    /// The names in the ORDER BY of each query that is open.
    meant: Vec<Meant>,
    /// How many of these are passed by.
    skipped: usize,
    /// What is put into it.
    columns: Option<Columns>,
    has_written: bool,
    found: Option<Box<Asked>>,
}

type Step = ControlFlow<Option<Box<Error>>>;

impl Writing {
    fn after(skipped: usize) -> Self {
        Self {
            around: Around::default(),
            meant: Vec::new(),
            skipped,
            columns: None,
            has_written: false,
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

    /// One part of a query, by its FROM.
    fn at(&mut self, from: &[TableWithJoins], mut part: Part<'_>) -> Step {
        let tables = Tables::of_from(from);
        let mut names: Vec<Ident> = Vec::new();
        let found = part.each(&mut |name| {
            if tables.is_called(name) && !names.contains(name) {
                names.push(name.clone());
            }
            ControlFlow::Continue(None)
        });
        debug_assert!(found.is_continue());
        if names.is_empty() {
            return ControlFlow::Continue(());
        }
        if let Some(skipped) = self.skipped.checked_sub(1) {
            self.skipped = skipped;
            return ControlFlow::Continue(());
        }
        let Some(columns) = &self.columns else {
            self.found = self.asked(from, &names).map(Box::new);
            return ControlFlow::Break(None);
        };
        let rows = columns.meant();
        if rows.is_empty() {
            return ControlFlow::Break(None);
        }
        self.has_written = true;
        part.name(&rows);
        let mut left = MAX_WRITTEN;
        let written = part.each(&mut |name| {
            let Some((_, row)) = rows.iter().find(|(known, _)| known == name) else {
                return ControlFlow::Continue(None);
            };
            match left.checked_sub(row.num_columns) {
                Some(rest) => {
                    left = rest;
                    ControlFlow::Continue(Some(row.value.clone()))
                }
                None => ControlFlow::Break(()),
            }
        });
        ControlFlow::Break(written.is_break().then(|| Box::new(too_many())))
    }

    fn asked(&self, from: &[TableWithJoins], names: &[Ident]) -> Option<Asked> {
        let tables = names.iter().filter_map(|name| {
            let relation = from.iter().find_map(|table| called_so(table, name))?;
            let alone = TableWithJoins {
                relation: relation.clone(),
                joins: Vec::new(),
            };
            let query = self.around.all_of(vec![alone])?;
            Some((name.clone(), relation.clone(), query))
        });
        Some(Asked {
            tables: tables.collect(),
            all: self.around.all_of(from.to_vec())?,
        })
    }
}

fn too_many() -> Error {
    let text = format!(
        "rows of tables as values come to more than the {MAX_WRITTEN} columns that are allowed"
    );
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint("name the columns: {'a': t.a, 'b': t.b}")
}

impl VisitorMut for Writing {
    type Break = Option<Box<Error>>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Step {
        self.around.open(query);
        self.meant.push(Meant::of(&query.order_by));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Step {
        self.meant.pop();
        if let SetExpr::Select(select) = query.body.as_ref()
            && let Some(order) = &mut query.order_by
        {
            let aliases = aliases_of(select);
            self.at(&select.from, Part::Order(order, aliases))?;
        }
        self.around.close();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> Step {
        let from = std::mem::take(&mut select.from);
        let meant = self.meant.pop().unwrap_or_default();
        let done = self.at(&from, Part::Select(select, &meant));
        self.meant.push(meant);
        select.from = from;
        done
    }
}

/// What items are called that somebody has named.
fn aliases_of(select: &Select) -> HashSet<String> {
    let aliases = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    });
    aliases.collect()
}

/// The table of that name.
fn called_so<'a>(table: &'a TableWithJoins, name: &Ident) -> Option<&'a TableFactor> {
    let joined = table.joins.iter().map(|join| &join.relation);
    let mut all = std::iter::once(&table.relation).chain(joined);
    all.find_map(|factor| match factor {
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => called_so(table_with_joins, name),
        factor => Tables::of_factor(factor).is_called(name).then_some(factor),
    })
}

/// A part of a query in which such names may stand.
enum Part<'a> {
    /// Without its FROM, and the names that ORDER BY behind it says.
    Select(&'a mut Select, &'a Meant),
    /// Behind a SELECT whose items are called so.
    Order(&'a mut OrderBy, HashSet<String>),
}

/// What is done with a name that stands alone: something else may stand in its place.
type Do<'a> = &'a mut dyn FnMut(&Ident) -> ControlFlow<(), Option<Expr>>;

impl Part<'_> {
    fn each(&mut self, work: Do<'_>) -> ControlFlow<()> {
        match self {
            Self::Select(select, _) => {
                let aliases = aliases_of(select);
                // Keys may be items, by what these are called.
                let none = GroupByExpr::Expressions(Vec::new(), Vec::new());
                let mut keys = std::mem::replace(&mut select.group_by, none);
                let done = OwnNames::of(&HashSet::new(), &mut *work).walk(&mut **select);
                let done = match done {
                    ControlFlow::Continue(()) => OwnNames::of(&aliases, work).walk(&mut keys),
                    ended => ended,
                };
                select.group_by = keys;
                done
            }
            Self::Order(order, aliases) => OwnNames::of(aliases, work).walk(&mut **order),
        }
    }

    /// Calls items as they are written.
    fn name(&mut self, rows: &[&(Ident, Row)]) {
        let Self::Select(select, meant) = self else {
            return;
        };
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && rows.iter().any(|(known, _)| known == name)
            {
                let alias = Ident::with_quote('"', folded(name));
                let expr = Expr::Identifier(name.clone());
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        name_items(select, meant);
    }
}

/// Names that stand alone in a part of a query itself, and not in queries within it, where they are neither parameters of lambdas nor fields.
struct OwnNames<'a> {
    excluded: &'a HashSet<String>,
    depth: usize,
    params: Vec<String>,
    work: Do<'a>,
}

impl<'a> OwnNames<'a> {
    fn of(excluded: &'a HashSet<String>, work: Do<'a>) -> Self {
        Self {
            excluded,
            depth: 0,
            params: Vec::new(),
            work,
        }
    }

    fn walk(mut self, part: &mut impl VisitMut) -> ControlFlow<()> {
        part.visit(&mut self)
    }
}

impl VisitorMut for OwnNames<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => self.params.extend(params_of(lambda)),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                // Until the visitor has passed by.
                for access in access_chain {
                    if let AccessExpr::Dot(field) = access
                        && let Expr::Identifier(name) = field
                    {
                        *field = Expr::CompoundIdentifier(vec![name.clone()]);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => {
                let left = self.params.len() - params_of(lambda).count();
                self.params.truncate(left);
            }
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let AccessExpr::Dot(field) = access
                        && let Expr::CompoundIdentifier(names) = field
                        && let [name] = names.as_slice()
                    {
                        *field = Expr::Identifier(name.clone());
                    }
                }
            }
            Expr::Identifier(name) if self.depth == 0 => {
                let called = folded(name);
                if !self.params.contains(&called)
                    && !self.excluded.contains(&called)
                    && let Some(meant) = (self.work)(name)?
                {
                    *expr = meant;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn params_of(lambda: &LambdaFunction) -> impl Iterator<Item = String> {
    let params = match &lambda.params {
        OneOrManyWithParens::One(param) => std::slice::from_ref(param),
        OneOrManyWithParens::Many(params) => params.as_slice(),
    };
    params.iter().map(|param| folded(&param.name))
}

//! Rows of a table as one value: `SELECT to_json(t) FROM t`, `SELECT t FROM t`.
//!
//! Comes in: a statement, in which a name that stands alone is that of a table in FROM. Goes out: the same with a struct of the columns of that table in its place, unless there is a column of that name. Which columns there are is asked of the planner, by a query of all of them. Never here: `t.*` (the engine knows it), `s.*` of structs (`struct_stars.rs`), and tables of queries around.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LambdaFunction, OneOrManyWithParens, Query, Select, SelectItem, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};

use super::around::Around;
use super::called::called;
use super::each_column::planned;
use super::fields::Tables;
use super::using::{folded, sql_of};
use super::written::{Meant, name_items};
use crate::error::{Error, ErrorKind, Result};

/// So many queries of a statement may have such names.
const MAX_QUERIES: usize = 64;

/// So many columns may be written in a query.
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
        let Some(query) = finding.found else {
            return Ok(());
        };
        // Each query is looked at once. Tables that look at others around them, or that the planner does not know yet: the engine says what it does not find.
        let plan = planned(*query, state).await;
        if let Ok(plan) = plan {
            let mut writing = Writing {
                columns: Some(plan.schema().as_ref().clone()),
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

/// Looks for the first query that has such a name, those within it before it.
struct Writing {
    around: Around,
    /// The names in the ORDER BY of each query that is open.
    meant: Vec<Meant>,
    /// How many of these are passed by.
    skipped: usize,
    /// What is put into it: the columns of its FROM.
    columns: Option<DFSchema>,
    has_written: bool,
    /// A query of all its columns.
    found: Option<Box<Query>>,
}

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
}

impl VisitorMut for Writing {
    type Break = Option<Box<Error>>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.around.open(query);
        self.meant.push(Meant::of(&query.order_by));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.around.close();
        self.meant.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let tables = Tables::of_from(&select.from);
        let names = Names::in_select(select, &tables);
        if names.found.is_empty() {
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
        let meant = self.meant.last();
        match in_select(select, (&names.found, columns), meant) {
            Ok(has_written) => {
                self.has_written = has_written;
                ControlFlow::Break(None)
            }
            Err(error) => ControlFlow::Break(Some(Box::new(error))),
        }
    }
}

/// Puts structs in the place of names, of those that are no columns. Whether there is one.
fn in_select(
    select: &mut Select,
    (names, columns): (&[Ident], &DFSchema),
    meant: Option<&Meant>,
) -> Result<bool> {
    let is_column = |name: &Ident| {
        let mut fields = columns.fields().iter();
        fields.any(|field| *field.name() == folded(name))
    };
    let mut rows = Vec::new();
    for name in names.iter().filter(|name| !is_column(name)) {
        if let Some(row) = row_of(name, columns) {
            rows.push((name.clone(), row));
        }
    }
    if rows.is_empty() {
        return Ok(false);
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && rows.iter().any(|(known, _)| known == name)
        {
            let alias = Ident::with_quote('"', folded(name));
            let expr = Expr::Identifier(name.clone());
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
    name_items(select, meant.unwrap_or(&Meant::default()));
    let from = std::mem::take(&mut select.from);
    let mut putting = Putting {
        rows,
        depth: 0,
        params: Vec::new(),
        left: MAX_WRITTEN,
    };
    let visited: ControlFlow<()> = VisitMut::visit(select, &mut putting);
    select.from = from;
    if visited.is_break() {
        let text = format!(
            "rows of tables as values come to more than the {MAX_WRITTEN} columns that are allowed"
        );
        let error = Error::new(ErrorKind::ResourcesExhausted, text);
        return Err(error.with_hint("name the columns: {'a': t.a, 'b': t.b}"));
    }
    Ok(true)
}

/// A row of a table as one value.
struct Row {
    num_columns: usize,
    value: Expr,
}

/// A struct of all columns of a table; nothing where it has none, or two of one name.
fn row_of(table: &Ident, columns: &DFSchema) -> Option<Row> {
    let of_table = columns.iter().filter(|(qualifier, _)| {
        qualifier.is_some_and(|qualifier| qualifier.table() == folded(table))
    });
    let names: Vec<&str> = of_table.map(|(_, field)| field.name().as_str()).collect();
    let different: HashSet<&&str> = names.iter().collect();
    if names.is_empty() || different.len() < names.len() {
        return None;
    }
    let num_columns = names.len();
    let parts = names.into_iter().flat_map(|name| {
        let column = Ident::with_quote('"', name);
        [
            Expr::value(Value::SingleQuotedString(name.to_owned())),
            Expr::CompoundIdentifier(vec![table.clone(), column]),
        ]
    });
    Some(Row {
        num_columns,
        value: called("named_struct", parts),
    })
}

/// What stands in a SELECT itself, and not in queries within it.
struct Names<'a> {
    tables: &'a Tables,
    /// What items are called.
    aliases: HashSet<String>,
    depth: usize,
    params: Vec<String>,
    found: Vec<Ident>,
}

impl<'a> Names<'a> {
    fn in_select(select: &mut Select, tables: &'a Tables) -> Self {
        let aliases = select.projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        });
        let mut names = Self {
            tables,
            aliases: aliases.collect(),
            depth: 0,
            params: Vec::new(),
            found: Vec::new(),
        };
        let from = std::mem::take(&mut select.from);
        let visited: ControlFlow<()> = Visit::visit(select, &mut names);
        debug_assert!(visited.is_continue());
        select.from = from;
        names
    }
}

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => self.params.extend(params_of(lambda)),
            Expr::Identifier(name) if self.depth == 0 => {
                let folded = folded(name);
                let is_other = self.params.contains(&folded) || self.aliases.contains(&folded);
                if !is_other && self.tables.is_called(name) && !self.found.contains(name) {
                    self.found.push(name.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Lambda(lambda) = expr {
            self.params
                .truncate(self.params.len() - params_of(lambda).count());
        }
        ControlFlow::Continue(())
    }
}

/// Puts rows in the place of the names of their tables.
struct Putting {
    rows: Vec<(Ident, Row)>,
    depth: usize,
    params: Vec<String>,
    /// How many columns may still be written.
    left: usize,
}

impl VisitorMut for Putting {
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
        if let Expr::Lambda(lambda) = expr {
            self.params.extend(params_of(lambda));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => {
                self.params
                    .truncate(self.params.len() - params_of(lambda).count());
            }
            Expr::Identifier(name) if self.depth == 0 && !self.params.contains(&folded(name)) => {
                if let Some((_, row)) = self.rows.iter().find(|(known, _)| known == name) {
                    let Some(left) = self.left.checked_sub(row.num_columns) else {
                        return ControlFlow::Break(());
                    };
                    self.left = left;
                    *expr = row.value.clone();
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

//! Fields of structs behind dots: `t.payload.items`, `payload.items`.
//!
//! Comes in: a statement. Goes out: the same, in which columns of a SELECT that are such fields are called as these (`items`), and `t.payload['items']` stands in lists in FROM and in subqueries: the engine knows fields behind dots only of columns of the query that they stand in. Never here: fields in brackets, of lambdas (`lambdas.rs`), of other
//! values (`standard.rs`).

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
    visit_expressions_mut,
};

use super::row_in::parsed;
use super::using::folded;
use crate::error::{Error, Result};

/// Names such columns, and writes brackets.
///
/// # Errors
/// None of the user's.
pub(super) fn told(statement: &mut Statement) -> Result<()> {
    let mut scopes = Scopes { open: Vec::new() };
    match VisitMut::visit(statement, &mut scopes) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// What the tables of a query are called.
#[derive(Default)]
pub(super) struct Tables {
    names: HashSet<String>,
    /// Whether some may be called otherwise.
    are_more: bool,
}

impl Tables {
    fn of(body: &SetExpr) -> Self {
        let mut tables = Self::default();
        tables.add(body);
        tables
    }

    pub(super) fn of_from(from: &[TableWithJoins]) -> Self {
        let mut tables = Self::default();
        from.iter().for_each(|table| tables.add_joined(table));
        tables
    }

    pub(super) fn of_factor(factor: &TableFactor) -> Self {
        let mut tables = Self::default();
        tables.add_one(factor);
        tables
    }

    fn add(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => select.from.iter().for_each(|table| self.add_joined(table)),
            SetExpr::SetOperation { left, right, .. } => {
                self.add(left);
                self.add(right);
            }
            _ => {}
        }
    }

    fn add_joined(&mut self, table: &TableWithJoins) {
        self.add_one(&table.relation);
        for join in &table.joins {
            self.add_one(&join.relation);
        }
    }

    fn add_one(&mut self, factor: &TableFactor) {
        let (name, alias) = match factor {
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                (name.0.last().and_then(ObjectNamePart::as_ident), alias)
            }
            TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => (None, alias),
            TableFactor::Pivot { table, alias, .. } | TableFactor::Unpivot { table, alias, .. } => {
                if alias.is_none() {
                    self.add_one(table);
                }
                (None, alias)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                self.add_joined(table_with_joins);
                (None, alias)
            }
            _ => {
                self.are_more = true;
                return;
            }
        };
        let name = alias.as_ref().map(|alias| &alias.name).or(name);
        self.names.extend(name.map(folded));
    }

    /// Whether one of them is called so, of those whose names are known.
    pub(super) fn is_called(&self, name: &Ident) -> bool {
        self.names.contains(&folded(name))
    }

    pub(super) fn has(&self, name: &Ident) -> bool {
        self.are_more || self.names.contains(&folded(name))
    }
}

/// The queries that are open, from the outermost.
struct Scopes {
    open: Vec<Tables>,
}

/// What a field is of, as it is written.
enum Of {
    /// `column.field`.
    Column,
    /// `table.column.field`, and whether the table is one of the innermost query.
    Table { is_own: bool },
}

impl Scopes {
    fn field(&self, names: &[Ident]) -> Option<Of> {
        let [first, second, rest @ ..] = names else {
            return None;
        };
        let place = self.open.iter().rposition(|tables| tables.has(first));
        match place {
            Some(place) => (!rest.is_empty()).then_some(Of::Table {
                is_own: place + 1 == self.open.len(),
            }),
            // A table may have the name of its schema before its own.
            None => (!self.open.iter().any(|tables| tables.has(second))).then_some(Of::Column),
        }
    }

    /// Whether it is a column of a query outside, which the engine calls otherwise.
    fn is_outside(&self, names: &[Ident]) -> bool {
        let [table, _] = names else {
            return false;
        };
        match self.open.split_last() {
            Some((own, others)) => !own.has(table) && others.iter().any(|tables| tables.has(table)),
            None => false,
        }
    }

    /// With brackets in place of dots.
    fn bracketed(&self, part: &mut Expr, is_list: bool) -> Result<()> {
        let (names, rest) = match &*part {
            Expr::CompoundIdentifier(names) => (names.clone(), String::new()),
            // `t.payload.items[1]`
            Expr::CompoundFieldAccess { root, access_chain } => {
                let mut names = match root.as_ref() {
                    Expr::Identifier(name) => vec![name.clone()],
                    Expr::CompoundIdentifier(names) => names.clone(),
                    _ => return Ok(()),
                };
                let fields = access_chain.iter().map_while(|access| match access {
                    AccessExpr::Dot(Expr::Identifier(name)) => Some(name.clone()),
                    _ => None,
                });
                let fields: Vec<Ident> = fields.collect();
                let rest = access_chain.iter().skip(fields.len());
                let rest = rest.map(ToString::to_string).collect();
                names.extend(fields);
                (names, rest)
            }
            _ => return Ok(()),
        };
        let is_within = self.open.len() > 1;
        let column = match self.field(&names) {
            Some(Of::Table { is_own }) if is_list || !is_own => 2,
            Some(Of::Column) if is_list || is_within => 1,
            _ => return Ok(()),
        };
        let Some((column, fields)) = names.split_at_checked(column) else {
            return Ok(());
        };
        let column: Vec<_> = column.iter().map(ToString::to_string).collect();
        let fields = fields.iter().map(|field| {
            let name = Expr::value(Value::SingleQuotedString(folded(field)));
            format!("[{name}]")
        });
        let fields: String = fields.collect();
        *part = parsed(&format!("{}{fields}{rest}", column.join(".")))?;
        Ok(())
    }
}

fn is_item(item: &SelectItem, expr: &Expr) -> bool {
    matches!(item, SelectItem::UnnamedExpr(given) if given == expr)
}

impl VisitorMut for Scopes {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.open.push(Tables::of(&query.body));
        if let SetExpr::Select(select) = query.body.as_ref()
            && select.distinct.is_some()
            && let Some(OrderBy {
                kind: OrderByKind::Expressions(keys),
                ..
            }) = &mut query.order_by
        {
            // Distinct rows are in the order of what they have, by its name.
            for key in keys {
                if let Expr::CompoundIdentifier(names) = &key.expr
                    && select
                        .projection
                        .iter()
                        .any(|item| is_item(item, &key.expr))
                    && self.field(names).is_some()
                    && let Some(name) = names.last()
                {
                    key.expr = Expr::Identifier(name.clone());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Expr::CompoundIdentifier(names) = &*expr
                && (self.field(names).is_some() || self.is_outside(names))
                && let Some(alias) = names.last().cloned()
            {
                let expr = expr.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let in_brackets = |part: &mut Expr| match self.bracketed(part, true) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        };
        match factor {
            TableFactor::UNNEST { array_exprs, .. } => {
                visit_expressions_mut(array_exprs, in_brackets)
            }
            TableFactor::Function { args, .. } => visit_expressions_mut(args, in_brackets),
            TableFactor::Table {
                args: Some(given), ..
            } => visit_expressions_mut(&mut given.args, in_brackets),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match self.bracketed(expr, false) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

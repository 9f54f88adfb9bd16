//! Items of SELECT by their names in later items, and in its WHERE: `SELECT a + 1 AS b, b * 2 … WHERE b > 3`. Standard SQL knows such names in ORDER BY alone; DuckDB and others know them everywhere.
//!
//! Comes in: a statement that names a column that no table has. Goes out: its plan, with what the item is in place of its name; of several items of one name the last one before that. Columns of tables go first, since only names
//! that are not found are looked for. Never here: names that stand alone in GROUP BY and ORDER BY, which the engine knows; subqueries, which do not see the items around them.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Volatility};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Select, SelectItem, VisitMut, VisitorMut, visit_expressions,
};

use super::one_value;
use super::using::{folded, put_meant};
use crate::error::{Error, ErrorKind, Result};
use crate::query::guard::MAX_SQL_BYTES;
use crate::query::messages::group_keys::is_of_several_rows;
use crate::query::shape::check_shape;

/// In so many SELECTs of one statement names are looked for.
const MOST: usize = 32;

/// The plan of a statement, which has what items are in place of their names afterwards.
///
/// # Errors
/// As [`one_value::planned`], and `ResourcesExhausted` where the statement would become too long.
pub(in crate::query) async fn planned(
    state: &SessionState,
    statement: &mut Statement,
) -> PlanResult<LogicalPlan> {
    let mut planned = one_value::planned(state, statement).await;
    for _ in 0..MOST {
        let Err(refused) = &planned else {
            break;
        };
        let Some(unknown) = Unknown::of(refused) else {
            break;
        };
        let mut again = statement.clone();
        if !put(&mut again, &unknown, state)? {
            break;
        }
        check_shape(&again)?;
        *statement = again;
        planned = one_value::planned(state, statement).await;
    }
    planned
}

/// A name without a table that no column has.
struct Unknown {
    name: String,
    /// Line and column of the statement.
    place: (u64, u64),
    /// The names that columns have there.
    known: HashSet<String>,
}

impl Unknown {
    fn of(error: &DataFusionError) -> Option<Self> {
        let DataFusionError::SchemaError(found, _) = error.find_root() else {
            return None;
        };
        let SchemaError::FieldNotFound {
            field,
            valid_fields,
        } = found.as_ref()
        else {
            return None;
        };
        let begin = error.diagnostic()?.span?.start;
        let known = valid_fields.iter().map(|column| column.name.clone());
        field.relation.is_none().then(|| Self {
            name: field.name.clone(),
            place: (begin.line, begin.column),
            known: known.collect(),
        })
    }
}

/// Puts items in place of their names in the SELECT that has the unknown name. Whether there is such a SELECT with such an item.
///
/// # Errors
/// `ResourcesExhausted` where it would become too long.
fn put(statement: &mut Statement, unknown: &Unknown, state: &SessionState) -> Result<bool> {
    let inner = match statement {
        Statement::Statement(inner) => inner,
        Statement::Explain(explain) => return put(&mut explain.statement, unknown, state),
        _ => return Ok(false),
    };
    let mut naming = Naming { unknown, state };
    match VisitMut::visit(inner, &mut naming) {
        ControlFlow::Continue(()) => Ok(false),
        ControlFlow::Break(done) => done.map(|()| true),
    }
}

struct Naming<'a> {
    unknown: &'a Unknown,
    state: &'a SessionState,
}

impl VisitorMut for Naming<'_> {
    type Break = Result<()>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Result<()>> {
        let mut with = select.clone();
        match self.put_in(&mut with) {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => {
                *select = with;
                ControlFlow::Break(Ok(()))
            }
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }
}

/// What the names of items stand for.
#[derive(Default)]
struct Items(HashMap<String, Item>);

struct Item {
    value: Expr,
    /// The length of its text.
    num_bytes: usize,
    is_of_several_rows: bool,
}

/// What is put in place of names in one SELECT.
struct Put<'a> {
    unknown: &'a Unknown,
    items: Items,
    /// Whether the unknown name was among them.
    is_found: Cell<bool>,
    /// How long all texts are that were put somewhere.
    num_bytes: Cell<usize>,
}

impl Put<'_> {
    /// The item of a name; none where it would become too long, which is told afterwards.
    fn item(&self, name: &Ident, are_rows_known: bool) -> Option<Expr> {
        let text = folded(name);
        let item = self.items.0.get(&text)?;
        if item.is_of_several_rows && !are_rows_known {
            return None;
        }
        self.num_bytes
            .set(self.num_bytes.get().saturating_add(item.num_bytes));
        if self.num_bytes.get() > MAX_SQL_BYTES {
            return None;
        }
        let begin = name.span.start;
        if text == self.unknown.name && (begin.line, begin.column) == self.unknown.place {
            self.is_found.set(true);
        }
        Some(item.value.clone())
    }

    fn put(&self, part: &mut impl VisitMut, are_rows_known: bool) -> Result<()> {
        put_meant(part, &|name| self.item(name, are_rows_known));
        match self.num_bytes.get() > MAX_SQL_BYTES {
            true => Err(too_long()),
            false => Ok(()),
        }
    }
}

impl Naming<'_> {
    /// Whether the unknown name stands here, and an item was put in its place.
    fn put_in(&self, select: &mut Select) -> Result<bool> {
        let mut all = Put {
            unknown: self.unknown,
            items: Items::default(),
            is_found: Cell::new(false),
            num_bytes: Cell::new(0),
        };
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    if let Some(expr) = all.item(name, true) {
                        let alias = name.clone();
                        *item = SelectItem::ExprWithAlias { expr, alias };
                    }
                }
                SelectItem::UnnamedExpr(expr) => all.put(expr, true)?,
                SelectItem::ExprWithAlias { expr, alias } => {
                    all.put(expr, true)?;
                    let (name, expr) = (folded(alias), expr.clone());
                    self.keep(&mut all.items, name, expr);
                }
                _ => {}
            }
        }
        // What is made of several rows is not known yet where rows are chosen.
        all.put(&mut select.selection, false)?;
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            // The engine knows names that stand alone.
            let worked_out = keys.iter_mut();
            for key in worked_out.filter(|key| !matches!(key, Expr::Identifier(_))) {
                all.put(key, false)?;
            }
        }
        all.put(&mut select.having, true)?;
        all.put(&mut select.qualify, true)?;
        all.put(&mut select.named_window, true)?;
        Ok(all.is_found.get())
    }

    /// Keeps an item for those after it, unless its name is that of a column, or its value is another one each time.
    fn keep(&self, items: &mut Items, name: String, value: Expr) {
        if self.unknown.known.contains(&name) {
            return;
        }
        if is_another_each_time(&value, self.state) {
            items.0.remove(&name);
            return;
        }
        let item = Item {
            num_bytes: value.to_string().len(),
            is_of_several_rows: is_of_several_rows(&value, self.state)
                || calls(&value, |name| name == "unnest"),
            value: Expr::Nested(Box::new(value)),
        };
        items.0.insert(name, item);
    }
}

fn too_long() -> Error {
    let text = format!(
        "a SQL text may have {MAX_SQL_BYTES} bytes, this one has more with what items of SELECT stand for in others"
    );
    Error::new(ErrorKind::ResourcesExhausted, text)
        .with_hint("name the first ones in a subquery: SELECT … FROM (SELECT …)")
}

/// Whether a value is another one each time that it is worked out, as random numbers are.
fn is_another_each_time(value: &Expr, state: &SessionState) -> bool {
    calls(value, |name| {
        let function = state.scalar_functions().get(name);
        function.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
    })
}

/// Whether a function is called somewhere.
fn calls(value: &Expr, is_it: impl Fn(&str) -> bool) -> bool {
    let found = visit_expressions(value, |expr| {
        let name = match expr {
            Expr::Function(call) => call.name.0.last().and_then(|name| name.as_ident()),
            _ => None,
        };
        match name.is_some_and(|name| is_it(&folded(name))) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

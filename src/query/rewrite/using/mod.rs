//! The columns of `JOIN … USING (…)`, of which there is one, though both tables have it.
//!
//! Comes in: a query or a SELECT. Goes out: the same, in which the name of such a column stands for the value of the side that has a row: of the left one, of the right one after RIGHT JOIN, of
//! either after FULL JOIN. The engine takes the left one always, none in WHERE, and in `*` that of the table whose name comes first in the alphabet (`wildcard.rs`). Where a join before it has made the column
//! of several tables, the next join gets a condition (`joined.rs`). Which of several tables on the left has a column shows when the statement is planned (`one_of.rs`). NATURAL joins are USING before that (`natural.rs`). Never here: names with a table before them, subqueries.

mod joined;
mod natural;
mod one_of;
mod wildcard;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableAlias, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use self::joined::{Joined, Side, is_by_names, sides};
pub(in crate::query) use self::natural::as_using;
pub(in crate::query) use self::one_of::{planned, sql_of};
use crate::error::{Error, Result};

/// A column of USING, and what its name stands for.
struct Column {
    name: Ident,
    value: Expr,
    /// What it stands for in WHERE, where that is something else.
    in_where: Option<Expr>,
    /// Whether that is what the left table has.
    is_left: bool,
    /// How many joins have it.
    joins: usize,
    /// Whether others have other values of it. Of all of them the engine has the one in `*` whose table has the first name.
    differs: bool,
    /// The tables that have it, from the left; none if the text does not say them.
    tables: Vec<Ident>,
    /// Which of the tables in FROM they are joined to.
    from: usize,
}

/// The columns of USING of a FROM clause.
#[derive(Default)]
struct Columns {
    all: Vec<Column>,
    /// The joins that need a condition in place of USING: the table in FROM, the join, the condition.
    conditions: Vec<(usize, usize, Expr)>,
}

/// Puts the values in place of the names in the ORDER BY of a query.
///
/// # Errors
/// As [`rewrite_select`].
pub(super) fn rewrite_order(query: &mut Query) -> Result<()> {
    let (Some(order), SetExpr::Select(select)) = (&mut query.order_by, query.body.as_mut()) else {
        return Ok(());
    };
    let mut columns = columns(&mut select.from)?.all;
    // A name of the answer comes before one of a table.
    columns.retain(|column| {
        !select
            .projection
            .iter()
            .any(|item| gives(item, &column.name))
    });
    if let OrderByKind::Expressions(expressions) = &mut order.kind {
        for by in expressions {
            put(&columns, value, &mut by.expr);
        }
    }
    Ok(())
}

/// Whether an item of a select list makes a column of that name.
fn gives(item: &SelectItem, name: &Ident) -> bool {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(own)) => same(own, name),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            parts.last().is_some_and(|own| same(own, name))
        }
        SelectItem::ExprWithAlias { alias, .. } => same(alias, name),
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => false,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
    }
}

/// Puts the values in place of the names in a SELECT.
///
/// # Errors
/// `Unsupported` for NATURAL RIGHT and FULL JOIN, for `*` of a NATURAL LEFT JOIN of which the engine would take the right side, and for a column that a RIGHT or FULL JOIN has made of tables that the text does not say.
pub(super) fn rewrite_select(select: &mut Select) -> Result<()> {
    let Columns {
        all: columns,
        conditions,
    } = columns(&mut select.from)?;
    let is_wild = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    if select.projection.iter().any(is_wild) {
        check_natural(&mut select.from)?;
    }
    if columns.is_empty() {
        return Ok(());
    }
    wildcard::rewrite(select, &columns, !conditions.is_empty())?;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(column) = only(&columns, name)
            && !matches!(column.value, Expr::Identifier(_))
        {
            *item = SelectItem::ExprWithAlias {
                alias: name.clone(),
                expr: column.value.clone(),
            };
        } else if !is_wild(item) {
            put(&columns, value, item);
        }
    }
    for (table, join, condition) in conditions {
        let table = select.from.get_mut(table);
        let join = table.and_then(|table| table.joins.get_mut(join));
        if let Some(join) = join
            && let Some(constraint) = constraint(&mut join.join_operator)
        {
            *constraint = JoinConstraint::On(condition);
            join.global = false;
        }
    }
    for table in &mut select.from {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in joined.chain([&mut table.relation]) {
            // It has no columns of its own.
            if let TableFactor::UNNEST { array_exprs, .. } = factor {
                put(&columns, value_in_where, array_exprs);
            }
        }
    }
    put(&columns, value, &mut select.distinct);
    put(&columns, value_in_where, &mut select.selection);
    put(&columns, value, &mut select.group_by);
    put(&columns, value, &mut select.having);
    put(&columns, value, &mut select.named_window);
    put(&columns, value, &mut select.qualify);
    Ok(())
}

fn value(column: &Column) -> &Expr {
    &column.value
}

fn value_in_where(column: &Column) -> &Expr {
    column.in_where.as_ref().unwrap_or(&column.value)
}

/// The columns of USING of a FROM clause.
fn columns(from: &mut [TableWithJoins]) -> Result<Columns> {
    let mut columns = Columns::default();
    for (number, table) in from.iter_mut().enumerate() {
        open_parentheses(table);
        let is_joined = |operator: &JoinOperator| is_by_names(operator);
        if !table
            .joins
            .iter()
            .any(|join| is_joined(&join.join_operator))
        {
            continue;
        }
        let mut left = vec![name_of(&mut table.relation, &format!("__from_{number}"))];
        for (place, join) in table.joins.iter_mut().enumerate() {
            joined::check_parentheses(join)?;
            let right = name_of(&mut join.relation, &format!("__from_{number}_{place}"));
            if let Some((side, constraint)) = sides(&join.join_operator) {
                let joined = Joined {
                    left: &left,
                    right: right.as_ref(),
                    // What is nearest on the right is another value.
                    side: if join.global { Side::Left } else { side },
                    is_asof: join.global,
                    from: number,
                };
                if let Some(condition) = joined.add(&mut columns.all, constraint)? {
                    columns.conditions.push((number, place, condition));
                }
            } else {
                // What the joins before it have made.
                put(&columns.all, value, &mut join.join_operator);
            }
            left.push(right);
        }
    }
    Ok(columns)
}

/// In `*` the engine has that of the columns of one name whose table has the first name, which must be the left one.
///
/// # Errors
/// `Unsupported` for another one.
fn check_natural(from: &mut [TableWithJoins]) -> Result<()> {
    let is_natural_left = |operator: &JoinOperator| {
        matches!(sides(operator), Some((Side::Left, JoinConstraint::Natural)))
    };
    for table in from {
        let mut joins = table.joins.iter();
        if !joins.any(|join| is_natural_left(&join.join_operator)) {
            continue;
        }
        let mut left = vec![plain_name(&mut table.relation)];
        for join in &mut table.joins {
            let right = plain_name(&mut join.relation);
            let is_first = |name: &Option<String>| name.is_some() && *name < right;
            if is_natural_left(&join.join_operator) && !left.iter().all(is_first) {
                let text = "* of a NATURAL LEFT JOIN is not supported where the name of a table on the left comes after that of the right one in the alphabet";
                return Err(Error::unsupported(text)
                    .with_hint("write LEFT JOIN … USING (…) with the columns that both have"));
            }
            left.push(right);
        }
    }
    Ok(())
}

/// The name of a table of one part, as it is compared with others.
fn plain_name(factor: &mut TableFactor) -> Option<String> {
    if let TableFactor::Table {
        name, alias: None, ..
    } = factor
        && name.0.len() != 1
    {
        return None;
    }
    name_of(factor, "").map(|name| folded(&name))
}

/// `(a JOIN b) JOIN c` is `a JOIN b JOIN c`.
fn open_parentheses(table: &mut TableWithJoins) {
    while let TableFactor::NestedJoin {
        table_with_joins,
        alias: None,
    } = &mut table.relation
    {
        let inner = (**table_with_joins).clone();
        table.relation = inner.relation;
        table.joins.splice(0..0, inner.joins);
    }
}

/// What a join has of ON and USING; `None` for those of other kinds.
pub(super) fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint) => Some(constraint),
        _ => None,
    }
}

/// The name of a table in this query; one without gets the name that is given.
fn name_of(factor: &mut TableFactor, otherwise: &str) -> Option<Ident> {
    match factor {
        TableFactor::Table {
            alias: Some(alias), ..
        }
        | TableFactor::Derived {
            alias: Some(alias), ..
        } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().cloned(),
        TableFactor::Derived { alias, .. } => {
            let name = Ident::new(otherwise);
            *alias = Some(TableAlias {
                explicit: true,
                name: name.clone(),
                columns: Vec::new(),
                at: None,
            });
            Some(name)
        }
        _ => None,
    }
}

fn of_table(table: &Ident, column: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), column.clone()])
}

/// Whether two names mean the same: without quotes they fold to lower case.
pub(super) fn same(one: &Ident, other: &Ident) -> bool {
    folded(one) == folded(other)
}

/// A name as SQL reads it.
pub(in crate::query) fn folded(name: &Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}

/// The column of that name, unless several joins have one: then the name is ambiguous.
fn only<'a>(columns: &'a [Column], name: &Ident) -> Option<&'a Column> {
    let mut named = columns.iter().filter(|column| same(&column.name, name));
    named.next().filter(|_| named.next().is_none())
}

/// Puts the values of columns in place of their names, but not within subqueries.
fn put<'a>(columns: &'a [Column], value: fn(&'a Column) -> &'a Expr, part: &mut impl VisitMut) {
    put_meant(part, &|name| only(columns, name).map(value).cloned());
}

/// Puts what names mean in their place, but not within subqueries.
pub(super) fn put_meant(part: &mut impl VisitMut, meant: &dyn Fn(&Ident) -> Option<Expr>) {
    let mut putting = Putting {
        meant,
        queries: 0,
        hidden: Hidden::default(),
    };
    let _: ControlFlow<()> = part.visit(&mut putting);
}

struct Putting<'a> {
    meant: &'a dyn Fn(&Ident) -> Option<Expr>,
    queries: usize,
    hidden: Hidden,
}

impl VisitorMut for Putting<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.hidden.open(expr);
        ControlFlow::Continue(())
    }

    // After what is within it: what a name means may have that name in it.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.hidden.close(expr);
        if self.queries == 0
            && let Expr::Identifier(name) = expr
            && !self.hidden.has(name)
            && let Some(value) = (self.meant)(name)
        {
            *expr = value;
        }
        ControlFlow::Continue(())
    }
}

/// The parameters of lambdas that are open: within these, such a name is theirs.
#[derive(Debug, Default)]
struct Hidden(Vec<String>);

impl Hidden {
    fn open(&mut self, expr: &Expr) {
        if let Expr::Lambda(function) = expr {
            self.0
                .extend(function.params.iter().map(|param| folded(&param.name)));
        }
    }

    fn close(&mut self, expr: &Expr) {
        if let Expr::Lambda(function) = expr {
            let left = self.0.len().saturating_sub(function.params.len());
            self.0.truncate(left);
        }
    }

    fn has(&self, name: &Ident) -> bool {
        self.0.contains(&folded(name))
    }
}

//! The columns of `JOIN … USING (…)`, of which there is one, though both tables have it.
//!
//! Comes in: a query or a SELECT. Goes out: the same, in which the name of such a column stands for the value of the side that has a row: of the left one, of the right one after RIGHT JOIN, of
//! either after FULL JOIN. The engine takes the left one always, and in `*` that of the table whose name comes first in the alphabet (`wildcard.rs`). Never here: names with a table before them, subqueries.

mod wildcard;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectNamePart, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use super::called::called;
use crate::error::{Error, Result};

/// A column of USING, and what its name stands for.
struct Column {
    name: Ident,
    value: Expr,
    /// Whether that is what the left table has.
    is_left: bool,
    /// Whether others have other values of it. Of all of them the engine has the one in `*` whose table has the first name.
    differs: bool,
    /// The tables that have it, from the left; none if the text does not say them.
    tables: Vec<Ident>,
    /// Which of the tables in FROM they are joined to.
    from: usize,
}

/// Puts the values in place of the names in the ORDER BY of a query.
///
/// # Errors
/// As [`rewrite_select`].
pub(super) fn rewrite_order(query: &mut Query) -> Result<()> {
    let (Some(order), SetExpr::Select(select)) = (&mut query.order_by, query.body.as_mut()) else {
        return Ok(());
    };
    let mut columns = columns(&mut select.from)?;
    // A name of the answer comes before one of a table.
    columns.retain(|column| {
        !select
            .projection
            .iter()
            .any(|item| gives(item, &column.name))
    });
    if let OrderByKind::Expressions(expressions) = &mut order.kind {
        for by in expressions {
            put(&columns, &mut by.expr);
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
/// `Unsupported` for chains of joins in which the value depends on more than two tables, for NATURAL RIGHT and FULL JOIN, and for `*` of a NATURAL LEFT JOIN of which the engine would take the right side.
pub(super) fn rewrite_select(select: &mut Select) -> Result<()> {
    let columns = columns(&mut select.from)?;
    let is_wild = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    if select.projection.iter().any(is_wild) {
        check_natural(&mut select.from)?;
    }
    if columns.is_empty() {
        return Ok(());
    }
    wildcard::rewrite(select, &columns);
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(column) = only(&columns, name)
        {
            *item = SelectItem::ExprWithAlias {
                alias: name.clone(),
                expr: column.value.clone(),
            };
        } else if !is_wild(item) {
            put(&columns, item);
        }
    }
    for table in &mut select.from {
        for join in &mut table.joins {
            put(&columns, &mut join.join_operator);
        }
    }
    put(&columns, &mut select.distinct);
    put(&columns, &mut select.selection);
    put(&columns, &mut select.group_by);
    put(&columns, &mut select.having);
    put(&columns, &mut select.named_window);
    put(&columns, &mut select.qualify);
    Ok(())
}

/// The columns of USING of a FROM clause.
fn columns(from: &mut [TableWithJoins]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for (number, table) in from.iter_mut().enumerate() {
        open_parentheses(table);
        let is_joined = |operator: &JoinOperator| sides(operator).is_some();
        if !table
            .joins
            .iter()
            .any(|join| is_joined(&join.join_operator))
        {
            continue;
        }
        let mut left = vec![name_of(&mut table.relation, &format!("__from_{number}"))];
        for (place, join) in table.joins.iter_mut().enumerate() {
            let right = name_of(&mut join.relation, &format!("__from_{number}_{place}"));
            if let Some((side, constraint)) = sides(&join.join_operator) {
                join_columns(
                    &mut columns,
                    &left,
                    right.as_ref(),
                    (side, constraint, number),
                )?;
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

/// Whose value a column of USING has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// All have the same.
    Inner,
    Left,
    Right,
    Either,
}

fn sides(operator: &JoinOperator) -> Option<(Side, &JoinConstraint)> {
    let (side, constraint) = match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
            (Side::Inner, constraint)
        }
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            (Side::Left, constraint)
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (Side::Right, constraint)
        }
        JoinOperator::FullOuter(constraint) => (Side::Either, constraint),
        _ => return None,
    };
    let is_by_name = matches!(
        constraint,
        JoinConstraint::Using(_) | JoinConstraint::Natural
    );
    is_by_name.then_some((side, constraint))
}

fn join_columns(
    columns: &mut Vec<Column>,
    left: &[Option<Ident>],
    right: Option<&Ident>,
    (side, constraint, from): (Side, &JoinConstraint, usize),
) -> Result<()> {
    let is_left = matches!(side, Side::Inner | Side::Left);
    let names = match constraint {
        JoinConstraint::Using(names) => names,
        // Which columns those are is known where the tables are.
        _ if is_left && columns.iter().all(|column| column.is_left) => return Ok(()),
        _ => {
            return Err(unsupported(
                "NATURAL RIGHT JOIN and NATURAL FULL JOIN are not supported",
            ));
        }
    };
    for name in names {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            continue;
        };
        let mut all = columns.iter();
        let known = all.position(|column| column.from == from && same(&column.name, name));
        let before = match (known.and_then(|known| columns.get(known)), left) {
            (Some(column), _) if column.is_left => {
                let value =
                    Some(&column.value).filter(|value| !matches!(value, Expr::Identifier(_)));
                value.cloned()
            }
            (Some(_), _) => {
                return Err(unsupported(
                    "USING of a column that a RIGHT or FULL JOIN before has made is not supported",
                ));
            }
            (None, [Some(table)]) => Some(of_table(table, name)),
            (None, _) => None,
        };
        let after = right.map(|table| of_table(table, name));
        let value = match side {
            Side::Inner => before,
            // Of several tables the engine finds the one that has it.
            Side::Left => before.or_else(|| Some(Expr::Identifier(name.clone()))),
            Side::Right => after,
            Side::Either => before
                .zip(after)
                .map(|(one, other)| called("coalesce", [one, other])),
        };
        let Some(value) = value else {
            if side == Side::Inner {
                continue;
            }
            return Err(unsupported(
                "USING of a RIGHT or FULL JOIN after other joins is not supported",
            ));
        };
        let known = known.map(|known| columns.remove(known));
        let tables = tables_of(known.as_ref(), left, right);
        columns.push(Column {
            name: name.clone(),
            value,
            is_left,
            differs: side != Side::Inner || known.is_some_and(|known| known.differs),
            tables,
            from,
        });
    }
    Ok(())
}

/// The tables that have a column after one more join; none if that is not known.
fn tables_of(known: Option<&Column>, left: &[Option<Ident>], right: Option<&Ident>) -> Vec<Ident> {
    let mut tables = match (known, left) {
        (Some(column), _) => column.tables.clone(),
        (None, [Some(table)]) => vec![table.clone()],
        _ => Vec::new(),
    };
    match right {
        Some(table) if !tables.is_empty() => tables.push(table.clone()),
        _ => tables.clear(),
    }
    tables
}

fn unsupported(text: &str) -> Error {
    Error::unsupported(text)
        .with_hint("write ON a.x = b.x, and coalesce(a.x, b.x) AS x for the column")
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
pub(super) fn folded(name: &Ident) -> String {
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
fn put(columns: &[Column], part: &mut impl VisitMut) {
    let mut putting = Putting {
        columns,
        queries: 0,
    };
    let _: ControlFlow<()> = part.visit(&mut putting);
}

struct Putting<'a> {
    columns: &'a [Column],
    queries: usize,
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
        if self.queries == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = only(self.columns, name)
        {
            *expr = column.value.clone();
        }
        ControlFlow::Continue(())
    }
}

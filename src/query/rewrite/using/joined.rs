//! What one more join by names makes of the columns of USING of the joins before it.
//!
//! Comes in: the tables on its left and right, and those columns. Goes out: the columns after it, and a condition where USING alone would compare what the engine takes for the column. Never here: select lists.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Join,
    JoinConstraint, JoinOperator, ObjectNamePart, TableFactor,
};

use super::{Column, of_table, one_of, same, value_in_where};
use crate::error::{Error, Result};
use crate::query::rewrite::asof;
use crate::query::rewrite::called::called;

/// Whose value a column of USING has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// All have the same.
    Inner,
    Left,
    Right,
    Either,
}

pub(super) fn sides(operator: &JoinOperator) -> Option<(Side, &JoinConstraint)> {
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

/// Whether a join is by names, of whatever kind.
pub(super) fn is_by_names(operator: &JoinOperator) -> bool {
    let constraint = match operator {
        JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => constraint,
        other => return sides(other).is_some(),
    };
    matches!(
        constraint,
        JoinConstraint::Using(_) | JoinConstraint::Natural
    )
}

/// Refuses a join by names with joins in parentheses of which the engine takes the wrong column.
///
/// # Errors
/// `Unsupported` where the right side is a RIGHT or FULL JOIN by names.
pub(super) fn check_parentheses(join: &Join) -> Result<()> {
    fn has_other_side(factor: &TableFactor) -> bool {
        let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        else {
            return false;
        };
        let is_other = |join: &Join| {
            matches!(
                sides(&join.join_operator),
                Some((Side::Right | Side::Either, _))
            ) || has_other_side(&join.relation)
        };
        has_other_side(&table_with_joins.relation) || table_with_joins.joins.iter().any(is_other)
    }
    match is_by_names(&join.join_operator) && has_other_side(&join.relation) {
        false => Ok(()),
        true => Err(Error::unsupported(
            "USING and NATURAL with a RIGHT or FULL JOIN by names in parentheses on the right are not supported",
        )
        .with_hint("write a query: JOIN (SELECT * FROM b FULL JOIN c USING (k)) AS q USING (k)")),
    }
}

/// What a join by names joins.
pub(super) struct Joined<'a> {
    pub(super) left: &'a [Option<Ident>],
    pub(super) right: Option<&'a Ident>,
    pub(super) side: Side,
    /// Whether it joins the nearest row by the last column (`ASOF JOIN`).
    pub(super) is_asof: bool,
    /// Which of the tables in FROM this is.
    pub(super) from: usize,
}

impl Joined<'_> {
    /// Adds the columns of USING to those of the joins before; a condition, where the join needs one in place of USING.
    ///
    /// # Errors
    /// `Unsupported` for NATURAL where columns are not those of the left, and for columns of tables that the text does not say.
    pub(super) fn add(
        &self,
        columns: &mut Vec<Column>,
        constraint: &JoinConstraint,
    ) -> Result<Option<Expr>> {
        let names = match constraint {
            JoinConstraint::Using(names) => names,
            // Which columns those are is known where the tables are.
            _ if self.is_left() && columns.iter().all(|column| column.is_left) => return Ok(None),
            _ => {
                return Err(unsupported(
                    "NATURAL RIGHT JOIN and NATURAL FULL JOIN are not supported",
                ));
            }
        };
        let (mut equal, mut is_needed) = (Vec::new(), self.is_asof);
        for name in names {
            let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
                continue;
            };
            let known = columns
                .iter()
                .position(|column| column.from == self.from && same(&column.name, name));
            let known = known.map(|known| columns.remove(known));
            is_needed |= known.as_ref().is_some_and(needs_condition);
            equal.push(
                self.left_value(known.as_ref(), name)
                    .zip(self.right_value(name)),
            );
            columns.push(self.column(known, name)?);
        }
        if !is_needed {
            return Ok(None);
        }
        let equal: Option<Vec<_>> = equal.into_iter().collect();
        let equal = equal.ok_or_else(|| unsupported(OF_UNKNOWN))?;
        if self.is_asof {
            return Ok(asof::using_last(equal));
        }
        Ok(equal
            .into_iter()
            .map(|(left, right)| binary(left, BinaryOperator::Eq, right))
            .reduce(|one, other| binary(one, BinaryOperator::And, other)))
    }

    fn is_left(&self) -> bool {
        matches!(self.side, Side::Inner | Side::Left)
    }

    /// What the left side has; `None` where a table has no name.
    fn left_value(&self, known: Option<&Column>, name: &Ident) -> Option<Expr> {
        match (known, self.left) {
            (Some(column), _) => Some(value_in_where(column).clone()),
            (None, [Some(table)]) => Some(of_table(table, name)),
            (None, tables) => one_of::column(tables, name),
        }
    }

    fn right_value(&self, name: &Ident) -> Option<Expr> {
        self.right.map(|table| of_table(table, name))
    }

    /// A column of USING after this join, from what it was before.
    fn column(&self, known: Option<Column>, name: &Ident) -> Result<Column> {
        let (left, right) = (
            self.left_value(known.as_ref(), name),
            self.right_value(name),
        );
        let is_one = known.is_some() || self.left.len() == 1;
        let (value, in_where) = match self.side {
            Side::Right => (right, None),
            Side::Either => (left.zip(right).map(|(one, other)| either(one, other)), None),
            // Of several tables the engine finds the one that has it.
            Side::Left if !is_one => (Some(Expr::Identifier(name.clone())), left),
            // Both have the same.
            Side::Inner if !is_one => (Some(Expr::Identifier(name.clone())), right.or(left)),
            Side::Left | Side::Inner => match &known {
                Some(known) => (Some(known.value.clone()), known.in_where.clone()),
                None => (left.or_else(|| Some(Expr::Identifier(name.clone()))), None),
            },
        };
        let tables = tables_of(known.as_ref(), self.left, self.right);
        let is_left = known.as_ref().is_none_or(|known| known.is_left);
        if known.as_ref().is_some_and(needs_condition) && tables.is_empty() {
            return Err(unsupported(OF_UNKNOWN));
        }
        Ok(Column {
            name: name.clone(),
            value: value.ok_or_else(|| unsupported(OF_UNKNOWN))?,
            in_where,
            is_left: is_left && self.is_left(),
            // Of a condition the engine has both columns.
            joins: known.as_ref().map_or(0, |known| known.joins) + if self.is_asof { 2 } else { 1 },
            differs: self.side != Side::Inner || known.is_some_and(|known| known.differs),
            tables,
            from: self.from,
        })
    }
}

/// Whether the next join with a column compares something else than the engine would: after two joins it takes the column for one of several tables.
fn needs_condition(known: &Column) -> bool {
    !known.is_left || known.joins > 1
}

/// The first of two values that is none of NULL, and of more where the first is one of several.
fn either(mut one: Expr, other: Expr) -> Expr {
    if let Expr::Function(function) = &mut one
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.args
            .push(FunctionArg::Unnamed(FunctionArgExpr::Expr(other)));
        return one;
    }
    called("coalesce", [one, other])
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
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

const OF_UNKNOWN: &str = "USING of a RIGHT or FULL JOIN after others is supported where each table has a name, and the first join with the column is of two tables";

fn unsupported(text: &str) -> Error {
    Error::unsupported(text)
        .with_hint("write ON a.x = b.x, and coalesce(a.x, b.x) AS x for the column")
}

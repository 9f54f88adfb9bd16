//! The rows around a subquery, as far as it looks at them.
//!
//! Comes in: the rows outside and the columns that a subquery names of them. Goes out: a table of what occurs in those columns, each combination once, and joins with it in which nulls are equal. Never here: how it gets
//! into the subquery.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::{Column, DFSchema, ExprSchema, NullEquality, Result};
use datafusion::logical_expr::{
    Expr, Join, JoinConstraint, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr,
};

use super::reach::Replaced;
use super::steady::is_steady;
use crate::error::Error;

/// Gives columns names that no table has.
#[derive(Debug, Default)]
pub(super) struct Names(Cell<usize>);

impl Names {
    /// Another number.
    pub(super) fn next(&self) -> usize {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// What a subquery sees of the rows outside.
#[derive(Debug)]
pub(super) struct Domain<'a> {
    rows: &'a LogicalPlan,
    /// Where their values come from.
    source: &'a LogicalPlan,
    /// The columns that it names.
    pub(super) columns: Vec<Column>,
    pub(super) names: &'a Names,
    /// Whether it is the rows themselves, each by itself.
    is_each: bool,
}

/// A table with a row for each combination, and the columns that stand for those outside, in their order.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) plan: LogicalPlan,
    pub(super) keys: Vec<Column>,
}

impl<'a> Domain<'a> {
    /// That of some columns of the rows.
    ///
    /// # Errors
    /// `Unsupported` when the rows may be others the next time that they are read: the subquery would be worked out for rows that there are not.
    pub(super) fn try_new(
        rows: &'a LogicalPlan,
        columns: Vec<Column>,
        names: &'a Names,
    ) -> Result<Self> {
        let schema = rows.schema();
        if let Some(far) = columns.iter().find(|column| !schema.has_column(column)) {
            let text = format!(
                "a subquery that names `{far}` from further outside is not supported in this place"
            );
            return Err(Error::unsupported(text)
                .with_hint("write it as a join")
                .into());
        }
        let source = source_of(rows, &columns);
        if !is_steady(source, columns.iter())? {
            let text = "a subquery for each row is not supported here: the rows around it, which it is worked out for beforehand, may be others each time that they are read";
            let hint = "they come of LIMIT, of random numbers, or of sums of floats: keep them by CREATE TABLE … AS first";
            return Err(Error::unsupported(text).with_hint(hint).into());
        }
        Ok(Self {
            rows,
            source,
            columns,
            names,
            is_each: false,
        })
    }

    /// That of the rows themselves, with all their columns, however often one occurs.
    pub(super) fn of_each(rows: &'a LogicalPlan, names: &'a Names) -> Self {
        Self {
            rows,
            source: rows,
            columns: rows.schema().columns(),
            names,
            is_each: true,
        }
    }

    /// Another copy of the table.
    pub(super) fn copy(&self) -> Result<Keyed> {
        let keys = self.fresh_keys();
        let columns = self.columns.iter().zip(&keys);
        let columns = columns.map(|(column, key)| Expr::Column(column.clone()).alias(&key.name));
        let rows = LogicalPlanBuilder::from(self.source.clone());
        let rows = rows.project(columns.collect::<Vec<_>>())?;
        let plan = match self.is_each {
            true => rows.build()?,
            false => rows.distinct()?.build()?,
        };
        Ok(Keyed { plan, keys })
    }

    /// Names for another set of keys.
    pub(super) fn fresh_keys(&self) -> Vec<Column> {
        let number = self.names.next();
        let places = 0..self.columns.len();
        let key = |place| Column::from_name(format!("__outer_{number}_{place}"));
        places.map(key).collect()
    }

    /// Which key stands for which column.
    pub(super) fn replaced(&self, keys: &[Column]) -> Replaced {
        let pairs = self.columns.iter().cloned();
        pairs.zip(keys.iter().cloned()).collect()
    }

    /// Pairs of keys, which say that two rows belong to one row outside.
    pub(super) fn same(&self, left: &[Column], right: &[Column]) -> Matched {
        let schema = self.rows.schema();
        Matched {
            on: pairs(left, right),
            may_be_null: may_be_null(schema, &self.columns),
        }
    }
}

/// The rows without what has been put beside them: that is for each of them, and has none of the columns.
fn source_of<'a>(rows: &'a LogicalPlan, columns: &[Column]) -> &'a LogicalPlan {
    match rows {
        LogicalPlan::Join(join) if join.join_type == JoinType::Left => {
            let left = join.left.schema();
            match columns.iter().all(|column| left.has_column(column)) {
                true => source_of(&join.left, columns),
                false => rows,
            }
        }
        _ => rows,
    }
}

/// By what rows belong together, nulls being equal.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) on: Vec<(Expr, Expr)>,
    may_be_null: bool,
}

fn pairs(left: &[Column], right: &[Column]) -> Vec<(Expr, Expr)> {
    let expression = |column: &Column| Expr::Column(column.clone());
    let pairs = left.iter().zip(right);
    let pairs = pairs.map(|(left, right)| (expression(left), expression(right)));
    pairs.collect()
}

fn may_be_null(schema: &DFSchema, columns: &[Column]) -> bool {
    let mut columns = columns.iter();
    columns.any(|column| {
        let field = schema.field_from_column(column);
        field.is_ok_and(|field| field.is_nullable())
    })
}

impl Matched {
    /// Columns of some rows, each beside the key that stands for it.
    pub(super) fn of(rows: &LogicalPlan, columns: &[Column], keys: &[Column]) -> Self {
        Self {
            on: pairs(columns, keys),
            may_be_null: may_be_null(rows.schema(), columns),
        }
    }

    /// Puts this beside the conditions of a join.
    pub(super) fn beside(
        self,
        on: &mut Vec<(Expr, Expr)>,
        filter: &mut Option<Expr>,
        null_equality: &mut NullEquality,
    ) {
        let nulls_differ = self.may_be_null && *null_equality == NullEquality::NullEqualsNothing;
        if nulls_differ && !on.is_empty() {
            for (left, right) in self.on {
                let is_same = binary_expr(left, Operator::IsNotDistinctFrom, right);
                *filter = Some(match filter.take() {
                    Some(other) => other.and(is_same),
                    None => is_same,
                });
            }
            return;
        }
        if nulls_differ && !self.on.is_empty() {
            *null_equality = NullEquality::NullEqualsNull;
        }
        on.extend(self.on);
    }

    /// A join by this and nothing else.
    pub(super) fn join(
        self,
        left: LogicalPlan,
        right: LogicalPlan,
        join_type: JoinType,
    ) -> Result<LogicalPlan> {
        let (mut on, mut filter) = (Vec::new(), None);
        let mut null_equality = NullEquality::NullEqualsNothing;
        self.beside(&mut on, &mut filter, &mut null_equality);
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            join_type,
            JoinConstraint::On,
            null_equality,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }
}

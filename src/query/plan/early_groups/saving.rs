//! Whether groups before joins cost less than after them.
//!
//! Comes in: plans, keys. Goes out: estimates, from the statistics that plans have, in units of what it takes to look a number up. Never here: plans that are changed.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{JoinType, ScalarValue, Statistics};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::{Expr, TABLE, place_in};

/// With fewer rows whatever is done is done soon.
const LEAST_ROWS: f64 = 50_000.0;

/// The share of rows that a join must leave: what groups are made of and then drop out was made for nothing.
const LEFT: f64 = 0.75;

/// The share of the price that must not be exceeded; estimates are no more exact than that.
const MUCH_LESS: f64 = 0.7;

/// Groups that the caches of a processor have room for; each time as many again cost [`FURTHER`] for each row.
const NEAR_GROUPS: f64 = 16_384.0;
const FURTHER: f64 = 0.5;

/// The price of looking up a key by its type, in groups and in tables.
const NUMBER: f64 = 1.0;
const TEXT: f64 = 2.5;
const NESTED: f64 = 5.0;

/// What becomes of an aggregate whose groups are made before.
pub(super) struct Saving {
    /// How much.
    pub(super) gain: f64,
    /// Whether the groups after the joins are far fewer than the rows that have come of them, so that each share puts them together for itself first.
    pub(super) puts_together: bool,
}

impl Saving {
    /// Of keys the first are those of the base, then come those that tables are joined by, and the keys of groups, which are of the base and of the tables in their order; none, if nothing is saved.
    pub(super) fn of(
        known: &Known,
        base: &Arc<dyn ExecutionPlan>,
        tables: &[&Arc<dyn ExecutionPlan>],
        [early_keys, joined, keys]: [&[Expr]; 3],
    ) -> Option<Self> {
        let rows = known.most_rows(base).filter(|rows| *rows >= LEAST_ROWS)?;
        let of = |column: &Column| match column.index() / TABLE {
            0 => Some(base),
            table => tables.get(table - 1).copied(),
        };
        // What is worked out of columns has no more values than these.
        let values = |key: &Expr| -> Option<f64> {
            let columns = collect_columns(key);
            let values = columns
                .iter()
                .map(|column| known.values(of(column)?, column.index() % TABLE));
            values.product()
        };
        let price = |key: &Expr| -> f64 {
            let column = key.downcast_ref::<Column>();
            let kind = column.and_then(|column| {
                let schema = of(column)?.schema();
                let field = schema.fields().get(column.index() % TABLE)?;
                Some(price_of(field.data_type()))
            });
            kind.unwrap_or(TEXT)
        };
        let groups = early_keys.iter().map(|key| values(key).unwrap_or(rows));
        let groups = groups.product::<f64>().clamp(1.0, rows);
        // Each share makes groups of its own.
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let shares = base.output_partitioning().partition_count() as f64;
        let seen = groups * (1.0 - (-rows / shares / groups).exp());
        let left = (seen * shares).min(rows);
        let named = keys.iter().map(|key| values(key).unwrap_or(groups));
        let named = named.product::<f64>().clamp(1.0, groups);
        let late = joined.iter().chain(keys).map(price).sum::<f64>() + further(named);
        let early = early_keys.iter().map(price).sum::<f64>() + further(groups);
        let (early, late) = (rows * early + left * late, rows * late);
        (early < late * MUCH_LESS && left <= rows / 2.0).then_some(Self {
            gain: late - early,
            puts_together: named <= left / 2.0,
        })
    }
}

/// What is known of the plans of one aggregate, looked up once.
pub(super) struct Known(StatisticsContext);

impl Known {
    pub(super) fn new() -> Self {
        Self(StatisticsContext::new())
    }

    fn of(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
        self.0.compute(plan.as_ref(), &StatisticsArgs::new()).ok()
    }

    /// About how many rows a plan gives.
    pub(super) fn rows_of(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
        number(&self.of(plan)?.num_rows)
    }

    /// About how many rows a plan gives at most: as many as its largest table, if joins below leave all of them. How many these leave is hard to tell; where groups are made of too few rows after all, little is lost, and
    /// a first step that finds no two rows of one group soon gives rows on as they come.
    pub(super) fn most_rows(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
        let below = plan.children().into_iter();
        let below = below.filter_map(|input| self.most_rows(input));
        below.chain(self.rows_of(plan)).reduce(f64::max)
    }

    /// Whether it is worth a look.
    pub(super) fn has_many_rows(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        self.most_rows(plan).is_some_and(|rows| rows >= LEAST_ROWS)
    }

    /// About how many values a column has. Of a table that is joined by a key whose numbers reach further than those that it meets (days of centuries with sales of five years) it is that share of them, as if they went with the key: with too
    /// few groups in view little is lost, as with too many rows.
    fn values(&self, plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let item = projection.expr().get(column)?;
            let inner = item.expr.downcast_ref::<Column>()?;
            return self.values(projection.input(), inner.index());
        }
        let join = plan.downcast_ref::<HashJoinExec>();
        let join = join.filter(|join| *join.join_type() == JoinType::Inner);
        let Some(join) = join else {
            let statistics = self.of(plan)?;
            return number(&statistics.column_statistics.get(column)?.distinct_count);
        };
        let (place, width) = (place_in(join, column)?, join.left().schema().fields().len());
        let is_left = place < width;
        let (own, other, place) = match is_left {
            true => (join.left(), join.right(), place),
            false => (join.right(), join.left(), place - width),
        };
        let values = self.values(own, place)?;
        let pairs = join.on().iter().filter_map(|(left, right)| {
            let (key, partner) = if is_left {
                (left, right)
            } else {
                (right, left)
            };
            Some((
                key.downcast_ref::<Column>()?,
                partner.downcast_ref::<Column>()?,
            ))
        });
        let pairs: Vec<(&Column, &Column)> = pairs.collect();
        // Of one pair alone, so that long chains of joins are looked at once.
        if let Some((_, partner)) = pairs.iter().find(|(key, _)| key.index() == place) {
            let others = self.values(other, partner.index());
            return Some(others.map_or(values, |others| values.min(others)).max(1.0));
        }
        let shares = pairs.into_iter().map(|(key, partner)| {
            let (own, other) = (
                self.range(own, key.index())?,
                self.range(other, partner.index())?,
            );
            let both = own.1.min(other.1) - own.0.max(other.0) + 1.0;
            Some(both / (own.1 - own.0 + 1.0))
        });
        let share = shares.flatten().fold(1.0, f64::min);
        Some((values * share).max(1.0))
    }

    /// The least and the greatest number of a column.
    fn range(&self, plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<(f64, f64)> {
        let statistics = self.of(plan)?;
        let known = statistics.column_statistics.get(column)?;
        let number = |value: &Precision<ScalarValue>| {
            let value = value.get_value()?;
            let is_number = value.data_type().is_integer() || value.data_type() == DataType::Date32;
            match value.cast_to(&DataType::Int64).ok().filter(|_| is_number)? {
                #[expect(clippy::cast_precision_loss, reason = "an estimate")]
                ScalarValue::Int64(number) => number.map(|number| number as f64),
                _ => None,
            }
        };
        Some((number(&known.min_value)?, number(&known.max_value)?))
    }

    /// Whether a join leaves nearly all rows of what is joined with a table.
    pub(super) fn leaves_rows(
        &self,
        join: &Arc<dyn ExecutionPlan>,
        rest: &Arc<dyn ExecutionPlan>,
    ) -> bool {
        let rows = |plan| self.rows_of(plan).filter(|rows| *rows > 0.0);
        rows(join)
            .zip(rows(rest))
            .is_some_and(|(joined, before)| joined >= before * LEFT)
    }
}

fn number(known: &Precision<usize>) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    known.get_value().map(|number| *number as f64)
}

/// What it takes to reach one of so many groups.
fn further(groups: f64) -> f64 {
    (groups / NEAR_GROUPS).log2().max(0.0) * FURTHER
}

fn price_of(kind: &DataType) -> f64 {
    match kind {
        kind if kind.is_nested() => NESTED,
        kind if kind.is_primitive() || kind.is_null() || *kind == DataType::Boolean => NUMBER,
        _ => TEXT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_within_the_caches_cost_nothing_more() {
        assert_eq!(further(1.0), 0.0);
        assert_eq!(further(NEAR_GROUPS), 0.0);
        assert_eq!(further(NEAR_GROUPS * 4.0), 2.0 * FURTHER);
    }
}

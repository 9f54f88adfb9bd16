//! Whether groups before joins cost less than after them.
//!
//! Comes in: plans, keys. Goes out: estimates, from the statistics that plans have, in units of what it takes to look a number up. Never here: plans that are changed.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, PhysicalExpr};

use super::TABLE;

/// With fewer rows whatever is done is done soon.
const LEAST_ROWS: f64 = 50_000.0;

/// The share of rows that a join must leave: what groups are made of and then drop out was made for nothing.
const LEFT: f64 = 0.75;

/// The share of the price that must not be exceeded; estimates are no more exact than that.
const MUCH_LESS: f64 = 0.7;

/// Groups that the caches of a processor have room for; each time as many again cost [`FURTHER`] for each row.
const NEAR_GROUPS: f64 = 16_384.0;
const FURTHER: f64 = 0.5;

/// The price of looking up a row of a table, and of a key by its type.
const JOIN: f64 = 1.0;
const NUMBER: f64 = 1.0;
const TEXT: f64 = 2.5;
const NESTED: f64 = 5.0;

/// What becomes of an aggregate whose groups are made before.
pub(super) struct Saving {
    /// Whether the groups after the joins are far fewer than the rows that have come of them, so that each share puts them together for itself first.
    pub(super) puts_together: bool,
}

impl Saving {
    /// `early_keys` are of the base, `keys` of it and of the tables in their order; none, if nothing is saved.
    pub(super) fn of(
        base: &Arc<dyn ExecutionPlan>,
        tables: &[&Arc<dyn ExecutionPlan>],
        early_keys: &[Arc<dyn PhysicalExpr>],
        keys: &[Arc<dyn PhysicalExpr>],
    ) -> Option<Self> {
        let of_base = Known::of(base)?;
        let rows = of_base.rows.filter(|rows| *rows >= LEAST_ROWS)?;
        let of_tables: Vec<Known> = tables
            .iter()
            .map(|table| Known::of(table))
            .collect::<Option<_>>()?;
        let values = |key: &Arc<dyn PhysicalExpr>| -> Option<f64> {
            let number = key.downcast_ref::<Column>()?.index();
            match number / TABLE {
                0 => of_base.values(number),
                table => of_tables.get(table - 1)?.values(number % TABLE),
            }
        };
        let price = |key: &Arc<dyn PhysicalExpr>| -> f64 {
            let number = key.downcast_ref::<Column>().map(Column::index);
            let kind = number.and_then(|number| match number / TABLE {
                0 => of_base.kind(number),
                table => of_tables.get(table - 1)?.kind(number % TABLE),
            });
            kind.map_or(TEXT, price_of)
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
        #[expect(clippy::cast_precision_loss, reason = "there are few")]
        let joins = tables.len() as f64 * JOIN;
        let late = joins + keys.iter().map(price).sum::<f64>() + further(named);
        let early = early_keys.iter().map(price).sum::<f64>() + further(groups);
        let is_less = rows * early + left * late < rows * late * MUCH_LESS;
        (is_less && left <= rows / 2.0).then_some(Self {
            puts_together: named <= left / 2.0,
        })
    }
}

/// What is known of a plan.
struct Known {
    statistics: Arc<Statistics>,
    rows: Option<f64>,
    plan: Arc<dyn ExecutionPlan>,
}

impl Known {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let found = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        let statistics = found.ok()?;
        Some(Self {
            rows: number(&statistics.num_rows),
            statistics,
            plan: Arc::clone(plan),
        })
    }

    /// About how many values a column has.
    fn values(&self, column: usize) -> Option<f64> {
        let known = self.statistics.column_statistics.get(column)?;
        number(&known.distinct_count)
    }

    fn kind(&self, column: usize) -> Option<DataType> {
        let schema = self.plan.schema();
        Some(schema.fields().get(column)?.data_type().clone())
    }
}

/// About how many rows a plan gives.
pub(super) fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    Known::of(plan)?.rows
}

/// Whether a join leaves nearly all rows of what is joined with a table.
pub(super) fn leaves_rows(join: &Arc<dyn ExecutionPlan>, rest: &Arc<dyn ExecutionPlan>) -> bool {
    let rows = |plan| rows_of(plan).filter(|rows| *rows > 0.0);
    rows(join)
        .zip(rows(rest))
        .is_some_and(|(joined, before)| joined >= before * LEFT)
}

fn number(known: &Precision<usize>) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    known.get_value().map(|number| *number as f64)
}

/// What it takes to reach one of so many groups.
fn further(groups: f64) -> f64 {
    (groups / NEAR_GROUPS).log2().max(0.0) * FURTHER
}

fn price_of(kind: DataType) -> f64 {
    match kind {
        kind if kind.is_nested() => NESTED,
        kind if kind.is_primitive() || kind.is_null() || kind == DataType::Boolean => NUMBER,
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

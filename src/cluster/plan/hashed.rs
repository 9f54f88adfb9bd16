//! Rows that are where their hash says.
//!
//! Comes in: an exchange by hash, what the tasks of a stage make. Goes out: whether an exchange before has dealt these rows out to the same tasks, by the same columns: groups by a key that are joined by it, for one. Never here: what becomes of
//! exchanges (`fewer.rs`), values that lie apart by themselves (`together.rs`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{NetworkBoundaryExt, NetworkShuffleExec};

use super::together::sources;

/// How an exchange deals rows out: by the hash of these columns of what it gives, in their order.
pub(in crate::cluster) struct Dealing {
    pub(in crate::cluster) columns: Vec<usize>,
    /// In each task that reads it.
    num_partitions: usize,
}

impl Dealing {
    /// That of an exchange by the hash of columns; `None` for other plans. Of floats a join takes -0.0 for 0.0, which a hash need not.
    pub(in crate::cluster) fn of(exchange: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        exchange.downcast_ref::<NetworkShuffleExec>()?;
        let Partitioning::Hash(keys, num_partitions) = exchange.output_partitioning() else {
            return None;
        };
        let schema = exchange.schema();
        let columns = keys.iter().map(|key| {
            let column = key.downcast_ref::<Column>()?.index();
            let kind = match schema.fields().get(column)?.data_type() {
                DataType::Dictionary(_, values) => values,
                kind => kind,
            };
            (!kind.is_floating() && !kind.is_nested()).then_some(column)
        });
        Some(Self {
            columns: columns.collect::<Option<_>>()?,
            num_partitions: *num_partitions,
        })
    }

    /// Whether all rows of a plan came to their task by an exchange like this one, by what are these columns of them now.
    pub(in crate::cluster) fn has_dealt(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        columns: &[usize],
    ) -> bool {
        if plan.is_network_boundary() {
            return Self::of(plan).is_some_and(|before| {
                before.num_partitions == self.num_partitions && before.columns == columns
            });
        }
        // Rows that an outer join makes have nulls wherever they are.
        let makes_nulls = |join: &HashJoinExec| {
            !matches!(
                join.join_type(),
                JoinType::Inner
                    | JoinType::LeftSemi
                    | JoinType::LeftAnti
                    | JoinType::RightSemi
                    | JoinType::RightAnti
            )
        };
        if plan.downcast_ref::<HashJoinExec>().is_some_and(makes_nulls) {
            return false;
        }
        let Some((first, others)) = columns.split_first() else {
            return false;
        };
        sources(plan, *first).into_iter().any(|(input, place)| {
            let others = others.iter().map(|column| {
                let mut of_input = sources(plan, *column).into_iter();
                of_input.find_map(|(other, place)| Arc::ptr_eq(&other, &input).then_some(place))
            });
            let places: Option<Vec<usize>> = std::iter::once(Some(place)).chain(others).collect();
            places.is_some_and(|places| self.has_dealt(&input, &places))
        })
    }
}

//! Conditions on columns that share their name with another one.
//!
//! Comes in: a rule of the engine that moves conditions towards scans. Goes out: the same rule, by which no condition gets to another column than it is about: from node to node the engine looks columns up by
//! their names, and takes the first of several that have one, as of both sides of a join of a table with itself. Such conditions stay where they are. Never here: conditions that name no such column.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::between::{Between, BetweenExec, Room, put_under_all};

/// A rule that moves conditions, and none to another column.
#[derive(Debug)]
pub(in crate::query) struct TwinsApart(
    pub(in crate::query) Arc<dyn PhysicalOptimizerRule + Send + Sync>,
);

impl PhysicalOptimizerRule for TwinsApart {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let apart = plan.transform_up(|node| {
            let has_twins = |input: &Arc<dyn ExecutionPlan>| {
                single(&input.schema()).len() < input.schema().fields().len()
            };
            match node.children().into_iter().any(has_twins) {
                true => put_under_all(node, has_twins, || Twins).map(Transformed::yes),
                false => Ok(Transformed::no(node)),
            }
        });
        let moved = self.0.optimize(apart.data()?, config)?;
        // It has done what it is for.
        moved
            .transform_up(|node| match node.is::<BetweenExec<Twins>>() {
                false => Ok(Transformed::no(node)),
                true => {
                    let input = node.children().first().map(|input| Arc::clone(input));
                    Ok(input.map_or_else(|| Transformed::no(node), Transformed::yes))
                }
            })
            .data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// The places of the columns that share their name with no other.
fn single(schema: &Schema) -> HashSet<usize> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, field) in schema.fields().iter().enumerate() {
        places.entry(field.name()).or_default().push(place);
    }
    let single = places.into_values().filter(|places| places.len() == 1);
    single.flatten().collect()
}

/// Lets conditions through that are only on columns whose names are their own.
#[derive(Debug)]
struct Twins;

impl Between for Twins {
    const NAME: &'static str = "TwinsExec";

    fn lets_through(&self, schema: &Schema) -> HashSet<usize> {
        single(schema)
    }

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        _: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        batches.boxed()
    }
}

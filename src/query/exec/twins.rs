//! Conditions on columns that share their name with another one.
//!
//! Comes in: a rule of the engine that moves conditions towards scans. Goes out: the same rule, by which no condition gets to another column than it is about: from node to node the engine looks columns up by
//! their names, and takes the first of several that have one, as of both sides of a join of a table with itself. Such conditions stay where they are. Comes in: its rule that moves columns. Goes out: the same rule, by which no filter has other columns than it is about:
//! where it gives on some of its columns only, the engine looks for those of its condition among them; nor is what may fail in the condition of a join worked out below it (`guarded.rs`). Never here: conditions that name no such column.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::between::{Between, BetweenExec, Room, put_under_all};
use super::expressions::{Change, with_expressions};
use super::guarded::{kept, released};

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
            let has_twins = |input: &Arc<dyn ExecutionPlan>| has_twins(&input.schema());
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

/// A rule that moves columns, and has filters that give on all columns where some share their name.
#[derive(Debug)]
pub(in crate::query) struct FiltersWhole(
    pub(in crate::query) Arc<dyn PhysicalOptimizerRule + Send + Sync>,
);

impl PhysicalOptimizerRule for FiltersWhole {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = plan.transform_up(|node| match whole(&node)? {
            Some(whole) => Ok(Transformed::yes(whole)),
            None => Ok(Transformed::no(node)),
        });
        let kept = whole
            .data()?
            .transform_up(|node| of_joins(node, &|part, _| kept(part)));
        let done = self.0.optimize(kept.data()?, config)?;
        done.transform_up(|node| of_joins(node, &|part, _| released(part)))
            .data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// A join of all pairs of rows with another condition: what it is made of may be worked out below.
fn of_joins(
    node: Arc<dyn ExecutionPlan>,
    change: &Change<'_>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    match node.is::<NestedLoopJoinExec>() {
        true => with_expressions(node, change),
        false => Ok(Transformed::no(node)),
    }
}

/// A filter that gives on some of its columns, as one of all columns below a projection.
fn whole(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else {
        return Ok(None);
    };
    let schema = filter.input().schema();
    let Some(places) = filter
        .projection()
        .as_deref()
        .filter(|_| has_twins(&schema))
    else {
        return Ok(None);
    };
    let columns = places.iter().map(|place| {
        let alias = schema.field(*place).name().clone();
        let expr = Arc::new(Column::new(&alias, *place)) as _;
        ProjectionExpr { expr, alias }
    });
    let columns: Vec<ProjectionExpr> = columns.collect();
    let all = FilterExecBuilder::from(filter).apply_projection(None)?;
    let some = ProjectionExec::try_new(columns, Arc::new(all.build()?))?;
    Ok(Some(Arc::new(some)))
}

fn has_twins(schema: &Schema) -> bool {
    single(schema).len() < schema.fields().len()
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

//! Conditions on columns that share their name with another one.
//!
//! Comes in: a rule of the engine that moves conditions towards scans. Goes out: the same rule, by which no condition gets to another column than it is about: from node to node the engine looks columns up by
//! their names, and takes the first of several that have one, as of both sides of a join of a table with itself, or one that has the name of a key of a semi join and is not what it is compared with. Such conditions stay where they are. Comes in: its rule that moves columns. Goes out: the same rule, by which no filter has other columns than it is about:
//! where it gives on some of its columns only, the engine looks for those of its condition among them; nor is what may fail in the condition of a join worked out below it (`guarded.rs`). Never here: conditions that name no such column.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
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
            let of_semi_join = of_semi_join(&node);
            if of_semi_join.is_none() && !node.children().into_iter().any(has_twins) {
                return Ok(Transformed::no(node));
            }
            let twins = |place: usize, input: &Arc<dyn ExecutionPlan>| match &of_semi_join {
                Some((of, passing)) if place == *of => Some(Twins {
                    passing: Some(passing.clone()),
                }),
                _ => has_twins(input).then_some(Twins { passing: None }),
            };
            put_under_all(node, twins).map(Transformed::yes)
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

/// Of a semi join the input that gives no columns, and its columns that conditions may get to from above. The engine hands those on a key of the rows that come out on to the other side, by the name of that key, whatever it is
/// compared with there (`CAST(b.k AS …)`, or another column beside one that is called so).
fn of_semi_join(node: &Arc<dyn ExecutionPlan>) -> Option<(usize, HashSet<usize>)> {
    let join = node.downcast_ref::<HashJoinExec>()?;
    let (left, right) = (join.left().schema(), join.right().schema());
    let (place, out, other) = match join.join_type() {
        JoinType::RightSemi => (0, right, left),
        JoinType::LeftSemi => (1, left, right),
        _ => return None,
    };
    let keys = join.on().iter().map(|(left, right)| {
        let (left, right) = (
            left.downcast_ref::<Column>(),
            right.downcast_ref::<Column>(),
        );
        match place {
            0 => (right, left),
            _ => (left, right),
        }
    });
    let keys: Vec<(Option<&Column>, Option<&Column>)> = keys.collect();
    let name = |column: &Column| Some(out.fields().get(column.index())?.name().as_str());
    let passes = |own: usize, called: &str| {
        let mut named = keys
            .iter()
            .filter(|(key, _)| key.and_then(name) == Some(called));
        named.all(|(_, partner)| partner.is_some_and(|partner| partner.index() == own))
    };
    let columns = other.fields().iter().enumerate();
    let passing = columns.filter(|(own, field)| passes(*own, field.name()));
    Some((place, passing.map(|(own, _)| own).collect()))
}

/// Lets conditions through that are only on columns whose names are their own, and of these only on some, where only these may be meant.
#[derive(Debug)]
struct Twins {
    passing: Option<HashSet<usize>>,
}

impl Between for Twins {
    const NAME: &'static str = "TwinsExec";

    fn lets_through(&self, schema: &Schema) -> HashSet<usize> {
        let single = single(schema);
        match &self.passing {
            Some(passing) => single.intersection(passing).copied().collect(),
            None => single,
        }
    }

    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        _: Room,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        batches.boxed()
    }
}

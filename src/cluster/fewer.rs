//! Plans of fewer stages.
//!
//! Comes in: a plan in stages. Goes out: the same plan without exchanges that are not needed: rows of one key are sent nowhere if all of them are with one member already (`together.rs`), and a small table is read
//! by all instead of being sent to all (`whole.rs`), and a row that is made of what all have counted is made by all (`single.rs`). A stage less is a round of messages less. Never here: how stages are made.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{
    BroadcastExec, NetworkBoundaryExt, NetworkBroadcastExec, NetworkShuffleExec, Stage,
};

use super::single::made_by_all;
use super::together::{Held, are_apart, held};
use super::whole::Whole;

/// The plan without exchanges that are not needed. Small tables are read whole by whoever may fetch tiles.
///
/// # Errors
/// As the engine says.
pub(super) fn with_fewer_stages(
    plan: Arc<dyn ExecutionPlan>,
    whole: Option<Whole<'_>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut cutting = Cutting { whole, num_less: 0 };
    let cut = cutting.node(&plan, 1)?;
    match cutting.num_less {
        0 => Ok(plan),
        _ => numbered(cut),
    }
}

struct Cutting<'a> {
    whole: Option<Whole<'a>>,
    /// Exchanges that are left out.
    num_less: usize,
}

impl Cutting<'_> {
    /// The plan below and at a node, which so many tasks run.
    fn node(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let boundary = plan.as_network_boundary();
        let below = boundary.map_or(num_tasks, |boundary| boundary.input_stage().task_count());
        let children = plan.children().into_iter();
        let mut children: Vec<_> = children
            .map(|child| self.node(child, below))
            .collect::<Result<_>>()?;
        if plan.is::<NetworkBroadcastExec>()
            && num_tasks > 1
            && let Some(whole) = &self.whole
            && let Some([sent]) = children.first().map(|head| head.children()).as_deref()
            && whole.is_small(sent)
        {
            self.num_less += 1;
            return whole.read(Arc::clone(sent), num_tasks);
        }
        if plan.is::<NetworkBroadcastExec>()
            && num_tasks > 1
            && below == 1
            && let Some([sent]) = children.first().map(|head| head.children()).as_deref()
            && let Some(made) = made_by_all(sent, num_tasks)?
        {
            self.num_less += 1;
            return Ok(made);
        }
        if boundary.is_some() && below > 1 {
            for stage in &mut children {
                *stage = self.stage(stage, below)?;
            }
        }
        replace_children_if_necessary(Arc::clone(plan), children)
    }

    /// A stage whose inputs are cut already.
    fn stage(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut stage = Arc::clone(plan);
        if has_keys_in_place(plan, num_tasks) {
            stage = in_stage(plan, &mut |node| self.unshuffled(node))?;
        }
        in_stage(&stage, &mut |node| self.joined_in_place(node, num_tasks))
    }

    /// What comes from all tasks by its hash, from its own task by its hash.
    fn unshuffled(&mut self, node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(shuffle) = Shuffle::of(&node) else {
            return Ok(node);
        };
        let partitioning = node.output_partitioning().clone();
        let own = RepartitionExec::try_new(Arc::clone(shuffle.input), partitioning)?;
        self.num_less += 1;
        Ok(Arc::new(match shuffle.keeps_order {
            true => own.with_preserve_order(),
            false => own,
        }))
    }

    /// A join whose table is sent to all tasks, with the rows of its own task as its table, if those of other tasks match nothing there.
    fn joined_in_place(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = node.downcast_ref::<HashJoinExec>();
        let Some(table) = join.and_then(|join| own_table(join, num_tasks)) else {
            return Ok(node);
        };
        let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
        if let Some(left) = children.first_mut() {
            *left = replace_children_if_necessary(Arc::clone(left), vec![table])?;
            self.num_less += 1;
        }
        replace_children_if_necessary(node, children)
    }
}

/// A stage with its nodes changed, from its inputs up.
fn in_stage(
    plan: &Arc<dyn ExecutionPlan>,
    change: &mut dyn FnMut(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.is_network_boundary() {
        return change(Arc::clone(plan));
    }
    let children = plan.children().into_iter();
    let children = children.map(|child| in_stage(child, change));
    let children = children.collect::<Result<_>>()?;
    change(replace_children_if_necessary(Arc::clone(plan), children)?)
}

/// An exchange by hash, before it runs.
struct Shuffle<'a> {
    /// What each task of the stage below it makes.
    input: &'a Arc<dyn ExecutionPlan>,
    num_tasks: usize,
    keeps_order: bool,
}

impl<'a> Shuffle<'a> {
    fn of(node: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        node.downcast_ref::<NetworkShuffleExec>()?;
        let stage = node.as_network_boundary()?.input_stage();
        let head = stage.local_plan()?.downcast_ref::<RepartitionExec>()?;
        Some(Self {
            input: head.input(),
            num_tasks: stage.task_count(),
            keeps_order: head.preserve_order(),
        })
    }
}

/// Whether a stage has inputs that come by hash, and all rows of one key are in one task before they are sent: then none has to be. All of them or none: operators may count on the same keys of two inputs being in the same task.
fn has_keys_in_place(stage: &Arc<dyn ExecutionPlan>, num_tasks: usize) -> bool {
    let mut shuffles = Vec::new();
    boundaries(stage, &mut shuffles);
    shuffles.retain(|node| node.is::<NetworkShuffleExec>());
    let keys = |node: &Arc<dyn ExecutionPlan>| match node.output_partitioning() {
        Partitioning::Hash(keys, _) => keys.len(),
        _ => 0,
    };
    let num_keys = shuffles.iter().map(keys).min().unwrap_or_default();
    let num_most = shuffles.iter().map(keys).max().unwrap_or_default();
    let of_key = |key: usize, node: &Arc<dyn ExecutionPlan>| -> Option<Held> {
        let Partitioning::Hash(keys, _) = node.output_partitioning() else {
            return None;
        };
        let column = keys.get(key)?.downcast_ref::<Column>()?;
        let shuffle = Shuffle::of(node).filter(|shuffle| shuffle.num_tasks == num_tasks)?;
        held(shuffle.input, column.index(), num_tasks)
    };
    num_keys == num_most
        && (0..num_keys).any(|key| {
            let all = shuffles.iter().map(|node| of_key(key, node));
            let all: Option<Vec<Held>> = all.collect();
            all.is_some_and(|all| are_apart(&all, true))
        })
}

/// The inputs of a stage that come from others.
fn boundaries(stage: &Arc<dyn ExecutionPlan>, found: &mut Vec<Arc<dyn ExecutionPlan>>) {
    if stage.is_network_boundary() {
        found.push(Arc::clone(stage));
        return;
    }
    for child in stage.children() {
        boundaries(child, found);
    }
}

/// What a task itself has of the table of a join that is sent to all, if that is enough.
fn own_table(join: &HashJoinExec, num_tasks: usize) -> Option<Arc<dyn ExecutionPlan>> {
    if join.partition_mode() != &PartitionMode::CollectLeft || join.null_aware {
        return None;
    }
    let gathered = join.left().downcast_ref::<CoalescePartitionsExec>();
    let gathered = gathered.filter(|gathered| gathered.fetch().is_none())?;
    let sent = gathered.input();
    sent.downcast_ref::<NetworkBroadcastExec>()?;
    let stage = sent.as_network_boundary()?.input_stage();
    let head = stage.local_plan()?.downcast_ref::<BroadcastExec>()?;
    if stage.task_count() != num_tasks {
        return None;
    }
    let column = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(Column::index);
    let nulls_match = join.null_equality() == NullEquality::NullEqualsNull;
    let is_enough = join.on().iter().any(|(left, right)| {
        let keys = column(left).zip(column(right));
        let held = keys.and_then(|(left, right)| {
            let left = held(head.input(), left, num_tasks)?;
            Some([left, held(join.right(), right, num_tasks)?])
        });
        held.is_some_and(|held| are_apart(&held, nulls_match))
    });
    is_enough.then(|| Arc::clone(head.input()))
}

/// The plan whose stages have numbers without gaps.
fn numbered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut num_stages = 0;
    let plan = plan.transform_up(|node| {
        let Some(boundary) = node.as_network_boundary() else {
            return Ok(Transformed::no(node));
        };
        let mut stage = boundary.input_stage().clone();
        num_stages += 1;
        if let Stage::Local(stage) = &mut stage {
            stage.num = num_stages;
        }
        let numbered = boundary.with_input_stage(stage)?;
        Ok(Transformed::yes(numbered as Arc<dyn ExecutionPlan>))
    });
    plan.data()
}

//! Plans of fewer stages.
//!
//! Comes in: a plan in stages. Goes out: the same plan without exchanges that are not needed: rows of one key are sent nowhere if all of them are with one member already (`together.rs`), or where an exchange before has sent them (`hashed.rs`), or all but a few, which are sent before anything else
//! is done with them (`borders.rs`), and a small table is read by all instead of being sent to all (`whole.rs`), and a row that is made of what all have counted is made by all (`single.rs`). A stage less is a round of messages less. Never here: how stages are made.

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
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundaryExt, NetworkBroadcastExec,
    NetworkShuffleExec, Stage,
};

use super::border::BorderExec;
use super::borders::Borders;
use super::hashed::Dealing;
use super::single::made_by_all;
use super::together::{Held, Made, are_apart, held};
use super::whole::Whole;

/// So many rows are sent by an exchange for less than one more stage costs.
const MUCH_ROWS: usize = 20_000;

/// The plan without exchanges that are not needed. Small tables are read whole by whoever may fetch tiles.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn with_fewer_stages(
    plan: Arc<dyn ExecutionPlan>,
    whole: Option<Whole<'_>>,
    batch_rows: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut cutting = Cutting {
        whole,
        batch_rows,
        relied: Vec::new(),
        num_less: 0,
    };
    let cut = cutting.node(&plan, 1)?;
    match cutting.num_less {
        0 => Ok(plan),
        _ => numbered(cut),
    }
}

struct Cutting<'a> {
    whole: Option<Whole<'a>>,
    batch_rows: usize,
    /// Scans of which it counts which task has which rows.
    relied: Vec<Arc<dyn ExecutionPlan>>,
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
        if let Some(bordered) = self.with_keys_in_place(plan, num_tasks)? {
            stage = in_stage(&bordered, &mut |node| self.unshuffled(node))?;
        } else {
            stage = in_stage(&stage, &mut |node| self.shuffled_once(node, num_tasks))?;
        }
        in_stage(&stage, &mut |node| self.joined_in_place(node, num_tasks))
    }

    /// The stage with all rows of one key in one task before they are sent; `None` if they are not, and cannot be for little.
    fn with_keys_in_place(
        &self,
        stage: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if has_keys_in_place(stage, num_tasks) {
            return Ok(Some(Arc::clone(stage)));
        }
        let shuffles = shuffles(stage);
        let made = shuffles
            .iter()
            .map(|node| made_by_keys(node, num_tasks))
            .collect::<Option<Vec<_>>>();
        let Some(made) = made.filter(|made| made.iter().flatten().any(is_much)) else {
            return Ok(None);
        };
        let num_keys = made.iter().map(Vec::len).min().unwrap_or_default();
        for key in 0..num_keys {
            let made = made.iter().map(|keys| keys.get(key).cloned().flatten());
            let (Some(made), Some(first)) = (made.collect::<Option<Vec<_>>>(), shuffles.first())
            else {
                continue;
            };
            let Some(plans) = self.borders(first, num_tasks, &made)? else {
                continue;
            };
            let mut replaced = plans.into_iter();
            let bordered = in_stage(stage, &mut |node| match node
                .is::<NetworkShuffleExec>()
                .then(|| replaced.next())
            {
                Some(Some(input)) => with_input(node, input),
                _ => Ok(node),
            })?;
            if has_keys_in_place(&bordered, num_tasks) {
                return Ok(Some(bordered));
            }
        }
        Ok(None)
    }

    /// The plans, in which these columns have their values apart; `exchange` is between stages of the plan.
    fn borders(
        &self,
        exchange: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
        made: &[Made],
    ) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
        let Some(boundary) = exchange.as_network_boundary() else {
            return Ok(None);
        };
        let borders = Borders {
            num_tasks,
            batch_rows: self.batch_rows,
            relied: &self.relied,
            like: boundary.input_stage(),
        };
        borders.apart(made)
    }

    /// What comes from all tasks by its hash, from its own task by its hash.
    fn unshuffled(&mut self, node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(shuffle) = Shuffle::of(&node) else {
            return Ok(node);
        };
        let partitioning = node.output_partitioning().clone();
        let own = RepartitionExec::try_new(Arc::clone(shuffle.input), partitioning)?;
        self.relies_on(shuffle.input);
        self.num_less += 1;
        Ok(Arc::new(match shuffle.keeps_order {
            true => own.with_preserve_order(),
            false => own,
        }))
    }

    /// What comes from its own task, if an exchange before this one has sent each row to the task of its hash.
    fn shuffled_once(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let shuffle = Shuffle::of(&node).filter(|shuffle| shuffle.num_tasks == num_tasks);
        let is_there = shuffle
            .zip(Dealing::of(&node))
            .is_some_and(|(shuffle, dealing)| dealing.has_dealt(shuffle.input, &dealing.columns));
        match is_there {
            true => self.unshuffled(node),
            false => Ok(node),
        }
    }

    /// A join whose table is sent to all tasks, with the rows of its own task as its table, if those of other tasks match nothing there.
    fn joined_in_place(
        &mut self,
        node: Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(sent) = node.downcast_ref::<HashJoinExec>().and_then(|join| {
            let sent = Sent::of(join, num_tasks)?;
            Some(sent)
        }) else {
            return Ok(node);
        };
        let Some([table, rows]) = self.in_place(&sent, num_tasks)? else {
            return Ok(node);
        };
        self.relies_on(&table);
        self.relies_on(&rows);
        self.num_less += 1;
        let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
        if let [left, right] = children.as_mut_slice() {
            *left = replace_children_if_necessary(Arc::clone(left), vec![table])?;
            *right = rows;
        }
        replace_children_if_necessary(node, children)
    }

    /// What a task itself has of the table of a join that is sent to all, and its rows, if that is enough.
    fn in_place(
        &self,
        sent: &Sent<'_>,
        num_tasks: usize,
    ) -> Result<Option<[Arc<dyn ExecutionPlan>; 2]>> {
        let mut keys = sent.keys().into_iter();
        if keys.any(|key| sent.is_enough(key, num_tasks)) {
            return Ok(Some([
                Arc::clone(sent.table),
                Arc::clone(sent.join.right()),
            ]));
        }
        if !is_much(&Some((Arc::clone(sent.table), 0))) {
            return Ok(None);
        }
        for (left, right) in sent.keys() {
            let made = [
                (Arc::clone(sent.table), left),
                (Arc::clone(sent.join.right()), right),
            ];
            let plans = self.borders(sent.exchange, num_tasks, &made)?;
            if let Some(Ok([table, rows])) = plans.map(<[_; 2]>::try_from) {
                let held = [held(&table, left, num_tasks), held(&rows, right, num_tasks)];
                let [Some(table_held), Some(rows_held)] = held else {
                    continue;
                };
                if are_apart(&[table_held, rows_held], sent.nulls_match()) {
                    return Ok(Some([table, rows]));
                }
            }
        }
        Ok(None)
    }

    /// Takes note of the scans of a plan in one stage: which task reads which rows is not changed any more.
    fn relies_on(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if plan.is::<DistributedLeafExec>() || plan.is::<BorderExec>() {
            self.relied.push(Arc::clone(plan));
            return;
        }
        if !plan.is_network_boundary() {
            for child in plan.children() {
                self.relies_on(child);
            }
        }
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
    let shuffles = shuffles(stage);
    let made = shuffles.iter().map(|node| made_by_keys(node, num_tasks));
    let Some(made) = made.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let num_keys = made.iter().map(Vec::len).min().unwrap_or_default();
    let num_most = made.iter().map(Vec::len).max().unwrap_or_default();
    num_keys == num_most
        && (0..num_keys).any(|key| {
            let all = made.iter().map(|keys| {
                let (plan, column) = keys.get(key)?.as_ref()?;
                held(plan, *column, num_tasks)
            });
            let all: Option<Vec<Held>> = all.collect();
            all.is_some_and(|all| are_apart(&all, true))
        })
}

/// The inputs of a stage that come by hash.
fn shuffles(stage: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut shuffles = Vec::new();
    boundaries(stage, &mut shuffles);
    shuffles.retain(|node| node.is::<NetworkShuffleExec>());
    shuffles
}

/// For each key of an exchange by hash what makes it, if it is a column; `None` for an exchange of another number of tasks.
fn made_by_keys(node: &Arc<dyn ExecutionPlan>, num_tasks: usize) -> Option<Vec<Option<Made>>> {
    let shuffle = Shuffle::of(node).filter(|shuffle| shuffle.num_tasks == num_tasks)?;
    let Partitioning::Hash(keys, _) = node.output_partitioning() else {
        return None;
    };
    let keys = keys.iter().map(|key| {
        let column = key.downcast_ref::<Column>()?;
        Some((Arc::clone(shuffle.input), column.index()))
    });
    Some(keys.collect())
}

/// Whether what is sent is so much that sending some rows beforehand costs less.
fn is_much(made: &Option<Made>) -> bool {
    let known = made.as_ref().and_then(|(plan, _)| {
        let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        known.ok()?.num_rows.get_value().copied()
    });
    known.is_none_or(|rows| rows >= MUCH_ROWS)
}

/// An exchange by hash of other rows.
fn with_input(
    node: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let heads = node.children().into_iter();
    let heads =
        heads.map(|head| replace_children_if_necessary(Arc::clone(head), vec![Arc::clone(&input)]));
    let heads = heads.collect::<Result<_>>()?;
    replace_children_if_necessary(node, heads)
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

/// A join whose table is sent to all tasks.
struct Sent<'a> {
    join: &'a HashJoinExec,
    exchange: &'a Arc<dyn ExecutionPlan>,
    /// What each task makes of the table.
    table: &'a Arc<dyn ExecutionPlan>,
}

impl<'a> Sent<'a> {
    fn of(join: &'a HashJoinExec, num_tasks: usize) -> Option<Self> {
        if join.partition_mode() != &PartitionMode::CollectLeft || join.null_aware {
            return None;
        }
        let gathered = join.left().downcast_ref::<CoalescePartitionsExec>();
        let gathered = gathered.filter(|gathered| gathered.fetch().is_none())?;
        let exchange = gathered.input();
        exchange.downcast_ref::<NetworkBroadcastExec>()?;
        let stage = exchange.as_network_boundary()?.input_stage();
        let head = stage.local_plan()?.downcast_ref::<BroadcastExec>()?;
        let table = head.input();
        (stage.task_count() == num_tasks).then_some(Self {
            join,
            exchange,
            table,
        })
    }

    /// Keys that are columns, of the table and of the rows.
    fn keys(&self) -> Vec<(usize, usize)> {
        let column = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(Column::index);
        let keys = self.join.on().iter();
        keys.filter_map(|(left, right)| column(left).zip(column(right)))
            .collect()
    }

    fn nulls_match(&self) -> bool {
        self.join.null_equality() == NullEquality::NullEqualsNull
    }

    /// Whether rows match nothing of the table that other tasks have, since values of a key lie apart.
    fn is_enough(&self, (left, right): (usize, usize), num_tasks: usize) -> bool {
        let table = held(self.table, left, num_tasks);
        let held = table.zip(held(self.join.right(), right, num_tasks));
        held.is_some_and(|(table, rows)| are_apart(&[table, rows], self.nulls_match()))
    }
}

/// The plan whose stages have numbers without gaps.
pub(in crate::cluster) fn numbered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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

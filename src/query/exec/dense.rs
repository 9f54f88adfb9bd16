//! Joins over whole numbers that look rows up by number instead of by hash.
//!
//! Comes in: a physical plan that is about to run. Goes out: the same plan, whose hash joins with one key of whole numbers that lie close enough together build a table with
//! a place for every number between the least and the greatest. DataFusion does so for keys that fill a good part of that table; in memory a mostly empty one is much
//! faster than a hash table as well, as long as it is small beside the rows that are looked up, and beside the memory limit. In a cluster this is said where the statement is planned, and travels: a part
//! of a plan does not know what comes from other processes. Never here: how the table is built.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Statistics};
use datafusion::config::{ConfigOptions, ExecutionOptions};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};

use super::over::known_as_input;

/// The largest table, in places of four bytes.
const MOST_PLACES: usize = 64 * 1024 * 1024;

/// A table of so few places costs nothing.
const FEW_PLACES: usize = 64 * 1024;

/// Places for each row that is looked up: making a place is so much cheaper than looking up a row by hash.
const PLACES_FOR_A_ROW: usize = 4;

/// The part of the memory limit that one table may take.
const PART_OF_MEMORY: usize = 16;

/// The plan with joins that look up by number where that pays.
pub(in crate::query) fn dense(
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let most = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => most_places(bytes),
        MemoryLimit::Infinite | MemoryLimit::Unknown => MOST_PLACES,
    };
    let by_number = Arc::new(with_density(context, 0.0));
    let here = Processes { most, count: 1 };
    chosen(plan, here, &|is_by_number| {
        let context = if is_by_number { &by_number } else { context };
        Some(Arc::clone(context))
    })
}

/// The same for a plan that `processes` will run together, each with this memory limit in bytes.
///
/// # Errors
/// As the engine says.
#[cfg(feature = "distributed")]
pub(crate) fn dense_apart(
    plan: Arc<dyn ExecutionPlan>,
    limit_bytes: usize,
    processes: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let most = most_places(limit_bytes);
    let count = processes;
    chosen(plan, Processes { most, count }, &|_| None)
}

/// The most places of the tables of a join in a process with this memory limit in bytes.
pub(crate) fn most_places(limit_bytes: usize) -> usize {
    MOST_PLACES.min(limit_bytes / PART_OF_MEMORY / size_of::<u32>())
}

/// Whether tables of so many places are worth making for so many rows that are looked up.
pub(crate) fn is_worth_its_places(places: usize, rows: usize, most: usize) -> bool {
    let worth = FEW_PLACES.max(rows.saturating_mul(PLACES_FOR_A_ROW));
    places <= most.min(worth)
}

/// Who runs a plan.
#[derive(Clone, Copy)]
struct Processes {
    /// The most places of the tables of a join in one of them.
    most: usize,
    count: usize,
}

/// The plan in which joins say how they look up, if any of them does so by number; `context` gives those their settings that are known.
fn chosen(
    plan: Arc<dyn ExecutionPlan>,
    processes: Processes,
    context: &dyn Fn(bool) -> Option<Arc<TaskContext>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let is_fit = |node: &Arc<dyn ExecutionPlan>| {
        let join = node.downcast_ref::<HashJoinExec>();
        join.is_some_and(|join| is_dense(join, processes) == Some(true))
    };
    if !plan.exists(|node| Ok(is_fit(node)))? {
        return Ok(plan);
    }
    // Every join says how it looks up, since what runs below it has its settings.
    let chosen = plan.transform_up(|node| {
        if !node.is::<HashJoinExec>() {
            return Ok(Transformed::no(node));
        }
        let is_by_number = is_fit(&node);
        Ok(Transformed::yes(Arc::new(LookupExec {
            join: node,
            context: context(is_by_number),
            is_by_number,
        }) as _))
    });
    chosen.data()
}

fn with_density(context: &TaskContext, density: f64) -> TaskContext {
    let mut config = context.session_config().clone();
    config
        .options_mut()
        .execution
        .perfect_hash_join_min_key_density = density;
    TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        // A plan that runs asks for no function by name.
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        context.runtime_env(),
    )
}

/// Whether the table of a join is small enough; `None` when nobody can tell.
fn is_dense(join: &HashJoinExec, processes: Processes) -> Option<bool> {
    let [(key, _)] = join.on() else {
        return None;
    };
    let place = key.downcast_ref::<Column>()?.index();
    if join.null_equality() != NullEquality::NullEqualsNothing
        || !key.data_type(&join.left().schema()).ok()?.is_integer()
    {
        return None;
    }
    let built = statistics(join.left())?;
    let column = built.column_statistics.get(place)?;
    let (least, greatest) = (column.min_value.get_value()?, column.max_value.get_value()?);
    let places = greatest.distance(least)?.checked_add(1)?;
    let Processes { most, count } = processes;
    let tables = match join.partition_mode() {
        PartitionMode::Partitioned => join.left().output_partitioning().partition_count(),
        // For several processes the engine deals such a join out: rows of the left come out once.
        _ if count > 1 && gives_left_once(join.join_type()) => {
            join.right().output_partitioning().partition_count()
        }
        _ => 1,
    };
    let rows = most_rows(join.right());
    let places = places.saturating_mul(tables);
    // Each process makes all places.
    Some(places <= most && is_worth_its_places(places.saturating_mul(count), rows, usize::MAX))
}

/// Whether a join gives rows of its left input, of which all processes have a copy, that only one of them may give.
fn gives_left_once(join_type: &JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Left
            | JoinType::Full
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
    )
}

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
    let found = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    found.ok()
}

/// About how many rows the largest scan below reads: the dynamic filter of a join looks up each of them.
fn most_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below = plan.children().into_iter().map(most_rows).max();
    below.unwrap_or_else(|| match statistics(plan).map(|found| found.num_rows) {
        Some(Precision::Exact(rows) | Precision::Inexact(rows)) => rows,
        _ => 0,
    })
}

/// A join that runs with settings of its own.
#[derive(Debug)]
pub(crate) struct LookupExec {
    join: Arc<dyn ExecutionPlan>,
    /// The settings, if they are known before it runs.
    context: Option<Arc<TaskContext>>,
    is_by_number: bool,
}

#[cfg(feature = "distributed")]
impl LookupExec {
    /// A join that looks up so, in a part of a plan.
    pub(crate) fn new(join: Arc<dyn ExecutionPlan>, is_by_number: bool) -> Self {
        let context = None;
        Self {
            join,
            context,
            is_by_number,
        }
    }

    /// The join.
    pub(crate) fn join(&self) -> &Arc<dyn ExecutionPlan> {
        &self.join
    }

    /// Whether it looks up by number.
    pub(crate) fn is_by_number(&self) -> bool {
        self.is_by_number
    }
}

impl LookupExec {
    fn context(&self, given: Arc<TaskContext>) -> Arc<TaskContext> {
        if let Some(context) = &self.context {
            return Arc::clone(context);
        }
        let wanted = match self.is_by_number {
            true => 0.0,
            false => ExecutionOptions::default().perfect_hash_join_min_key_density,
        };
        let options = given.session_config().options();
        let has = options.execution.perfect_hash_join_min_key_density;
        match has.total_cmp(&wanted).is_eq() {
            true => given,
            false => Arc::new(with_density(&given, wanted)),
        }
    }
}

impl DisplayAs for LookupExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_by_number { "number" } else { "hash" };
        write!(formatter, "LookupExec: by={how}")
    }
}

impl ExecutionPlan for LookupExec {
    fn name(&self) -> &'static str {
        "LookupExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.join]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = children.pop().unwrap_or_else(|| Arc::clone(&self.join));
        Ok(Arc::new(Self {
            join,
            context: self.context.clone(),
            is_by_number: self.is_by_number,
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    known_as_input!();

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(conditions, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        answers: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(answers))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.join.execute(partition, self.context(context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        None
    }
}

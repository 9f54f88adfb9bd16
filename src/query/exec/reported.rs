//! Has every partition of a join say what it has read, also when nobody wants its rows.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which a join that reads its left side once for all partitions does not wait for one that was dropped. The engine lets such a join
//! read its right side when all partitions have told its dynamic filter what they have; one that was dropped before tells nothing, and the others wait for ever. It happens below a join by partitions, which
//! drops its right side where its left one is empty. DataFusion counts dropped partitions of joins by partitions only (<https://github.com/apache/datafusion/pull/21666>).
//! Never here: what the filter says; operators in other places, since what they count is told by these.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::JoinType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, RecordBatchStream, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};

/// The plan whose joins do not wait for partitions that were dropped.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn reported(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    below(plan, false)
}

/// The same for what is below a place; `may_drop` says whether some of its partitions may be dropped there while others are read.
fn below(node: Arc<dyn ExecutionPlan>, may_drop: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let given: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let mut children = Vec::with_capacity(given.len());
    for (place, child) in given.iter().enumerate() {
        children.push(below(
            Arc::clone(child),
            may_drop_input(&node, place, may_drop),
        )?);
    }
    let is_same = given
        .iter()
        .zip(&children)
        .all(|(given, child)| Arc::ptr_eq(given, child));
    let node = match is_same {
        true => node,
        false => over(node, children)?,
    };
    let waits = may_drop && waits_for_all(&node);
    match waits || drops_right(&node) {
        true => Ok(Arc::new(ReportedExec::new(node, waits)?)),
        false => Ok(node),
    }
}

/// Whether a node is a join that may end before it has read its right side, which others wait for: who reads it may keep it until all are over.
fn drops_right(node: &Arc<dyn ExecutionPlan>) -> bool {
    let join = node.downcast_ref::<HashJoinExec>();
    join.is_some_and(|join| {
        *join.partition_mode() == PartitionMode::Partitioned
            && join.right().output_partitioning().partition_count() > 1
            && says_what_it_reads(join.right())
    })
}

/// Whether there is a join with a dynamic filter below, with no other operator between that reads all partitions itself.
fn says_what_it_reads(node: &Arc<dyn ExecutionPlan>) -> bool {
    !READS_ALL.contains(&node.name())
        && (!node.dynamic_expressions_produced().is_empty()
            || node.children().into_iter().any(says_what_it_reads))
}

/// Operators that read all partitions of their input, whichever of theirs are read.
const READS_ALL: [&str; 4] = [
    "RepartitionExec",
    "CoalescePartitionsExec",
    "PackedSortMergeExec",
    "SortPreservingMergeExec",
];

/// An operator over other inputs.
fn over(
    node: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(inputs, options)
}

/// Whether an operator may drop some partitions of an input while it reads others.
fn may_drop_input(node: &Arc<dyn ExecutionPlan>, place: usize, may_drop: bool) -> bool {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return match (join.partition_mode(), place) {
            (PartitionMode::Partitioned, 1) => true,
            (PartitionMode::Partitioned, _) => may_drop,
            // Read once, for all partitions.
            (_, 0) => false,
            _ => may_drop,
        };
    }
    match node.name() {
        // Once one input has given enough, the rest is dropped.
        "AsofJoinExec" | "SortMergeJoinExec" | "SymmetricHashJoinExec" | "InterleaveExec" => true,
        name if READS_ALL.contains(&name) => false,
        "CrossJoinExec" | "NestedLoopJoinExec" => place > 0 && may_drop,
        _ => may_drop,
    }
}

/// Whether a node is a join whose partitions wait for each other and give only rows of their own right side.
fn waits_for_all(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else {
        return false;
    };
    let is_of_right = matches!(
        join.join_type(),
        JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
    );
    is_of_right
        && *join.partition_mode() == PartitionMode::CollectLeft
        && join.right().output_partitioning().partition_count() > 1
        && !node.dynamic_expressions_produced().is_empty()
}

/// Which partitions nobody reads any more.
type Dropped = Arc<[AtomicBool]>;

/// A join whose partitions come to their end when they are dropped, without reading their right side, and let go of it when they are over. It stands in the place of the join, with its inputs.
#[derive(Debug)]
struct ReportedExec {
    /// The join, whose right side looks at `dropped` if its partitions wait for each other.
    join: Arc<dyn ExecutionPlan>,
    waits: bool,
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    dropped: Dropped,
    partitions: Arc<Partitions>,
}

impl ReportedExec {
    fn new(join: Arc<dyn ExecutionPlan>, waits: bool) -> Result<Self> {
        let children: Vec<_> = join.children().into_iter().map(Arc::clone).collect();
        let [left, right] = children.as_slice() else {
            return Err(datafusion::common::internal_datafusion_err!(
                "a join has {} inputs",
                children.len()
            ));
        };
        let (left, right) = (Arc::clone(left), Arc::clone(right));
        let count = right.output_partitioning().partition_count();
        let dropped: Dropped = (0..count).map(|_| AtomicBool::new(false)).collect();
        let join = if waits {
            let wanted = Arc::new(WantedExec {
                input: Arc::clone(&right),
                dropped: Arc::clone(&dropped),
            });
            over(join, vec![Arc::clone(&left), wanted])?
        } else {
            join
        };
        Ok(Self {
            join,
            waits,
            left,
            right,
            dropped,
            partitions: Arc::default(),
        })
    }
}

impl DisplayAs for ReportedExec {
    fn fmt_as(&self, how: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join.fmt_as(how, formatter)
    }
}

impl ExecutionPlan for ReportedExec {
    fn name(&self) -> &str {
        self.join.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.join.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn apply_expressions(
        &self,
        look: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(look)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.join.dynamic_expressions_produced()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = over(Arc::clone(&self.join), children)?;
        Ok(Arc::new(Self::new(join, self.waits)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs = vec![Arc::clone(&self.left), Arc::clone(&self.right)];
        let join = Arc::clone(&self.join).reset_state()?;
        Ok(Arc::new(Self::new(over(join, inputs)?, self.waits)?))
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.join.maintains_input_order()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.join.execute(partition, context)?;
        self.partitions.lock().num_read += 1;
        Ok(Box::pin(ReportedStream {
            schema: self.schema(),
            rows: Some(rows),
            has_reported: !self.waits,
            partition,
            dropped: Arc::clone(&self.dropped),
            partitions: Arc::clone(&self.partitions),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.join.metrics()
    }
}

/// The partitions of one run. What these own must not own them: nobody would let go of either.
#[derive(Default)]
struct Partitions(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// How many of them somebody reads.
    num_read: usize,
    /// Those that were dropped before they said what they had read, and still have to.
    silent: Vec<SendableRecordBatchStream>,
    /// Who waits for them.
    waiting: Vec<Waker>,
}

impl Partitions {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those that were dropped go on, on behalf of one that waits for them.
    fn go_on(&self, context: &mut Context<'_>) {
        let mut silent = {
            let mut known = self.lock();
            if !known
                .waiting
                .iter()
                .any(|one| one.will_wake(context.waker()))
            {
                known.waiting.push(context.waker().clone());
            }
            std::mem::take(&mut known.silent)
        };
        if silent.is_empty() {
            return;
        }
        // An error of theirs comes from what all read: the others get it, too.
        silent.retain_mut(|rows| {
            loop {
                match rows.poll_next_unpin(context) {
                    Poll::Pending => return true,
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(None | Some(Err(_))) => return false,
                }
            }
        });
        self.lock().silent.append(&mut silent);
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Partitions")
    }
}

/// A partition that is kept when it is dropped too early.
struct ReportedStream {
    schema: SchemaRef,
    /// `None` once it is over.
    rows: Option<SendableRecordBatchStream>,
    /// Rows come only after all partitions have said what they read.
    has_reported: bool,
    partition: usize,
    dropped: Dropped,
    partitions: Arc<Partitions>,
}

impl Stream for ReportedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.has_reported {
            self.partitions.go_on(context);
        }
        let Some(rows) = &mut self.rows else {
            return Poll::Ready(None);
        };
        let next = rows.poll_next_unpin(context);
        if next.is_ready() {
            self.has_reported = true;
        }
        if matches!(next, Poll::Ready(None)) {
            self.rows = None;
        }
        next
    }
}

impl RecordBatchStream for ReportedStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for ReportedStream {
    fn drop(&mut self) {
        let mut known = self.partitions.lock();
        known.num_read = known.num_read.saturating_sub(1);
        let others_read = known.num_read > 0;
        let mut over = Vec::new();
        let mut waiting = Vec::new();
        if !others_read {
            over.append(&mut known.silent);
        } else if !self.has_reported {
            if let Some(flag) = self.dropped.get(self.partition) {
                flag.store(true, Ordering::Release);
            }
            known.silent.extend(self.rows.take());
            waiting.append(&mut known.waiting);
        }
        drop(known);
        // Dropping rows may drop partitions of other joins; waking may run them.
        drop(over);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The right side of a join: nothing, for a partition that nobody reads any more.
#[derive(Debug)]
struct WantedExec {
    input: Arc<dyn ExecutionPlan>,
    dropped: Dropped,
}

impl DisplayAs for WantedExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WantedExec")
    }
}

impl ExecutionPlan for WantedExec {
    fn name(&self) -> &'static str {
        "WantedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
        let dropped = Arc::clone(&self.dropped);
        Ok(Arc::new(Self { input, dropped }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(WantedStream {
            rows: self.input.execute(partition, context)?,
            partition,
            dropped: Arc::clone(&self.dropped),
        }))
    }
}

struct WantedStream {
    rows: SendableRecordBatchStream,
    partition: usize,
    dropped: Dropped,
}

impl Stream for WantedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let flag = self.dropped.get(self.partition);
        if flag.is_some_and(|flag| flag.load(Ordering::Acquire)) {
            return Poll::Ready(None);
        }
        self.rows.poll_next_unpin(context)
    }
}

impl RecordBatchStream for WantedStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

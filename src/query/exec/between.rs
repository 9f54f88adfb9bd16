//! Operators of ours that stand between two others and hand rows on, of the same columns and in the same order.
//!
//! Comes in: an operator, and what is done to the batches that it reads. Goes out: the operator over a node that does it. Never here: what is done.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::BoxStream;

/// What is done to batches.
pub(super) trait Between: fmt::Debug + Send + Sync + 'static {
    /// The name of the node in plans.
    const NAME: &'static str;

    /// The batches that come out of those that come in; `room` is the memory limit in bytes, and how many partitions share it.
    fn hand_on(
        &self,
        batches: SendableRecordBatchStream,
        room: Room,
    ) -> BoxStream<'static, Result<RecordBatch>>;
}

/// The memory of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) limit_bytes: usize,
    pub(super) num_partitions: usize,
}

/// The node. Conditions of operators above go no further than this.
#[derive(Debug)]
pub(super) struct BetweenExec<B> {
    input: Arc<dyn ExecutionPlan>,
    what: Arc<B>,
}

/// The operator with a node under its first input; as it is, if it has none or there is such a node already.
pub(super) fn put_under<B: Between>(
    node: Arc<dyn ExecutionPlan>,
    what: B,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let Some(first) = children.first_mut() else {
        return Ok(None);
    };
    if first.downcast_ref::<BetweenExec<B>>().is_some() {
        return Ok(None);
    }
    *first = Arc::new(BetweenExec {
        input: Arc::clone(first),
        what: Arc::new(what),
    });
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, recompute).map(Some)
}

impl<B: Between> DisplayAs for BetweenExec<B> {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(B::NAME)
    }
}

impl<B: Between> ExecutionPlan for BetweenExec<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
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
        let what = Arc::clone(&self.what);
        Ok(Arc::new(Self { input, what }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let room = Room {
            limit_bytes: match context.memory_pool().memory_limit() {
                MemoryLimit::Finite(limit) => limit,
                _ => usize::MAX,
            },
            num_partitions: self.input.output_partitioning().partition_count().max(1),
        };
        let batches = self.input.execute(partition, context)?;
        let batches = self.what.hand_on(batches, room);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}

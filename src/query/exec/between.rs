//! Operators of ours that stand between two others and hand rows on, of the same columns and in the same order.
//!
//! Comes in: an operator, and what is done to the batches that it reads. Goes out: the operator over a node that does it. Never here: what is done.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation,
};
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

    /// The columns on which conditions of operators above go further than this, by their places.
    fn lets_through(&self, schema: &Schema) -> HashSet<usize> {
        let _ = schema;
        HashSet::new()
    }

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

/// The node. Conditions of operators above go further only on columns that it lets through.
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

/// The operator with a node under each input that is such.
pub(super) fn put_under_all<B: Between>(
    node: Arc<dyn ExecutionPlan>,
    is_such: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
    what: impl Fn() -> B,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children().into_iter().map(|input| {
        let input = Arc::clone(input);
        match is_such(&input) {
            false => input,
            true => Arc::new(BetweenExec {
                input,
                what: Arc::new(what()),
            }),
        }
    });
    let children = children.collect();
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, recompute)
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

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let places = self.what.lets_through(&self.schema());
        let input = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            places,
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(input))
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

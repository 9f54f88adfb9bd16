//! Operators of ours that stand between two others and hand rows on, of the same columns and in the same order.
//!
//! Comes in: an operator, and what is done to the batches that it reads. Goes out: the operator over a node that does it. Never here: what is done.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::Statistics;
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
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
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
    place: Place,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Place {
    /// Above its input.
    Above,
    /// In the place of its input, as which it shows itself: what operators of a part count is told by their places.
    Instead,
}

/// The operator with a node under its first input; as it is, if it has none or there is such a node already.
pub(super) fn put_under<B: Between>(
    node: Arc<dyn ExecutionPlan>,
    what: B,
    place: Place,
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
        place,
    });
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, recompute).map(Some)
}

/// The operator with a node under each input, by its place, that is to have one.
pub(super) fn put_under_all<B: Between>(
    node: Arc<dyn ExecutionPlan>,
    what: impl Fn(usize, &Arc<dyn ExecutionPlan>) -> Option<B>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children().into_iter().enumerate();
    let children = children.map(|(place, input)| match what(place, input) {
        None => Arc::clone(input),
        Some(what) => Arc::new(BetweenExec {
            input: Arc::clone(input),
            what: Arc::new(what),
            place: Place::Above,
        }),
    });
    let children = children.collect();
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, recompute)
}

impl<B: Between> DisplayAs for BetweenExec<B> {
    fn fmt_as(&self, how: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Above => formatter.write_str(B::NAME),
            Place::Instead => self.input.fmt_as(how, formatter),
        }
    }
}

impl<B: Between> ExecutionPlan for BetweenExec<B> {
    fn name(&self) -> &str {
        match self.place {
            Place::Above => B::NAME,
            Place::Instead => self.input.name(),
        }
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        (self.place == Place::Instead).then_some(self.input.as_ref())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        match self.place {
            Place::Above => None,
            Place::Instead => self.input.metrics(),
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        match self.place {
            Place::Above => vec![&self.input],
            Place::Instead => self.input.children(),
        }
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        match self.place {
            Place::Above => vec![ChildStats::At(partition)],
            Place::Instead => self.input.child_stats_requests(partition),
        }
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match (self.place, inputs.first()) {
            (Place::Above, Some(input)) => Ok(Arc::clone(input)),
            (Place::Above, None) => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
            (Place::Instead, _) => self.input.statistics_from_inputs(inputs, arguments),
        }
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        match self.place {
            Place::Above => vec![true],
            Place::Instead => self.input.maintains_input_order(),
        }
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        match self.place {
            Place::Above => vec![false],
            Place::Instead => self.input.benefits_from_input_partitioning(),
        }
    }

    fn apply_expressions(
        &self,
        look: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match self.place {
            Place::Above => Ok(TreeNodeRecursion::Continue),
            Place::Instead => self.input.apply_expressions(look),
        }
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        match self.place {
            Place::Above => Vec::new(),
            Place::Instead => self.input.dynamic_expressions_produced(),
        }
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = || Arc::clone(&self.input);
        let input = match self.place {
            Place::Above => children.pop().unwrap_or_else(own),
            Place::Instead => own().replace_children(children, options)?,
        };
        let (what, place) = (Arc::clone(&self.what), self.place);
        Ok(Arc::new(Self { input, what, place }))
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

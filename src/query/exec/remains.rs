//! What is left of a plan that has run.
//!
//! Comes in: a plan whose run is over. Goes out: the same plan to look at, with what its operators counted, and without what they hold as long as they are there: rows of one side of joins, keys that have codes, rows under way between
//! partitions with the tasks that bring them (which go on, where nobody sees that the run is over), what scans were told of joins. Whoever has an answer may ask what its run did. Never here: what other processes
//! counted (`cluster/spread/counted.rs`).

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use super::scan::GridScanExec;

/// Operators that keep rows, or tasks, as long as they are there.
const KEEPING: [&str; 11] = [
    "CrossJoinExec",
    "HashJoinExec",
    "KeyDecodeExec",
    "KeyEncodeExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "RecursiveQueryExec",
    "RepartitionExec",
    "ScalarSubqueryExec",
    "SpoolExec",
    "WorkTableExec",
];

/// The plan to look at; `None` for one that can stay as it is.
pub(in crate::query) fn remains(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<GridScanExec>() {
        return scan.ran().map(|scan| Arc::new(scan) as _);
    }
    let children: Vec<_> = plan
        .children()
        .into_iter()
        .map(|child| (child, remains(child)))
        .collect();
    let is_same = children.iter().all(|(_, remains)| remains.is_none());
    if is_same && !KEEPING.contains(&plan.name()) {
        return None;
    }
    let children = children.into_iter();
    Some(Arc::new(RanExec {
        name: plan.name().to_owned(),
        text: Shown(plan.as_ref()).to_string(),
        metrics: plan.metrics(),
        properties: Arc::clone(plan.properties()),
        children: children
            .map(|(child, remains)| remains.unwrap_or_else(|| Arc::clone(child)))
            .collect(),
    }))
}

/// An operator as EXPLAIN ANALYZE shows it.
struct Shown<'a>(&'a dyn ExecutionPlan);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(DisplayFormatType::Verbose, formatter)
    }
}

/// An operator that has run.
#[derive(Debug)]
struct RanExec {
    name: String,
    text: String,
    metrics: Option<MetricsSet>,
    properties: Arc<PlanProperties>,
    children: Vec<Arc<dyn ExecutionPlan>>,
}

impl DisplayAs for RanExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl ExecutionPlan for RanExec {
    fn name(&self) -> &str {
        &self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            name: self.name.clone(),
            text: self.text.clone(),
            metrics: self.metrics.clone(),
            properties: Arc::clone(&self.properties),
            children,
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.metrics.clone()
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a plan that has run is run again only from the start")
    }
}

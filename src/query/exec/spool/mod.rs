//! Rows that a plan reads in several places, made once.
//!
//! Comes in: how the rows are made, and which of their columns a place reads. Goes out: a node for each place; before a plan runs, the nodes of the same rows are joined to one source. What makes the rows stands
//! below the first of them. Never here: which rows these are (`plan/repeated`), keeping them (`rows.rs`).

mod rows;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use rows::Rows;

/// One place that reads the rows. The engine sees a leaf, so that it plans what makes the rows for itself and once.
#[derive(Debug, Clone)]
pub(crate) struct SpoolExec {
    /// Tells these rows from others of the statement.
    number: usize,
    /// What makes the rows.
    maker: Arc<dyn ExecutionPlan>,
    /// Whether it shows that as its input.
    is_first: bool,
    /// Which columns of the rows it gives.
    columns: Arc<[usize]>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// The rows of this run, and which of their readers this is.
    source: Option<(Arc<Rows>, usize)>,
}

impl SpoolExec {
    /// A reader of some columns of the rows.
    ///
    /// # Errors
    /// `Internal` for columns that the rows do not have.
    pub(in crate::query) fn try_new(
        number: usize,
        maker: Arc<dyn ExecutionPlan>,
        columns: &[usize],
    ) -> Result<Self> {
        let schema = Arc::new(maker.schema().project(columns)?);
        let known = StatisticsContext::new().compute(maker.as_ref(), &StatisticsArgs::new());
        let statistics = match known {
            Ok(known) => Arc::new(Statistics::clone(&known).project(Some(&columns))),
            Err(_) => Arc::new(Statistics::new_unknown(&schema)),
        };
        let partitions = maker.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            maker.pipeline_behavior(),
            maker.boundedness(),
        );
        Ok(Self {
            number,
            maker,
            is_first: false,
            columns: columns.into(),
            statistics,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            source: None,
        })
    }

    /// Whether what makes the rows can do so wherever it is: nobody counts on their order, and it reads no other rows that are made once.
    #[cfg(feature = "distributed")]
    pub(in crate::query) fn is_made_anywhere(&self) -> Result<bool> {
        let is_ranged = matches!(self.maker.output_partitioning(), Partitioning::Range(_));
        let is_free = !is_ranged && self.maker.output_ordering().is_none();
        Ok(is_free && !self.maker.exists(|below| Ok(below.is::<Self>()))?)
    }
}

impl DisplayAs for SpoolExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let names: Vec<&str> = names.collect();
        let made = match self.is_first {
            true => "made here",
            false => "made elsewhere",
        };
        let (number, names) = (self.number, names.join(", "));
        write!(
            formatter,
            "SpoolExec: rows={number}, {made}, columns=[{names}]"
        )
    }
}

impl ExecutionPlan for SpoolExec {
    fn name(&self) -> &'static str {
        "SpoolExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        match self.is_first {
            true => vec![&self.maker],
            false => Vec::new(),
        }
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.children().iter().map(|_| false).collect()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.children().iter().map(|_| false).collect()
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
        Ok(Arc::new(Self {
            maker: children.pop().unwrap_or_else(|| Arc::clone(&self.maker)),
            ..Self::clone(&self)
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            metrics: ExecutionPlanMetricsSet::new(),
            source: None,
            ..Self::clone(&self)
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(match arguments.partition() {
            Some(_) => Arc::new(Statistics::new_unknown(&self.schema())),
            None => Arc::clone(&self.statistics),
        })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some((rows, reader)) = &self.source else {
            return internal_err!("rows that several places read were asked for outside a run");
        };
        let counted = BaselineMetrics::new(&self.metrics, partition);
        let columns = Arc::clone(&self.columns);
        let batches = rows.read(partition, *reader, &context)?;
        let batches = batches.map(move |batch| {
            let batch = batch?.project(&columns)?;
            counted.record_output(batch.num_rows());
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }
}

/// Shows below the first place that reads rows what makes them.
#[derive(Debug)]
pub(in crate::query) struct ShowMakers;

impl PhysicalOptimizerRule for ShowMakers {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut seen = Vec::new();
        // Downwards: what makes rows may read others, which then stand below it.
        plan.transform_down(|node| {
            let Some(spool) = node.downcast_ref::<SpoolExec>() else {
                return Ok(Transformed::no(node));
            };
            let is_first = !seen.contains(&spool.number);
            if is_first {
                seen.push(spool.number);
            }
            Ok(match spool.is_first == is_first {
                true => Transformed::no(node),
                false => {
                    let spool = SpoolExec {
                        is_first,
                        ..spool.clone()
                    };
                    Transformed::yes(Arc::new(spool))
                }
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "show_makers"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan whose places of the same rows have one source, for one run.
///
/// # Errors
/// `Internal` where nothing makes the rows.
pub(in crate::query) fn joined(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut readers: HashMap<usize, usize> = HashMap::new();
    plan.apply(|node| {
        if let Some(spool) = node.downcast_ref::<SpoolExec>() {
            *readers.entry(spool.number).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if readers.is_empty() {
        return Ok(plan);
    }
    let mut sources: HashMap<usize, (Arc<Rows>, usize)> = HashMap::new();
    plan.transform_up(|node| {
        let Some(spool) = node.downcast_ref::<SpoolExec>() else {
            return Ok(Transformed::no(node));
        };
        let (rows, reader) = match sources.entry(spool.number) {
            Entry::Occupied(known) => {
                let (rows, reader) = known.into_mut();
                *reader += 1;
                (Arc::clone(rows), *reader)
            }
            // What makes the rows is below the first place, and was put in order before it.
            Entry::Vacant(place) if spool.is_first => {
                let count = readers.get(&spool.number).copied().unwrap_or(1);
                let rows = Arc::new(Rows::new(Arc::clone(&spool.maker), count, &spool.metrics));
                place.insert((Arc::clone(&rows), 0));
                (rows, 0)
            }
            Entry::Vacant(_) => return internal_err!("nothing makes rows that are read"),
        };
        let spool = SpoolExec {
            source: Some((rows, reader)),
            ..spool.clone()
        };
        Ok(Transformed::yes(Arc::new(spool) as _))
    })
    .data()
}

/// Has the rows of a run, which is over, go when it is dropped: whoever looks at the plan keeps it.
pub(in crate::query) struct Ending(pub(in crate::query) Arc<dyn ExecutionPlan>);

impl Drop for Ending {
    fn drop(&mut self) {
        let looked = self.0.apply(|node| {
            if let Some(spool) = node.downcast_ref::<SpoolExec>()
                && let Some((rows, _)) = &spool.source
            {
                rows.end();
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(looked.is_ok(), "looking at a plan does not fail");
    }
}

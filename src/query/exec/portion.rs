//! Small portions for operators that make much of little.
//!
//! Comes in: a plan. Goes out: the same plan, in which UNNEST, windows of lists and projections of long values get their input in batches of which they will not make more than a part of the memory limit, and an error
//! before one row, or all rows of an operator that keeps them, would not fit. They allocate beside the memory pool, whole batches at once; a machine that has no room for it ends the process.
//! Never here: how much an operator makes (`growth.rs`).

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::growth::{Growth, Meter};
use crate::error::{Error, ErrorKind};
use crate::query::bounds::size;

/// An operator makes at most this part of the memory limit of one batch.
const PART: u64 = 16;

/// The plan with small portions under operators that grow.
pub(in crate::query) fn portioned(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let found = Growth::of(node.as_ref());
        let Some(((growth, keeps), input)) = found.zip(node.children().first().copied()) else {
            return Ok(Transformed::no(node));
        };
        let portions: Arc<dyn ExecutionPlan> = Arc::new(PortionExec {
            input: Arc::clone(input),
            growth,
            keeps,
        });
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let node = node.replace_children(vec![portions], recompute)?;
        Ok(Transformed::yes(node))
    })
    .data()
}

/// Cuts batches.
#[derive(Debug, Clone)]
struct PortionExec {
    input: Arc<dyn ExecutionPlan>,
    growth: Growth,
    /// Whether the operator above keeps all that it makes.
    keeps: bool,
}

impl DisplayAs for PortionExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PortionExec: {}", self.growth.name())
    }
}

impl ExecutionPlan for PortionExec {
    fn name(&self) -> &'static str {
        "PortionExec"
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
        let input = children.pop();
        let input =
            input.ok_or_else(|| DataFusionError::Internal("no child was given".to_owned()))?;
        let portions = Self {
            input,
            ..Self::clone(&self)
        };
        Ok(Arc::new(portions))
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
        let limit = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => limit as u64,
            _ => u64::MAX,
        };
        let mut portions = Portions {
            meter: Meter::new(self.growth.clone()),
            name: self.growth.name(),
            keeps: self.keeps,
            limit,
            kept: 0,
        };
        let batches = self.input.execute(partition, context)?;
        let cut = batches
            .map(move |batch| {
                Ok::<_, DataFusionError>(stream::iter(portions.of(&batch?)?.into_iter().map(Ok)))
            })
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), cut)))
    }
}

/// One partition of the input.
struct Portions {
    meter: Meter,
    name: String,
    keeps: bool,
    limit: u64,
    /// What the operator has made so far, if it keeps that.
    kept: u64,
}

impl Portions {
    /// A batch in portions.
    fn of(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let bytes = self.meter.bytes(batch)?;
        if self.keeps {
            let all = bytes
                .iter()
                .fold(0_u64, |sum, row| sum.saturating_add(*row));
            self.kept = self.kept.saturating_add(all);
            self.check(self.kept, "")?;
            return Ok(vec![batch.clone()]);
        }
        let most = self.limit / PART;
        let mut portions = Vec::new();
        let (mut start, mut made) = (0, 0_u64);
        for (row, bytes) in bytes.iter().enumerate() {
            self.check(*bytes, " for one row")?;
            if made.saturating_add(*bytes) > most && row > start {
                portions.push(batch.slice(start, row - start));
                (start, made) = (row, 0);
            }
            made = made.saturating_add(*bytes);
        }
        portions.push(batch.slice(start, batch.num_rows() - start));
        Ok(portions)
    }

    fn check(&self, bytes: u64, of: &str) -> Result<()> {
        if bytes <= self.limit {
            return Ok(());
        }
        let shown = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
        let text = format!(
            "{} would need about {}{of}, the memory limit is {}",
            self.name,
            shown(bytes),
            shown(self.limit)
        );
        Err(Error::new(ErrorKind::ResourcesExhausted, text).into())
    }
}

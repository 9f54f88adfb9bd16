//! Stops a query from outside, also where an operator does not pause.
//!
//! Comes in: a physical plan. Goes out: the same plan whose join filters look at a flag. A nested loop join tests all pairs of a batch with all rows of the other side
//! before it returns, so that dropping its stream comes too late; its filter, which it asks for every chunk of pairs, is where it can be stopped. Never here: other
//! changes of a plan.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};

use crate::error::{Error, ErrorKind};

/// Says whether a run of a query shall stop.
#[derive(Debug, Clone, Default)]
pub(in crate::query) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes every join filter of the plan fail from now on.
    pub(in crate::query) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Cancelled, "the query was stopped").into());
        }
        Ok(())
    }
}

/// The plan with join filters that obey `stop`.
pub(in crate::query) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let inputs = (Arc::clone(join.left()), Arc::clone(join.right()));
            let stopping = NestedLoopJoinExecBuilder::new(inputs.0, inputs.1, *join.join_type())
                .with_projection_ref(join.projection().clone())
                .with_filter(Some(watched(filter, stop)))
                .build()?;
            return Ok(Transformed::yes(Arc::new(stopping) as _));
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            let stopping = join.builder().with_filter(Some(watched(filter, stop)));
            return Ok(Transformed::yes(stopping.build_exec()?));
        }
        Ok(Transformed::no(node))
    })
    .data()
}

fn watched(filter: &JoinFilter, stop: &Stop) -> JoinFilter {
    let condition = Watched {
        condition: Arc::clone(filter.expression()),
        stop: stop.clone(),
    };
    let (places, schema) = (
        filter.column_indices().to_vec(),
        Arc::clone(filter.schema()),
    );
    JoinFilter::new(Arc::new(condition), places, schema)
}

/// A condition that fails once the run shall stop.
#[derive(Debug, Clone)]
struct Watched {
    condition: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition) && Arc::ptr_eq(&self.stop.0, &other.stop.0)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(formatter)
    }
}

impl PhysicalExpr for Watched {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.condition.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.condition.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = children
            .pop()
            .unwrap_or_else(|| Arc::clone(&self.condition));
        let stop = self.stop.clone();
        Ok(Arc::new(Self { condition, stop }))
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(formatter)
    }
}

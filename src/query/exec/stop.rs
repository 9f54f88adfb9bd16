//! Stops a query from outside, also where an operator does not pause.
//!
//! Comes in: a physical plan. Goes out: the same plan whose scans, join filters and functions of users look at a flag. A nested loop join tests all pairs of a batch with all rows of
//! the other side before it returns, so that dropping its stream comes too late; its filter, which it asks for every chunk of pairs, is where it can be stopped. A function of a user may
//! take seconds for a batch, and operators that never pause would call it for all batches that are left. Never here: other changes of a plan.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use tokio::time::Instant;

use super::expressions::{nested, with_expressions};
use super::scan::GridScanExec;
use crate::error::{Error, ErrorKind};
use crate::query::function::Function;

/// Says whether a run of a query shall stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    own: Arc<AtomicBool>,
    /// Of the run that this is an attempt of.
    above: Option<Arc<AtomicBool>>,
    /// When its time is over, if that is bounded.
    until: Arc<OnceLock<Instant>>,
}

impl Stop {
    /// One for an attempt of this run: it ends with the run, and the run goes on when it ends.
    #[cfg(feature = "distributed")]
    pub(crate) fn attempt(&self) -> Self {
        Self {
            own: Arc::default(),
            above: Some(Arc::clone(&self.own)),
            until: Arc::clone(&self.until),
        }
    }

    /// Makes every scan, join filter and function of the plan fail from now on.
    pub(crate) fn set(&self) {
        self.own.store(true, Ordering::Release);
    }

    /// Makes them fail from then on, also if no timer goes off, since operators that do not pause keep all threads busy.
    pub(in crate::query) fn end_at(&self, at: Instant) {
        self.until.get_or_init(|| at);
    }

    /// Whether the run goes on.
    ///
    /// # Errors
    /// `Cancelled` once it shall stop.
    pub(crate) fn check(&self) -> Result<()> {
        let above = self.above.as_ref();
        let is_over = above.is_some_and(|above| above.load(Ordering::Acquire));
        let is_late = || self.until.get().is_some_and(|at| Instant::now() >= *at);
        if is_over || self.own.load(Ordering::Acquire) || is_late() {
            return Err(Error::new(ErrorKind::Cancelled, "the query was stopped").into());
        }
        Ok(())
    }
}

/// The plan with scans, join filters and functions that obey `stop`.
pub(in crate::query) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| obeying(node, stop)).data()
}

/// An operator that obeys it.
pub(in crate::query) fn obeying(
    node: Arc<dyn ExecutionPlan>,
    stop: &Stop,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = node.downcast_ref::<GridScanExec>() {
        let scan = scan.clone().with_stop(stop.clone());
        return Ok(Transformed::yes(Arc::new(scan) as _));
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let stopping = nested(join, watched(filter, stop))?;
        return Ok(Transformed::yes(stopping));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        let stopping = join.builder().with_filter(Some(watched(filter, stop)));
        return Ok(Transformed::yes(stopping.build_exec()?));
    }
    with_expressions(node, &|expression, _| {
        Arc::clone(expression).transform_up(|part| {
            Ok(match calls_user(&part) {
                true => Transformed::yes(Arc::new(Watched::new(part, stop)) as _),
                false => Transformed::no(part),
            })
        })
    })
}

fn calls_user(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let call = expression.downcast_ref::<ScalarFunctionExpr>();
    call.is_some_and(|call| Function::is_of_user(call.fun()))
}

fn watched(filter: &JoinFilter, stop: &Stop) -> JoinFilter {
    let condition = Watched::new(Arc::clone(filter.expression()), stop);
    let (places, schema) = (
        filter.column_indices().to_vec(),
        Arc::clone(filter.schema()),
    );
    JoinFilter::new(Arc::new(condition), places, schema)
}

/// An expression that fails once the run shall stop.
#[derive(Debug, Clone)]
struct Watched {
    expression: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl Watched {
    fn new(expression: Arc<dyn PhysicalExpr>, stop: &Stop) -> Self {
        let stop = stop.clone();
        Self { expression, stop }
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.expression.eq(&other.expression) && Arc::ptr_eq(&self.stop.own, &other.stop.own)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(formatter)
    }
}

impl PhysicalExpr for Watched {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expression.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.expression.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expression]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let expression = children
            .pop()
            .unwrap_or_else(|| Arc::clone(&self.expression));
        let stop = self.stop.clone();
        Ok(Arc::new(Self { expression, stop }))
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_ends_at_its_time_also_where_no_timer_goes_off() {
        let (endless, soon, later) = (Stop::default(), Stop::default(), Stop::default());
        let now = Instant::now();
        soon.end_at(now);
        later.end_at(now + Duration::from_secs(3600));
        assert!(endless.check().is_ok());
        assert!(soon.check().is_err());
        assert!(later.check().is_ok());
        later.set();
        assert!(later.clone().check().is_err());
        #[cfg(feature = "distributed")]
        assert!(soon.attempt().check().is_err());
    }
}

//! The last row of a statement.
//!
//! Comes in: a plan in stages that is about to run, its rows. Goes out: the same plan, which says when its last stage has given the last row; the rows, which are over then. The engine ends a statement only when all
//! members have ended their parts of it and told what these counted: a round of messages that nobody waits for where nobody asks for the numbers. Never here: the numbers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedExec, NetworkBoundaryExt};
use futures::{Stream, StreamExt, stream};
use tokio::runtime::Handle;

/// How long the members may take to end their parts once the last row was given.
const ENDING: Duration = Duration::from_secs(2);

/// What the last stage of a statement has given so far, errors among it.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Given {
    num_batches: AtomicUsize,
    is_over: AtomicBool,
}

impl Given {
    /// Whether nothing comes after so many batches.
    fn is_over_after(&self, num_batches: usize) -> bool {
        self.is_over.load(Ordering::Acquire)
            && num_batches >= self.num_batches.load(Ordering::Acquire)
    }
}

/// A plan, and what its last stage has given.
type Told = (Arc<dyn ExecutionPlan>, Arc<Given>);

/// The plan that says what its last stage has given; `None` for one that the engine ends with its last row.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn told(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Told>> {
    let stage = match plan.children().as_slice() {
        [stage] if plan.is::<DistributedExec>() => Arc::clone(stage),
        _ => return Ok(None),
    };
    // Of several partitions, one being over says nothing of the others.
    let num_partitions = stage.output_partitioning().partition_count();
    if stage.is_network_boundary() || num_partitions != 1 {
        return Ok(None);
    }
    let given = Arc::<Given>::default();
    let stage = Arc::new(LastExec {
        stage,
        given: Arc::clone(&given),
    });
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let plan = Arc::clone(plan).replace_children(vec![stage], recompute)?;
    Ok(Some((plan, given)))
}

/// The rows, which are over with the last one; what the members still have to do is waited for on the runtime, and `kept` as long.
pub(in crate::cluster) fn until_last<T: Send + 'static>(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    given: Arc<Given>,
    runtime: Handle,
    kept: T,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut left = Some((rows.boxed(), kept));
    let mut num_batches = 0;
    stream::poll_fn(move |context| {
        let Some((rows, _)) = &mut left else {
            return Poll::Ready(None);
        };
        let next = rows.poll_next_unpin(context);
        if matches!(next, Poll::Ready(Some(_))) {
            num_batches += 1;
        }
        // The engine wakes whoever reads when its last stage is over, too.
        if next.is_pending() && given.is_over_after(num_batches) {
            if let Some((mut rows, kept)) = left.take() {
                runtime.spawn(async move {
                    let _kept = kept;
                    let ending = async {
                        while let Some(more) = rows.next().await {
                            if let Err(error) = more {
                                tracing::debug!(%error, "a part of a statement did not end well after its last row");
                            }
                        }
                    };
                    if tokio::time::timeout(ENDING, ending).await.is_err() {
                        tracing::debug!("a part of a statement did not end within 2 seconds after its last row");
                    }
                });
            }
            return Poll::Ready(None);
        }
        next
    })
}

/// Stands in the place of the last stage, and counts what it gives.
#[derive(Debug)]
struct LastExec {
    stage: Arc<dyn ExecutionPlan>,
    given: Arc<Given>,
}

impl DisplayAs for LastExec {
    fn fmt_as(&self, how: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt_as(how, formatter)
    }
}

impl ExecutionPlan for LastExec {
    fn name(&self) -> &str {
        self.stage.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.stage.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.stage.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.stage.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.stage.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.stage.benefits_from_input_partitioning()
    }

    fn apply_expressions(
        &self,
        look: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.stage.apply_expressions(look)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            stage: Arc::clone(&self.stage).replace_children(children, options)?,
            given: Arc::clone(&self.given),
        }))
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
        let batches = self.stage.execute(partition, context)?;
        let (given, over) = (Arc::clone(&self.given), Arc::clone(&self.given));
        let batches = batches.inspect(move |_| {
            given.num_batches.fetch_add(1, Ordering::AcqRel);
        });
        let over = stream::once(async move { over.is_over.store(true, Ordering::Release) });
        let batches = batches.chain(over.filter_map(|()| std::future::ready(None)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.stage.metrics()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow::datatypes::Schema;

    use super::*;

    /// Is over when it is dropped.
    struct Kept(Arc<Mutex<bool>>);

    impl Drop for Kept {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = true;
        }
    }

    #[tokio::test]
    async fn rows_are_over_with_the_last_one_though_more_is_to_be_done() {
        let batch = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let given = Arc::<Given>::default();
        let (ending, ended) = tokio::sync::oneshot::channel::<()>();
        let told = Arc::clone(&given);
        let rows = stream::once(async move {
            told.num_batches.store(1, Ordering::Release);
            told.is_over.store(true, Ordering::Release);
            Ok(batch)
        });
        let rest = stream::once(async move { drop(ended.await) });
        let rows = rows.chain(rest.filter_map(|()| std::future::ready(None)));
        let is_let_go = Arc::<Mutex<bool>>::default();
        let kept = Kept(Arc::clone(&is_let_go));
        let mut rows = Box::pin(until_last(rows, given, Handle::current(), kept));
        assert!(rows.next().await.unwrap().is_ok());
        assert!(rows.next().await.is_none());
        drop(rows);
        tokio::task::yield_now().await;
        assert!(!*is_let_go.lock().unwrap());
        ending.send(()).unwrap();
        while !*is_let_go.lock().unwrap() {
            tokio::task::yield_now().await;
        }
    }
}

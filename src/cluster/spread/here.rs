//! Parts of a statement that the member runs which was asked, and what all parts say at their end.
//!
//! Comes in: parts as the engine sends them, messages of those who run them. Goes out: the same, without a connection for those that run here; and a last message from each of them. A part that nobody asked for rows, as
//! there were enough without it, says nothing of what it counted, and the engine would wait for it for ever. Never here: parts of other members' statements (`worker/mod.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    MaybeEncoded, SetPlanRequest, TaskMetrics, Worker, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future, stream};
use http::HeaderMap;

pub(in crate::cluster) type Told =
    BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>;
pub(in crate::cluster) type Rows = BoxStream<'static, Result<RecordBatch, DataFusionError>>;

/// How many operators a part has.
pub(in crate::cluster) fn num_operators(request: &SetPlanRequest) -> usize {
    match &request.plan {
        MaybeEncoded::Decoded(plan) => operators_of(plan),
        MaybeEncoded::Encoded(_) => 0,
    }
}

fn operators_of(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below = plan.children().into_iter().map(operators_of);
    1 + below.sum::<usize>()
}

/// What a part says, and at the end that its operators counted nothing, if it does not say what they counted.
pub(in crate::cluster) fn to_the_end(told: Told, num_operators: usize) -> Told {
    let has_counted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_counted);
    let told = told.inspect_ok(move |message| {
        if matches!(message, WorkerToCoordinatorMsg::TaskMetrics(_)) {
            seen.store(true, Ordering::Relaxed);
        }
    });
    let nothing = stream::once(async move {
        let counts = || TaskMetrics {
            pre_order_plan_metrics: vec![MetricsSet::new(); num_operators],
            task_metrics: MetricsSet::new(),
        };
        let has_counted = has_counted.load(Ordering::Relaxed);
        (!has_counted).then(|| Ok(WorkerToCoordinatorMsg::TaskMetrics(counts())))
    });
    told.chain(nothing.filter_map(future::ready)).boxed()
}

/// The worker of this process.
pub(in crate::cluster) struct Here(pub(in crate::cluster) Worker);

#[async_trait]
impl WorkerChannel for Here {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        _: ExecutionPlanMetricsSet,
        _: &Arc<TaskContext>,
    ) -> Result<Told, DataFusionError> {
        let num_operators = num_operators(&request);
        let messages = messages.map(Ok).boxed();
        let told = self.0.coordinator_channel(headers, request, messages);
        Ok(to_the_end(told.await?, num_operators))
    }

    async fn execute_task(
        &mut self,
        _: HeaderMap,
        request: ExecuteTaskRequest,
        _: ExecutionPlanMetricsSet,
        _: &Arc<TaskContext>,
    ) -> Result<Vec<Rows>, DataFusionError> {
        let (rows, _) = self.0.execute_task(request).await?;
        Ok(rows.into_iter().map(StreamExt::boxed).collect())
    }

    async fn get_worker_info(
        &mut self,
        _: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        let version = self.0.version().to_owned();
        Ok(GetWorkerInfoResponse { version })
    }
}

//! A plan that is spread over the members when it runs.
//!
//! Comes in: a plan for one process, made with settings for several (`query/spread.rs`). Goes out: a node that, each time it runs, takes the members of that moment, lets the engine cut the plan into stages
//! and send them, and gives the rows of the last. Read on in `led.rs` (one that is spread in pieces), `again.rs` (one that begins anew), `here.rs` (parts of
//! the member that was asked), `last.rs` (the last row), `stages.rs` (what is left of a run), `counted.rs` (what its scans did), `stops.rs` (ending it at all members). Never here: planning of statements.

pub(super) mod again;
pub(super) mod counted;
pub(super) mod here;
pub(super) mod last;
pub(super) mod led;
pub(super) mod stages;
pub(super) mod stops;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::Session as PlanSession;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{
    SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, execute_stream,
};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    CompressionType, DistributedConfig, DistributedExec, DistributedExt,
    DistributedMetricsFormat::PerTask, NetworkBoundaryExt, SessionStateBuilderExt, WorkerResolver,
    display_plan_ascii, rewrite_distributed_plan_with_metrics,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use http::HeaderMap;
use tokio::sync::oneshot;
use url::Url;

use super::Cluster;
use super::codec::Codec;
use super::members::Members;
use super::members::channel::{Resolver, Unsent};
use super::members::there::{until_told, watching};
use super::placement::leaf;
use super::plan::limits::limited_once;
use super::plan::pairs::gathered_for_pairs;
use super::plan::together::are_together;
use super::plan::unions::dealt_to_all;
use super::tile::owner::of_member;
use crate::error::{Error, ErrorKind};
use crate::grid::PartitionGrid;
use crate::query::{
    Alone, Facts, Reads, Spread, Stop, asks_for_counts, dense_apart, last_part, of_column, part,
};
use again::{At, after, once_more};
use last::{told, until_last};
use led::{in_pieces, is_led_here};
use stages::Last;

impl Spread for Cluster {
    fn concerns(&self, grid: &PartitionGrid) -> bool {
        let is_of_member = grid.tiles().iter().any(|tile| of_member(tile).is_some());
        is_of_member || self.members().len() > 1 && self.anywhere.has_any(grid)
    }

    fn dropping(&self, name: &str) -> Option<Error> {
        self.heed_drop(name)
    }

    fn look(&self) -> BoxFuture<'_, ()> {
        self.look_for_statement().boxed()
    }

    fn num_processes(&self) -> usize {
        self.members().len()
    }

    fn moment(&self) -> u64 {
        self.near_moment()
    }

    fn may_be_near(&self) -> bool {
        self.near.is_on()
    }

    fn might_be_near(&self, reads: &[Reads]) -> bool {
        self.might_be_alone(reads)
    }

    fn is_near(&self, reads: &[Reads]) -> Alone {
        self.is_alone_with(reads)
    }

    fn are_together(&self, one: (&Facts, usize), other: (&Facts, usize)) -> bool {
        are_together(&self.of_query(self.members()), one, other)
    }

    fn spread(
        self: Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
        config: &SessionConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = reset_plan_states(plan)?;
        let spread = |plan| SpreadExec::of(plan, config.clone(), Arc::downgrade(&self));
        match is_led_here(&plan)? {
            true => in_pieces(plan, &spread),
            false => Ok(spread(plan)),
        }
    }
}

/// A planned statement that runs.
pub(super) struct Statement {
    plan: Arc<dyn ExecutionPlan>,
    config: SessionConfig,
    cluster: Arc<Cluster>,
    /// Whether somebody asks what the members counted.
    counts: bool,
    /// Set when the run is over of which this is the statement.
    stop: Stop,
}

impl Statement {
    /// The plan in stages for these members.
    async fn cut(&self, members: Arc<Members>, headers: HeaderMap) -> Result<Cut> {
        let cluster = &self.cluster;
        let codec = Codec(cluster.tile_codec(Some(&members)));
        let own = members.own().url().clone();
        let urls = members.iter().map(|member| member.url().clone()).collect();
        let num_members = members.len();
        // Within a host bytes cost less than packing them.
        let compression = (!members.are_on_one_host()).then_some(CompressionType::LZ4_FRAME);
        let mut config = self.config.clone();
        let here = (own, cluster.worker.clone());
        let (resolver, unsent) = Resolver::of_statement(Arc::clone(&cluster.reach), here);
        let tells = resolver.unsent();
        let planned = reset_plan_states(Arc::clone(&self.plan))?;
        let planned = limited_once(planned)?;
        let planned = gathered_for_pairs(planned, num_members)?;
        let planned = dealt_to_all(planned, num_members)?;
        let planned = dense_apart(planned, cluster.session.memory_limit_bytes(), num_members)?;
        let query = Arc::new(cluster.of_statement(members, &planned));
        config.set_extension(Arc::clone(&query));
        config.set_extension(Arc::new(Planned(planned)));
        let planning = cluster.planning.get_or_init(planning);
        let mut state = planning.clone();
        let options = planning.config().options();
        let Some(distributed) = options.extensions.get::<DistributedConfig>() else {
            let text = "the engine's settings of plans for several processes are missing";
            return Err(DataFusionError::Internal(text.to_owned()));
        };
        let mut distributed = distributed.clone();
        // EXPLAIN ANALYZE asks in any case.
        distributed.collect_metrics = self.counts || self.plan.is::<AnalyzeExec>();
        let config = config
            .with_distributed_option_extension(distributed)
            .with_distributed_worker_resolver(Frozen(urls))
            .with_distributed_channel_resolver(resolver)
            .with_distributed_user_codec(codec)
            .with_distributed_desired_task_count_handler(leaf::desired)
            .with_distributed_scale_up_leaf_node_handler(leaf::scale_up)
            .with_distributed_route_tasks_handler(leaf::route)
            .with_distributed_compression(compression)?
            .with_distributed_passthrough_headers(headers.clone())?;
        *state.config_mut() = config;
        let planner = Arc::clone(state.query_planner());
        let mut plan = planner
            .create_physical_plan(&LogicalPlan::default(), &state)
            .await?;
        plan = cluster.as_sent(plan, &query, state.config().batch_size())?;
        let stop = cluster.stops.of_part(&headers);
        // EXPLAIN ANALYZE has it below the top.
        plan = match plan.exists(|node| Ok(node.is::<DistributedExec>()))? {
            true => last_part(plan, &stop, &is_sent)?,
            // A plan of one stage runs here, like a part that came from elsewhere.
            false => part(plan, state.config(), &stop)?,
        };
        Ok(Cut {
            plan,
            state,
            unsent,
            tells,
        })
    }
}

/// The rows of a statement.
type Rows = BoxStream<'static, Result<RecordBatch>>;

impl Statement {
    /// Runs the plan at these members; what runs is put into `last`.
    async fn run(
        &self,
        members: &Arc<Members>,
        runtime: &Arc<RuntimeEnv>,
        last: &Last,
    ) -> Result<Rows> {
        let (headers, ends, stop) = self.cluster.stops.statement(&self.stop)?;
        let Cut {
            plan,
            state,
            unsent,
            tells,
        } = self.cut(Arc::clone(members), headers).await?;
        let ends = (ends, watching(&self.cluster, members, tells, stop));
        let told = match self.counts {
            true => None,
            false => told(&plan)?,
        };
        let (plan, given) = match told {
            Some((plan, given)) => (plan, Some(given)),
            None => (plan, None),
        };
        let running = last.begin(&plan, self.counts);
        let context = TaskContext::from(&state).with_runtime(Arc::clone(runtime));
        let rows = execute_stream(Arc::clone(&plan), Arc::new(context))?;
        let rows = until_told(rows, unsent);
        if let Some(given) = given {
            let runtime = self.cluster.runtime.clone();
            return Ok(until_last(rows, given, runtime, (ends, running)).boxed());
        }
        // What the others counted comes after the last row.
        let counted = async move {
            // Until here the statement is not over; it is as well when its rows are dropped.
            let _ends = ends;
            let counting = rewrite_distributed_plan_with_metrics(plan, PerTask);
            if let Ok(Ok(counted)) = tokio::time::timeout(COUNTED, counting).await {
                running.end_as(&counted);
            }
        };
        let counted = stream::once(counted).filter_map(|()| std::future::ready(None));
        Ok(rows.chain(counted).boxed())
    }

    /// The plan for one process, and the cluster.
    pub(super) fn parts(&self) -> (&Arc<dyn ExecutionPlan>, &Cluster) {
        (&self.plan, &self.cluster)
    }

    /// The same statement with another plan.
    pub(super) fn over(&self, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan,
            config: self.config.clone(),
            cluster: Arc::clone(&self.cluster),
            counts: self.counts,
            stop: self.stop.clone(),
        }
    }
}

/// A plan in stages.
struct Cut {
    plan: Arc<dyn ExecutionPlan>,
    /// What runs it.
    state: SessionState,
    /// The error of the first part that could not be sent.
    unsent: oneshot::Receiver<DataFusionError>,
    /// Who tells it.
    tells: Unsent,
}

/// Whether other stages begin there, which are sent to members.
fn is_sent(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is_network_boundary()
}

/// The members of a query, which do not change while it is planned and runs.
struct Frozen(Vec<Url>);

impl WorkerResolver for Frozen {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// What cuts plans: a state without functions, since it plans nothing else.
fn planning() -> SessionState {
    let mut config = SessionConfig::new();
    let mut distributed = DistributedConfig::default();
    // Each member reads its own tiles of all inputs of a union.
    distributed.children_isolator_unions = false;
    // It hashes the rows of each task twice, and shifts what operators counted by one.
    distributed.partial_reduce = false;
    config.set_distributed_option_extension(distributed);
    SessionStateBuilder::new()
        .with_config(config)
        .with_query_planner(Arc::new(WasPlanned))
        .with_distributed_planner()
        .build()
}

/// A plan that was planned before.
struct Planned(Arc<dyn ExecutionPlan>);

/// Gives the engine that plan.
#[derive(Debug)]
struct WasPlanned;

#[async_trait]
impl QueryPlanner for WasPlanned {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        session: &dyn PlanSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = session.config().get_extension::<Planned>();
        let planned = planned.ok_or_else(|| {
            let text = "a plan was to be cut that was not planned";
            DataFusionError::Internal(text.to_owned())
        })?;
        Ok(Arc::clone(&planned.0))
    }
}

/// How long a statement whose last row was read waits for what the members counted.
const COUNTED: Duration = Duration::from_secs(2);

/// A statement over grids of several members. It has no inputs that others may change: what runs is cut out of its plan each time.
struct SpreadExec {
    plan: Arc<dyn ExecutionPlan>,
    config: SessionConfig,
    /// Plans are kept for the next time: they must not keep whoever keeps them.
    cluster: Weak<Cluster>,
    properties: Arc<PlanProperties>,
    /// What runs, or ran last.
    last: Last,
}

impl SpreadExec {
    fn of(
        plan: Arc<dyn ExecutionPlan>,
        config: SessionConfig,
        cluster: Weak<Cluster>,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            plan.properties().emission_type,
            plan.properties().boundedness,
        );
        Arc::new(Self {
            plan,
            config,
            cluster,
            properties: Arc::new(properties),
            last: Last::default(),
        })
    }

    /// The statement, to run now.
    ///
    /// # Errors
    /// `WorkerLost` when this process is no member any more.
    fn statement(&self) -> Result<Statement> {
        let cluster = self.cluster.upgrade().ok_or_else(|| {
            let text = "the server that spread the plan over the members of its cluster was closed";
            DataFusionError::from(Error::new(ErrorKind::WorkerLost, text))
        })?;
        Ok(Statement {
            plan: Arc::clone(&self.plan),
            config: self.config.clone(),
            cluster,
            counts: true,
            stop: Stop::default(),
        })
    }
}

impl fmt::Debug for SpreadExec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("SpreadExec")
            .field(&self.plan)
            .finish()
    }
}

impl DisplayAs for SpreadExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(statement) = self.statement() else {
            return formatter.write_str("SpreadExec");
        };
        let members = statement.cluster.members();
        write!(formatter, "SpreadExec: members={}", members.len())?;
        if let Some(ran) = self.last.text() {
            for line in ran.lines() {
                write!(formatter, "\n  {line}")?;
            }
            return Ok(());
        }
        // Nothing of it waits.
        if let Some(Ok(cut)) = statement.cut(members, HeaderMap::new()).now_or_never() {
            for line in display_plan_ascii(cut.plan.as_ref(), false).lines() {
                write!(formatter, "\n  {line}")?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for SpreadExec {
    fn name(&self) -> &'static str {
        "SpreadExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// What the scans of all members counted, each number with the process that counted it.
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.last.counted())
    }

    /// A new run has not counted yet.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            plan: Arc::clone(&self.plan),
            config: self.config.clone(),
            cluster: Weak::clone(&self.cluster),
            properties: Arc::clone(&self.properties),
            last: Last::default(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            let text = format!("a plan that is spread has one partition, not {partition}");
            return Err(DataFusionError::Internal(text));
        }
        let config = context.session_config();
        let stop = config.get_extension::<Stop>();
        let statement = Statement {
            counts: asks_for_counts(config),
            stop: stop.as_deref().cloned().unwrap_or_default(),
            ..self.statement()?
        };
        let last = self.last.clone();
        let runtime = context.runtime_env();
        let run = move |at: Arc<At>| {
            let (runtime, last) = (Arc::clone(&runtime), last.clone());
            async move { at.0.run(&at.1, &runtime, &last).await }
        };
        let running = async move {
            let members = statement.cluster.members();
            // Before the first row it can begin anew without those who are lost.
            once_more(Arc::new((statement, members)), run, after).await
        };
        let plan = Arc::clone(&self.plan);
        let rows = running.try_flatten_stream();
        let rows = rows.map_err(move |error| of_column(error, &plan));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

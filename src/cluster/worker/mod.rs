//! Parts of plans of other members.
//!
//! Comes in: a part of a plan, as the engine sends it. Goes out: its rows, made with the functions, settings and memory limit of the session of this process. A part may hold what partgrid plans (`permitted.rs`), and
//! nothing that reads or writes files. Read on in `guarded.rs` (the door), `held.rs` (how many parts there are). Never here: who may send parts, which is for the server to say.

pub(super) mod guarded;
pub(super) mod held;
pub(super) mod permitted;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion_distributed::{
    DistributedExt, MaybeEncoded, SetPlanRequest, TaskKey, Worker, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use http::HeaderMap;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::codec::Codec;
use super::codec::tiles::TileCodec;
use super::members::Member;
use super::members::channel::{Reach, Resolver};
use super::spread::stops::{Stops, is_of_statement};
use super::tile::anywhere::Anywhere;
use crate::query::{Session, Stop, of_plans, part};
use held::{Held, HeldPart};
use permitted::check;

/// Members of other versions are no members. What is behind the plus sign counts up when they would misread each other's messages.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+7");

/// The largest message of rows.
const MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// What a thread left is freed when all threads have looked twice since; once more for what was on its way.
const LOOKS: usize = 3;

/// How long a thread waits for the others to look as well: those that run parts look by themselves.
const AT_MOST: Duration = Duration::from_millis(1);

/// What runs parts of plans, with what this session has.
pub(super) fn worker(
    session: &Session,
    reach: &Arc<Reach>,
    anywhere: &Arc<Anywhere>,
    stops: &Stops,
    held: &Held,
) -> Worker {
    let engine = session.engine();
    let runtime = RuntimeEnv {
        memory_pool: session.pool(),
        ..RuntimeEnv::clone(engine.runtime_env())
    };
    let runtime = Arc::new(runtime);
    let template = Arc::new(Template {
        session: session.clone(),
        runtime: Arc::clone(&runtime),
        made: ArcSwapOption::empty(),
    });
    let (stops, held) = (stops.clone(), held.clone());
    let (reach, anywhere) = (Arc::clone(reach), Arc::clone(anywhere));
    let building = move |context: WorkerQueryContext| {
        let codec = TileCodec {
            reach: Arc::clone(&reach),
            members: None,
            forbids_fetching: true,
            anywhere: Arc::clone(&anywhere),
            names_sources: false,
        };
        let template = Arc::clone(&template);
        let stop = stops.of_part(&context.headers);
        // What only has the engine let go of others is of no statement.
        let held = is_of_statement(&context.headers).then(|| held.one());
        async move { Ok(state(&template, codec, context.builder, (stop, held))) }
    };
    Worker::from_session_builder(building)
        .with_runtime_env(runtime)
        .with_max_message_size(MESSAGE_BYTES)
}

/// Has the engine let go of parts that are over: it does so only when it hears of another one, and they may hold memory until then.
///
/// # Errors
/// As the engine says.
pub(super) async fn let_go(worker: &Worker, own: &Member) -> Result<()> {
    let nothing: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
    set(worker, own, 0, MaybeEncoded::Decoded(nothing)).await
}

/// Has each thread that runs parts free what left the engine's cache there. Each keeps such things in a list of its own until it adds to it again, which one with nothing to do does not, and they are freed once
/// all have looked a few times.
pub(super) async fn free(work: Handle) {
    let num_threads = work.metrics().num_workers();
    for _ in 0..LOOKS {
        let arrived = Arc::<AtomicUsize>::default();
        let threads = (0..num_threads).map(|_| {
            let arrived = Arc::clone(&arrived);
            work.spawn(async move {
                arrived.fetch_add(1, Ordering::AcqRel);
                // None does it twice while another one has nothing to do.
                let begun = Instant::now();
                while arrived.load(Ordering::Acquire) < num_threads && begun.elapsed() < AT_MOST {
                    std::thread::yield_now();
                }
                crossbeam_epoch::pin().flush();
            })
        });
        let _done = join_all(threads).await;
    }
}

/// Has the engine make a part ready that nobody asks for rows, and end it.
///
/// # Errors
/// As the engine says.
pub(super) async fn set(
    worker: &Worker,
    own: &Member,
    stage: usize,
    plan: MaybeEncoded<Arc<dyn ExecutionPlan>>,
) -> Result<()> {
    let request = SetPlanRequest {
        task_key: TaskKey {
            query_id: Uuid::nil(),
            stage_id: stage,
            task_number: 0,
        },
        task_count: 1,
        plan,
        work_unit_feed_declarations: Vec::new(),
        target_worker_url: own.url().clone(),
        query_start_time_ns: 0,
    };
    let over = stream::empty().boxed();
    let mut told = worker
        .coordinator_channel(HeaderMap::new(), request, over)
        .await?;
    while told.try_next().await?.is_some() {}
    Ok(())
}

/// What all parts begin with: putting hundreds of functions in their places takes longer than a small part runs.
struct Template {
    session: Session,
    runtime: Arc<RuntimeEnv>,
    /// The state with all functions, and how many the session had been given by then.
    made: ArcSwapOption<(u64, SessionState)>,
}

impl Template {
    /// A state with all functions that parts may call.
    fn state(&self) -> SessionState {
        let num_given = self.session.num_functions_given();
        if let Some(made) = self.made.load().as_deref()
            && made.0 == num_given
        {
            return made.1.clone();
        }
        let mut builder = SessionStateBuilder::new_from_existing(self.session.engine());
        let functions = of_plans(self.session.memory_limit_bytes());
        builder
            .scalar_functions()
            .get_or_insert_default()
            .extend(functions);
        let state = builder.with_runtime_env(Arc::clone(&self.runtime)).build();
        self.made.store(Some(Arc::new((num_given, state.clone()))));
        state
    }
}

/// The functions and settings of this process, with what the engine says of the query.
fn state(
    template: &Template,
    codec: TileCodec,
    mut builder: SessionStateBuilder,
    (stop, held): (Stop, Option<HeldPart>),
) -> SessionState {
    let mut config = builder.config().take().unwrap_or_default();
    let extensions = std::mem::take(&mut config.options_mut().extensions);
    *config.options_mut() = template.session.engine_settings().as_ref().clone();
    config.options_mut().extensions = extensions;
    if let Some(held) = held {
        config = config.with_extension(Arc::new(held));
    }
    let reach = Arc::clone(&codec.reach);
    let rewritten = move |event: WorkerPlanRewriteEvent<'_>| {
        check(&event.plan)?;
        let part = part(event.plan, event.session_config, &stop)?;
        Ok(WorkerPlanRewriteEventResponse::new(part))
    };
    let mut state = template.state();
    *state.config_mut() = config
        .with_distributed_user_codec(Codec(codec))
        .with_distributed_channel_resolver(Resolver::of_part(reach))
        .with_distributed_worker_plan_rewrite_handler(rewritten);
    state
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn what_a_thread_left_is_freed_though_it_has_nothing_to_do() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let left = Arc::new(());
        let known = Arc::downgrade(&left);
        let leaves = runtime.spawn(async move { crossbeam_epoch::pin().defer(move || drop(left)) });
        runtime.block_on(leaves).unwrap();
        // Whoever else looks sees nothing of it.
        for _ in 0..100 {
            crossbeam_epoch::pin().flush();
        }
        assert_eq!(known.strong_count(), 1);
        // Other tests may be looking at something at this moment.
        let end = Instant::now() + Duration::from_secs(20);
        while known.strong_count() > 0 && Instant::now() < end {
            runtime.block_on(free(runtime.handle().clone()));
        }
        assert_eq!(known.strong_count(), 0);
    }
}

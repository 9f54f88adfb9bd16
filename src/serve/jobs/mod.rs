//! Loads that the server does for clients.
//!
//! Comes in: sources and a name. Goes out: a job that can be watched and cancelled; its grid is under the name once all of it is there. Only from places that the administrator allows. Never here: loading.

mod job;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "distributed")]
use self::job::ByAll;
use self::job::Job;
use super::service::Service;
#[cfg(feature = "distributed")]
use crate::cluster::Writing;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::kind_name;
use crate::flight::messages::LoadRequest;
use crate::grid::{PartitionGrid, SortColumn};
#[cfg(feature = "distributed")]
use crate::load::Arrangement;
use crate::load::{LoadJob, LoadOptions, SchemaEvolution};
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::door::call::{Call, unknown};
use crate::serve::receive::again::{self, Asked};
use crate::serve::receive::ingest::check_right;

/// How many jobs that have ended are listed.
const ENDED: usize = 20;

/// How many run at once.
const RUNNING: usize = 16;

/// The loads of a server.
#[derive(Default)]
pub(super) struct Jobs {
    next: AtomicU64,
    known: Mutex<BTreeMap<u64, Arc<Job>>>,
}

impl Jobs {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that a caller may see, the youngest first: their own, or all for an administrator.
    pub(super) fn seen_by(&self, caller: &Caller) -> Vec<Arc<Job>> {
        let known = self.known();
        let seen = known.values().rev().filter(|job| may(caller, job));
        seen.cloned().collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// `NotFound` for another's.
    pub(super) fn find(&self, caller: &Caller, id: u64) -> Result<Arc<Job>> {
        let found = self.known().get(&id).cloned();
        found
            .filter(|job| may(caller, job))
            .ok_or_else(|| unknown("job"))
    }

    /// Stops one, unless its grid is there before that.
    ///
    /// # Errors
    /// `NotFound` for another's, and for one that has ended.
    pub(super) fn cancel(&self, caller: &Caller, id: u64) -> Result<()> {
        let job = self.find(caller, id)?;
        if !job.is_running() {
            let text = format!("the load has ended already: {}", job.state());
            return Err(Error::not_found(text));
        }
        job.cancel();
        Ok(())
    }

    /// Stops all.
    pub(super) fn cancel_all(&self) {
        for job in self.known().values() {
            job.cancel();
        }
    }

    /// One of a caller, of which nothing else is known yet.
    fn made(&self, call: &Call, name: String) -> Job {
        Job::new(self.next.fetch_add(1, Ordering::Relaxed), call, name)
    }

    /// One that an earlier one has done.
    fn ended_before(&self, call: &Call, name: String, num_rows: u64) -> Result<Arc<Job>> {
        let job = self.made(call, name);
        job.end(Ok(num_rows));
        let job = Arc::new(job);
        self.add(&job)?;
        Ok(job)
    }

    /// The one of a caller that runs and that is asked for again.
    ///
    /// # Errors
    /// `InvalidArgument` when one with the id runs that was asked for something else.
    fn repeated(&self, caller: &Caller, name: &str, again: &Asked) -> Result<Option<Arc<Job>>> {
        let known = self.known();
        let mut running = known.values().filter(|job| job.is_running());
        let found = running.find(|job| {
            let is_called = |known: &Asked| known.id == again.id;
            job.name == name && job.caller == *caller && job.again.as_ref().is_some_and(is_called)
        });
        match found {
            Some(job) if job.again.as_ref() != Some(again) => Err(again::other(&again.id)),
            found => Ok(found.cloned()),
        }
    }

    /// Waits until none runs.
    pub(super) async fn ended(&self) {
        loop {
            let running = self.known().values().find(|job| job.is_running()).cloned();
            match running {
                Some(job) => job.over().await,
                None => return,
            }
        }
    }

    /// How many run.
    pub(super) fn num_running(&self) -> usize {
        let known = self.known();
        known.values().filter(|job| job.is_running()).count()
    }

    fn add(&self, job: &Arc<Job>) -> Result<()> {
        let mut known = self.known();
        let running = known.values().filter(|job| job.is_running()).count();
        if running >= RUNNING && job.is_running() {
            let text = format!("{RUNNING} loads run already");
            let error = Error::new(ErrorKind::ResourcesExhausted, text);
            return Err(error.with_hint("try again later"));
        }
        known.insert(job.id, Arc::clone(job));
        let ended: Vec<u64> = known
            .iter()
            .filter(|(_, job)| !job.is_running())
            .map(|(id, _)| *id)
            .collect();
        let too_many = ended.len().saturating_sub(ENDED);
        for id in ended.iter().take(too_many) {
            known.remove(id);
        }
        Ok(())
    }
}

fn may(caller: &Caller, job: &Job) -> bool {
    caller.scope() == Scope::Admin || job.caller == *caller
}

/// What a client wishes of a load, within what the server allows.
fn options_of(service: &Service, request: &LoadRequest) -> Result<LoadOptions> {
    let mut options = LoadOptions::default()
        .with_allowed(service.load_from.clone())
        .with_lazy(request.is_lazy)
        .with_hive_partitioning(!request.no_hive)
        .with_memory_limit_bytes(service.limits.memory_bytes as u64);
    if !request.columns.is_empty() {
        options = options.with_columns(request.columns.clone());
    }
    if request.tile_rows > 0 {
        options = options.with_tile_rows(request.tile_rows);
    }
    if !request.sort_by.is_empty() {
        let columns = request.sort_by.iter().cloned().map(SortColumn::from);
        options = options.with_sort_by(columns.collect());
    }
    if !request.partition_by.is_empty() {
        options = options.with_partition_by(request.partition_by.clone());
    }
    if request.num_partitions > 0 {
        options = options.with_num_partitions(request.num_partitions);
    }
    if !request.schema_evolution.is_empty() {
        let evolution = SchemaEvolution::from_name(&request.schema_evolution)?;
        options = options.with_schema_evolution(evolution);
    }
    Ok(options)
}

/// Begins a load for a caller.
///
/// # Errors
/// `PermissionDenied` without the right to write the name, and for places that are not allowed; `Query` when the name is taken; `ResourcesExhausted` when too many run.
pub(super) fn begin(service: &Arc<Service>, call: &Call, request: LoadRequest) -> Result<Arc<Job>> {
    let caller = &call.caller;
    check_right(caller, &request.name)?;
    crate::serve::watch::health::check_whole(service, &request.name)?;
    if service.load_from.is_empty() {
        let text = "the server loads nothing for clients";
        return Err(Error::new(ErrorKind::PermissionDenied, text)
            .with_hint("the administrator can allow places: load.from in the settings"));
    }
    let again = Asked::of(&request)?;
    let before = service.session.named(&request.name)?;
    if let (Some(again), Some(before)) = (&again, &before)
        && let Some(num_rows) = again.rows_of(before)?
    {
        return service.jobs.ended_before(call, request.name, num_rows);
    }
    if let Some(again) = &again
        && let Some(job) = service.jobs.repeated(caller, &request.name, again)?
    {
        return Ok(job);
    }
    if before.is_some() && !request.replace {
        return Err(crate::serve::receive::upload::taken(&request.name));
    }
    let options = options_of(service, &request)?;
    #[cfg(feature = "distributed")]
    let spread = spread(service, &request).then(|| ByAll {
        writing: Writing::default(),
        options: options.clone(),
    });
    #[cfg(feature = "distributed")]
    let options = match spread {
        Some(_) => options.unarranged().with_lazy(true),
        None => options,
    };
    let mut job = service.jobs.made(call, request.name);
    job.sources = request.sources.clone();
    let load = {
        let _at_work = service.work.enter();
        LoadJob::start(request.sources, options)?
    };
    job.again = again;
    job.load = Some(load);
    #[cfg(feature = "distributed")]
    {
        job.spread = spread;
    }
    let job = Arc::new(job);
    service.jobs.add(&job)?;
    let (service, watched, replace) = (Arc::clone(service), Arc::clone(&job), request.replace);
    tokio::spawn(async move {
        let done = finish(&service, &watched, replace).await;
        end(&service, &watched, done);
    });
    Ok(job)
}

/// Says how a load ended, to all who watch.
fn end(service: &Service, job: &Job, done: Result<u64>) {
    if let Err(error) = &done {
        service.errors.by_kind.count(kind_name(error.kind()));
        tracing::info!(job = job.id, request = %job.request, caller = %job.caller.name(), %error, "a load failed");
    }
    // Ended loads are listed for a while, and would keep what was dropped since.
    if let Some(load) = &job.load {
        load.let_go();
    }
    job.end(done);
    service.loads.count(job.state());
}

/// Whether the members of a cluster load it together: into the catalog that they share, from files that all of them reach.
#[cfg(feature = "distributed")]
fn spread(service: &Service, request: &LoadRequest) -> bool {
    let cluster = service.cluster.get().filter(|cluster| cluster.may_share());
    let mut sources = request.sources.iter();
    !request.is_lazy && cluster.is_some_and(|cluster| sources.all(|source| cluster.reaches(source)))
}

/// The grid of a job; by all members, where they load it together.
async fn loaded(service: &Service, job: &Job) -> Result<Arc<PartitionGrid>> {
    let load = job.load.as_ref();
    let load = load.ok_or_else(|| Error::internal("a load that was done before runs again"))?;
    let grid = Arc::new(load.result().await?);
    #[cfg(feature = "distributed")]
    if let (Some(of), Some(cluster)) = (&job.spread, service.cluster.get()) {
        let wanted = Arrangement::of(&grid, &of.options, cluster.members().len())?;
        return match (cluster.shares(&grid), wanted) {
            (true, None) => Ok(Arc::new(cluster.write(&grid, &of.writing).await?)),
            (true, Some(wanted)) => {
                let arranging = Box::pin(cluster.arrange(&grid, wanted, &of.writing));
                Ok(Arc::new(arranging.await?))
            }
            (false, None) => Ok(grid),
            // Others do not reach the files after all.
            (false, Some(_)) => {
                let load = {
                    let _at_work = service.work.enter();
                    LoadJob::start(job.sources.clone(), of.options.clone())?
                };
                Ok(Arc::new(load.result().await?))
            }
        };
    }
    #[cfg(not(feature = "distributed"))]
    let _ = service;
    Ok(grid)
}

/// The grid with the id of the load that made it.
fn marked(job: &Job, grid: Arc<PartitionGrid>) -> Arc<PartitionGrid> {
    let Some(again) = &job.again else {
        return grid;
    };
    let mark = again.mark(grid.num_rows());
    Arc::new(Arc::unwrap_or_clone(grid).with_loads(vec![mark]))
}

fn was_done(job: &Job, grid: &PartitionGrid) -> Result<bool> {
    match &job.again {
        Some(again) => Ok(again.rows_of(grid)?.is_some()),
        None => Ok(false),
    }
}

async fn finish(service: &Service, job: &Job, replace: bool) -> Result<u64> {
    let written = async {
        if let Err(error) = crate::serve::watch::health::check_durable(service).await {
            // Nothing is read for nothing.
            job.cancel_reading();
            return Err(error);
        }
        let grid = loaded(service, job).await?;
        service
            .session
            .write_ahead(&job.name, marked(job, grid))
            .await
    };
    let grid = tokio::select! {
        grid = written => grid?,
        error = job.until_cancelled() => return Err(error),
    };
    let num_rows = grid.num_rows();
    let named = service.session.put(&job.name, |before| match before {
        // Another one did it meanwhile.
        Some(before) if was_done(job, before)? => Ok(Arc::clone(before)),
        Some(_) if !replace => Err(crate::serve::receive::upload::taken(&job.name)),
        // Its files were read before somebody ended it.
        _ => job.check_cancelled().map(|()| grid),
    });
    named.await?;
    Ok(num_rows)
}

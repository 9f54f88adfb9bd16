//! What the server does at this moment, for the status page and for clients.
//!
//! Comes in: the state of the server, and who asks. Goes out: JSON of what they may see. Never here: changes.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::describe;
use super::health;
use crate::catalog::Catalog;
use crate::flight::messages::{JobProgress, MemberFigures};
use crate::grid::PartitionGrid;
use crate::location::host_address;
use crate::serve::door::auth::{Caller, Scope};
use crate::serve::queries::running::State;
use crate::serve::service::{Service, here_bytes};
use crate::share::copied_bytes;

/// Tiles of one grid that the page draws.
const MAX_TILES: usize = 10_000;

/// Everything on the page but the tiles.
pub(in crate::serve) fn status(service: &Service, caller: &Caller) -> Value {
    let (begun, since) = service.begun;
    let catalog = service.catalog.as_ref().map(Catalog::place);
    let figures = figures(service);
    json!({
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "uri": service.uri(),
            "pid": std::process::id(),
            "host": host_address().to_string(),
            "started": time(since),
            "uptime_seconds": begun.elapsed().as_secs_f64(),
            "threads": service.threads,
            "catalog": catalog.filter(|_| caller.scope() == Scope::Admin),
            "durable": health::is_durable(service),
            "damaged": health::num_damaged(service),
            "state": service.state(),
        },
        "caller": { "name": caller.name().as_ref(), "scope": caller.scope().to_string() },
        "memory": memory(service, figures),
        "grids": grids(service, caller),
        "incomplete": incomplete(service, caller),
        "queries": queries(service, caller),
        "jobs": jobs(service, caller),
        "members": members(service, figures),
        "away": away(service, caller),
        "parts": figures.num_parts,
        "errors": errors(service, caller),
    })
}

/// What this server does and has, as members tell it each other.
pub(in crate::serve) fn figures(service: &Service) -> MemberFigures {
    MemberFigures {
        num_queries: service.running.num_running() as u64,
        num_parts: num_parts(service),
        grid_bytes: grid_bytes(service),
        query_bytes: service.session.memory_bytes() as u64,
        resident_bytes: crate::memory::resident_bytes(),
    }
}

/// This server, which does and has so much, and those with which it is in a cluster, as it sees them; all are of one version. What a member did not say of itself is null.
fn members(service: &Service, own: MemberFigures) -> Vec<Value> {
    let member = |uri: &str, host: String, process: u64, told: Option<MemberFigures>| {
        let state = match uri == service.uri() {
            true => service.state(),
            false => "serving",
        };
        json!({
            "uri": uri,
            "host": host,
            "pid": process,
            "state": state,
            "version": env!("CARGO_PKG_VERSION"),
            "is_here": uri == service.uri(),
            "queries": told.map(|told| told.num_queries),
            "parts": told.map(|told| told.num_parts),
            "grid_bytes": told.map(|told| told.grid_bytes),
            "query_bytes": told.map(|told| told.query_bytes),
            "resident_bytes": told.and_then(|told| told.resident_bytes),
        })
    };
    let process = u64::from(std::process::id());
    let host = host_address().to_string();
    let here = member(service.uri(), host, process, Some(own));
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        let members = cluster.members();
        let others = members.iter().skip(1).map(|other| {
            let at = other.location();
            let told = cluster.figures_of(other.incarnation());
            member(other.uri(), at.host().to_string(), at.process(), told)
        });
        return std::iter::once(here).chain(others).collect();
    }
    vec![here]
}

/// Those whom the list of members names and who are none. Why, administrators are told: it may say how the servers are set up.
fn away(service: &Service, caller: &Caller) -> Vec<Value> {
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        let is_admin = caller.scope() == Scope::Admin;
        let away = cluster.away().into_iter();
        return away
            .map(|(uri, reason)| json!({ "uri": uri, "reason": is_admin.then_some(reason) }))
            .collect();
    }
    let _nobody_is_listed = (service, caller);
    Vec::new()
}

/// How many parts of statements of members this server holds.
pub(super) fn num_parts(service: &Service) -> u64 {
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        return cluster.num_parts_held() as u64;
    }
    let _nobody_else = service;
    0
}

fn memory(service: &Service, own: MemberFigures) -> Value {
    let session = &service.session;
    json!({
        "grid_bytes": own.grid_bytes,
        "copied_bytes": copied_bytes(),
        "query_bytes": own.query_bytes,
        "query_limit_bytes": session.memory_limit_bytes(),
        "incoming_bytes": service.held_bytes(),
        "spilled_bytes": session.spilled_bytes(),
        "spill_limit_bytes": session.spill_limit_bytes(),
        "resident_bytes": own.resident_bytes,
    })
}

/// Bytes of the grids that lie in memory, and of parts and copies of such that have no name here; tiles of lazy ones that are still in files are not read to know.
pub(super) fn grid_bytes(service: &Service) -> u64 {
    let session = &service.session;
    let grids = session
        .tables()
        .into_iter()
        .filter_map(|name| session.grid(&name).ok());
    let named: u64 = grids.map(|grid| here_bytes(&grid)).sum();
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        let beside = cluster.parts_beside();
        return named + beside.iter().map(|grid| here_bytes(grid)).sum::<u64>();
    }
    named
}

fn grids(service: &Service, caller: &Caller) -> Vec<Value> {
    let Ok(session) = service.session_of(caller) else {
        return Vec::new();
    };
    let named = session.tables().into_iter();
    let grids = named.filter_map(|name| Some((session.grid(&name).ok()?, name)));
    grids
        .map(|(grid, name)| summary(service, &name, &grid))
        .collect()
}

/// Grids of all members of which parts are missing, or contradict each other, whose names the caller may see; whether they are there all the same, as they were before.
fn incomplete(service: &Service, caller: &Caller) -> Vec<Value> {
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        let lacking = cluster.incomplete().into_iter();
        let lacking = lacking.filter(|(name, _)| caller.may_see(name));
        return lacking
            .map(|(name, lacking)| {
                let grid = service.session.grid(&name).ok();
                let of = grid.and_then(|grid| parts_of(service, &name, &grid));
                json!({
                    "name": name,
                    "since": time(lacking.since),
                    "is_there": of.is_some(),
                    "message": lacking.error.message(),
                    "hint": lacking.error.hint(),
                })
            })
            .collect();
    }
    let _all_are_whole = (service, caller);
    Vec::new()
}

/// Of how many parts a grid of all members is made; `None` for one that is this server's alone.
fn parts_of(service: &Service, name: &str, grid: &PartitionGrid) -> Option<usize> {
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        return cluster.num_parts_of(name, grid.id());
    }
    let _nobody_else = (service, name, grid);
    None
}

fn summary(service: &Service, name: &str, grid: &PartitionGrid) -> Value {
    let mut localities: Vec<(&str, u64, u64)> = Vec::new();
    for tile in grid.tiles() {
        let (name, bytes) = (describe::locality(tile), tile.data().memory_bytes());
        match localities.iter_mut().find(|(known, _, _)| *known == name) {
            Some((_, num_tiles, sum)) => {
                *num_tiles += 1;
                *sum += bytes;
            }
            None => localities.push((name, 1, bytes)),
        }
    }
    let localities: Vec<Value> = localities
        .into_iter()
        .map(|(locality, tiles, bytes)| json!({ "locality": locality, "tiles": tiles, "bytes": bytes }))
        .collect();
    json!({
        "name": name,
        "id": grid.id().to_string(),
        "rows": grid.num_rows(),
        "columns": grid.num_columns(),
        "row_bands": grid.rows().num_intervals(),
        "column_bands": grid.columns().num_intervals(),
        "tiles": grid.tiles().len(),
        "bytes": grid.memory_bytes(),
        "durable": service.is_kept(grid),
        "parts": parts_of(service, name, grid),
        "localities": localities,
    })
}

/// A grid with its tiles.
pub(super) fn grid(name: &str, grid: &PartitionGrid) -> Value {
    let mut described = describe::grid(name, grid, MAX_TILES);
    let columns = grid.schema().fields().iter();
    let names: Vec<&str> = columns.map(|field| field.name().as_str()).collect();
    if let Some(object) = described.as_object_mut() {
        object.insert("column_names".to_owned(), json!(names));
    }
    described
}

fn queries(service: &Service, caller: &Caller) -> Vec<Value> {
    let runs = service.running.seen_by(caller).into_iter();
    runs.map(|run| {
        let figures = run.figures();
        let progress = figures.progress;
        let is_running = run.state() == State::Running;
        json!({
            "id": format!("{:x}", run.id),
            "caller": run.caller.as_ref(),
            "sql": run.text.as_ref(),
            "state": run.state().name(),
            "elapsed_seconds": run.elapsed().as_secs_f64(),
            "rows": run.num_rows.load(Ordering::Relaxed),
            "tiles_done": progress.num_tiles,
            "tiles_total": progress.total_tiles,
            "progress": if is_running { progress.fraction() } else { None },
            "memory_bytes": figures.peak_memory_bytes,
            "can_cancel": is_running,
        })
    })
    .collect()
}

fn jobs(service: &Service, caller: &Caller) -> Vec<Value> {
    let jobs = service.jobs.seen_by(caller).into_iter();
    jobs.map(|job| {
        let progress = job.progress(caller);
        let remaining = progress.remaining_millis.map(|millis| millis as f64 / 1e3);
        json!({
            "id": format!("{:x}", job.id),
            "caller": job.caller.name().as_ref(),
            "kind": "load",
            "name": job.name,
            "state": progress.state,
            "progress": share(&progress),
            "rows": progress.num_rows,
            "bytes": progress.num_bytes,
            "total_bytes": progress.total_bytes,
            "arranged_rows": progress.arranged_rows,
            "rows_to_arrange": progress.rows_to_arrange,
            "elapsed_seconds": progress.elapsed_millis as f64 / 1e3,
            "remaining_seconds": remaining,
            "message": progress.message,
            "request": job.request.as_ref(),
            "can_cancel": progress.state == "running",
        })
    })
    .collect()
}

/// How much of what a load does at the time is done: of reading, or of sorting and partitioning; nothing for what has no measure, as keeping the grid afterwards.
fn share(progress: &JobProgress) -> Option<f64> {
    let is_running = progress.state == "running";
    let is_arranging = is_running && progress.arranged_rows < progress.rows_to_arrange;
    let (done, all) = match is_arranging {
        true => (progress.arranged_rows, progress.rows_to_arrange),
        false => (progress.num_bytes, progress.total_bytes),
    };
    let is_measured = all > 0 && (!is_running || done < all);
    is_measured.then(|| (done as f64 / all as f64).min(1.0))
}

fn errors(service: &Service, caller: &Caller) -> Vec<Value> {
    // First what is wrong as long as it is, whatever else went wrong since.
    let standing = health::faults(service, caller).into_iter();
    let standing = standing.map(|told| (told, true));
    let recent = service.errors.seen_by(caller).into_iter();
    let told = standing.chain(recent.map(|told| (told, false)));
    told.map(|(told, is_standing)| {
        json!({
            "time": time(told.at),
            "request": told.request.as_ref(),
            "caller": told.caller.as_ref(),
            "kind": format!("{:?}", told.kind),
            "message": told.message,
            "standing": is_standing,
        })
    })
    .collect()
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

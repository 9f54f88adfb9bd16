//! Metrics in the text of OpenMetrics, which Prometheus reads.
//!
//! Comes in: the state of the server. Goes out: numbers with names, units and what they mean. No name of a grid or caller is a label: whoever may read metrics may not see all. Never here: counting.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use crate::error::{Error, Result};
use crate::serve::service::Service;
use crate::serve::watch::counts::Label;
use crate::serve::watch::health;
use crate::serve::watch::status::{grid_bytes, num_parts};
use crate::share::copied_bytes;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics at this moment.
///
/// # Errors
/// `Internal` when they cannot be written.
pub(super) fn text(service: &Service) -> Result<String> {
    let mut registry = Registry::with_prefix("partgrid");
    let running = &service.running;
    let mut gauge = |name: &str, help: &str, value: u64| {
        registry.register(name, help, ConstGauge::new(whole(value)));
    };
    gauge(
        "grids",
        "Grids and views under a name",
        service.session.tables().len() as u64,
    );
    gauge(
        "queries_running",
        "Queries that run at this moment",
        running.len() as u64,
    );
    gauge(
        "prepared_statements",
        "Prepared statements that clients keep",
        service.answers.statements.len(),
    );
    gauge(
        "tickets",
        "Answers that clients may fetch",
        service.answers.tickets.len(),
    );
    gauge(
        "loads_running",
        "Loads for clients that run at this moment",
        service.jobs.num_running() as u64,
    );
    gauge(
        "parts_held",
        "Parts of statements that this member of a cluster holds for all of them",
        num_parts(service),
    );
    memory(service, &mut registry);
    counters(service, &mut registry);
    labelled(service, &mut registry);
    times(service, &mut registry);
    catalog(service, &mut registry);
    let uptime = ConstGauge::new(service.begun.0.elapsed().as_secs_f64());
    registry.register_with_unit("uptime", "Since the server began", Unit::Seconds, uptime);
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|error| Error::internal("the metrics could not be written").with_source(error))?;
    Ok(text)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn memory(service: &Service, registry: &mut Registry) {
    for (name, help, value) in [
        (
            "grid_memory",
            "Memory of grids, each counted by itself",
            grid_bytes(service),
        ),
        (
            "copied_memory",
            "Copies of tiles that processes of this host have open, beside the memory of grids",
            copied_bytes(),
        ),
        (
            "query_memory",
            "Memory that queries use, as far as it is counted",
            service.session.memory_bytes() as u64,
        ),
        (
            "query_memory_limit",
            "Memory that queries may use",
            service.session.memory_limit_bytes() as u64,
        ),
        (
            "incoming_memory",
            "Memory of what clients send and that is no grid yet",
            service.held_bytes(),
        ),
        (
            "spilled",
            "Files that queries have spilled to",
            service.session.spilled_bytes() as u64,
        ),
        (
            "spill_limit",
            "Files that queries may spill to",
            service.session.spill_limit_bytes() as u64,
        ),
        (
            "resident_memory",
            "Memory of the process",
            crate::memory::resident_bytes().unwrap_or(0),
        ),
    ] {
        registry.register_with_unit(name, help, Unit::Bytes, ConstGauge::new(whole(value)));
    }
}

fn counters(service: &Service, registry: &mut Registry) {
    let running = &service.running;
    for (name, help, value) in [
        ("queries", "Queries that began", &running.num_begun),
        (
            "queries_failed",
            "Queries that failed, without those that were cancelled",
            &running.num_failed,
        ),
        (
            "rows_sent",
            "Rows that queries handed on",
            &running.num_rows,
        ),
    ] {
        let counter = ConstCounter::new(value.load(Ordering::Relaxed));
        registry.register(name, help, counter);
    }
    registry.register_with_unit(
        "uploaded",
        "Rows that clients sent, as they lie in memory, also of what became no grid",
        Unit::Bytes,
        service.uploaded_bytes.clone(),
    );
}

/// Numbers that one label tells apart.
fn labelled(service: &Service, registry: &mut Registry) {
    let connections = Family::<Label, Gauge>::default();
    for (port, door) in [
        ("flight", &service.flight_door),
        ("http", &service.http_door),
    ] {
        let free = door.available_permits();
        let open = service.limits.connections.saturating_sub(free);
        connections
            .get_or_create(&[("port", port)])
            .set(whole(open as u64));
    }
    registry.register("connections", "Connections that are open", connections);
    for (name, help, by) in [
        (
            "errors",
            "Errors that callers were told, and those of loads",
            &service.errors.by_kind,
        ),
        (
            "refused_logins",
            "Requests without a token that is good, by what was wrong with it",
            &service.refused,
        ),
        ("loads", "Loads for clients that have ended", &service.loads),
    ] {
        registry.register(name, help, by.family.clone());
    }
}

fn times(service: &Service, registry: &mut Registry) {
    registry.register_with_unit(
        "query_duration",
        "From the beginning of a query, waiting for its turn included, to its last row or to where it ended",
        Unit::Seconds,
        service.running.times.family.clone(),
    );
    registry.register_with_unit(
        "do_get_duration",
        "From a request of DoGet to the last byte of its answer, or to where it ended",
        Unit::Seconds,
        service.gets.0.clone(),
    );
}

/// The state of the catalog, where there is one.
fn catalog(service: &Service, registry: &mut Registry) {
    let (Some(catalog), Some(is_durable)) = (&service.catalog, health::is_durable(service)) else {
        return;
    };
    registry.register(
        "catalog_durable",
        "Whether the last write of the catalog succeeded: 1, or 0 from one that failed until one succeeds",
        ConstGauge::new(i64::from(is_durable)),
    );
    registry.register(
        "catalog_damaged_tables",
        "Tables of the catalog that are left out since they are damaged",
        ConstGauge::new(whole(health::num_damaged(service) as u64)),
    );
    registry.register(
        "catalog_write_failures",
        "Writes of the catalog that failed",
        ConstCounter::new(catalog.num_failed_writes()),
    );
}

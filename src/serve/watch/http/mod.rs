//! The HTTP port: the status page, what it asks for, metrics, health.
//!
//! Comes in: requests of browsers and of monitors. Goes out: the page (four files, nothing from outside), its data as JSON (`../status.rs`), Prometheus' text (`metrics.rs`). Every path but `/healthz`, `/readyz` and the
//! page's own files wants a token when the server does. Every answer has the name of its request (`x-request-id`): that of the client, or a random one. Never here: anything that changes a grid.

mod metrics;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::watch;

use super::health;
use super::status;
use crate::error::{Error, ErrorKind, Result};
use crate::flight::REQUEST;
use crate::serve::door::auth::Caller;
use crate::serve::door::call::{self, Call};
use crate::serve::door::listen::{Listening, Phase};
use crate::serve::service::Service;

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");
const TILES: &str = include_str!("page/tiles.js");

/// What the page may do in a browser: only what comes with it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A header that only the page sends: another site's form cannot.
const FROM_PAGE: &str = "x-partgrid";

/// Answers until the server stops.
pub(in crate::serve) async fn serve(
    service: Arc<Service>,
    listening: Listening,
    mut stopped: watch::Receiver<Phase>,
) {
    let stop = async move {
        // The sender is gone only when the server is.
        drop(stopped.wait_for(|phase| *phase == Phase::Ended).await);
    };
    let served = axum::serve(listening, routes(service)).with_graceful_shutdown(stop);
    if let Err(error) = served.await {
        tracing::error!(%error, "the status page ended");
    }
}

fn routes(service: Arc<Service>) -> Router {
    let guarded = Router::new()
        .route("/api/status", get(show_status))
        .route("/api/grids/{name}", get(show_grid))
        .route("/api/queries/{id}/cancel", post(cancel_query))
        .route("/api/jobs/{id}/cancel", post(cancel_job))
        .route("/metrics", get(show_metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&service), admit));
    let open = Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", PAGE)))
        .route("/style.css", get(|| file("text/css; charset=utf-8", STYLE)))
        .route(
            "/page.js",
            get(|| file("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route(
            "/tiles.js",
            get(|| file("text/javascript; charset=utf-8", TILES)),
        )
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready));
    guarded
        .merge(open)
        .fallback(|| async { failed(StatusCode::NOT_FOUND, "there is nothing here") })
        .layer(middleware::from_fn_with_state(Arc::clone(&service), safely))
        .with_state(service)
}

/// Whether new clients are taken in. It is ready without what the lines below say: of a member of a cluster how many members there are, how many are listed and do not take part, and whether there is no list to go by, or it does not name this one; with a catalog whether what is
/// acknowledged as durable lasts, and how many tables are left out.
async fn ready(State(service): State<Arc<Service>>) -> Response {
    if service.is_stopping.load(Ordering::Acquire) {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let mut text = "ready\n".to_owned();
    #[cfg(feature = "distributed")]
    if let Some(cluster) = service.cluster.get() {
        let (there, away) = (cluster.members().len(), cluster.away().len());
        text.push_str(&format!("members: {there}\naway: {away}\n"));
        if cluster.unread_list().is_some() {
            text.push_str("list: unread\n");
        } else if cluster.list_without_own().is_some() {
            text.push_str("list: without this server\n");
        }
    }
    text.push_str(&health::lines(&service));
    text.into_response()
}

async fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, text).into_response()
}

/// The name of a request, as [`Call`] has it.
#[derive(Clone)]
struct RequestName(Arc<str>);

/// Who asks, in a request of which name.
#[derive(Clone)]
struct Asking {
    caller: Caller,
    request: RequestName,
}

/// Refuses requests that a browser was talked into by another site; says what browsers may do with the answer, and the name of the request.
async fn safely(State(service): State<Arc<Service>>, mut request: Request, next: Next) -> Response {
    let said = request.headers().get(REQUEST);
    let name = call::request_name(said.and_then(|value| value.to_str().ok()));
    request
        .extensions_mut()
        .insert(RequestName(Arc::clone(&name)));
    let mut response = match stranger(&service, &request) {
        Some(why) => failed(StatusCode::FORBIDDEN, why),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(REQUEST, name);
    }
    response
}

/// Why a request does not come from whom it should. A server that lets everybody in takes requests only for the names of loopback: a name of somebody else may lead here as well.
fn stranger(service: &Service, request: &Request) -> Option<&'static str> {
    if !service.is_open() {
        return None;
    }
    let said = request.headers().get_all(header::HOST).iter();
    // A host that is no text is nobody's here.
    let said = said.map(|host| host.to_str().unwrap_or_default());
    let meant = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    let is_for_us = said.chain(meant).all(leads_here_alone);
    (!is_for_us).then_some("a server without tokens answers only to localhost and to addresses")
}

/// Whether a host, perhaps with a port, is named such that nobody else can have it lead here.
fn leads_here_alone(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            name
        } else {
            host
        }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Lets those in who have a token, where one is wanted.
async fn admit(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(name): axum::extract::Extension<RequestName>,
    mut request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    match service.admit(header.and_then(|value| value.to_str().ok())) {
        Ok(caller) => {
            let asking = Asking {
                caller,
                request: name,
            };
            request.extensions_mut().insert(asking);
            next.run(request).await
        }
        Err(why) => {
            let mut response = failed(StatusCode::UNAUTHORIZED, why);
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
            response
        }
    }
}

type Known = axum::extract::Extension<Asking>;

async fn show_status(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(asking): Known,
) -> Response {
    fresh(axum::Json(status::status(&service, &asking.caller)))
}

async fn show_grid(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(asking): Known,
    Path(name): Path<String>,
) -> Response {
    match service.grid(&asking.caller, &name) {
        Ok(grid) => fresh(axum::Json(status::grid(&name, &grid))),
        Err(error) => told(&service, asking, &error),
    }
}

async fn cancel_query(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(asking): Known,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    cancelled(&service, asking, &id, &headers, |caller, id| {
        service.running.cancel(caller, id)
    })
}

async fn cancel_job(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(asking): Known,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    cancelled(&service, asking, &id, &headers, |caller, id| {
        service.jobs.cancel(caller, id)
    })
}

/// Ends something of this number, for the page.
fn cancelled(
    service: &Service,
    asking: Asking,
    id: &str,
    headers: &HeaderMap,
    cancel: impl FnOnce(&Caller, u64) -> Result<()>,
) -> Response {
    if !headers.contains_key(FROM_PAGE) {
        return failed(StatusCode::FORBIDDEN, "the header X-Partgrid is needed");
    }
    let id = u64::from_str_radix(id, 16).unwrap_or(u64::MAX);
    match cancel(&asking.caller, id) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => told(service, asking, &error),
    }
}

async fn show_metrics(
    State(service): State<Arc<Service>>,
    axum::extract::Extension(asking): Known,
) -> Response {
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    match metrics::text(&service) {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => told(&service, asking, &error),
    }
}

fn fresh(answer: impl IntoResponse) -> Response {
    let never = HeaderValue::from_static("no-store");
    ([(header::CACHE_CONTROL, never)], answer).into_response()
}

fn told(service: &Service, asking: Asking, error: &Error) -> Response {
    let Asking { caller, request } = asking;
    let errors = Arc::clone(&service.errors);
    let call = Call::new(caller, Some(&request.0), None, errors);
    let code = match error.kind() {
        ErrorKind::NotFound | ErrorKind::Query => StatusCode::NOT_FOUND,
        ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    tracing::info!(request = %call.request, caller = %call.caller.name(), kind = ?error.kind(), %error, "failed");
    failed(code, &call::told(&call.caller, &call.request, error))
}

fn failed(code: StatusCode, why: &str) -> Response {
    (code, axum::Json(json!({ "error": why }))).into_response()
}

//! The door of the service that runs parts of plans.
//!
//! Comes in: a request of gRPC. Goes out: its answer, if whoever asks may come in, made on the threads that run queries, not on those that speak with clients; but those say who is there, however busy the others are. Never here: what is asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::cluster::spread::stops::Stops;

/// The method by which a coordinator sends a part, and stays for as long as its statement.
const CHANNEL: &str = "/CoordinatorChannel";

/// The method that asks whether anybody is there.
const KNOCK: &str = "/GetWorkerInfo";

/// Says whether whoever shows this header may send parts of plans, or what to tell them.
pub(crate) type Admit = Arc<dyn Fn(Option<&str>) -> Result<(), Status> + Send + Sync>;

type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// A service that a server of gRPC takes.
pub(crate) trait GrpcService:
    Service<Request, Response = Response, Error = Infallible, Future: Send + 'static>
    + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> GrpcService for S where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send + 'static>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// A service behind the door.
#[derive(Clone)]
pub(in crate::cluster) struct Guarded<S> {
    pub(in crate::cluster) inner: S,
    pub(in crate::cluster) admit: Admit,
    pub(in crate::cluster) work: Handle,
    pub(in crate::cluster) stops: Stops,
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request> for Guarded<S>
where
    S: GrpcService,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let shown = request.headers().get(http::header::AUTHORIZATION);
        let shown = shown.and_then(|value| value.to_str().ok());
        if let Err(status) = (self.admit)(shown) {
            return std::future::ready(Ok(status.into_http())).boxed();
        }
        let mut inner = self.inner.clone();
        if request.uri().path().ends_with(KNOCK) {
            return inner.call(request).boxed();
        }
        let request = match request.uri().path().ends_with(CHANNEL) {
            true => self.stops.watched(request),
            false => request,
        };
        let answering = self.work.spawn(async move { inner.call(request).await });
        let answered = async move {
            Ok(match answering.await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => Status::new(Code::Internal, "the server could not answer").into_http(),
            })
        };
        answered.boxed()
    }
}

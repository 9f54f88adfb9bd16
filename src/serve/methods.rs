//! The methods of Arrow Flight, as gRPC knows them.
//!
//! Comes in: a request. Goes out: what `flight.rs` does with it. Never here: anything that is done.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult,
    Ticket,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::{Request, Status, Streaming};

use super::flight::{Flight, Outcome};

// Written out, and not by the attribute `async_trait`: in each method that this makes, what may be assumed has a lifetime of its own, so that the compiler proves anew that all the state of a server may go from thread to thread. That was most of the time that it took to check the crate.
impl FlightService for Flight {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type DoActionStream = BoxStream<'static, Result<ActionResult, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;

    fn handshake<'a, 'w>(
        &'a self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> BoxFuture<'w, Outcome<Self::HandshakeStream>>
    where
        'a: 'w,
    {
        self.shaken(request)
    }

    fn list_flights<'a, 'w>(
        &'a self,
        request: Request<Criteria>,
    ) -> BoxFuture<'w, Outcome<Self::ListFlightsStream>>
    where
        'a: 'w,
    {
        self.listed(request)
    }

    fn get_flight_info<'a, 'w>(
        &'a self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'w, Outcome<FlightInfo>>
    where
        'a: 'w,
    {
        self.described(request)
    }

    fn poll_flight_info<'a, 'w>(
        &'a self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'w, Outcome<PollInfo>>
    where
        'a: 'w,
    {
        self.polled(request)
    }

    fn get_schema<'a, 'w>(
        &'a self,
        request: Request<FlightDescriptor>,
    ) -> BoxFuture<'w, Outcome<SchemaResult>>
    where
        'a: 'w,
    {
        self.schema(request)
    }

    fn do_get<'a, 'w>(
        &'a self,
        request: Request<Ticket>,
    ) -> BoxFuture<'w, Outcome<Self::DoGetStream>>
    where
        'a: 'w,
    {
        self.got(request)
    }

    fn do_put<'a, 'w>(
        &'a self,
        request: Request<Streaming<FlightData>>,
    ) -> BoxFuture<'w, Outcome<Self::DoPutStream>>
    where
        'a: 'w,
    {
        self.taken(request)
    }

    fn do_exchange<'a, 'w>(
        &'a self,
        request: Request<Streaming<FlightData>>,
    ) -> BoxFuture<'w, Outcome<Self::DoExchangeStream>>
    where
        'a: 'w,
    {
        self.exchanged(request)
    }

    fn do_action<'a, 'w>(
        &'a self,
        request: Request<Action>,
    ) -> BoxFuture<'w, Outcome<Self::DoActionStream>>
    where
        'a: 'w,
    {
        self.done(request)
    }

    fn list_actions<'a, 'w>(
        &'a self,
        request: Request<Empty>,
    ) -> BoxFuture<'w, Outcome<Self::ListActionsStream>>
    where
        'a: 'w,
    {
        self.actions(request)
    }
}

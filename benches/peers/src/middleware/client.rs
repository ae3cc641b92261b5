use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{Extensions, Request, Response};
use tower::Service;

use crate::decision::address;

/// Sends requests to a service and waits for none of them.
pub trait Client {
    /// Whether it takes a request now.
    fn is_ready(&mut self) -> bool;

    /// The status of the answer to the client of this number.
    fn send(&mut self, client: u32) -> u16;
}

/// A service whose future is ready when it is polled first, with how its requests are made.
pub struct Direct<S, B> {
    pub service: S,
    pub body: fn() -> B,
    /// Marks a request as a client's.
    pub mark: fn(&mut Extensions, u32),
}

impl<S, B, R> Direct<S, B>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    #[inline]
    pub fn answer(&mut self, client: u32) -> Response<R> {
        let mut request = Request::new((self.body)());
        (self.mark)(request.extensions_mut(), client);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(self.service.poll_ready(&mut cx).is_ready(), "busy");
        let future = pin!(self.service.call(request));
        match future.poll(&mut cx) {
            Poll::Ready(Ok(response)) => response,
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => panic!("the answer is not there at once"),
        }
    }
}

impl<S, B, R> Client for Direct<S, B>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    fn is_ready(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.service.poll_ready(&mut cx).is_ready()
    }

    #[inline(never)]
    fn send(&mut self, client: u32) -> u16 {
        self.answer(client).status().as_u16()
    }
}

pub fn connect_info(extensions: &mut Extensions, client: u32) {
    extensions.insert(axum::extract::ConnectInfo(peer(client)));
}

pub fn connect_info_07(extensions: &mut Extensions, client: u32) {
    extensions.insert(axum07::extract::ConnectInfo(peer(client)));
}

fn peer(client: u32) -> SocketAddr {
    (address(client), 4_000).into()
}

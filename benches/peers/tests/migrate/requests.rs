//! Requests, and the answers to them.

use std::{
    future::Future,
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
};
use http::{HeaderMap, Request, request::Builder};
use tower::ServiceExt as _;
use tower_ratelimit::{LocalLimiter, Quota, clock::ManualClock};

pub(crate) const ALICE: &str = "192.0.2.1:4000";
pub(crate) const BOB: &str = "192.0.2.2:4000";

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn seconds(&self, name: &str) -> u64 {
        self.field(name).unwrap().parse().unwrap()
    }
}

/// A request for `/` from this address and port.
pub(crate) fn from(peer: &str) -> Builder {
    let peer: SocketAddr = peer.parse().unwrap();
    Request::get("/").extension(ConnectInfo(peer))
}

pub(crate) fn send(app: &Router, request: Builder) -> Answer {
    let request = request.body(Body::empty()).unwrap();
    let Ok(response) = at_once(app.clone().oneshot(request));
    let (parts, body) = response.into_parts();
    let body = at_once(to_bytes(body, usize::MAX)).unwrap();
    Answer {
        status: parts.status.as_u16(),
        fields: parts.headers,
        body: String::from_utf8(body.into()).unwrap(),
    }
}

/// The statuses of the answers to `count` requests like this.
pub(crate) fn statuses(app: &Router, count: usize, request: impl Fn() -> Builder) -> Vec<u16> {
    (0..count).map(|_| send(app, request()).status).collect()
}

/// How many of `count` requests like this passed; the others were denied.
pub(crate) fn passed(app: &Router, count: usize, request: impl Fn() -> Builder) -> usize {
    let statuses = statuses(app, count, request);
    assert!(statuses.iter().all(|status| [200, 429].contains(status)));
    statuses.iter().filter(|status| **status == 200).count()
}

/// The first denial, after however many requests passed.
pub(crate) fn denial(app: &Router, request: impl Fn() -> Builder) -> Answer {
    let mut answers = (0..10_000).map(|_| send(app, request()));
    answers.find(|answer| answer.status == 429).unwrap()
}

/// A limiter whose time stands still.
pub(crate) fn still(quota: Quota) -> LocalLimiter {
    let limiter = LocalLimiter::builder(quota).clock(ManualClock::new());
    limiter.build().unwrap()
}

/// No answer waits for anything.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the answer is not there at once"),
    }
}

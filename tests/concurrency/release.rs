//! When a permit comes back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use testkit::{Probe, field, get, limiter, now, send};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::{
    ConcurrencyLayer, Global, Key, Quota, RateLimitLayer, concurrency::ConcurrencyBody,
    observe::Event,
};

use super::{at_most, held, in_flight, text};

/// A body of so many frames, which may end with an error, and which reports its end only there.
struct Chunks {
    left: usize,
    fails: bool,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.left > 0 {
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"chunk")))));
        }
        Poll::Ready(self.fails.then_some(Err("the disk is gone")))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5 * self.left as u64)
    }
}

/// The body of a response whose body is `Chunks`, and the layer that counts it.
fn streaming(left: usize, fails: bool) -> (ConcurrencyLayer, ConcurrencyBody<Chunks>) {
    let layer = at_most(1);
    let service = layer
        .clone()
        .rejection_fn(|_| -> Response<Chunks> { unreachable!("there is a permit") })
        .layer(service_fn(move |_: Request<String>| {
            std::future::ready(Ok::<_, ()>(Response::new(Chunks { left, fails })))
        }));
    let body = held(&service).into_body();
    (layer, body)
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_permit_comes_back_at_the_end_of_the_body() {
    let (layer, mut body) = streaming(2, false);
    for _ in 0..2 {
        assert!(now(body.frame()).unwrap().is_ok());
        assert_eq!(in_flight(&layer), 1);
    }
    assert!(now(body.frame()).is_none());
    assert_eq!(in_flight(&layer), 0);
    drop(body);
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_with_the_last_frame_of_a_body_that_knows_it_is_the_last() {
    let layer = at_most(1);
    let mut body = held(&layer.layer(Probe::default())).into_body();
    assert_eq!(in_flight(&layer), 1);
    assert!(now(body.frame()).unwrap().is_ok());
    assert!(body.is_end_stream());
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_when_the_body_fails() {
    let (layer, mut body) = streaming(1, true);
    assert!(now(body.frame()).unwrap().is_ok());
    assert_eq!(
        now(body.frame()).unwrap().map(|_| ()),
        Err("the disk is gone")
    );
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_when_the_body_is_dropped_midway() {
    let (layer, mut body) = streaming(2, false);
    assert!(now(body.frame()).unwrap().is_ok());
    drop(body);
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_body_that_is_over_from_the_start_holds_nothing() {
    let layer = at_most(1);
    let empty = service_fn(async |_: Request<String>| Ok::<_, ()>(Response::new(String::new())));
    let response = held(&layer.layer(empty));
    assert_eq!(in_flight(&layer), 0);
    drop(response);
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn the_body_reports_its_length_and_its_end() {
    let (_layer, body) = streaming(2, false);
    assert_eq!(body.size_hint().exact(), Some(10));
    assert!(!body.is_end_stream());
    assert_eq!(body.get_ref().left, 2);
}

#[test]
fn a_permit_comes_back_when_the_future_is_dropped_before_it_is_polled() {
    let layer = at_most(1);
    let mut service = layer.layer(Probe::default());
    let future = now(ServiceExt::<Request<()>>::ready(&mut service)).unwrap();
    let future = future.call(Request::new(()));
    assert_eq!(in_flight(&layer), 1);
    drop(future);
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_when_the_future_is_dropped_while_the_service_works() {
    let layer = at_most(1);
    let stuck = service_fn(|_: Request<()>| std::future::pending::<Result<Response<String>, ()>>());
    let mut future = Box::pin(layer.layer(stuck).oneshot(Request::new(())));
    assert!(poll_once(future.as_mut()).is_pending());
    assert_eq!(in_flight(&layer), 1);
    drop(future);
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_with_the_service_s_error_which_passes_as_it_is() {
    #[derive(Debug, PartialEq)]
    struct Odd(u32);
    let layer = at_most(1);
    let failing = service_fn(async |_: Request<()>| Err::<Response<String>, _>(Odd(7)));
    let mut future = pin!(layer.layer(failing).oneshot(Request::new(())));
    let Poll::Ready(answer) = poll_once(future.as_mut()) else {
        panic!("it waits")
    };
    assert_eq!(answer.unwrap_err(), Odd(7));
    // The future is still there.
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_when_the_service_panics() {
    let layer = at_most(1);
    type Answer = Result<Response<String>, ()>;
    let in_call =
        service_fn(|_: Request<String>| -> std::future::Ready<Answer> { panic!("in call") });
    let in_future = service_fn(async |_: Request<String>| -> Answer { panic!("in the future") });
    let calls = layer.layer(in_call);
    let polls = layer.layer(in_future);
    assert!(catch_unwind(AssertUnwindSafe(|| send(&calls, get("/")))).is_err());
    assert_eq!(in_flight(&layer), 0);
    assert!(catch_unwind(AssertUnwindSafe(|| send(&polls, get("/")))).is_err());
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn a_permit_comes_back_when_the_observer_panics() {
    let layer = at_most(1).observer(|_: &Event<'_>| panic!("in the observer"));
    let service = layer.layer(Probe::default());
    assert!(catch_unwind(AssertUnwindSafe(|| send(&service, get("/")))).is_err());
    assert_eq!(in_flight(&layer), 0);
}

#[test]
fn what_the_rate_denies_gives_its_permit_back_and_what_is_denied_here_is_not_charged() {
    let (quota, _) = limiter(Quota::per_hour(2));
    let layer = at_most(1);
    let rate = RateLimitLayer::new(quota.clone(), Global);
    let service = layer.layer(rate.layer(Probe::default()));
    let first = held(&service);
    assert_eq!(send(&service, get("/")).status(), 429);
    assert_eq!(quota.peek(&Key::global(), 1).remaining(), Some(1));
    drop(first);
    drop(held(&service));

    let denied = send(&service, get("/"));
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("1800"));
    assert!(text(denied).contains(r#""violated-policies":["default"]"#));
    assert_eq!(in_flight(&layer), 0);
}

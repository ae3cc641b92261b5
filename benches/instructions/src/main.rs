//! Programs that `scripts/check-instructions.sh` runs under callgrind: a thousand requests, or decisions, of
//! the kind that its argument names. Without one it runs all kinds, and reports nothing.

#[cfg(feature = "rules")]
mod by_rules;
#[cfg(feature = "leased")]
mod leased;
#[cfg(feature = "rules")]
mod llm_usage_reader;
#[cfg(feature = "client")]
mod outgoing;
mod several_limits;

use std::{
    convert::Infallible,
    env,
    hint::black_box,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::{Request, Response};
use tower::{Service, layer::layer_fn};
use tower_ratelimit::{
    Headers, Key, LocalLimiter, LocalStore, PeerIp, Priority, Quota, RateLimitLayer,
    clock::{Clock, ManualClock, OsClock, Timestamp},
    observe::{Event, Observer, TopKeys},
    quota::TimeOfDay,
};

/// Requests, each from an address of its own.
const COUNT: u16 = 1_000;

/// The limit of a service, and one that denies all but the first request.
const USUAL: Quota = Quota::per_second(100_000).burst(1_000);
const USED_UP: Quota = Quota::per_day(1);

/// Numbers that change as time passes, and numbers of more than three digits.
const WINDOW: Quota = Quota::per_minute(100).fixed_window();
#[cfg(feature = "calendar")]
const MONTH: Quota = Quota::per_month(100).in_zone("Europe/Berlin");
const LARGE: Quota = Quota::per_hour(1_000_000);

type Kind = (&'static str, fn());

const KINDS: &[Kind] = &[
    ("decision", || decisions(USUAL)),
    ("decision-os-clock", decisions_by_the_os_clock),
    ("decision-denied", || decisions(USED_UP)),
    ("decision-window", || decisions(WINDOW)),
    #[cfg(feature = "calendar")]
    ("decision-month", || decisions(MONTH)),
    ("decision-varying", decisions_while_a_limit_rises),
    ("decision-stored", || decisions_of(&stored(USUAL))),
    ("decision-two", || {
        decisions_of(&several_limits::two_quotas())
    }),
    ("decision-together", several_limits::together),
    ("decision-sixteen", several_limits::sixteen),
    ("log-denied", denied_by_a_long_log),
    ("log-crowded", admitted_to_crowded_logs),
    ("no-op", || requests(app().layer(layer_fn(NoOp)))),
    ("plain", || requests(app().layer(plain()))),
    ("plain-priority", || {
        requests(app().layer(plain().priority(|_| SHARE)))
    }),
    ("plain-stored", || requests(app().layer(plain_stored()))),
    ("plain-two", || {
        requests(app().layer(several_limits::plain_two()))
    }),
    ("default-two", || {
        requests(app().layer(several_limits::default_two()));
    }),
    ("default", || limited(USUAL)),
    ("default-window", || limited(WINDOW)),
    ("default-large", || limited(LARGE)),
    ("denied", || limited(USED_UP)),
    ("denied-minute", || {
        denied_for_seconds(Quota::per_minute(1), Duration::from_millis(59))
    }),
    ("denied-day", || {
        denied_for_seconds(USED_UP, Duration::from_secs(86))
    }),
    ("denied-heard", || denied_to(|_: &Event<'_>| {})),
    ("denied-top", || denied_to(TopKeys::new())),
    #[cfg(feature = "client")]
    ("client-bare", outgoing::bare),
    #[cfg(feature = "client")]
    ("client", outgoing::paced),
    #[cfg(feature = "client")]
    ("client-reporting", outgoing::reporting),
    #[cfg(feature = "leased")]
    ("decision-hot", leased::local),
    #[cfg(feature = "leased")]
    ("decision-leased", leased::leased),
    #[cfg(feature = "several")]
    ("plain-all", || {
        requests(app().layer(several_limits::plain_all()))
    }),
    #[cfg(feature = "several")]
    ("default-all", || {
        requests(app().layer(several_limits::all()))
    }),
    #[cfg(feature = "rules")]
    ("rules", || by_rules::paths(20)),
    #[cfg(feature = "rules")]
    ("rules-thousand", || by_rules::paths(1_000)),
    #[cfg(feature = "rules")]
    ("rules-matched", || by_rules::headers(1_000)),
    #[cfg(feature = "rules")]
    ("rules-together", by_rules::together),
    #[cfg(feature = "rules")]
    ("rules-holding", by_rules::holding),
    #[cfg(feature = "rules")]
    ("rules-in-flight", by_rules::in_flight),
    #[cfg(feature = "rules")]
    ("spend-event", llm_usage_reader::events),
];

fn main() {
    let named = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let_the_clock_begin();
    for &(name, run) in KINDS {
        if named.as_ref().is_none_or(|named| named == name) {
            run();
        }
    }
}

/// Reads the clock until it has seen the CPU's counter keep its rate, so that no row counts reads before.
fn let_the_clock_begin() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(120) {
        black_box(OsClock::new().now());
    }
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn plain() -> RateLimitLayer {
    RateLimitLayer::new(USUAL, PeerIp).headers(Headers::none())
}

/// A class of requests that always fit.
const SHARE: Priority = Priority::share(80).expect("a share from 1 to 100");

fn plain_stored() -> RateLimitLayer {
    RateLimitLayer::new(stored(USUAL), PeerIp).headers(Headers::none())
}

fn limited(quota: Quota) {
    requests(app().layer(RateLimitLayer::new(quota, PeerIp)));
}

/// Denials of clients that used up a quota of one unit some time `apart`: each waits another number of
/// seconds than the client before.
fn denied_for_seconds(quota: Quota, apart: Duration) {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(quota).clock(clock.clone()).build();
    let limiter = limiter.expect("a good quota");
    let layer = RateLimitLayer::new(limiter, PeerIp);
    let mut app = app().layer(layer).with_state::<()>(());
    for number in 0..COUNT {
        send(&mut app, number);
        clock.advance(apart);
    }
    let numbers = || (0..COUNT).map(|number| number * 17 % COUNT);
    numbers().for_each(|number| send(&mut app, number));
    counted(|| numbers().for_each(|number| send(&mut app, number)));
}

fn denied_to(observer: impl Observer) {
    let layer = RateLimitLayer::new(USED_UP, PeerIp).observer(observer);
    requests(app().layer(layer));
}

fn address(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0A00_0000 + u32::from(number))
}

fn decisions(quota: Quota) {
    decisions_of(&LocalLimiter::new(quota));
}

/// By the operating system's clock alone, which the limiter reads where there is no counter.
fn decisions_by_the_os_clock() {
    struct Monotonic(Timestamp, Instant);

    impl Clock for Monotonic {
        fn now(&self) -> Timestamp {
            self.0.saturating_add(self.1.elapsed())
        }
    }

    let clock = Monotonic(OsClock::new().now(), Instant::now());
    let limiter = LocalLimiter::builder(USUAL).clock(clock).build();
    decisions_of(&limiter.expect("a good quota"));
}

/// In the ten minutes in which both limits count.
fn decisions_while_a_limit_rises() {
    const QUOTA: Quota = Quota::per(100, Duration::from_secs(600))
        .sliding_window()
        .varying(&[(TimeOfDay::MIDNIGHT, 50), (TimeOfDay::at(8, 0), 100)]);
    let clock = ManualClock::at(Timestamp::from_secs(8 * 3_600 + 300));
    let limiter = LocalLimiter::builder(QUOTA).clock(clock).build();
    decisions_of(&limiter.expect("a good quota"));
}

fn stored(quota: Quota) -> LocalLimiter {
    let limiter = LocalLimiter::builder(quota).build_in(&LocalStore::new());
    limiter.expect("a good quota")
}

fn decisions_of(limiter: &LocalLimiter) {
    let keys: Vec<_> = (0..COUNT)
        .map(|number| Key::from(IpAddr::from(address(number))))
        .collect();
    // The first time a key is put into the table, and a quota that is used up is used up.
    for key in &keys {
        let _ = limiter.acquire(key, 1);
    }
    counted(|| {
        for key in &keys {
            black_box(limiter.acquire(black_box(key), 1).is_allowed());
        }
    });
}

const MICROSECOND: Duration = Duration::from_micros(1);

/// The longest possible log, whose units have left the window except one, and a cost that does not
/// fit: units that have left must not be walked through each time.
fn denied_by_a_long_log() {
    let (clock, longest) = (ManualClock::new(), 65_536);
    let limiter = LocalLimiter::builder(Quota::per_day(longest).sliding_log());
    let limiter = limiter.max_keys(16).clock(clock.clone()).build();
    let limiter = limiter.expect("a good quota");
    let key = Key::from("alice");
    for _ in 0..longest {
        clock.advance(MICROSECOND);
        assert!(limiter.acquire(&key, 1).is_allowed());
    }
    clock.advance(Duration::from_secs(86_400) - MICROSECOND);
    counted(|| {
        for _ in 0..COUNT {
            black_box(limiter.acquire(black_box(&key), longest).is_denied());
        }
    });
}

/// Requests that are noted while all logs hold as much as they may, each in a log of its own: what
/// makes room must not walk through the table.
fn admitted_to_crowded_logs() {
    let clock = ManualClock::new();
    let limiter = LocalLimiter::builder(Quota::per_day(2).sliding_log());
    let limiter = limiter.max_log_times(10_000).clock(clock.clone()).build();
    let limiter = limiter.expect("a good quota");
    for number in 0..20_000_u64 {
        assert!(limiter.acquire(&Key::from(number), 2).is_allowed());
    }
    let others: Vec<_> = (0..COUNT)
        .map(|number| Key::from(u64::MAX - u64::from(number)))
        .collect();
    counted(|| {
        for key in &others {
            black_box(limiter.acquire(black_box(key), 1).is_allowed());
        }
    });
}

/// `with_state` is what a server does before it starts: without it axum would make every route's
/// service anew for each request.
fn requests(app: Router) {
    let mut app = app.with_state::<()>(());
    for number in 0..COUNT {
        send(&mut app, number);
    }
    counted(|| {
        for number in 0..COUNT {
            send(&mut app, number);
        }
    });
}

fn send(app: &mut Router, number: u16) {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from((address(number), 4_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Service::<Request<Body>>::poll_ready(app, &mut cx).is_ready());
    let response = pin!(app.call(request)).poll(&mut cx);
    assert!(response.is_ready(), "the answer is not there at once");
}

/// Callgrind counts from here on, and no longer than here.
#[inline(never)]
fn counted(work: impl FnOnce()) {
    work();
}

/// A layer's service that does nothing: what any layer costs.
#[derive(Clone)]
struct NoOp<S>(S);

impl<S, B> Service<Request<B>> for NoOp<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.0.call(request)
    }
}

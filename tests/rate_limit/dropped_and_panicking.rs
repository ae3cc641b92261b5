//! Requests that are cut short: their future is dropped at each await, or code of the user panics, in each layer.
//!
//! Fakes name each place where they wait or are called. A case lists them in the order of a request that is left
//! alone, so it is the inventory of its layer, and a new await or call fails it. Each place has what is left of the
//! limit, which following requests show, if a request is dropped there (`drops`) or panics there (`panics`), and the
//! events before.
//!
//! Elsewhere: permits and charges in Redis (`tests/redis/rules_in_flight.rs`, `tests/redis/leases/lifetimes.rs`,
//! `tests/redis/faults/cancelled.rs`), parts of a stream (`tests/spend/streams.rs`, `tests/spend/unfinished.rs`).

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker, ready},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request, response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use testkit::Probe;
use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};
use tower_ratelimit::{
    Concurrency, ConcurrencyLayer, Decision, Global, Key, KeyExtractor, Limiter, LimiterError,
    LocalLimiter, LocalStore, PeerIp, Priority, Quota, RateLimitLayer,
    clock::{Clock, ManualClock, Timestamp, TokioClock},
    decision::Policy,
    limiter::{Call, Facts, Pending, Tier},
    observe::Event,
    rate_limit::{Exhausted, settled},
    reject::{Reject, Rejection},
    rules::{Format, HoldingRulesLayer, Rules, RulesLayer},
    spend::{Declared, SpendReader, SpendReaders, Tokens},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Boxed<E> = UnsyncBoxBody<Bytes, E>;
type Outer = BoxCloneService<Request<()>, Response<Boxed<BoxError>>, Infallible>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where a request is, and where it panics.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Scene>>);

#[derive(Default)]
struct Scene {
    /// The places that were met, with a number from the second time on.
    met: Vec<String>,
    /// The places where something waits.
    at: Vec<String>,
    panics_at: Option<String>,
    /// Whether each place that is met while a panic unwinds panics, too.
    panics_again: bool,
    events: String,
}

impl Scene {
    /// The name of a place that is met now.
    fn next(&self, place: &str) -> String {
        let is_place = |met: &&String| met.split('#').next() == Some(place);
        match self.met.iter().filter(is_place).count() {
            0 => place.to_owned(),
            times => format!("{place}#{}", times + 1),
        }
    }
}

impl Stage {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.0.lock().expect("no panic while it is locked")
    }

    /// Panics when this place is met the next time.
    fn panic_next(&self, place: &str) {
        let mut scene = self.scene();
        let at = scene.next(place);
        scene.panics_at = Some(at);
    }

    /// Meets a place, and panics if it is the one.
    fn meet(&self, place: &str) -> String {
        let mut scene = self.scene();
        let place = scene.next(place);
        scene.met.push(place.clone());
        let panics = scene.panics_at.take_if(|at| *at == place).is_some();
        let panics = panics || scene.panics_again && thread::panicking();
        drop(scene);
        assert!(!panics, "at {place}");
        place
    }

    /// Waits at a place for one poll.
    fn poll(&self, place: &str, waits: &mut bool, cx: &Context<'_>) -> Poll<()> {
        if mem::replace(waits, false) {
            self.scene()
                .at
                .retain(|at| at.split('#').next() != Some(place));
            return Poll::Ready(());
        }
        let met = self.meet(place);
        self.scene().at.push(met);
        *waits = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    async fn pause(&self, place: &str) {
        let mut waits = false;
        poll_fn(|cx| self.poll(place, &mut waits, cx)).await;
    }

    /// Where a request waits: with the fakes, or else in the layer.
    fn place(&self, ended: bool) -> String {
        let at = mem::take(&mut self.scene().at);
        match (at.is_empty(), ended) {
            (_, true) => "end".to_owned(),
            (true, false) => "layer".to_owned(),
            (false, false) => at.join(" + "),
        }
    }

    /// An observer that notes the first letter of each event, and S for what a response has spent.
    fn observer(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static + use<> {
        let stage = self.clone();
        move |event| {
            let name = format!("{event:?}");
            let name = name.split(['(', ' ']).next().unwrap_or_default();
            stage.meet(name);
            let is_spent = matches!(event, Event::Corrected(own) if own.source().is_some());
            let letter = if is_spent { "S" } else { &name[..1] };
            stage.scene().events.push_str(letter);
        }
    }

    fn key(&self) -> impl KeyExtractor + use<> {
        let stage = self.clone();
        move |_: &request::Parts| {
            stage.meet("key");
            Key::global()
        }
    }

    /// A closure that meets a place and returns this.
    fn returns<A: ?Sized, T: Clone + Send + Sync + 'static>(
        &self,
        place: &'static str,
        value: T,
    ) -> impl Fn(&A) -> T + Send + Sync + 'static + use<A, T> {
        let stage = self.clone();
        move |_| {
            stage.meet(place);
            value.clone()
        }
    }

    fn rejection(
        &self,
    ) -> impl Fn(&Rejection<'_>) -> Response<Boxed<Infallible>> + Send + Sync + 'static + use<>
    {
        let stage = self.clone();
        move |rejection| {
            stage.meet("rejection");
            let response = Response::builder().status(rejection.status());
            response.body(Boxed::default()).unwrap()
        }
    }
}

/// A service that is ready late, responds late, and whose frames come late: a token, trailers and the end. The status
/// is 204 for `/free`.
#[derive(Default)]
struct Inner(Stage, bool);

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self(self.0.clone(), false)
    }
}

impl Service<Request<()>> for Inner {
    type Response = Response<Boxed<Infallible>>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll("readiness", &mut self.1, cx).map(Ok)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.0.meet("service called");
        let stage = self.0.clone();
        Box::pin(async move {
            stage.pause("service").await;
            let status = if request.uri() == "/free" { 204 } else { 200 };
            let frames = Frames(stage, 3, false).boxed_unsync();
            Ok(Response::builder().status(status).body(frames).unwrap())
        })
    }
}

struct Frames(Stage, usize, bool);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self(stage, left, waits) = &mut *self;
        ready!(stage.poll("body", waits, cx));
        *left = left.saturating_sub(1);
        Poll::Ready(match left {
            2 => Some(Ok(Frame::data(Bytes::from_static(b"token")))),
            1 => Some(Ok(Frame::trailers(HeaderMap::new()))),
            _ => None,
        })
    }
}

/// A clock that stands still.
struct StagedClock(Stage);

impl Clock for StagedClock {
    fn now(&self) -> Timestamp {
        self.0.meet("clock");
        Timestamp::from_secs(1_767_225_600)
    }
}

/// A limiter that answers later.
struct Staged(Stage, LocalLimiter);

impl Limiter for Staged {
    type Future = BoxFuture<Result<Decision, LimiterError>>;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let charge = call.one().unwrap().to_owned();
        let name = format!("{:?}", charge.op).to_lowercase();
        let name = name.split('(').next().unwrap_or_default().to_owned();
        self.0.meet(&format!("{name} called"));
        let (stage, limiter) = (self.0.clone(), self.1.clone());
        Pending::Later(Box::pin(async move {
            stage.pause(&name).await;
            let answer = limiter.call(&Call::of(&[charge.as_ref()])).await;
            stage.pause(&format!("{name} done")).await;
            answer
        }))
    }

    fn policies(&self) -> &[Policy] {
        self.1.policies()
    }

    fn facts(&self) -> Facts {
        self.1.facts()
    }
}

/// Reads a token in each frame.
struct Reader(Stage);

impl SpendReaders for Reader {
    type Reader = Self;

    fn reader(&self, _: &response::Parts, _: &mut Tokens) -> Option<Self> {
        self.0.meet("reader");
        Some(Self(self.0.clone()))
    }

    fn max_output(&self, _: &Declared, _: &request::Parts) -> Option<u64> {
        self.0.meet("max_output");
        None
    }
}

impl SpendReader for Reader {
    fn data(&mut self, _: &[u8], tokens: &mut Tokens) {
        self.0.meet("data");
        tokens.output += 1;
    }

    fn trailers(&mut self, _: &HeaderMap, _: &mut Tokens) {
        self.0.meet("trailers");
    }

    fn end(&mut self, _: &mut Tokens) {
        self.0.meet("end");
    }

    fn has_recognised(&self) -> bool {
        self.0.meet("has_recognised");
        true
    }
}

/// A layer around a service, and how many of its requests are in flight.
struct World(Outer, Box<dyn Fn() -> u64>);

impl World {
    fn holding(self, in_flight: impl Fn() -> u64 + 'static) -> Self {
        Self(self.0, Box::new(in_flight))
    }
}

fn world<L, B>(layer: &L, stage: &Stage) -> World
where
    L: Layer<Inner>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let service = layer.layer(Inner(stage.clone(), false));
    let boxed =
        |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
    World(
        BoxCloneService::new(service.map_response(boxed)),
        Box::new(|| 0),
    )
}

/// Sends a request and reads its response to the end. Returns the status.
async fn exchange(mut outer: Outer, stage: Stage, path: &'static str) -> u16 {
    let request = Request::get(path).extension(Declared::default());
    let request = request.extension(SocketAddr::from(([192, 0, 2, 1], 80)));
    let request = request.body(()).unwrap();
    let response = outer.ready().await.unwrap().call(request);
    stage.pause("unpolled").await;
    let response = response.await.unwrap();
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    status
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Requests that pass, each of one unit.
const LIMIT: u64 = 4;

fn limiter() -> LocalLimiter {
    let quota = Quota::per(LIMIT, testkit::AGE).fixed_window();
    testkit::limiter(quota).0
}

fn staged(stage: &Stage) -> Staged {
    Staged(stage.clone(), limiter())
}

/// The events of a request that was cut short, and how many of nine others pass then.
async fn outcome(place: &str, stage: &Stage, World(outer, in_flight): &World) -> String {
    settled().await;
    assert_eq!(in_flight(), 0, "at {place}");
    let events = mem::take(&mut stage.scene().events);
    let mut passed = 0;
    for _ in 0..9 {
        let status = exchange(outer.clone(), stage.clone(), "/").await;
        passed += u64::from(status == 200);
    }
    settled().await;
    format!("{events}{passed}")
}

async fn drops(made: impl Fn(&Stage) -> World) -> Rows {
    let mut rows = Rows::default();
    for polls in 1.. {
        let stage = Stage::default();
        let world = made(&stage);
        let mut request = Box::pin(exchange(world.0.clone(), stage.clone(), "/free"));
        let mut ended = false;
        for _ in 0..polls {
            ended = poll_once(&mut request).is_ready();
            if ended {
                break;
            }
            sleep(Duration::from_millis(250)).await;
        }
        let at = stage.place(ended);
        drop(request);
        rows.push(&at, &outcome(&at, &stage, &world).await);
        if ended {
            break;
        }
    }
    rows
}

async fn panics(made: impl Fn(&Stage) -> World) -> Rows {
    let stage = Stage::default();
    let world = made(&stage);
    stage.scene().met.clear();
    exchange(world.0.clone(), stage.clone(), "/free").await;
    settled().await;
    let places = mem::take(&mut stage.scene().met);
    let mut rows = Rows::default();
    for (place, again) in places
        .iter()
        .flat_map(|place| [(place, true), (place, false)])
    {
        let stage = Stage::default();
        let world = made(&stage);
        *stage.scene() = Scene {
            panics_at: Some(place.clone()),
            panics_again: again,
            ..Scene::default()
        };
        let request = exchange(world.0.clone(), stage.clone(), "/free");
        let _ = tokio::spawn(request).await;
        settled().await;
        assert_eq!(stage.scene().panics_at, None, "{place}");
        let outcome = outcome(place, &stage, &world).await;
        if !again {
            rows.push(place, &outcome);
        }
    }
    rows
}

/// Places and outcomes; places in a row with one outcome are a group.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn push(&mut self, place: &str, outcome: &str) {
        let last = self.0.rsplit("; ").next().unwrap_or_default();
        if last.split(':').next() != Some(outcome) {
            let sep = if self.0.is_empty() { "" } else { "; " };
            self.0 += &format!("{sep}{outcome}: {place}");
        } else if !last.ends_with(&format!(" {place}")) {
            self.0 += &format!(", {place}");
        }
    }

    fn are(&self, expected: &str) {
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(self.0, expected.join(" "));
    }
}

async fn check(made: impl Fn(&Stage) -> World, dropped: &str, panicked: &str) {
    drops(&made).await.are(dropped);
    panics(&made).await.are(panicked);
}

/// A lone bucket, one in a table under locks, and one that is charged before the request is taken apart, as by all but a
/// layer's first requests.
#[tokio::test(start_paused = true)]
async fn a_plain_layer() {
    let day = Quota::per_day(LIMIT);
    for (quota, earlier) in [(day, 0), (day.fixed_window(), 0), (day, 1_000)] {
        let made = |stage: &Stage| {
            let limiter = LocalLimiter::builder(quota).clock(StagedClock(stage.clone()));
            let layer = RateLimitLayer::new(limiter.build().unwrap(), PeerIp);
            let probe = layer.layer(Probe::default());
            for _ in 0..earlier {
                let other = SocketAddr::from(([192, 0, 2, 9], 80));
                testkit::send(&probe, Request::get("/").extension(other));
                stage.scene().met.clear();
            }
            world(&layer, stage)
        };
        check(
            made,
            "4: readiness; 3: unpolled, service, body, body#2, body#3, end",
            "4: readiness, clock; 3: service called, unpolled, service, body, body#2, body#3",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_with_every_setting() {
    let made = |stage: &Stage| {
        let layer = RateLimitLayer::new(staged(stage), stage.key())
            .skip(stage.returns("skip", false))
            .skip_key(stage.returns("skip_key", false))
            .deny(stage.returns("deny", false))
            .deny_key(stage.returns("deny_key", false))
            .cost(stage.returns("cost", 1))
            .tier(stage.returns("tier", Tier::DEFAULT))
            .quota(stage.returns("quota", None))
            .priority(stage.returns("priority", Priority::CRITICAL))
            .expose_decision(true)
            .observer(stage.observer())
            .rejection_fn(stage.rejection());
        let counts = stage.clone();
        let layer = layer.count_if(move |head| {
            counts.meet("count_if");
            head.status == 200
        });
        world(&layer, stage)
    };
    check(
        made,
        "4: readiness, unpolled, reserve; 3: reserve done; DC3: service, settle; DC4: settle
            done, body, body#2, body#3, end",
        "4: readiness, skip, deny, key, skip_key, deny_key, quota, tier, priority, cost,
            reserve called, unpolled, reserve; 3: reserve done, Decided; DC3: service called,
            service, count_if, settle called, settle; DC4: settle done; D4: Corrected; DC4:
            body, body#2, body#3",
    )
    .await;
}

/// Requests that the limit denies: they are rejected, elastic, or pass as overflow or in shadow mode.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_used_up() {
    let layer = |stage: &Stage| {
        let limiter = staged(stage);
        assert!(limiter.1.acquire(&Key::global(), LIMIT).is_allowed());
        RateLimitLayer::new(limiter, Global).observer(stage.observer())
    };
    check(
        |stage| world(&layer(stage).rejection_fn(stage.rejection()), stage),
        "0: readiness, unpolled, acquire, acquire done; D0: end",
        "0: readiness, acquire called, unpolled, acquire, acquire done, Decided; D0: rejection",
    )
    .await;
    let elastic = |stage: &Stage| {
        let elastic = stage.returns("elastic", true);
        world(&layer(stage).elastic(move || elastic(&())), stage)
    };
    check(
        elastic,
        "9: readiness, unpolled, reserve, reserve done, hit, hit done;
         D9: service, body, body#2, body#3, end",
        "9: readiness, reserve called, unpolled, reserve, reserve done, elastic, hit called, hit,
            hit done, Decided; D9: service called, service, body, body#2, body#3",
    )
    .await;
    check(
        |stage| world(&layer(stage).overflow(), stage),
        "9: readiness, unpolled, reserve, reserve done; O9: service, body, body#2, body#3, end",
        "9: readiness, reserve called, unpolled, reserve, reserve done, Overflowed;
         O9: service called, service, body, body#2, body#3",
    )
    .await;
    // The denial starts a block, which is reported once it is final.
    let blocks = |stage: &Stage| {
        let limiter = LocalLimiter::builder(Quota::per(LIMIT, testkit::AGE).fixed_window());
        let limiter = limiter.block_for(LONG).clock(ManualClock::new());
        let limiter = limiter.build().unwrap();
        assert!(limiter.acquire(&Key::global(), LIMIT).is_allowed());
        let layer = RateLimitLayer::new(Staged(stage.clone(), limiter), Global).wait(LONG);
        world(&layer.observer(stage.observer()), stage)
    };
    check(
        blocks,
        "0: readiness, unpolled, reserve, reserve done, deny, deny done; D0: end",
        "0: readiness, reserve called, unpolled, reserve, reserve done, deny called, deny, deny
            done, Decided",
    )
    .await;
    check(
        |stage| world(&layer(stage).shadow(true), stage),
        "9: readiness, unpolled, acquire, acquire done; D9: service, body, body#2, body#3, end",
        "9: readiness, acquire called, unpolled, acquire, acquire done, Decided;
         D9: service called, service, body, body#2, body#3",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_several_limits() {
    let made = |stage: &Stage| {
        let store = LocalStore::builder().clock(ManualClock::new()).build();
        let store = store.unwrap();
        let limits = ["a", "b"].map(|name| {
            let quota = Quota::per(LIMIT, testkit::AGE).fixed_window().named(name);
            let limiter = LocalLimiter::builder(quota).build_in(&store).unwrap();
            limiter
                .by(stage.key())
                .priority(stage.returns("priority", Priority::CRITICAL))
                .spends(stage.returns("units", 1))
        });
        let layer = RateLimitLayer::all(limits).observer(stage.observer());
        let layer = layer.spending(Reader(stage.clone())).step(1).reserve(1);
        world(&layer, stage)
    };
    check(
        made,
        "4: readiness; DC3: unpolled, service; DS3: body, body#2, body#3, end",
        "4: readiness, key, key#2, priority, priority#2, max_output, units, units#2; 3: Decided;
         DC3: service called, unpolled, service, reader; DS4: body, data, units#3;
         DS3: units#4, units#5, units#6, body#2, trailers;
         DC2: end, has_recognised, units#7, units#8; D3: Corrected; DS3: body#3",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_leaky_bucket_delays() {
    let made = |stage: &Stage| {
        let quota = Quota::per_second(1).leaky_bucket(LIMIT);
        let limiter = testkit::limiter(quota).0;
        assert!(limiter.acquire(&Key::global(), 1).is_allowed());
        let layer = RateLimitLayer::new(Staged(stage.clone(), limiter), Global);
        world(&layer.observer(stage.observer()), stage)
    };
    check(
        made,
        "4: readiness, unpolled, acquire; 3: acquire done, layer; D3: service, body, body#2,
            body#3, end",
        "4: readiness, acquire called, unpolled, acquire; 3: acquire done, Decided; D3:
            service called, service, body, body#2, body#3",
    )
    .await;
}

fn spending(stage: &Stage, exhausted: Exhausted) -> World {
    let layer = RateLimitLayer::new(staged(stage), Global).observer(stage.observer());
    let units = stage.clone();
    let layer = layer.spending(Reader(stage.clone())).spends(move |tokens| {
        units.meet("units");
        tokens.output
    });
    let layer = layer.step(1).reserve(1).exhausted(exhausted);
    world(&layer, stage)
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_spends() {
    for (exhausted, step) in [(Exhausted::Finish, "spend"), (Exhausted::End, "reserve")] {
        let number = if step == "spend" { "" } else { "#2" };
        let dropped = "4: readiness, unpolled, reserve; 3: reserve done; DC3: service; DS4: body;
            DS3: STEP + body#2, body#3, end";
        let panicked = "4: readiness, max_output, units, reserve called, unpolled, reserve;
            3: reserve done, Decided; DC3: service called, service, reader;
            DS4: body, data, units#2; DS3: units#3, STEP called, STEP, body#2, trailers;
            DS2: STEP done; DC2: end, has_recognised, units#4, settle called, settle;
            DS3: body#3; DC3: settle done; D3: Corrected";
        let [dropped, panicked] = [dropped, panicked].map(|rows| {
            let rows = rows.replace("STEP called", &format!("{step} called{number}"));
            let rows = rows.replace("STEP done", &format!("{step} done{number}"));
            rows.replace("STEP", &format!("{step}{number}"))
        });
        check(|stage| spending(stage, exhausted), &dropped, &panicked).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_permits() {
    let made = |stage: &Stage| {
        let layer = ConcurrencyLayer::new(Concurrency::max(1), stage.key())
            .skip_key(stage.returns("skip_key", false))
            .priority(stage.returns("priority", Priority::CRITICAL))
            .observer(stage.observer());
        let counts = layer.clone();
        let in_flight = move || counts.in_flight(&Key::global());
        world(&layer, stage).holding(in_flight)
    };
    check(
        made,
        "9: readiness; D9: unpolled, service, body, body#2, body#3, end",
        "9: readiness, key, skip_key, priority, Decided; D9: service called, unpolled,
            service, body, body#2, body#3",
    )
    .await;
}

fn ruled(stage: &Stage, rule: &str, clock: impl Clock) -> RulesLayer {
    let authenticated = stage.returns("authenticated", false);
    let builder = Rules::builder().key("own", stage.key()).clock(clock);
    let builder = builder.authenticated(authenticated).accept_in_flight(true);
    let text = format!("rules: [{rule}]");
    let rules = builder.parse(text, Format::Yaml).expect("rules");
    RulesLayer::new(rules).observer(stage.observer())
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_rules() {
    let made = |stage: &Stage| {
        let rules = "{name: a, match: {authenticated: false}, key: {custom: own}, quota: 4/day, \
                      count_if: {status: [200]}}, {name: b, key: global, quota: 4/day, mode: shadow}";
        world(&ruled(stage, rules, StagedClock(stage.clone())), stage)
    };
    check(
        made,
        "4: readiness; DDC3: unpolled, service; DDC4: body, body#2, body#3, end",
        "4: readiness, authenticated, key, clock, Decided; D4: clock#2; D3: Decided#2; DDC3:
            service called, unpolled, service, clock#3; DD4: Corrected; DDC4: body, body#2,
            body#3",
    )
    .await;
}

fn held_by<R>(layer: &HoldingRulesLayer<R>, stage: &Stage) -> World
where
    R: Reject<Boxed<Infallible>>,
{
    let handle = layer.handle();
    let in_flight = move || handle.in_flight().iter().map(|(_, count)| count).sum();
    world(layer, stage).holding(in_flight)
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_rules_that_holds_permits() {
    let made = |stage: &Stage| {
        let rule = "{name: a, key: {custom: own}, quota: 4/day, in_flight: 1}";
        held_by(&ruled(stage, rule, ManualClock::new()).holding(), stage)
    };
    check(
        made,
        "4: readiness; D3: unpolled, service, body, body#2, body#3, end",
        "4: readiness, key; 3: Decided; D3: service called, unpolled, service, body, body#2,
            body#3",
    )
    .await;
}

/// Requests that permits, rules and a quota behind a permit deny.
#[tokio::test(start_paused = true)]
async fn a_rejection_of_each_layer() {
    let uses_up = |world: World, stage: &Stage| {
        for _ in 0..LIMIT {
            let mut request = Box::pin(exchange(world.0.clone(), stage.clone(), "/"));
            while poll_once(&mut request).is_pending() {}
        }
        *stage.scene() = Scene::default();
        world
    };
    let permits = |stage: &Stage| {
        let layer = ConcurrencyLayer::new(Concurrency::max(1), Global).observer(stage.observer());
        let counts = layer.clone();
        let world = world(&layer.rejection_fn(stage.rejection()), stage);
        let mut held = Box::pin(exchange(world.0.clone(), stage.clone(), "/"));
        while poll_once(&mut held).is_pending() && !stage.scene().at.contains(&"body".to_owned()) {}
        *stage.scene() = Scene::default();
        world.holding(move || {
            let _held = &held;
            counts.in_flight(&Key::global()) - 1
        })
    };
    check(
        permits,
        "0: readiness; D0: unpolled, end",
        "0: readiness, Decided; D0: rejection, unpolled",
    )
    .await;
    let rule = "{name: a, key: {custom: own}, quota: 4/day, in_flight: 2}";
    let rules = |stage: &Stage| {
        let layer = ruled(
            stage,
            &rule.replace(", in_flight: 2", ""),
            ManualClock::new(),
        );
        uses_up(world(&layer.rejection_fn(stage.rejection()), stage), stage)
    };
    let holding = |stage: &Stage| {
        let layer = ruled(stage, rule, ManualClock::new())
            .rejection_fn(stage.rejection())
            .holding();
        uses_up(held_by(&layer, stage), stage)
    };
    let dropped = "0: readiness; D0: unpolled, end";
    let panicked = "0: readiness, key, Decided; D0: rejection, unpolled";
    check(rules, dropped, panicked).await;
    check(holding, dropped, panicked).await;
}

/// Lets all run that does not wait for time.
async fn turn() {
    for _ in 0..30 {
        yield_now().await;
    }
}

/// A request that is polled by hand until it waits in the layer.
async fn waiting(outer: &Outer, stage: &Stage) -> Pin<Box<impl Future<Output = u16> + use<>>> {
    let mut request = Box::pin(exchange(outer.clone(), stage.clone(), "/"));
    while poll_once(&mut request).is_pending() && !stage.scene().at.is_empty() {}
    request
}

/// A request that answers with the time when it passed, in milliseconds.
fn passing(outer: &Outer, stage: &Stage, start: Instant) -> JoinHandle<String> {
    let request = exchange(outer.clone(), stage.clone(), "/");
    tokio::spawn(async move {
        // A request that nobody wakes is seen to wait.
        match timeout(LONG, request).await {
            Ok(200) => (start.elapsed().as_millis() / 10 * 10).to_string(),
            other => format!("{other:?}"),
        }
    })
}

/// Drops a request that waits as the head of its queue, and one that waits behind it, after more and more polls, four in
/// a second. An outcome is when the two others of the queue passed.
async fn queues(made: fn(&Stage) -> World, heads: &str, others: &str) {
    for (victim, expected) in [(0, heads), (1, others)] {
        let mut rows = Rows::default();
        for polls in 0..12 {
            let stage = Stage::default();
            let World(outer, in_flight) = made(&stage);
            let start = Instant::now();
            assert_eq!(exchange(outer.clone(), stage.clone(), "/").await, 200);
            // More than a key has places.
            for _ in 0..130 {
                drop(waiting(&outer, &stage).await);
            }
            let mut queue = Vec::new();
            let mut dropped = None;
            for place in 0..3 {
                if place == victim {
                    dropped = Some(waiting(&outer, &stage).await);
                } else {
                    queue.push(passing(&outer, &stage, start));
                    turn().await;
                }
            }
            let mut dropped = dropped.unwrap();
            let mut ended = false;
            for _ in 0..polls {
                sleep(Duration::from_millis(250)).await;
                turn().await;
                ended = ended || poll_once(&mut dropped).is_ready();
            }
            let place = stage.place(ended);
            let place = place.split('#').next().unwrap_or_default();
            drop(dropped);
            let [one, two] = [
                queue.remove(0).await.unwrap(),
                queue.remove(0).await.unwrap(),
            ];
            settled().await;
            assert_eq!(in_flight(), 0, "at {place}");
            rows.push(place, &format!("{one} {two}"));
        }
        rows.are(expected);
    }
}

fn one_a_second() -> LocalLimiter {
    let builder = LocalLimiter::builder(Quota::per_second(1).burst(1));
    builder.clock(TokioClock::new()).build().unwrap()
}

const LONG: Duration = Duration::from_secs(60);

const WAITS: &str = "{name: a, key: global, quota: 1/second burst 1, wait: 60s, in_flight: 9}";

#[tokio::test(start_paused = true)]
async fn queues_of_each_layer_go_on() {
    type Made = fn(&Stage) -> World;
    let one: Made = |stage| {
        let layer = RateLimitLayer::new(one_a_second(), Global);
        world(&layer.wait(LONG), stage)
    };
    let several: Made = |stage| {
        let store = LocalStore::builder().clock(TokioClock::new()).build();
        let store = store.unwrap();
        let slow = Quota::per_second(1).burst(1).named("slow");
        let quotas = [slow, Quota::per_second(100).named("fast")];
        let limits = quotas.map(|quota| LocalLimiter::builder(quota).build_in(&store).unwrap());
        let layer = RateLimitLayer::all(limits.map(|limit| limit.by(Global)));
        world(&layer.wait(LONG), stage)
    };
    let spends: Made = |stage| {
        let layer = RateLimitLayer::new(one_a_second(), Global).wait(LONG);
        let no_more = |_: &response::Parts| None::<Reader>;
        world(&layer.spending(no_more).reserve(1).step(1), stage)
    };
    let rules: Made = |stage| {
        let rule = WAITS.replace(", in_flight: 9", "");
        world(&ruled(stage, &rule, TokioClock::new()), stage)
    };
    let holds: Made = |stage| held_by(&ruled(stage, WAITS, TokioClock::new()).holding(), stage);
    for made in [one, several, spends, rules, holds] {
        let heads = "1000 2000: layer; 2000 3000: service, body, end";
        queues(made, heads, "1000 2000: layer; 1000 3000: service, body").await;
    }
}

#[tokio::test(start_paused = true)]
async fn queues_of_a_limiter_that_answers_later_go_on() {
    let made = |stage: &Stage| {
        let limiter = Staged(stage.clone(), one_a_second());
        world(&RateLimitLayer::new(limiter, Global).wait(LONG), stage)
    };
    queues(
        made,
        "1000 2000: layer, reserve; 2250 3250: reserve done, service, body, end",
        "1000 2000: layer, reserve, reserve done, layer; 1000 2250: reserve; 1000 3500: reserve
            done, service",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_panics_leaves_its_place_to_the_next() {
    for (place, passed) in [
        ("reserve called", ["1000", "2000"]),
        ("reserve", ["1000", "2000"]),
        ("reserve done", ["2000", "3000"]),
        ("service called", ["2000", "3000"]),
    ] {
        let stage = Stage::default();
        let limiter = Staged(stage.clone(), one_a_second());
        // A key has three places.
        let layer = RateLimitLayer::new(limiter, Global)
            .wait(LONG)
            .max_waiting(24);
        let World(outer, _) = world(&layer, &stage);
        for _ in 0..2 {
            let start = Instant::now();
            assert_eq!(exchange(outer.clone(), stage.clone(), "/").await, 200);
            let mut queue = Vec::new();
            for _ in 0..3 {
                queue.push(passing(&outer, &stage, start));
                turn().await;
            }
            stage.panic_next(place);
            let mut queue = queue.into_iter();
            assert!(
                queue.next().unwrap().await.unwrap_err().is_panic(),
                "{place}"
            );
            for (request, at) in queue.zip(passed) {
                assert_eq!(request.await.unwrap(), at, "{place}");
            }
            sleep(LONG).await;
        }
    }
}

//! A layer's first requests, which it checks for signs of a wrong set-up, and all later ones are decided alike.
//!
//! Later ones take other ways: without settings the layer charges before it takes the request apart, and with settings
//! an allowed request may end before its admission. So each layer is here twice: a new one, and one that has decided a
//! thousand requests of another key.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Extensions, Request, Response, StatusCode, request};
use testkit::{Lines, now};
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneService};
use tower_ratelimit::{
    Decision, Headers, Key, KeyError, KeyErrorKind, KeyExtractor, LocalLimiter, LocalStore,
    MissingKey, PeerIp, Priority, Quota, RateLimitLayer,
    clock::ManualClock,
    headers::ResetFormat,
    limiter::{LocalLimiterBuilder, Tier},
    observe::Event,
    reject::PlainText,
};

type Outer = BoxCloneService<Request<String>, Response<String>, Infallible>;

/// The peer's address, and how many requests had it read before they were taken apart.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl KeyExtractor for Counted {
    fn extract(&self, parts: &request::Parts) -> Result<Key, KeyError> {
        PeerIp.extract(parts)
    }

    fn extract_early(&self, extensions: &Extensions) -> Option<Key> {
        self.0.fetch_add(1, Ordering::Relaxed);
        PeerIp.extract_early(extensions)
    }

    fn believed_peer(&self, parts: &request::Parts) -> Option<IpAddr> {
        PeerIp.believed_peer(parts)
    }
}

/// The parts of a layer.
struct Setup {
    limiter: LocalLimiter,
    clock: ManualClock,
    key: Counted,
    lines: Lines,
}

impl Setup {
    fn layer(&self) -> RateLimitLayer {
        RateLimitLayer::new(self.limiter.clone(), self.key.clone())
    }

    /// Everything about an event but how long it took.
    fn observer(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static + use<> {
        let lines = self.lines.clone();
        move |event| {
            lines.push(match event {
                Event::Decided(of) | Event::Overflowed(of) => {
                    let decision = of.decision();
                    let flags = (of.is_shadow(), of.is_provisional(), of.cost());
                    format!("decided {} {:?} {flags:?}", told(decision), of.key())
                }
                Event::Corrected(of) => format!("corrected {:?}", (of.before(), of.after())),
                other => format!("{other:?}"),
            });
        }
    }
}

/// A decision without the identities of limits, each layer having its own.
fn told(decision: &Decision) -> String {
    let quotas = decision.quotas().map(|quota| {
        let (left, reset) = (quota.remaining(), quota.reset_after());
        format!(
            "{} {left:?} {reset:?} {:?}",
            quota.name(),
            quota.retry_after()
        )
    });
    let quotas: Vec<_> = quotas.collect();
    let marks = (
        decision.is_excess(),
        decision.is_blocked(),
        decision.is_shed(),
    );
    let (outcome, charged) = (decision.outcome(), decision.charged());
    format!("{outcome:?} {charged} {marks:?} {quotas:?}")
}

/// Answers with the status that the request names, and describes the decision that it finds.
fn inner()
-> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<String>| {
        let decision = request.extensions().get::<Decision>().map(told);
        let mut response = Response::new(format!("{} {decision:?}", request.body()));
        let status = value(request.headers(), "x-status").unwrap_or(200);
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(response)
    })
}

fn value<T: std::str::FromStr>(headers: &http::HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn boxed<L>(layer: L) -> Outer
where
    L: Layer<BoxCloneService<Request<String>, Response<String>, Infallible>>,
    L::Service: Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    BoxCloneService::new(layer.layer(BoxCloneService::new(inner())))
}

type Made = fn(&Setup) -> Outer;

/// Layers, and whether each charges by the key alone.
const LAYERS: &[(&str, bool, Made)] = &[
    ("plain", true, |setup| boxed(setup.layer())),
    ("no fields", true, |setup| {
        boxed(setup.layer().headers(Headers::none()))
    }),
    ("all fields", true, |setup| {
        let headers = Headers::new().x_ratelimit(Some(ResetFormat::EpochSeconds));
        boxed(setup.layer().headers(headers.x_ratelimit_retry_after(true)))
    }),
    ("overflow", true, |setup| boxed(setup.layer().overflow())),
    ("plain text", true, |setup| {
        boxed(setup.layer().rejection(PlainText))
    }),
    ("no gRPC", true, |setup| boxed(setup.layer().grpc(false))),
    ("keyless share", true, |setup| {
        let layer = setup.layer();
        boxed(layer.on_missing_key(KeyErrorKind::Unavailable, MissingKey::Share))
    }),
    ("observed", false, |setup| {
        boxed(setup.layer().observer(setup.observer()))
    }),
    ("exposed", false, |setup| {
        boxed(setup.layer().expose_decision(true))
    }),
    ("shadow", false, |setup| {
        boxed(setup.layer().shadow(true).observer(setup.observer()))
    }),
    ("lists", false, |setup| {
        let layer = setup.layer().skip(|parts| parts.uri == "/skip");
        boxed(
            layer
                .deny(|parts| parts.uri == "/deny")
                .observer(setup.observer()),
        )
    }),
    ("priority", false, |setup| {
        let layer = setup.layer().priority(|parts| match parts.uri.path() {
            "/background" => Priority::share(50).unwrap(),
            _ => Priority::CRITICAL,
        });
        boxed(layer)
    }),
    ("tier and cost", false, |setup| {
        let layer = setup.layer().tier(|parts| match parts.uri.path() {
            "/small" => Tier::named("small"),
            _ => Tier::DEFAULT,
        });
        boxed(layer.cost(|parts| value(&parts.headers, "x-cost").unwrap_or(1)))
    }),
    ("count_if", false, |setup| {
        let layer = setup.layer().count_if(|head| head.status == 200);
        boxed(layer.observer(setup.observer()))
    }),
    ("elastic", false, |setup| {
        boxed(setup.layer().elastic(|| true).observer(setup.observer()))
    }),
    ("several limits", false, |setup| {
        let store = LocalStore::builder().clock(setup.clock.clone()).build();
        let store = store.unwrap();
        let limits = [(3, "a"), (5, "b")].map(|(limit, name)| {
            let quota = Quota::per_minute(limit).named(name);
            let limiter = LocalLimiter::builder(quota).build_in(&store).unwrap();
            limiter.by(setup.key.clone())
        });
        boxed(RateLimitLayer::all(limits).observer(setup.observer()))
    }),
];

/// A request of a peer, with these headers.
fn request(peer: Option<u8>, uri: &str, headers: &[(&str, &str)]) -> Request<String> {
    let builder = Request::post(uri);
    let builder = (headers.iter()).fold(builder, |builder, (name, value)| {
        builder.header(*name, *value)
    });
    let mut request = builder.body("sent".to_owned()).unwrap();
    if let Some(peer) = peer {
        let address = SocketAddr::from(([192, 0, 2, peer], 80));
        request.extensions_mut().insert(address);
    }
    request
}

fn requests() -> Vec<Request<String>> {
    let own = |uri, headers: &[(&str, &str)]| request(Some(1), uri, headers);
    vec![
        own("/", &[]),
        own("/", &[("x-status", "404")]),
        own("/skip", &[]),
        own("/deny", &[]),
        own("/background", &[]),
        own("/small", &[]),
        own("/small", &[("x-cost", "2")]),
        request(None, "/", &[]),
        request(Some(2), "/", &[("x-forwarded-for", "203.0.113.9")]),
        own("/", &[]),
        own("/", &[]),
        own("/", &[("accept", "text/plain")]),
        own("/", &[("accept", "application/json")]),
        own("/", &[("content-type", "application/grpc")]),
        request(None, "/", &[("content-type", "application/grpc")]),
    ]
}

/// The status, the fields in their order, and the body.
fn answer(outer: &Outer, request: Request<String>) -> String {
    let Ok(response) = now(outer.clone().oneshot(request));
    let (head, body) = response.into_parts();
    format!("{} {:?} {body}", head.status, head.headers)
}

/// A row for each request, and how many had their key read before they were taken apart.
fn rows(builder: LocalLimiterBuilder, made: Made, earlier: usize) -> (Vec<String>, usize) {
    let clock = ManualClock::new();
    let builder = builder.clock(clock.clone());
    let setup = Setup {
        limiter: builder.build().unwrap(),
        clock: clock.clone(),
        key: Counted::default(),
        lines: Lines::default(),
    };
    let outer = made(&setup);
    for _ in 0..earlier {
        answer(&outer, request(Some(9), "/", &[]));
    }
    setup.lines.take();
    setup.key.0.store(0, Ordering::Relaxed);
    let own = PeerIp.extract(&request(Some(1), "/", &[]).into_parts().0);
    let own = own.unwrap();
    let mut rows = Vec::new();
    // As time passes, and around a block by hand.
    for round in 0..4 {
        match round {
            2 => drop(setup.limiter.block(&own, Duration::from_secs(40)).unwrap()),
            3 => drop(setup.limiter.reset(&own)),
            _ => {}
        }
        for request in requests() {
            let answer = answer(&outer, request);
            let left = told(&setup.limiter.peek(&own, 0));
            rows.push(format!("{answer} {left} {:?}", setup.lines.take()));
        }
        clock.advance(Duration::from_secs(20));
    }
    (rows, setup.key.0.load(Ordering::Relaxed))
}

#[test]
fn the_first_thousand_requests_are_decided_as_all_later_ones() {
    type Limit = fn(Quota) -> LocalLimiterBuilder;
    let four = Quota::per_minute(4);
    let limiters: [Limit; 4] = [
        |quota| LocalLimiter::builder(quota),
        // One with tiers is no lone bucket.
        |quota| LocalLimiter::builder(quota).tier("small", Quota::per_minute(2)),
        |quota| LocalLimiter::builder(quota.sliding_window()),
        |quota| {
            let hour = Quota::per_hour(20).fixed_window().named("hour");
            LocalLimiter::builder([quota.named("minute"), hour])
        },
    ];
    for limiter in limiters {
        for (name, is_plain, made) in LAYERS {
            let [(first, none), (later, early)] =
                [0, 1_000].map(|earlier| rows(limiter(four), *made, earlier));
            let numbered = first.iter().zip(&later).enumerate();
            for (at, (first, later)) in numbered {
                assert_eq!(first, later, "request {at} of {name}");
            }
            let seen_early = if *is_plain { later.len() } else { 0 };
            assert_eq!((none, early), (0, seen_early), "{name}");
        }
    }
}

//! Every line that the crate logs, with the set-up that provokes it, in a process in which nobody
//! listens: it has to be on the standard error stream, once.
//!
//! `LINE=behind-proxy cargo test --all-features --test rate_limit provoke -- --nocapture` shows
//! one. Those that need a server are in `tests/redis/store/log_lines.rs`.

use std::{
    convert::Infallible,
    env,
    net::SocketAddr,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use http::{Request, Response, request::Builder};
use testkit::{Probe, get, limiter, send};
use tower::{Layer, service_fn};
use tower_ratelimit::{
    AsyncLimiter, ClientAddressLayer, ClientIp, Decision, Global, Headers, Key, KeyExtractor,
    Limiter, LimiterError, LocalLimiter, LocalStore, PeerIp, Quota, RateLimitLayer,
    clock::Timestamp,
    decision::{Op, Policy, QuotaStatus},
    key::MatchedRoute,
    limiter::{RequestQuota, Tier},
    spend::{Field, Tokens},
};

/// Codes of lines, each with a function that provokes it.
const LINES: &[(&str, fn())] = &[
    ("key-unavailable", || {
        send_all(&layer(PeerIp), [const { || get("/") }; 3]);
    }),
    ("address-unavailable", || {
        let service = ClientAddressLayer::new(behind()).layer(Probe::default());
        for _ in 0..3 {
            send(&service, get("/"));
        }
    }),
    ("behind-proxy", || proxied(PeerIp)),
    ("proxy-header-missing", || {
        send_all(&layer(behind()), [const { || from("10.0.0.1") }; 40]);
    }),
    ("no-route-matched", || {
        send_all(&layer(MatchedRoute), [const { || get("/") }; 40]);
    }),
    ("charged-twice", || {
        let layer = layer(Global).headers(Headers::none());
        let service = layer.layer(layer.layer(Probe::default()));
        for _ in 0..3 {
            send(&service, get("/"));
        }
    }),
    ("same-policy-name", || {
        let service = layer(Global).layer(layer(Global).layer(Probe::default()));
        for _ in 0..3 {
            send(&service, get("/"));
        }
    }),
    ("tiers-crossed", || {
        let (per_second, per_day) = (Quota::per_second(10), Quota::per_day(100).fixed_window());
        let limiter = LocalLimiter::builder([per_second, per_day]);
        drop(limiter.tier("pro", [per_day, per_second]).build());
    }),
    ("store-crowded", || {
        let store = LocalStore::builder().max_keys(20).build();
        let store = store.expect("a good size");
        let limiters = [(); 5].map(|()| LocalLimiter::builder(Quota::per_second(1)));
        drop(limiters.map(|limiter| limiter.build_in(&store)));
    }),
    ("state-refused", || {
        // A folder is no state file.
        let limiter = LocalLimiter::builder(Quota::per_second(1));
        drop(limiter.restore_or_new(env::temp_dir()));
    }),
    ("state-changed", || {
        let build = |quota: Quota, store: &LocalStore| {
            let limiter = LocalLimiter::builder(quota).name("login");
            limiter.build_in(store).expect("a good quota")
        };
        let (store, mut state) = (LocalStore::new(), Vec::new());
        let _login = build(Quota::per_second(1), &store);
        store.save(&mut state).expect("a save to memory");
        let restored = LocalStore::builder().restore(&*state).expect("its state");
        drop(build(Quota::per_day(1), &restored));
    }),
    ("request-quota-cut", || {
        let layer = layer(Global).quota(|_| Some(RequestQuota::limit(5).burst(9)));
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    ("request-quota-misplaced", || {
        let (window, _) = limiter(Quota::per_hour(10_000).fixed_window());
        let layer = RateLimitLayer::new(window, Global);
        let layer = layer.quota(|_| Some(RequestQuota::limit(5).burst(9)));
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    ("unsupported", || {
        let layer = layer(Global).tier(|_| Tier::named("por"));
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    #[cfg(feature = "governor")]
    ("correction-unsupported", || {
        let layer = RateLimitLayer::new(governor(), Global).count_if(|_| false);
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    ("correction-failing", || {
        let layer = RateLimitLayer::new(Failing::from(1), Global).count_if(|_| false);
        send_all(&layer, [const { || get("/") }; 1]);
    }),
    ("spend-reservation", || {
        // The reservation is 2,048 tokens unless it is set.
        let spending = |holds| {
            let layer = RateLimitLayer::new(Quota::per_hour(holds), Global);
            layer.spending(Field::header("x-tokens"))
        };
        let small = spending(1_000);
        let costs_one = RateLimitLayer::new(Quota::per_hour(1_000), Global).cost(|_| 1);
        let costs_one = costs_one.spending(Field::header("x-tokens"));
        let fitting = [spending(5_000), small.clone().reserve(100), costs_one];
        for layer in fitting.iter().chain([&small, &small.clone()]) {
            let _ = layer.layer(Probe::default());
        }
    }),
    ("spend-unreadable", || {
        let nothing = |_: &http::response::Parts| None::<fn(&[u8], &mut Tokens)>;
        let layer = RateLimitLayer::new(Quota::per_minute(5_000), Global).spending(nothing);
        let service = layer.layer(service_fn(async |_: Request<String>| {
            let response = Response::builder().header("content-encoding", "gzip");
            Ok::<_, Infallible>(response.body(String::new()).expect("a response"))
        }));
        for _ in 0..3 {
            send(&service, get("/"));
        }
    }),
    ("spend-unrecognised", || {
        let missing = Field::header("x-cost");
        let layer = RateLimitLayer::new(Quota::per_minute(5_000), Global).spending(missing);
        let service = layer.layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        for _ in 0..3 {
            send(&service, get("/"));
        }
    }),
    #[cfg(feature = "governor")]
    ("excess-uncharged", || {
        let layer = RateLimitLayer::new(governor(), Global).elastic(|| true);
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    #[cfg(all(feature = "llm", feature = "tokio"))]
    ("body-unread", || {
        type Frames = http_body_util::StreamBody<futures_util::stream::Pending<NoFrame>>;
        type NoFrame = Result<http_body::Frame<bytes::Bytes>, Infallible>;
        let layer = tower_ratelimit::rate_limit::DeclaredLayer::default();
        let service = layer.layer(service_fn(async |_: Request<_>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        for _ in 0..3 {
            let request = Request::post("/").header("content-type", "application/json");
            let body: Frames = http_body_util::StreamBody::new(futures_util::stream::pending());
            let answer =
                tower::ServiceExt::oneshot(service.clone(), request.body(body).expect("a request"));
            testkit::now(answer).expect("an answer");
        }
    }),
    ("limiter-failing", || {
        let layer = RateLimitLayer::new(Failing::from(0), Global);
        send_all(&layer, [const { || get("/") }; 3]);
    }),
    #[cfg(feature = "redis")]
    ("redis-down", without_redis),
    #[cfg(feature = "redis")]
    ("store-down", || {
        without_store(tower_ratelimit::store::StoreErrorKind::Disconnected)
    }),
    #[cfg(feature = "redis")]
    ("store-slow", || {
        without_store(tower_ratelimit::store::StoreErrorKind::Contended)
    }),
    #[cfg(feature = "redis")]
    ("store-foreign-value", || {
        without_store(tower_ratelimit::store::StoreErrorKind::ForeignData)
    }),
];

/// Those that come after another one, or need a server.
#[cfg(all(feature = "governor", feature = "redis"))]
const ELSEWHERE: &[&str] = &[
    "limiter-back",
    "redis-back",
    "redis-slow",
    "redis-foreign-value",
    "redis-split",
    "store-back",
    "listener-panicked",
    "rules-refused",
    "rules-accepted",
    "rules-removed",
];

fn layer(extractor: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(limiter(Quota::per_hour(10_000)).0, extractor)
}

fn behind() -> ClientIp {
    ClientIp::behind(["10.0.0.0/8"])
}

fn send_all<L: Limiter, const N: usize>(layer: &RateLimitLayer<L>, requests: [fn() -> Builder; N]) {
    let service = layer.layer(Probe::default());
    for request in requests {
        send(&service, request());
    }
}

fn from(peer: &str) -> Builder {
    let peer: SocketAddr = format!("{peer}:4000").parse().unwrap();
    get("/").extension(peer)
}

/// Requests of several clients through one proxy.
fn proxied(extractor: impl KeyExtractor) {
    let service = layer(extractor).layer(Probe::default());
    for client in 1..10 {
        let forwarded = format!("203.0.113.{client}");
        let request = from("192.0.2.1").header("x-forwarded-for", forwarded);
        send(&service, request);
    }
}

#[cfg(feature = "governor")]
fn governor() -> tower_ratelimit::limiter::GovernorLimiter {
    use governor::{Quota, RateLimiter};
    let quota = Quota::per_hour(std::num::NonZeroU32::MIN);
    tower_ratelimit::limiter::GovernorLimiter::direct(RateLimiter::direct(quota), quota)
}

/// A limiter whose connection is refused. One that was handed in belongs to the caller's runtime,
/// and so to the log of this thread.
#[cfg(feature = "redis")]
fn refused() -> tower_ratelimit::RedisLimiter {
    use testkit::fake_redis::FakeServer;
    use tower_ratelimit::{RedisLimiter, RedisStore};

    let server = FakeServer::replying(|_| {
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Box::pin(async { Err(error.into()) })
    });
    let store = RedisStore::from_connection(server);
    let builder = RedisLimiter::builder(Quota::per_hour(10));
    builder.build(&store).unwrap()
}

#[cfg(feature = "redis")]
fn without_redis() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let limiter = refused();
    runtime.block_on(async {
        for _ in 0..100 {
            limiter.acquire(&Key::global(), 1).await.unwrap();
        }
    });
}

/// A store of one's own that fails so.
#[cfg(feature = "redis")]
fn without_store(kind: tower_ratelimit::store::StoreErrorKind) {
    use tower_ratelimit::{
        shared::{Reply, SharedLimiter, Store, StoreCall},
        store::StoreError,
    };

    struct Broken(tower_ratelimit::store::StoreErrorKind);

    impl Store for Broken {
        async fn transact(&self, _: &str, _: &StoreCall<'_>) -> Result<Reply, StoreError> {
            Err(StoreError::new(self.0, "as configured"))
        }
    }

    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let limiter = SharedLimiter::builder(Quota::per_hour(10));
    let limiter = limiter.build_on(Broken(kind)).unwrap();
    runtime.block_on(async {
        for _ in 0..100 {
            limiter.acquire(&Key::global(), 1).await.unwrap();
        }
    });
}

/// Decides a number of times, and fails from then on until it has had 20 calls.
struct Failing {
    from: u32,
    calls: AtomicU32,
}

impl From<u32> for Failing {
    fn from(from: u32) -> Self {
        let calls = AtomicU32::new(0);
        Self { from, calls }
    }
}

impl AsyncLimiter for Failing {
    async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.from..20).contains(&calls) {
            return Err(LimiterError::unavailable("connection refused"));
        }
        let status = QuotaStatus::new(&self.policies()[0]);
        Ok(Decision::allowed(1, Timestamp::default(), status))
    }

    fn policies(&self) -> &[Policy] {
        const { &[Policy::new("failing", 1)] }
    }
}

/// Does what one line is provoked by, if the environment names it.
#[test]
fn provoke() {
    let Ok(named) = env::var("LINE") else { return };
    for (code, provoke) in LINES {
        if *code == named {
            provoke();
        }
    }
}

/// Lines on the standard error stream of a process without a subscriber.
fn lines_of(code: &str) -> Vec<String> {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "logged_lines::provoke", "--nocapture"])
        .env("LINE", code)
        .output()
        .unwrap();
    assert!(output.status.success(), "{code}");
    let text = String::from_utf8(output.stderr).unwrap();
    let lines = text.lines().filter(|line| line.contains("tower-ratelimit"));
    lines.map(str::to_owned).collect()
}

#[test]
fn every_line_goes_to_standard_error_once_without_a_subscriber() {
    for (code, _) in LINES {
        let lines = lines_of(code);
        println!("{}", lines.join("\n"));
        assert_eq!(lines.len(), 1, "{code}: {lines:?}");
        let begin = format!("tower-ratelimit[{code}]: ");
        assert!(lines[0].starts_with(&begin), "{code}: {lines:?}");
        // Nothing of a request.
        for secret in ["203.0.113", "192.0.2"] {
            assert!(!lines[0].contains(secret), "{code}: {lines:?}");
        }
    }
}

/// The page has a row for every code, which a unit test beside them holds.
#[cfg(all(feature = "governor", feature = "redis"))]
#[test]
fn every_code_is_provoked() {
    let page = include_str!("../../docs/troubleshooting.md");
    let (_, table) = page.split_once("\n## Lines in the log").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    for row in table.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (code, _) = row.split_once('`').unwrap();
        let here = LINES.iter().any(|(provoked, _)| *provoked == code);
        assert!(here != ELSEWHERE.contains(&code), "{code}");
    }
}

#[cfg(feature = "tracing")]
mod events {
    use super::*;
    use testkit::logged;
    use tower_ratelimit::{Header, key::RequestMethod};

    #[test]
    fn every_line_is_an_event_where_somebody_listens() {
        for (code, provoke) in LINES {
            if *code == "no-route-matched" {
                // Once for each process, see `footguns`.
                continue;
            }
            let lines = logged(provoke);
            let code = format!("tower-ratelimit[{code}]: ");
            let lines: Vec<_> = lines.iter().filter(|line| line.contains(&code)).collect();
            assert_eq!(lines.len(), 1, "{code}: {lines:?}");
        }
    }

    #[test]
    fn a_limiter_that_is_back_is_a_line() {
        let service = RateLimitLayer::new(Failing::from(0), Global).layer(Probe::default());
        let lines = logged(|| {
            for _ in 0..50 {
                send(&service, get("/"));
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("[limiter-failing]"), "{lines:?}");
        assert!(lines[0].contains("connection refused"), "{lines:?}");
        assert!(lines[1].contains("[limiter-back]"), "{lines:?}");
    }

    /// A handle returns the error to its caller; of a layer's requests there is nothing but the 503.
    #[cfg(feature = "redis")]
    #[test]
    fn redis_outside_a_runtime_is_a_limiter_that_fails() {
        let layer = RateLimitLayer::new(refused(), Global);
        let lines = logged(|| send_all(&layer, [const { || get("/") }; 3]));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("[limiter-failing]"), "{lines:?}");
        assert!(lines[0].contains("tokio runtime"), "{lines:?}");
    }

    fn proxy_lines(extractor: impl KeyExtractor) -> usize {
        let lines = logged(|| proxied(extractor));
        assert!(lines.iter().all(|line| line.contains("[behind-proxy]")));
        lines.len()
    }

    #[test]
    fn a_proxy_is_noticed_whatever_the_peers_address_is_part_of() {
        assert_eq!(proxy_lines(PeerIp), 1);
        assert_eq!(proxy_lines(PeerIp.grouped_by(Default::default())), 1);
        assert_eq!(proxy_lines((RequestMethod, PeerIp)), 1);
        assert_eq!(proxy_lines(Header::new("x-api-key").or(PeerIp)), 1);
        assert_eq!(proxy_lines(PeerIp.digested_with([7; 16])), 1);
        // One that does not trust the proxy counts all its clients as one, too.
        assert_eq!(proxy_lines(behind()), 1);
        assert_eq!(proxy_lines(ClientIp::behind(["192.0.2.0/24"])), 0);
        assert_eq!(proxy_lines(Global), 0);
    }

    #[test]
    fn a_concurrency_limit_notices_a_proxy_too() {
        use tower_ratelimit::{Concurrency, ConcurrencyLayer};
        let layer = ConcurrencyLayer::new(Concurrency::max(5), PeerIp);
        let service = layer.layer(tower::service_fn(async |_| {
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        }));
        let lines = logged(|| {
            for client in 1..10 {
                let request = from("192.0.2.1").header("x-real-ip", format!("203.0.113.{client}"));
                drop(send(&service, request));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("\"x-real-ip\""), "{lines:?}");
    }

    #[test]
    fn probes_and_clients_of_their_own_addresses_are_no_proxy() {
        let service = layer(PeerIp).layer(Probe::default());
        let lines = logged(|| {
            for number in 0..200 {
                // A load balancer's probes, each client with a header of its own, one with three.
                send(&service, from("10.0.0.1"));
                let client = format!("198.51.100.{number}");
                send(&service, from(&client).header("x-forwarded-for", &client));
                let changing = format!("198.51.100.{}", number % 3);
                send(
                    &service,
                    from("198.51.100.201").header("x-forwarded-for", changing),
                );
            }
        });
        assert!(lines.is_empty(), "{lines:?}");
    }

    /// To look for good would cost every request the reading of its fields.
    #[test]
    fn only_the_first_thousand_requests_are_checked() {
        for (before, expected) in [(1_000, 0), (990, 2)] {
            let layer = layer(PeerIp).headers(Headers::none());
            let once = layer.layer(Probe::default());
            let twice = layer.layer(once.clone());
            let lines = logged(|| {
                for _ in 0..before {
                    send(&once, from("192.0.2.1"));
                }
                for client in 1..10 {
                    let forwarded = format!("203.0.113.{client}");
                    let request = from("192.0.2.1").header("x-forwarded-for", forwarded);
                    send(&twice, request);
                }
            });
            assert_eq!(lines.len(), expected, "{lines:?}");
        }
    }

    fn doubled<A: Limiter, B: Limiter>(
        outer: &RateLimitLayer<A>,
        inner: &RateLimitLayer<B>,
    ) -> usize {
        let service = outer.layer(inner.layer(Probe::default()));
        let lines = logged(|| {
            for _ in 0..3 {
                send(&service, from("192.0.2.1").header("x-api-key", "alice"));
            }
        });
        let twice = lines.iter().filter(|line| line.contains("[charged-twice]"));
        twice.count()
    }

    #[test]
    fn a_limiter_around_itself_is_noticed_by_whatever_handle() {
        let (shared, _) = limiter(Quota::per_hour(1_000));
        let by = |limiter: &LocalLimiter| RateLimitLayer::new(limiter.clone(), PeerIp);
        assert_eq!(doubled(&by(&shared), &by(&shared)), 1);
        let any = RateLimitLayer::new(tower_ratelimit::AnyLimiter::new(shared.clone()), PeerIp);
        assert_eq!(doubled(&any, &by(&shared)), 1);
        let in_arc = RateLimitLayer::new(std::sync::Arc::new(shared.clone()), PeerIp);
        assert_eq!(doubled(&by(&shared), &in_arc), 1);
        let own = RateLimitLayer::new(Failing::from(20), Global);
        assert_eq!(doubled(&own, &own), 1);

        // Limiters of their own, keys of their own, requests that cost nothing.
        let (other, _) = limiter(Quota::per_hour(1_000));
        assert_eq!(doubled(&by(&shared), &by(&other)), 0);
        let by_key = RateLimitLayer::new(shared.clone(), Header::new("x-api-key"));
        assert_eq!(doubled(&by(&shared), &by_key), 0);
        assert_eq!(doubled(&by(&shared).cost(|_| 0), &by(&shared)), 0);
        let skipping = by(&shared).skip(|_| true);
        assert_eq!(doubled(&skipping, &by(&shared)), 0);
    }

    /// The attempt is charged each time, but the request that is sent again has not passed a layer.
    #[test]
    fn a_retry_around_the_layer_is_no_second_charge() {
        let service = layer(Global).layer(Probe::default());
        let lines = logged(|| {
            for _ in 0..3 {
                let (parts, ()) = get("/").body(()).unwrap().into_parts();
                let again = parts.clone();
                for parts in [parts, again] {
                    let request = http::Request::from_parts(parts, String::new());
                    let sent = tower::ServiceExt::oneshot(service.clone(), request);
                    testkit::now(sent).unwrap();
                }
            }
        });
        assert!(lines.is_empty(), "{lines:?}");
    }
}

/// Filters of operators name it.
#[cfg(feature = "tracing")]
#[test]
fn a_line_is_an_event_of_the_target_on_the_page() {
    use std::sync::mpsc;
    use tracing_subscriber::{Layer, layer::Context, prelude::*, registry};

    struct Targets(mpsc::Sender<String>);

    impl<S: tracing::Subscriber> Layer<S> for Targets {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let _ = self.0.send(event.metadata().target().to_owned());
        }
    }

    let (sender, targets) = mpsc::channel();
    let subscriber = registry().with(Targets(sender));
    testkit::logged_to(subscriber, || {
        send(&layer(PeerIp).layer(Probe::default()), get("/"));
    });
    assert_eq!(
        targets.try_iter().collect::<Vec<_>>(),
        ["tower_ratelimit::log"]
    );
}

//! Mistakes that would stay silent: the layer logs them once, with the fix.

use std::net::SocketAddr;

use http::request::Builder;
use testkit::{Probe, field, get, limiter, logged, send};
use tower::Layer;
use tower_ratelimit::{
    AsyncLimiter, ClientIp, Concurrency, ConcurrencyLayer, Decision, Global, Key, Limiter,
    LimiterError, LocalLimiter, Quota, RateLimitLayer,
    decision::{Op, Policy},
    key::ClientIpHeader,
    limiter::Tier,
};

#[test]
fn an_unknown_tier_is_503_and_one_line_that_names_those_there_are() {
    let limiter = LocalLimiter::builder(Quota::per_hour(1))
        .tier("pro", Quota::per_hour(5))
        .build()
        .unwrap();
    let lines = logged(|| {
        // Other settings of the layer make no difference.
        for elastic in [false, true] {
            let layer = RateLimitLayer::new(limiter.clone(), Global).tier(|_| Tier::named("por"));
            let layer = if elastic {
                layer.elastic(|| true)
            } else {
                layer
            };
            let service = layer.layer(Probe::default());
            for _ in 0..3 {
                assert_eq!(send(&service, get("/")).status(), 503);
            }
        }
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        assert!(line.contains(r#"tier "por""#), "{line}");
        assert!(line.contains(r#"the default tier, tier "pro""#), "{line}");
    }
}

/// A limiter of somebody's own that has tiers.
struct Tiered(LocalLimiter);

impl AsyncLimiter for Tiered {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        Limiter::apply(&self.0, key, op).await
    }

    async fn apply_in(&self, tier: &Tier, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        testkit::apply_in(&self.0, tier, key, op).await
    }

    fn policies(&self) -> &[Policy] {
        Limiter::policies(&self.0)
    }
}

#[test]
fn an_async_limiter_can_have_tiers() {
    let tiered = LocalLimiter::builder(Quota::per_hour(1))
        .tier("pro", Quota::per_hour(5))
        .build()
        .unwrap();
    let by_path = |parts: &http::request::Parts| match parts.uri.path() {
        "/" => Tier::DEFAULT,
        "/pro" => Tier::named("pro"),
        _ => Tier::named("por"),
    };
    let service = RateLimitLayer::new(Tiered(tiered), Global)
        .tier(by_path)
        .layer(Probe::default());
    let pro = send(&service, get("/pro"));
    assert_eq!(field(&pro, "x-ratelimit-limit"), Some("5"));
    assert_eq!(send(&service, get("/por")).status(), 503);
    // A limiter without tiers has none but the default one.
    struct Plain(LocalLimiter);
    impl AsyncLimiter for Plain {
        async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
            Limiter::apply(&self.0, key, op).await
        }

        fn policies(&self) -> &[Policy] {
            Limiter::policies(&self.0)
        }
    }
    let plain = Plain(limiter(Quota::per_hour(2)).0);
    let service = RateLimitLayer::new(plain, Global)
        .tier(by_path)
        .layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(send(&service, get("/pro")).status(), 503);
}

#[test]
fn two_policies_of_one_name_are_one_line_that_names_the_fix() {
    let (one, _) = limiter(Quota::per_hour(10));
    let (other, _) = limiter(Quota::per_hour(20));
    let (named, _) = limiter(Quota::per_hour(20).named("default, too"));
    let sent = |layers: [LocalLimiter; 2]| {
        let [inner, outer] = layers;
        let service = RateLimitLayer::new(inner, Global).layer(Probe::default());
        let service = RateLimitLayer::new(outer, Global).layer(service);
        logged(|| {
            for _ in 0..3 {
                let response = send(&service, get("/"));
                assert_eq!(
                    response
                        .headers()
                        .get_all("ratelimit-policy")
                        .iter()
                        .count(),
                    2
                );
            }
        })
    };
    let lines = sent([one.clone(), other]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(r#"named "default""#), "{lines:?}");
    assert!(lines[0].contains(".named("), "{lines:?}");
    assert!(sent([one, named]).is_empty());
}

/// To inspect every response for good would cost each of them the reading of a field.
#[test]
fn wrong_policy_names_are_reported_within_the_first_responses() {
    let (limiter, _) = limiter(Quota::per_hour(100));
    let named = || {
        let service = tower::service_fn(async move |request: http::Request<String>| {
            let path = request.uri().path().trim_start_matches('/');
            let response = http::Response::builder();
            let policy = format!(
                r#""{}";q=5"#,
                if path.is_empty() { "default" } else { path }
            );
            let response = response.header("ratelimit-policy", policy);
            Ok::<_, std::convert::Infallible>(response.body(String::new()).unwrap())
        });
        RateLimitLayer::new(limiter.clone(), Global).layer(service)
    };
    for (well_named, warnings) in [(15, 1), (16, 0)] {
        let service = named();
        let lines = logged(|| {
            for _ in 0..well_named {
                send(&service, get("/other"));
            }
            send(&service, get("/"));
        });
        assert_eq!(lines.len(), warnings, "{lines:?}");
    }
}

#[test]
fn layers_of_unlike_kinds_can_have_one_name_too() {
    let (limiter, _) = limiter(Quota::per_hour(10).named("api"));
    let service = RateLimitLayer::new(limiter, Global).layer(tower::service_fn(async |_| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    }));
    let concurrency = Concurrency::max(5).named("api");
    let service = ConcurrencyLayer::new(concurrency, Global).layer(service);
    let lines = logged(|| drop(send(&service, get("/"))));
    assert_eq!(lines.len(), 1, "{lines:?}");
}

fn from(peer: &str) -> Builder {
    let peer: SocketAddr = format!("{peer}:4000").parse().unwrap();
    get("/").extension(peer)
}

#[test]
fn a_header_that_no_proxy_sends_is_one_line() {
    let sent = |client_ip: ClientIp, request: fn() -> Builder| {
        let service =
            RateLimitLayer::new(Quota::per_hour(1_000), client_ip).layer(Probe::default());
        logged(|| {
            for _ in 0..40 {
                send(&service, request());
            }
        })
    };
    let behind = || ClientIp::behind(["10.0.0.0/8"]);
    let forwarded = || from("10.0.0.1").header("x-forwarded-for", "203.0.113.7");
    let lines = sent(behind().header(ClientIpHeader::CfConnectingIp), forwarded);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("cf-connecting-ip"), "{lines:?}");
    assert!(lines[0].contains("ClientIp::header"), "{lines:?}");
    // No line about a header that is sent, nor about clients that are no proxies.
    assert!(sent(behind(), forwarded).is_empty());
    assert!(sent(behind(), || from("203.0.113.7")).is_empty());
}

#[cfg(feature = "axum")]
#[test]
fn routes_around_the_router_are_one_line() {
    use axum::{Router, body::Body, routing};
    use tower::ServiceExt;
    use tower_ratelimit::key::MatchedRoute;

    let app = Router::new().route("/", routing::get(async || "hello"));
    let layer = RateLimitLayer::new(Quota::per_hour(1_000), MatchedRoute);
    let around = layer.layer(app);
    let lines = logged(|| {
        for _ in 0..40 {
            let request = get("/").body(Body::empty()).unwrap();
            testkit::now(around.clone().oneshot(request)).unwrap();
        }
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("Router::layer"), "{lines:?}");
    // They may also be the first requests of a scanner, behind a layer that is where it should be.
    assert!(lines[0].contains("if the layer is inside"), "{lines:?}");
}

#[test]
fn a_quota_keeps_its_name() {
    let (limiter, _) = limiter(Quota::per_hour(1).named("api"));
    let error = limiter.set_quota("api", Quota::per_hour(2).named("web"));
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("\"api\"") && text.contains("\"web\""),
        "{text}"
    );
    limiter
        .set_quota("api", Quota::per_hour(2).named("api"))
        .unwrap();
    limiter.set_quota("api", Quota::per_hour(3)).unwrap();
}

#[test]
fn a_slice_of_quotas_is_a_limiter() {
    const QUOTAS: &[Quota] = &[Quota::per_second(2), Quota::per_hour(5)];
    let service = RateLimitLayer::new(QUOTAS, Global).layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    let array = &[Quota::per_hour(1)];
    let service = RateLimitLayer::new(array, Global).layer(Probe::default());
    assert_eq!(send(&service, get("/")).status(), 200);
    assert_eq!(send(&service, get("/")).status(), 429);
    assert!(RateLimitLayer::try_new(&[] as &[Quota], Global).is_err());
}

fn call() -> Builder {
    http::Request::post("/").header("content-type", "application/grpc")
}

/// A client chooses its content type: where no gRPC is served it is not to choose its status.
#[test]
fn the_content_type_does_not_make_a_denial_200_where_grpc_is_off() {
    let quota = Quota::per_hour(1);
    for (grpc, status) in [(true, 200), (false, 429)] {
        let rate = RateLimitLayer::new(quota, Global).grpc(grpc);
        let reported = rate
            .clone()
            .rejection_fn(|rejection| http::Response::new(rejection.is_grpc().to_string()));
        let service = rate.layer(Probe::default());
        send(&service, call());
        let denied = send(&service, call());
        assert_eq!(denied.status(), status);
        // HTTP clients read the fields, gRPC clients the trailers.
        let fields = ["ratelimit", "retry-after"].map(|name| field(&denied, name).is_some());
        assert_eq!(fields, [!grpc; 2]);
        assert_eq!(field(&denied, "grpc-status").is_some(), grpc);
        let reported = reported.layer(Probe::default());
        assert_eq!(send(&reported, call()).body(), &grpc.to_string());
        let banned = RateLimitLayer::new(quota, Global).grpc(grpc).deny(|_| true);
        let banned = send(&banned.layer(Probe::default()), call());
        assert_eq!(banned.status(), if grpc { 200 } else { 403 });

        let concurrency = ConcurrencyLayer::new(Concurrency::max(1), Global).grpc(grpc);
        let service = concurrency.layer(tower::service_fn(async |_| {
            Ok::<_, std::convert::Infallible>(http::Response::new("under way".to_owned()))
        }));
        let first = send(&service, call());
        assert_eq!(send(&service, call()).status(), status);
        drop(first);
    }
}

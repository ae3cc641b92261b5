//! `/v1/auth`, embedded in a server: proxies act on the status only.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{Request, StatusCode};
use tower::Service as _;
use tower_ratelimit::{
    RedisStore,
    rules::{Format, Rules, RulesLayer},
};
use tower_ratelimit_service::forward_auth;

const RULES: &str = r"rules:
  - {name: denied, match: {path: /denied}, action: deny}
  - {name: keyed, match: {path: /keyed}, key: {header: x-user}, on_missing_key: reject, quota: 2/day}
  - {name: limited, match: {path: /limited}, quota: {rate: 1/365d, algorithm: fixed_window}}
";

fn local() -> Router {
    let rules = Rules::builder().parse(RULES, Format::Yaml);
    router(rules.unwrap())
}

/// The address of its store has no listener.
fn failing() -> Router {
    let store = RedisStore::builder()
        .deadline(Duration::from_millis(50))
        .connect("redis://127.0.0.1:1")
        .unwrap();
    let text = format!("store: {{on_failure: deny}}\n{RULES}");
    router(
        Rules::builder()
            .store(store)
            .parse(text, Format::Yaml)
            .unwrap(),
    )
}

fn router(rules: Rules) -> Router {
    let trusted = ["127.0.0.0/8".parse().unwrap()];
    forward_auth::router(&RulesLayer::new(rules), trusted)
}

/// The status of the response to this request of a proxy.
async fn call(router: &Router, method: &str, query: &str, fields: &[(&str, &str)]) -> StatusCode {
    let question = Request::builder()
        .method(method)
        .uri(format!("/v1/auth{query}"));
    let question = fields.iter().fold(question, |question, (name, value)| {
        question.header(*name, *value)
    });
    let peer = SocketAddr::from(([127, 0, 0, 1], 5));
    let question = question.extension(ConnectInfo(peer)).body(Body::empty());
    let answer = router.clone().call(question.unwrap()).await.unwrap();
    assert_eq!(answer.headers().get("grpc-status"), None);
    answer.status()
}

/// Clients choose their content type, and proxies forward it.
#[tokio::test]
async fn requests_that_claim_to_be_grpc_are_denied_by_the_status() {
    let fields = |path| {
        [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", path),
            ("content-type", "application/grpc"),
        ]
    };
    let local = local();
    assert_eq!(call(&local, "GET", "", &fields("/limited")).await, 200);
    for (router, path, status) in [
        (&local, "/limited", 429),
        (&local, "/denied", 403),
        (&local, "/keyed", 400),
        (&failing(), "/limited", 503),
    ] {
        assert_eq!(
            call(router, "GET", "", &fields(path)).await,
            status,
            "{path}"
        );
        let forbids = if status == 503 { 503 } else { 403 };
        let answer = call(router, "GET", "?deny=403", &fields(path)).await;
        assert_eq!(answer, forbids, "{path}");
    }
}

/// A proxy may let requests pass when the service has an error, so no client may cause one.
#[tokio::test]
async fn what_clients_bring_about_is_403_where_that_denies() {
    let local = local();
    let uri = ("x-forwarded-uri", "/");
    for (method, fields) in [
        ("GET", [uri, ("x-original-uri", "/zzz")]),
        ("GET", [uri, ("x-original-method", "G ET")]),
        ("GET", [uri, ("x-forwarded-for", "nobody")]),
        ("GET", [("x-forwarded-uri", "ht tp"), ("x-a", "b")]),
        (
            "GET",
            [
                ("x-forwarded-method", "POST"),
                ("x-forwarded-uri", "/keyed"),
            ],
        ),
        ("POST", [uri, ("x-a", "b")]),
    ] {
        let plain = call(&local, method, "", &fields).await;
        let expected = if method == "POST" { 405 } else { 400 };
        assert_eq!(plain, expected, "{fields:?}");
        let forbids = call(&local, method, "?deny=403", &fields).await;
        assert_eq!(forbids, 403, "{fields:?}");
    }
}

/// ingress-nginx writes the whole address into one field.
#[tokio::test]
async fn the_target_is_read_from_x_original_url() {
    let text = "rules: [{name: login, match: {path: /login, host: shop.example}, key: global, quota: 1/365d}]";
    let limited = || router(Rules::builder().parse(text, Format::Yaml).unwrap());
    let url = ("x-original-url", "https://shop.example/login?next=1");
    let path = ("x-original-url", "/login?next=1");
    for fields in [
        vec![url],
        vec![("x-original-method", "GET"), url],
        vec![url, ("x-original-uri", "/login?next=1")],
        vec![url, ("x-forwarded-host", "SHOP.example:443")],
        vec![path, ("x-forwarded-host", "shop.example")],
    ] {
        let router = limited();
        for status in [200, 429] {
            assert_eq!(
                call(&router, "GET", "", &fields).await,
                status,
                "{fields:?}"
            );
        }
    }
    // The client wrote one of them.
    for other in [
        ("x-original-url", "https://shop.example/free"),
        ("x-original-url", "https://other.example/login?next=1"),
        ("x-forwarded-uri", "/free"),
        ("x-forwarded-host", "other.example"),
        ("x-forwarded-host", "no host"),
    ] {
        let answer = call(&limited(), "GET", "", &[url, other]).await;
        assert_eq!(answer, 400, "{other:?}");
    }
    for url in ["login", "shop.example", "", "https://", "shop.example:443"] {
        for name in ["x-original-url", "x-original-uri", "x-forwarded-uri"] {
            let answer = call(&limited(), "GET", "", &[(name, url)]).await;
            assert_eq!(answer, 400, "{name}: {url:?}");
        }
    }
}

/// Otherwise no rule with a path would ever apply.
#[tokio::test]
async fn a_request_whose_target_no_field_names_is_refused() {
    for fields in [
        vec![],
        vec![("x-original-method", "POST")],
        vec![
            ("x-forwarded-host", "shop.example"),
            ("x-rewrite-url", "/limited"),
        ],
    ] {
        for (query, status) in [("", 400), ("?deny=403", 403)] {
            let answer = call(&local(), "GET", query, &fields).await;
            assert_eq!(answer, status, "{fields:?}");
        }
    }
}

/// The upstream gets the mark through the proxy, and none that its client sent.
#[tokio::test]
async fn rules_that_overflow_mark_the_response() {
    let text =
        "rules: [{name: pool, match: {path: /pool}, key: global, quota: 1/day, action: overflow}]";
    let overflowing = router(Rules::builder().parse(text, Format::Yaml).unwrap());
    let marks = async |router: &Router, path: &str| {
        let question = Request::get("/v1/auth")
            .header("x-forwarded-uri", path)
            .header("x-ratelimit-overflow", "mine")
            .extension(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 5))))
            .body(Body::empty());
        let answer = router.clone().call(question.unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers().get("retry-after"), None);
        let marks = answer.headers().get_all("x-ratelimit-overflow").iter();
        marks
            .map(|mark| mark.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(marks(&overflowing, "/pool").await, [""; 0]);
    assert_eq!(marks(&overflowing, "/pool").await, ["pool"]);
    assert_eq!(marks(&overflowing, "/other").await, [""; 0]);
    assert_eq!(marks(&local(), "/limited").await, [""; 0]);
}

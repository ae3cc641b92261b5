//! Ways around a limit that other limiters have had, and leaks.

use std::collections::HashSet;

use proptest::prelude::*;
use testkit::{Probe, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    Header, Key, KeyExtractor, LocalLimiter, Quota, RateLimitLayer,
    key::{BasicUser, BearerToken, Cookie, QueryParameter},
    reject::{Empty, PlainText, Reject},
};

use super::request;

/// Cuts `text` before the characters whose bit is set.
fn pieces(text: &str, cuts: u32) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for (position, character) in text.chars().enumerate() {
        if cuts >> position & 1 == 1 {
            pieces.push(String::new());
        }
        pieces.last_mut().unwrap().push(character);
    }
    pieces
}

fn tuple(parts: &[String]) -> Key {
    Key::tuple(parts.iter().map(|part| Key::from(part.as_str())))
}

proptest! {
    #[test]
    fn no_two_ways_to_cut_a_text_give_the_same_key(
        text in "[ab\0\x01\x02\x03]{0,12}", one: u32, other: u32,
    ) {
        let [one, other] = [one, other].map(|cuts| pieces(&text, cuts));
        prop_assert_eq!(tuple(&one) == tuple(&other), one == other);
    }
}

#[test]
fn nothing_is_folded_or_normalised() {
    let look_alikes = [
        "k", "K", "\u{212a}", "\u{ff2b}", // k, K, the kelvin sign, a wide K
        "\u{e9}", "e\u{301}", // composed and decomposed
        "/login", "/login/", "//login", "/LOGIN", "/%6cogin", "/./login", "\u{131}", "i",
        "\u{130}", "\u{df}", "ss",
    ];
    let keys: HashSet<_> = look_alikes.map(Key::from).into_iter().collect();
    assert_eq!(keys.len(), look_alikes.len());
    let [name, spaced] = ["alice", "alice "].map(Key::from);
    assert_ne!(name, spaced);
}

#[test]
fn a_null_byte_ends_no_key() {
    let texts = ["a", "a\0", "a\0b", "a\0c", "\0a", "\0", "", "a\0\0"];
    let keys: HashSet<_> = texts.map(Key::from).into_iter().collect();
    assert_eq!(keys.len(), texts.len());
    let bytes: HashSet<_> = texts
        .map(|text| Key::bytes(text.as_bytes()))
        .into_iter()
        .collect();
    assert_eq!(bytes.len(), texts.len());
    let parts = request("/?k=a%00b", &[]);
    let found = QueryParameter::new("k").extract(&parts);
    assert_eq!(found, Ok(Key::digest(b"a\0b")));
}

#[cfg(feature = "axum")]
#[test]
fn path_tricks_reach_no_route_and_are_one_key() {
    use axum::{Router, body::Body, http::Request, routing::post};
    use tower::ServiceExt;
    use tower_ratelimit::key::{MatchedRoute, key_fn};

    let tricks = [
        "//login",
        "/login/",
        "/Login",
        "/LOGIN",
        "/%6cogin",
        "/./login",
        "/login/.",
        "/a/../login",
        "/login;x=1",
        "/login%00",
        "/login%20",
    ];
    let status = |app: &Router, path: &str| {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = testkit::now(app.clone().oneshot(request)).unwrap();
        response.status().as_u16()
    };
    let app = |key: fn() -> Box<dyn KeyExtractor>| {
        let (limiter, _) = limiter(Quota::per_hour(1));
        let key = key();
        let layer = RateLimitLayer::new(limiter, key_fn(move |parts| key.extract(parts)));
        Router::new()
            .route("/login", post(async || "welcome"))
            .layer(layer)
    };
    let by_route = app(|| Box::new(MatchedRoute));
    assert_eq!(status(&by_route, "/login"), 200);
    assert_eq!(status(&by_route, "/login?again"), 429);
    // None of them is the route, and the first uses up what they share.
    assert_eq!(status(&by_route, tricks[0]), 404);
    for trick in tricks {
        assert_eq!(status(&by_route, trick), 429, "{trick}");
    }
    // By the path they have a key each, which `MatchedRoute` avoids.
    let by_path = app(|| Box::new(key_fn(|parts| Key::from(parts.uri.path()))));
    for trick in tricks {
        assert_eq!(status(&by_path, trick), 404, "{trick}");
    }
}

#[test]
fn a_batch_costs_as_much_as_what_is_in_it() {
    let (limiter, _) = limiter(Quota::per_hour(10));
    let layer = RateLimitLayer::new(limiter, Header::new("x-api-key")).cost(|parts| {
        let ids = parts
            .uri
            .query()
            .and_then(|query| query.strip_prefix("ids="));
        ids.map_or(1, |ids| ids.split(',').count() as u64)
    });
    let service = layer.layer(Probe::default());
    let status = |path| {
        let request = get(path).header("x-api-key", "k-123");
        send(&service, request).status().as_u16()
    };
    assert_eq!(status("/users?ids=1,2,3,4,5,6"), 200);
    assert_eq!(status("/users?ids=1,2,3,4,5"), 429);
    assert_eq!(status("/users?ids=1,2,3,4"), 200);
    assert_eq!(status("/users"), 429);
}

#[test]
fn no_response_and_no_debug_text_contains_a_key() {
    fn responses<R>(layer: &RateLimitLayer<LocalLimiter, R>) -> String
    where
        R: Reject<String>,
    {
        let mut seen = format!("{layer:#?} {:#?}", layer.limiter());
        let service = layer.layer(Probe::default());
        let statuses = ["/", "/", "/banned"].map(|path| {
            let request = get(path).header("x-api-key", "hunter2");
            let response = send(&service, request);
            seen += &format!("{response:#?}");
            response.status().as_u16()
        });
        assert_eq!(statuses, [200, 429, 403]);
        seen
    }
    let layer = || {
        let (limiter, _) = limiter(Quota::per_hour(1).named("api"));
        RateLimitLayer::new(limiter, Header::new("x-api-key"))
            .deny(|parts| parts.uri.path() == "/banned")
    };
    for seen in [
        responses(&layer()),
        responses(&layer().rejection(PlainText)),
        responses(&layer().rejection(Empty)),
    ] {
        assert!(seen.contains("api") && !seen.contains("hunter2"), "{seen}");
    }
}

/// A secret that is compared byte by byte reveals by the time how much of it was right.
#[test]
fn a_secret_is_looked_up_by_its_digest() {
    let parts = request(
        "/?key=hunter2",
        &[
            ("authorization", b"Bearer hunter2"),
            ("cookie", b"key=hunter2"),
            ("x-api-key", b"hunter2"),
        ],
    );
    let basic = request("/", &[("authorization", b"Basic aHVudGVyMjpwYXNzd29yZA==")]);
    let found = [
        BearerToken.extract(&parts),
        Cookie::new("key").extract(&parts),
        QueryParameter::new("key").extract(&parts),
        Header::new("x-api-key").secret().extract(&parts),
        BasicUser.extract(&basic),
    ];
    for key in found {
        let key = key.unwrap();
        assert_eq!(key, Key::digest(b"hunter2"));
        assert_eq!(key.as_bytes().len(), 33);
        assert!(
            !key.as_bytes()
                .windows(4)
                .any(|part| b"hunter2".windows(4).any(|s| s == part))
        );
    }
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_do_not_grow_with_clients() {
    use metrics_util::debugging::DebuggingRecorder;
    use tower_ratelimit::observe::MetricsObserver;

    let series = |clients: u32| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let (limiter, _) = limiter(Quota::per_hour(1).named("api"));
        let layer =
            RateLimitLayer::new(limiter, Header::new("x-api-key")).observer(MetricsObserver::new());
        let service = layer.layer(Probe::default());
        metrics::with_local_recorder(&recorder, || {
            for client in 0..clients {
                for _ in 0..2 {
                    let path = format!("/users/{client}");
                    let request = get(&path).header("x-api-key", format!("hunter{client}"));
                    send(&service, request);
                }
            }
        });
        let mut series: Vec<_> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, ..)| key.key().to_string())
            .collect();
        series.sort();
        series
    };
    let one = series(1);
    assert_eq!(one.len(), 6, "{one:?}");
    assert_eq!(series(500), one);
    assert!(
        one.iter()
            .all(|name| !name.contains("hunter") && !name.contains("users"))
    );
}

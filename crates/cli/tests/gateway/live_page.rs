//! The live page of the admin service: its stream, and the page in a real browser.
//!
//! `LIVE_PAGE_SCREENSHOTS=folder` keeps the screenshots for a person to see.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};
use testkit::{browser::Browser, child_processes::eventually, needs, servers::Setup};

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

const SIZES: [(u32, u32); 3] = [(1280, 1000), (760, 1000), (320, 1400)];

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The response of the admin service to a request with these fields.
async fn ask(gateway: &Gateway, path: &str, fields: &str) -> (Head, String) {
    let mut wire = Wire::connect(gateway.admin).await;
    wire.request(&format!(
        "GET {path} HTTP/1.1\nhost: 127.0.0.1:{}{fields}",
        gateway.admin
    ))
    .await;
    wire.message().await.expect("a response")
}

async fn once(gateway: &Gateway) -> Value {
    let (head, body) = ask(gateway, "/v1/live?once", "").await;
    assert_eq!(head.status(), 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Sends as many requests to the limited path; two a day are allowed.
async fn flood(gateway: &Gateway, number: usize) {
    let mut wire = gateway.connect().await;
    for _ in 0..number {
        wire.answer("GET /limited HTTP/1.1").await;
    }
}

/// The counts of the last minute, once they are those.
async fn counts(gateway: &Gateway, requests: u64, denied: u64) -> Value {
    loop {
        let state = once(gateway).await;
        let minute = &state["limits"][0]["minute"];
        let [seen, refused] = ["requests", "denied"].map(|name| minute[name].as_u64().unwrap_or(0));
        assert!(seen <= requests && refused <= denied, "{minute}");
        if (seen, refused) == (requests, denied) {
            return state;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn counts_are_those_of_the_requests() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        flood(&gateway, 7).await;
        let state = counts(&gateway, 7, 5).await;
        assert_eq!(state["limits"][0]["name"], "limited");
        assert_eq!(state["limits"][0]["least_left"], 0.0);
        let history = state["limits"][0]["history"]["denied"].as_array();
        let history = history.expect("a history");
        assert_eq!(history.len(), 300);
        assert_eq!(history.iter().filter_map(Value::as_u64).sum::<u64>(), 5);
        // Keys are shown as digests.
        let key = state["keys"][0]["key"].as_str().expect("a key");
        assert!(!key.contains("127.0.0.1"), "{key}");
        assert_eq!(state["keys"][0]["denied"], 5);
        let rooms = json!([{"name": "requests", "used": 0, "most": 1024}, {"name": "WebSockets", "used": 0, "most": 1024}]);
        let shown = state["rooms"].as_array().expect("rooms");
        assert_eq!(Value::from(&shown[..2]), rooms);
        // The connections of the flood may still be open.
        assert_eq!(shown[2]["name"], "connections");
        assert_eq!(shown[2]["most"], 4_096);
    })
    .await;
}

#[tokio::test]
async fn time_of_the_store_s_calls_is_shown() {
    needs!(redis);
    bounded(async {
        let server = Setup::redis().start().await;
        let upstream = Upstream::start().await;
        let options = ["--redis", &server.url(), "--redis-deadline", "60s"];
        let gateway = Gateway::start(upstream.port, &options).await;
        flood(&gateway, 7).await;
        let store = once(&gateway).await["store"].clone();
        let times = ["p50", "p99"].map(|name| store["call_seconds"][name].as_f64());
        assert!(times[0] > Some(0.0) && times[0] <= times[1], "{store}");
    })
    .await;
}

#[tokio::test]
async fn page_and_its_stream_are_guarded() {
    bounded(async {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), TOKEN).unwrap();
        let options = ["--admin-token-file", "token"];
        let gateway = Gateway::start_in(folder, upstream.port, &options).await;
        let (head, body) = ask(&gateway, "/", "").await;
        assert_eq!(head.status(), 200);
        let policy = head.field("content-security-policy").expect("a policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'sha256-"),
            "{policy}"
        );
        assert!(!body.contains("{{"), "a part of the page is missing");
        for (path, fields, expected) in [
            ("/v1/live?once", "", 401),
            ("/v1/live", "", 401),
            (
                "/v1/live?once",
                "\nauthorization: Bearer 0123456789abcdef0123456789abcdeX",
                401,
            ),
            (
                "/v1/live?once",
                "\nauthorization: Bearer 0123456789abcdef0123456789abcdef",
                200,
            ),
            ("/", "\norigin: https://evil.example", 403),
            ("/", "\nsec-fetch-site: cross-site", 403),
            ("/", "\nsec-fetch-site: same-origin", 200),
        ] {
            let (head, body) = ask(&gateway, path, fields).await;
            assert_eq!(head.status(), expected, "{path} {fields}: {body}");
        }
    })
    .await;
}

#[tokio::test]
async fn page_can_be_off() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--admin-page", "off"]).await;
        assert_eq!(ask(&gateway, "/", "").await.0.status(), 404);
        assert_eq!(ask(&gateway, "/v1/live?once", "").await.0.status(), 200);
    })
    .await;
}

/// Opens a stream, and waits for its head.
async fn viewer(gateway: &Gateway) -> (Wire, Head) {
    let mut wire = Wire::connect(gateway.admin).await;
    wire.request(&format!(
        "GET /v1/live HTTP/1.1\nhost: 127.0.0.1:{}",
        gateway.admin
    ))
    .await;
    let head = wire.head().await.expect("a response");
    (wire, head)
}

#[tokio::test]
async fn sixteen_viewers_are_served_and_the_streams_end_with_the_process() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &[]).await;
        let mut viewers = Vec::new();
        for _ in 0..16 {
            let (mut wire, head) = viewer(&gateway).await;
            assert_eq!(head.status(), 200);
            let first = wire.chunk().await.expect("an event").expect("a chunk");
            assert!(first.starts_with(b"data: {"));
            viewers.push(wire);
        }
        let (_, head) = viewer(&gateway).await;
        assert_eq!((head.status(), head.field("retry-after")), (503, Some("5")));
        // One that leaves makes room.
        viewers.pop();
        let newcomer = eventually("there is room", async || {
            let (wire, head) = viewer(&gateway).await;
            (head.status() == 200).then_some(wire)
        });
        viewers.push(newcomer.await);
        gateway.process.terminate();
        for wire in &mut viewers {
            wire.rest().await;
        }
        eventually("the process ends", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn page_shows_which_limit_denies_in_any_width_and_colour() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(upstream.port, &["--reveal-keys"]).await;
    flood(&gateway, 9).await;
    counts(&gateway, 9, 7).await;
    let url = format!("http://127.0.0.1:{}/", gateway.admin);
    tokio::task::spawn_blocking(move || {
        browser.open(&url, "document.querySelector('#limits tbody tr')");
        let text = |selector: &str| {
            browser.js(&format!(
                "return document.querySelector('{selector}').innerText"
            ))
        };
        let summary = text("#summary");
        let summary = summary.as_str().expect("a text");
        let expected = "limited denied 7 of 9 requests in the last minute (78\u{a0}%)";
        assert!(summary.starts_with(expected), "{summary}");
        assert!(summary.ends_with(". Most often ip:127.0.0.1."), "{summary}");
        browser.js("document.querySelector('#keys button').click()");
        browser.eventually(
            "the key's limits are shown",
            "return document.getElementById('key').textContent.includes('0 of 2 left')",
        );
        // Before the test itself looks into the drawings, of which the browser complains.
        assert_eq!(browser.log("browser"), [] as [Value; 0]);
        for scheme in ["light", "dark"] {
            browser.set_media(&[("prefers-color-scheme", scheme)]);
            for (width, height) in SIZES {
                browser.set_size(width, height);
                let what = format!("{scheme}, {width} pixels");
                let over = browser.js("return document.documentElement.scrollWidth - innerWidth");
                assert!(
                    over.as_i64().is_some_and(|over| over <= 0),
                    "{what}: {over} pixels too wide"
                );
                browser.eventually("the strip is painted", PAINTED);
                if let Some(folder) = env::var_os("LIVE_PAGE_SCREENSHOTS") {
                    let file = PathBuf::from(folder).join(format!("{scheme}-{width}.png"));
                    fs::write(file, browser.screenshot()).expect("a file");
                }
                if let Some(faults) = browser.accessibility_faults() {
                    assert_eq!(faults, json!([]), "{what}");
                }
            }
        }
        browser.set_media(&[("prefers-reduced-motion", "reduce")]);
        let shown = browser.js("return document.querySelector('canvas').offsetParent !== null");
        assert_eq!(shown, json!(false), "a drawing moves");
        drop(gateway);
    })
    .await
    .expect("no panic");
}

/// Whether each strip has some painted points.
const PAINTED: &str = "return [...document.querySelectorAll('canvas')].every((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((byte, i) => i % 4 === 3 && byte > 0).length > 100; })";

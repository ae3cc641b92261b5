//! `cors_origins`: what scripts of other origins see of denials, and preflight requests.

use std::fs;

use testkit::browser::Browser;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

const RULES: &str = "
rules:
  - {name: closed, match: {path: /closed}, action: deny}
  - {name: limited, match: {path: /limited}, key: client_ip, quota: 1/day, in_flight: 1}
";

const APP: &str = "origin: https://app.example";

const PREFLIGHT: &str = "origin: https://app.example\naccess-control-request-method: POST";

async fn start(settings: &str, upstream: &Upstream) -> Gateway {
    Gateway::start_with(&format!("{settings}{RULES}"), upstream.port, &[]).await
}

async fn status(wire: &mut Wire, request: &str) -> (u16, Head) {
    let (head, _) = wire.answer(request).await;
    (head.status(), head)
}

const LISTED: &str = "cors_origins: [\"https://app.example\"]";

fn cors(head: &Head) -> [Option<&str>; 4] {
    [
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "vary",
        "access-control-expose-headers",
    ]
    .map(|name| head.field(name))
}

#[tokio::test]
async fn a_script_of_a_listed_origin_sees_a_denial_and_its_fields() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start(LISTED, &upstream).await;
        let mut wire = gateway.connect().await;
        let request = format!("GET /limited HTTP/1.1\n{APP}");
        let (passed, head) = status(&mut wire, &request).await;
        assert_eq!((passed, cors(&head)), (200, [None; 4]));
        let (denied, head) = status(&mut wire, &request).await;
        assert_eq!(denied, 429);
        let [origin, credentials, vary, exposed] = cors(&head);
        assert_eq!(origin, Some("https://app.example"));
        assert_eq!((credentials, vary), (Some("true"), Some("origin")));
        let exposed: Vec<&str> = exposed.unwrap().split(", ").collect();
        assert!(exposed.contains(&"retry-after"), "{exposed:?}");
        for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
            let is_exposed = exposed.contains(&name);
            assert_eq!(head.field(name).is_some(), is_exposed, "{name}");
        }
        for other in ["origin: https://evil.test", "x-none: 1"] {
            let request = format!("GET /limited HTTP/1.1\n{other}");
            let (denied, head) = status(&mut wire, &request).await;
            let expected = [None, None, Some("origin"), None];
            assert_eq!((denied, cors(&head)), (429, expected), "{other}");
        }
        let (denied, head) = status(&mut wire, &format!("GET /closed HTTP/1.1\n{APP}")).await;
        assert_eq!((denied, cors(&head)[0]), (403, Some("https://app.example")));
        // The upstream's own error has the fields that the upstream writes.
        let (denied, head) = status(&mut wire, &format!("GET /429 HTTP/1.1\n{APP}")).await;
        assert_eq!((denied, cors(&head)[0]), (429, None));
    })
    .await;
}

#[tokio::test]
async fn any_origin_sees_a_denial_without_credentials() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start("cors_origins: \"*\"", &upstream).await;
        let mut wire = gateway.connect().await;
        let request = format!("GET /limited HTTP/1.1\n{APP}");
        assert_eq!(status(&mut wire, &request).await.0, 200);
        let (denied, head) = status(&mut wire, &request).await;
        let [origin, credentials, vary, exposed] = cors(&head);
        assert_eq!((denied, origin), (429, Some("*")));
        assert_eq!((credentials, vary), (None, None));
        assert!(exposed.is_some());
    })
    .await;
}

#[tokio::test]
async fn preflights_of_listed_origins_reach_the_upstream_uncounted() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start(LISTED, &upstream).await;
        let mut wire = gateway.connect().await;
        let preflight = format!("OPTIONS /limited HTTP/1.1\n{PREFLIGHT}");
        for _ in 0..3 {
            assert_eq!(status(&mut wire, &preflight).await.0, 200);
        }
        assert_eq!(upstream.requests().len(), 3);
        // The first request is the first that counts; the limit stands between.
        assert_eq!(status(&mut wire, "GET /limited HTTP/1.1").await.0, 200);
        assert_eq!(status(&mut wire, "GET /limited HTTP/1.1").await.0, 429);
        assert_eq!(status(&mut wire, &preflight).await.0, 200);
        let plain = format!("OPTIONS /limited HTTP/1.1\n{APP}");
        assert_eq!(status(&mut wire, &plain).await.0, 429);
        let closed = format!("OPTIONS /closed HTTP/1.1\n{PREFLIGHT}");
        assert_eq!(status(&mut wire, &closed).await.0, 403);
    })
    .await;
}

#[tokio::test]
async fn without_origins_denials_have_no_cors_fields_and_preflights_count() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start("", &upstream).await;
        let mut wire = gateway.connect().await;
        let preflight = format!("OPTIONS /limited HTTP/1.1\n{PREFLIGHT}");
        assert_eq!(status(&mut wire, &preflight).await.0, 200);
        let (denied, head) = status(&mut wire, &preflight).await;
        assert_eq!((denied, cors(&head)), (429, [None; 4]));
    })
    .await;
}

/// A script can tell an overload, a lost server and a body that is too large from each other.
#[tokio::test]
async fn a_script_of_a_listed_origin_sees_why_the_gateway_failed() {
    bounded(async {
        let upstream = Upstream::start().await;
        let options = ["--timeout", "1s", "--max-in-flight", "1", "--max-body", "1"];
        let rules = format!("{LISTED}{RULES}");
        let gateway = Gateway::start_with(&rules, upstream.port, &options).await;
        let errors = async |request: &str, expected: u16| {
            for (field, listed) in [(APP, true), ("origin: https://evil.test", false)] {
                let mut wire = gateway.connect().await;
                let (failed, head) = status(&mut wire, &format!("{request}\n{field}")).await;
                assert_eq!(failed, expected, "{request}");
                let [origin, credentials, vary, _] = cors(&head);
                let seen = (origin, credentials, vary);
                let expected = if listed {
                    (Some("https://app.example"), Some("true"), Some("origin"))
                } else {
                    (None, None, Some("origin"))
                };
                assert_eq!(seen, expected, "{request}");
            }
        };
        errors("POST /cut HTTP/1.1\ncontent-length: 0", 502).await;
        errors("GET /silent HTTP/1.1", 504).await;
        errors("POST /a HTTP/1.1\ntransfer-encoding: gzip, chunked", 501).await;
        errors("POST /a HTTP/1.1\ncontent-length: 2", 413).await;
        errors("OPTIONS a.example:80 HTTP/1.1", 400).await;
        let mut holder = gateway.connect().await;
        holder.request("GET /events HTTP/1.1\nhost: test").await;
        assert_eq!(holder.head().await.unwrap().status(), 200);
        errors("GET /a HTTP/1.1", 503).await;
    })
    .await;
}

#[tokio::test]
async fn a_script_sees_the_page_for_denied_requests() {
    bounded(async {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("page.html"), "wait {retry_after}").unwrap();
        fs::write(folder.path().join("rules.yaml"), format!("{LISTED}{RULES}")).unwrap();
        let options = ["--denied-page", "page.html"];
        let gateway = Gateway::start_in(folder, upstream.port, &options).await;
        let mut wire = gateway.connect().await;
        let request = format!("GET /limited HTTP/1.1\naccept: text/html\n{APP}");
        assert_eq!(status(&mut wire, &request).await.0, 200);
        let (head, body) = wire.answer(&request).await;
        let wait = head.field("retry-after").unwrap();
        assert_eq!(body, format!("wait {wait}"));
        let [origin, credentials, vary, exposed] = cors(&head);
        assert_eq!(origin, Some("https://app.example"));
        assert_eq!((credentials, vary), (Some("true"), Some("origin")));
        assert!(exposed.unwrap().contains("retry-after"), "{exposed:?}");
    })
    .await;
}

/// What `fetch` of this address gives a script on this page.
fn fetched(browser: &Browser, page: &str, url: &str, options: &str) -> String {
    browser.open(page, "document.body");
    browser.js(&format!(
        "globalThis.seen = null;
         fetch('{url}', {options}).then(
            (got) => {{
                const fields = ['retry-after', 'ratelimit', 'ratelimit-policy'];
                globalThis.seen = [got.status, ...fields.filter((name) => got.headers.has(name))].join(' ');
            }},
            (error) => {{ globalThis.seen = String(error); }})"
    ));
    browser.eventually("an end", "return globalThis.seen !== null");
    let seen = browser.js("return globalThis.seen");
    seen.as_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_scripts_of_listed_origins_alone_why_they_are_denied() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let upstream = Upstream::start().await;
    let [listed, other] =
        ["127.0.0.1", "localhost"].map(|host| format!("http://{host}:{}", upstream.port));
    let rules = format!(
        "cors_origins: [\"{listed}\"]
rules: [{{name: shared, match: {{path: /shared}}, key: client_ip, quota: 1/day}}]"
    );
    let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
    let shared = format!("http://127.0.0.1:{}/shared", gateway.port);
    let cut = format!("http://127.0.0.1:{}/cut", gateway.port);
    let seen = tokio::task::spawn_blocking(move || {
        // The field makes the browser ask first, by a preflight request.
        let asks_first = "{headers: {'x-api-key': '1'}}";
        let asks_with_cookies = "{credentials: 'include'}";
        [
            (&listed, &shared, asks_first),
            (&listed, &shared, asks_first),
            (&listed, &shared, asks_with_cookies),
            (&listed, &cut, "{method: 'POST'}"),
            (&other, &shared, "{}"),
            (&other, &shared, asks_first),
            (&other, &cut, "{method: 'POST'}"),
        ]
        .map(|(page, url, options)| fetched(&browser, page, url, options))
    });
    let denied = "429 retry-after ratelimit ratelimit-policy";
    let hidden = "TypeError: Failed to fetch";
    let expected = ["200", denied, denied, "502", hidden, hidden, hidden];
    assert_eq!(seen.await.unwrap(), expected);
    let requests = upstream.requests();
    let of_shared = |method: &str| {
        let begin = format!("{method} /shared");
        let lines = requests.iter().map(|(head, _)| head.first_line());
        lines.filter(|line| line.starts_with(&begin)).count()
    };
    assert_eq!(of_shared("GET"), 1);
    assert!(of_shared("OPTIONS") >= 1);
}

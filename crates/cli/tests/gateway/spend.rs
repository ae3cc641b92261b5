//! `spend` in the gateway's rules: responses are charged by the tokens that they report.

use std::time::Duration;

use testkit::{
    child_processes::eventually,
    llm::formats::of_4_000_tokens,
    needs,
    servers::{Flow, Proxy, Server},
};

use crate::{
    gateway_process::{Gateway, bounded},
    http2,
    metrics::reported,
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

const RULES: &str = "
rules:
  - name: llm
    match: {path: /usage}
    key: bearer_token
    spend: {read: auto, reserve: 100}
    quota:
      - {name: requests, rate: 60/day, algorithm: fixed_window}
      - {name: tokens, rate: 1000/day, counts: tokens, algorithm: fixed_window}
";

/// A request whose response reports 10 tokens of input and so many of output.
async fn send(wire: &mut Wire, output: u64) -> (Head, String) {
    let output = output.to_string();
    let length = output.len();
    let lines = format!(
        "POST /usage HTTP/1.1\nhost: test\nauthorization: Bearer a\naccept-encoding: gzip\n\
         content-length: {length}"
    );
    wire.request(&lines).await;
    wire.send(output).await;
    wire.message().await.unwrap()
}

#[tokio::test]
async fn stream_is_charged_by_its_report_and_passes_unchanged() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        let (head, body) = send(&mut wire, 290).await;
        assert_eq!(head.status(), 200);
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
        let fields = "\"llm.requests\";r=59;";
        assert!(head.field("ratelimit").unwrap().starts_with(fields));
        // The upstream is asked for a response that can be read.
        let (request, _) = upstream.only();
        assert_eq!(request.all("accept-encoding"), ["identity"]);
        eventually("the charge", async || {
            let (head, _) = send(&mut wire, 0).await;
            let fields = head.field("ratelimit").unwrap();
            let left = fields.split_once("tokens\";r=").unwrap().1;
            let left: u64 = left.split_once(';').unwrap().0.parse().unwrap();
            // 300 tokens, 10 for each request since, and the reservation of this one.
            (left <= 1_000 - 300 - 100).then_some(())
        })
        .await;
        // Much more than is left passes once, and is owed.
        let (head, _) = send(&mut wire, 1_500).await;
        assert_eq!(head.status(), 200);
        eventually("a denial", async || {
            let (head, _) = send(&mut wire, 0).await;
            (head.status() == 429).then_some(())
        })
        .await;
        // Other paths are not limited, and keep their coding.
        let (head, _) = wire.answer("GET / HTTP/1.1\naccept-encoding: gzip").await;
        assert_eq!(head.status(), 200);
        let (request, _) = upstream.requests().pop().unwrap();
        assert_eq!(request.all("accept-encoding"), ["gzip"]);
    })
    .await;
}

#[tokio::test]
async fn reservation_follows_the_request_which_passes_unchanged() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("path: /usage", "path: /**").replace("reserve: 100", "reserve: 900");
        let rules = rules.replace("reserve: 900", "reserve: 900, reserve_least: 50");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        let left = async |wire: &mut Wire, body: &str, kind: &str| {
            let length = body.len();
            wire.request(&format!(
                "POST /any HTTP/1.1\nhost: test\nauthorization: Bearer {length}\ncontent-type: {kind}\n\
                 content-length: {length}"
            ))
            .await;
            wire.send(body).await;
            let (head, _) = wire.message().await.unwrap();
            assert_eq!(head.status(), 200);
            let fields = head.field("ratelimit").unwrap().to_owned();
            let (_, left) = fields.split_once("tokens\";r=").unwrap();
            left.split_once(';').unwrap().0.parse::<u64>().unwrap()
        };
        // 40 bytes are 10 tokens.
        let body = format!("{:<40}", r#"{"model":"m","max_tokens":50,"n":2}"#);
        assert_eq!(left(&mut wire, &body, "application/json").await, 1_000 - 10 - 100);
        let text = format!("{body} ");
        assert_eq!(left(&mut wire, &text, "text/plain").await, 1_000 - 900);
        let bodies: Vec<_> = upstream.requests().into_iter().map(|(_, body)| body).collect();
        assert_eq!(bodies, [body, text]);
    })
    .await;
}

#[tokio::test]
async fn upload_of_unknown_length_is_charged_its_bytes() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = "
rules:
  - name: up
    key: bearer_token
    spend: {read: bytes}
    quota: {rate: 100000/day, counts: request_bytes, algorithm: fixed_window}
";
        let gateway = Gateway::start_with(rules, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        let lines = "POST /any HTTP/1.1\nhost: test\nauthorization: Bearer a";
        wire.request(&format!("{lines}\ntransfer-encoding: chunked"))
            .await;
        for _ in 0..10 {
            wire.send(format!("64\r\n{}\r\n", "x".repeat(100))).await;
        }
        wire.send("0\r\n\r\n").await;
        assert_eq!(wire.message().await.unwrap().0.status(), 200);
        eventually("the charge", async || {
            wire.request(&format!("{lines}\ncontent-length: 0")).await;
            let (head, _) = wire.message().await.unwrap();
            let fields = head.field("ratelimit").unwrap();
            // The request itself reserves one.
            fields.contains(";r=98999;").then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn end_of_the_gateway_waits_for_the_last_charge_in_redis() {
    needs!(redis);
    bounded(async {
        let server = Server::start().await;
        let distant = Proxy::before(server.address()).await;
        let upstream = Upstream::start().await;
        let url = server.url_through(distant.port());
        let far = ["--redis", &url, "--redis-deadline", "20s", "--drain", "0s"];
        let mut gateway = Gateway::start_with(RULES, upstream.port, &far).await;
        // The connection is there before the distance.
        let (head, _) = send(&mut gateway.connect().await, 0).await;
        assert_eq!(head.status(), 200);
        distant.set(Flow::Delay(Duration::from_millis(300)));
        let mut wire = gateway.connect().await;
        let (head, _) = send(&mut wire, 490).await;
        assert_eq!(head.status(), 200);
        gateway.process.terminate();
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        gateway.logs("all requests are answered").await;
        let url = server.url();
        let gateway = Gateway::start_with(RULES, upstream.port, &["--redis", &url]).await;
        let (head, _) = send(&mut gateway.connect().await, 0).await;
        // 10 and 500 tokens, and the reservation of this request.
        let fields = head.field("ratelimit").unwrap();
        assert!(fields.contains(";r=390;"), "{fields}");
    })
    .await;
}

#[tokio::test]
async fn response_that_falls_silent_unrecognised_keeps_its_reservation() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("path: /usage", "path: /events");
        let rules = rules.replace("reserve: 100", "reserve: 100, step: 50");
        let options = ["--idle-timeout", "300ms"];
        let gateway = Gateway::start_with(&rules, upstream.port, &options).await;
        let mut silent = gateway.connect().await;
        let lines = "POST /events HTTP/1.1\nhost: test\nauthorization: Bearer a\ncontent-length: 8";
        silent.request(lines).await;
        silent.send("12345678").await;
        assert_eq!(silent.head().await.unwrap().status(), 200);
        // The stream ends without an end, after its first event.
        let rest = String::from_utf8(silent.rest().await).unwrap();
        assert!(
            rest.contains("data: one") && !rest.ends_with("0\r\n\r\n"),
            "{rest}"
        );
        // The event is in no format.
        let series = r#"ratelimit_spent_units_total{policy="llm.tokens",source="missing"}"#;
        eventually("the charge", async || {
            let [charged] = reported(&gateway, [series]).await;
            (charged? as u64 == 100).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn reservation_of_a_gateway_that_is_killed_stays_charged() {
    needs!(redis);
    bounded(async {
        let (server, upstream) = (Server::start().await, Upstream::start().await);
        // A step of half the reservation, so that none is charged before the first token.
        let rules = RULES.replace("path: /usage", "path: /events");
        let rules = rules.replace("reserve: 100", "reserve: 100, step: 50");
        let url = server.url();
        let options = ["--redis", url.as_str()];
        let lines = "POST /events HTTP/1.1\nhost: test\nauthorization: Bearer a\ncontent-length: 0";
        let begin = async |gateway: &Gateway| {
            let mut wire = gateway.connect().await;
            wire.request(lines).await;
            let head = wire.head().await.unwrap();
            (head.field("ratelimit").unwrap().to_owned(), wire)
        };
        let killed = Gateway::start_with(&rules, upstream.port, &options).await;
        let (fields, stream) = begin(&killed).await;
        assert!(fields.contains("tokens\";r=900;"), "{fields}");
        // By SIGKILL, while the response streams.
        drop(killed);
        drop(stream);
        let next = Gateway::start_with(&rules, upstream.port, &options).await;
        let (fields, _stream) = begin(&next).await;
        assert!(fields.contains("tokens\";r=800;"), "{fields}");
    })
    .await;
}

#[tokio::test]
async fn trailer_that_a_rule_reads_is_requested_and_hidden_from_others() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES
            .replace("path: /usage", "path: /cost")
            .replace("read: auto", "read: {trailer: x-cost}");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        let ask = async |wire: &mut Wire, key: &str, te: &str| {
            let lines = format!("GET /cost HTTP/1.1\nauthorization: Bearer {key}{te}");
            wire.answer(&lines).await
        };
        let by_http2 = async |te: Option<&str>| {
            let request = http2::request(&gateway, "GET", "/cost");
            let request = request.header("authorization", "Bearer b");
            let request = te
                .into_iter()
                .fold(request, |request, te| request.header("te", te));
            let mut sender = http2::connect(&gateway).await;
            let sent = sender
                .send_request(request.body(http2::empty()).unwrap())
                .await;
            let response = sent.unwrap();
            let is_announced = response.headers().contains_key("trailer");
            let (body, trailers) = http2::text(response).await;
            assert_eq!(body, "body");
            (is_announced, trailers.is_some())
        };
        let left = async |wire: &mut Wire, key: &str| {
            let (head, _) = ask(wire, key, "").await;
            let fields = head.field("ratelimit").unwrap();
            let (_, left) = fields.split_once("tokens\";r=").unwrap();
            left.split_once(';').unwrap().0.parse::<u64>().unwrap()
        };
        // A client that did not request trailers pays the same, and gets none.
        let (head, body) = ask(&mut wire, "a", "").await;
        assert_eq!((head.field("trailer"), &*body), (None, "body"));
        assert_eq!(left(&mut wire, "a").await, 1_000 - 300 - 100);
        let (request, _) = upstream.requests().pop().unwrap();
        assert_eq!(
            (request.all("te"), request.all("connection")),
            (vec!["trailers"], vec!["te"])
        );
        let (head, body) = ask(&mut wire, "c", "\nte: trailers\nconnection: te").await;
        assert_eq!(
            (head.field("trailer"), &*body),
            (Some("x-cost"), "bodyx-cost: 300")
        );
        assert_eq!(by_http2(None).await, (false, false));
        assert_eq!(by_http2(Some("trailers")).await, (true, true));
        assert_eq!(left(&mut wire, "b").await, 1_000 - 600 - 100);
    })
    .await;
}

#[tokio::test]
async fn three_responses_of_4_000_tokens_pass_a_limit_of_10_000_in_every_format() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("path: /usage", "path: /format/*");
        let rules = rules.replace(", reserve: 100", "").replace("1000/day", "10000/day");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let mut wire = gateway.connect().await;
        for (at, served) in of_4_000_tokens().iter().enumerate() {
            let lines = format!(
                "POST /format/{at} HTTP/1.1\nhost: test\nauthorization: Bearer {at}\ncontent-length: 0"
            );
            let mut passed = 0;
            for _ in 0..40 {
                wire.request(&lines).await;
                let (head, body) = wire.message().await.unwrap();
                if head.status() == 200 {
                    assert_eq!(body, served.body, "{}", served.name);
                    passed += 1;
                }
            }
            println!("{}: {passed} of 40", served.name);
            assert_eq!(passed, 3, "{}", served.name);
        }
    })
    .await;
}

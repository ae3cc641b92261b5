//! `spend` in the gateway's rules: responses are charged by the tokens that they report.

use testkit::programs::eventually;

use crate::{
    gateway_process::{Gateway, bounded},
    upstream::Upstream,
    wire::{Head, Wire},
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

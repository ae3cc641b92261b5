//! Bodies that do not come, in front of rules with `spend`.

use http_body_util::{BodyExt as _, StreamBody};
use testkit::child_processes::eventually;
use tokio::task::JoinSet;

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
    key: bearer_token
    spend: {read: auto, reserve: 100}
    quota:
      - {name: requests, rate: 5/day, algorithm: fixed_window}
      - {name: tokens, rate: 1000000/day, counts: tokens, algorithm: fixed_window}
";

const REFUSED: &str = "ratelimit_gateway_body_waits_refused_total";

/// A JSON request of a client whose body does not come.
async fn begin(gateway: &Gateway, client: &str) -> Wire {
    let mut wire = gateway.connect().await;
    let lines = format!(
        "POST / HTTP/1.1\nhost: test\nauthorization: Bearer {client}\ncontent-type: application/json\n\
         content-length: 2"
    );
    wire.request(&lines).await;
    wire
}

async fn begin_some(gateway: &Gateway, count: usize, client: &str) -> Vec<Wire> {
    let mut wires = Vec::new();
    for _ in 0..count {
        wires.push(begin(gateway, client).await);
    }
    wires
}

/// The response to a client that sends no body.
async fn ask(gateway: &Gateway, client: &str) -> Head {
    let mut wire = gateway.connect().await;
    let lines = format!("GET / HTTP/1.1\nauthorization: Bearer {client}");
    wire.answer(&lines).await.0
}

/// The heads of the responses, in the order in which they come.
fn heads(wires: Vec<Wire>) -> JoinSet<Head> {
    let heads = wires.into_iter();
    let heads = heads.map(|mut wire| async move { wire.head().await.unwrap() });
    heads.collect()
}

/// The next response.
async fn next(heads: &mut JoinSet<Head>) -> Head {
    heads.join_next().await.unwrap().unwrap()
}

#[tokio::test]
async fn body_that_does_not_come_takes_no_place_of_others() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &["--max-in-flight", "2"]).await;
        let slow = begin_some(&gateway, 2, "slow").await;
        for client in ["a", "b", "c"] {
            assert_eq!(ask(&gateway, client).await.status(), 200);
        }
        drop(slow);
    })
    .await;
}

#[tokio::test]
async fn client_has_at_most_sixteen_requests_that_wait_for_a_body() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        // Another key of the same client.
        let mut slow = begin_some(&gateway, 16, "a").await;
        slow.extend(begin_some(&gateway, 1, "b").await);
        let head = next(&mut heads(slow)).await;
        assert_eq!((head.status(), head.field("retry-after")), (429, Some("1")));
        assert_eq!(head.field("ratelimit"), None);
        assert_eq!(reported(&gateway, [REFUSED]).await, [Some(1.0)]);
        assert!(upstream.requests().is_empty());
    })
    .await;
}

#[tokio::test]
async fn requests_that_wait_for_a_body_are_in_flight() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("    quota:", "    in_flight: 2\n    quota:");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        let mut heads = heads(begin_some(&gateway, 4, "a").await);
        for _ in 0..2 {
            let head = next(&mut heads).await;
            assert_eq!(head.status(), 429);
            assert!(
                head.field("ratelimit").unwrap().contains("in_flight"),
                "{}",
                head.0
            );
        }
        assert_eq!(ask(&gateway, "a").await.status(), 429);
        assert_eq!(ask(&gateway, "b").await.status(), 200);
        assert_eq!(reported(&gateway, [REFUSED]).await, [Some(0.0)]);
    })
    .await;
}

#[tokio::test]
async fn exhausted_key_is_denied_without_its_body() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        for _ in 0..5 {
            assert_eq!(ask(&gateway, "a").await.status(), 200);
        }
        let denied = r#"ratelimit_requests_total{policy="llm.requests",result="limited"}"#;
        let mut heads = heads(begin_some(&gateway, 20, "a").await);
        for _ in 0..20 {
            let head = next(&mut heads).await;
            assert_eq!(head.status(), 429);
            assert!(
                head.field("ratelimit")
                    .unwrap()
                    .contains("\"llm.requests\";r=0")
            );
        }
        // Each is decided once, and none has waited.
        assert_eq!(
            reported(&gateway, [REFUSED, denied]).await,
            [Some(0.0), Some(20.0)]
        );
    })
    .await;
}

#[tokio::test]
async fn request_whose_client_leaves_while_it_is_read_is_counted() {
    bounded(async {
        let upstream = Upstream::start().await;
        let rules = RULES.replace("    quota:", "    in_flight: 2\n    quota:");
        let gateway = Gateway::start_with(&rules, upstream.port, &[]).await;
        // A body over HTTP/1 that breaks off is an error, which ends its reading.
        let mut sender = http2::connect(&gateway).await;
        let body = StreamBody::new(tokio_stream::pending()).boxed_unsync();
        let request = http2::request(&gateway, "POST", "/")
            .header("authorization", "Bearer a")
            .header("content-type", "application/json");
        let sent = tokio::spawn(sender.send_request(request.body(body).unwrap()));
        let in_flight = async || {
            let series = r#"ratelimit_in_flight{policy="llm.in_flight"}"#;
            reported(&gateway, [series]).await[0]
        };
        eventually("the request", async || {
            (in_flight().await == Some(1.0)).then_some(())
        })
        .await;
        sent.abort();
        eventually("its end", async || {
            let series = r#"ratelimit_gateway_requests_total{code="cancelled"}"#;
            (reported(&gateway, [series]).await == [Some(1.0)]).then_some(())
        })
        .await;
        let head = ask(&gateway, "a").await;
        let fields = head.field("ratelimit").unwrap();
        assert!(fields.starts_with("\"llm.requests\";r=3;"), "{fields}");
        assert!(upstream.requests().len() == 1);
    })
    .await;
}

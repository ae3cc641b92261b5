//! `cors_origins`: what scripts of other origins see of denials, and preflight requests.

use crate::{
    gateway_process::{Gateway, bounded},
    upstream::Upstream,
    wire::{Head, Wire},
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
        let gateway = start("cors_origins: [\"https://app.example\"]", &upstream).await;
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
        let gateway = start("cors_origins: [\"https://app.example\"]", &upstream).await;
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

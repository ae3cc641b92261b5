//! Probes, on the listener of the metrics.

use std::process::Command;

use testkit::child_processes::eventually;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
};

async fn status(port: u16, path: &str) -> u16 {
    let mut wire = Wire::connect(port).await;
    let (head, _) = wire.answer(&format!("GET {path} HTTP/1.1")).await;
    head.status()
}

/// The exit code of `healthcheck`.
fn healthcheck(gateway: &Gateway) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    let address = format!("127.0.0.1:{}", gateway.http);
    let command = command.args(["healthcheck", "--http", &address]);
    command.output().unwrap().status.code()
}

#[tokio::test]
async fn paths_of_the_public_are_those_of_the_upstream() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let own = [
            "/metrics",
            "/healthz",
            "/readyz",
            "/healthcheck",
            "/v1/rules",
        ];
        for (number, path) in own.into_iter().enumerate() {
            let mut wire = gateway.connect().await;
            let (_, body) = wire.answer(&format!("GET {path} HTTP/1.1")).await;
            assert_eq!(body, "ok");
            assert_eq!(upstream.requests().len(), number + 1, "{path}");
        }
        for path in ["/", "/limited", "/v1/rules", "/json"] {
            assert_eq!(status(gateway.http, path).await, 404, "{path}");
        }
        assert_eq!(upstream.requests().len(), own.len());
    })
    .await;
}

#[tokio::test]
async fn gateway_that_ends_is_not_ready() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "300s"]).await;
        for path in ["/healthz", "/readyz", "/healthcheck"] {
            assert_eq!(status(gateway.http, path).await, 200, "{path}");
        }
        assert_eq!(healthcheck(&gateway), Some(0));
        gateway.process.terminate();
        eventually("a gateway that is not ready", async || {
            (status(gateway.http, "/readyz").await == 503).then_some(())
        })
        .await;
        assert_eq!(status(gateway.http, "/healthcheck").await, 500);
        assert_eq!(status(gateway.http, "/healthz").await, 200);
        assert_eq!(healthcheck(&gateway), Some(1));
        // Requests are still served.
        assert_eq!(status(gateway.port, "/").await, 200);
        gateway.process.terminate();
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        assert_eq!(healthcheck(&gateway), Some(1));
    })
    .await;
}

#[tokio::test]
async fn probes_answer_until_the_last_request_is_answered() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "0s"]).await;
        let mut waits = gateway.connect().await;
        waits.request("GET /wait HTTP/1.1\nhost: test").await;
        eventually("the request", async || {
            (upstream.requests().len() == 1).then_some(())
        })
        .await;
        gateway.process.terminate();
        eventually("a closed door", async || {
            Wire::try_connect(gateway.port)
                .await
                .is_none()
                .then_some(())
        })
        .await;
        assert_eq!(status(gateway.http, "/readyz").await, 503);
        // An idle connection does not delay the shutdown.
        let mut kept = Wire::connect(gateway.http).await;
        assert_eq!(kept.answer("GET /healthz HTTP/1.1").await.0.status(), 200);
        upstream.steps.add_permits(1);
        assert_eq!(waits.message().await.unwrap().1, "waited");
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        gateway.logs("all requests are answered").await;
    })
    .await;
}

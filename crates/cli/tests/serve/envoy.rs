//! A real Envoy that calls the service, in front of an upstream.

use testkit::{child_processes::eventually, needs, servers::Server};
use tonic::{Code as GrpcCode, transport::Endpoint};
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    envoy_proxy::Envoy,
    raw_http::{Answer, get, send},
    service_process::{Service, about, call},
};

async fn with_foo(port: u16, value: &str) -> Answer {
    send(port, &format!("GET /header HTTP/1.1\r\nfoo: {value}"), "").await
}

#[tokio::test]
async fn requests_pass_up_to_the_limit() {
    needs!(envoy);
    let service = Service::start(&["--rls-headers", "envoy,retry-after"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let mut reported = Vec::new();
    for _ in 0..3 {
        let answer = with_foo(envoy.closed, "bar").await;
        reported.push((
            answer.status,
            answer.header("ratelimit-remaining").map(str::to_owned),
        ));
        // Envoy makes this field of the status.
        let limit = answer.header("x-ratelimit-limit").unwrap();
        assert!(limit.starts_with("2"), "{limit}");
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            answer.header("ratelimit-remaining")
        );
        assert_eq!(answer.header("ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
        assert_eq!(answer.body == "up", answer.status == 200);
    }
    let left = |units: &str| Some(units.to_owned());
    assert_eq!(
        reported,
        [(200, left("1")), (200, left("0")), (429, left("0"))]
    );
    assert_eq!(with_foo(envoy.closed, "other").await.status, 200);
    // Without the header there is no descriptor, and with another one no limit.
    assert_eq!(get(envoy.closed, "/header").await.status, 200);
    assert_eq!(get(envoy.closed, "/free").await.status, 200);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(get(envoy.closed, "/address").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn units_are_those_of_the_route() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    let status = async |path| get(envoy.closed, path).await.status;
    assert_eq!(status("/look").await, 200);
    assert_eq!(status("/heavy").await, 200, "3 of 5");
    assert_eq!(status("/look").await, 200);
    assert_eq!(status("/heavy").await, 429, "6 of 5");
    assert_eq!(status("/look").await, 429);
    assert_eq!(status("/back").await, 200, "4 of 5");
    assert_eq!(status("/look").await, 200);
    let units = async |units: &str| {
        let lines = format!("GET /format HTTP/1.1\r\nx-units: {units}");
        send(envoy.closed, &lines, "").await.status
    };
    assert_eq!(
        [units("1").await, units("0").await, units("2").await],
        [200, 200, 429]
    );
}

#[tokio::test]
async fn networks_of_clients_are_counted_as_envoy_masks_them() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(get(envoy.closed, "/masked").await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    let network = service.call(about("masked_remote_address", "127.0.0.0/8"));
    let status = network.await.unwrap().statuses.remove(0);
    assert_eq!(status.code(), Code::OverLimit);
}

/// Envoy does not wait for charges after the response.
#[tokio::test]
async fn units_may_be_charged_after_the_response() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    assert_eq!(get(envoy.closed, "/done").await.status, 200);
    eventually("a charge", async || {
        (get(envoy.closed, "/look").await.status == 429).then_some(())
    })
    .await;
}

#[tokio::test]
async fn modes_of_limits_are_what_envoy_makes_of_them() {
    needs!(envoy);
    let service = Service::start(&["--metadata"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let statuses = async |path: &str, times: usize| {
        let mut statuses = Vec::new();
        for _ in 0..times {
            statuses.push(get(envoy.closed, path).await.status);
        }
        statuses
    };
    assert_eq!(statuses("/shadow", 3).await, [200; 3]);
    // One of the quotas is enough, and the metadata has its name.
    let mut reported = Vec::new();
    for _ in 0..3 {
        let answer = get(envoy.closed, "/quotas").await;
        reported.push((answer.status, answer.header("service").map(str::to_owned)));
    }
    let by = |service: &str| Some(service.to_owned());
    assert_eq!(reported[..2], [(200, by("one")), (200, by("two"))]);
    assert_eq!(reported[2].0, 429);
    // A limit that another replaces is not counted.
    assert_eq!(statuses("/vip", 2).await, [200; 2]);
    assert_eq!(statuses("/base", 2).await, [200, 429]);
    assert_eq!(statuses("/vip", 2).await, [200, 429], "by its own limit");
    // The limit that comes with the descriptor; the rules have none.
    assert_eq!(statuses("/own", 3).await, [200, 200, 429]);
}

/// A peek finds 2 of 2 units not beyond the limit: the third request passes, and its own unit is
/// charged.
#[tokio::test]
async fn quotas_of_tokens_let_one_more_pass() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    for used in 1..=3 {
        assert_eq!(get(envoy.closed, "/tokens").await.status, 200, "{used}");
        eventually("the charge", async || {
            let question = r#"{"domain": "rl", "dry_run": true, "descriptors": [{
                "entries": [{"key": "mode", "value": "two"}], "hitsAddend": 0}]}"#;
            let reported = send(service.http, "POST /v1/check HTTP/1.1", question).await;
            let left = reported
                .body
                .split("\"remaining\":")
                .nth(1)?
                .chars()
                .next()?;
            let allowed = reported.body.contains("\"allowed\":true");
            ((left, allowed) == [('1', true), ('0', true), ('0', false)][used - 1]).then_some(())
        })
        .await;
    }
    assert_eq!(get(envoy.closed, "/tokens").await.status, 429);
}

#[tokio::test]
async fn calls_of_grpc_are_denied_in_its_terms() {
    needs!(envoy);
    let service = Service::start(&["--rls-body", "problem"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let address = format!("http://127.0.0.1:{}", envoy.closed);
    let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
    assert!(call(channel.clone(), about("unmatched", "")).await.is_ok());
    let denied = call(channel, about("unmatched", "")).await.unwrap_err();
    assert_eq!(denied.code(), GrpcCode::ResourceExhausted);
    assert!(denied.message().contains("rl.mode_grpc"), "{denied:?}");
}

/// Requests without a decision pass or fail, as Envoy is configured.
async fn check_failure(open: u16, closed: u16, how: &str) {
    let passed = with_foo(open, "bar").await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "up"), "{how}");
    assert_eq!(with_foo(closed, "bar").await.status, 500, "{how}");
}

#[tokio::test]
async fn service_that_stopped_or_hangs_is_what_envoy_makes_of_it() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    for _ in 0..2 {
        assert_eq!(with_foo(envoy.closed, "bar").await.status, 200);
    }
    service.process.pause();
    check_failure(envoy.open_soon, envoy.closed_soon, "hung").await;
    service.process.resume();
    service.ready().await;
    assert_eq!(
        with_foo(envoy.closed, "bar").await.status,
        429,
        "it goes on"
    );
    drop(service);
    check_failure(envoy.open, envoy.closed, "stopped").await;
}

/// A failed store never makes Envoy let all requests pass against its configuration.
#[tokio::test]
async fn envoy_decides_while_the_store_is_down() {
    needs!(envoy);
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = [
        "--redis",
        &url,
        "--redis-deadline",
        "20s",
        "--on-failure",
        "deny",
    ];
    let service = Service::start(&options).await;
    let envoy = Envoy::start(service.grpc).await;
    assert_eq!(with_foo(envoy.closed, "bar").await.status, 200);
    drop(server);
    check_failure(envoy.open, envoy.closed, "without Redis").await;
}

//! `in_flight` of gateways that share a Redis: one number of permits for all of them.

use testkit::{child_processes::eventually, needs, servers::Setup};

use crate::{
    gateway_process::{Gateway, bounded},
    in_flight::{begin, status, until_free},
    raw_http1::Wire,
    recording_upstream::Upstream,
};

/// Longer than any delay of Redis on a busy machine.
const DEADLINE: [&str; 2] = ["--redis-deadline", "60s"];

fn rules(most: u16, lease: &str) -> String {
    format!("rules: [{{name: api, key: bearer_token, in_flight: {{max: {most}, lease: {lease}}}}}]")
}

async fn gateway(rules: &str, upstream: &Upstream, url: &str) -> Gateway {
    let options = [&["--redis", url][..], &DEADLINE].concat();
    Gateway::start_with(rules, upstream.port, &options).await
}

/// Starts a stream that sends nothing more.
async fn stream(gateway: &Gateway) -> (u16, Wire) {
    begin(gateway, "a", "/events").await
}

async fn web_socket(gateway: &Gateway) -> (u16, Wire) {
    let chat = "/chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket\nauthorization: Bearer a";
    let mut wire = gateway.connect().await;
    let status = wire.answer(&format!("GET {chat}")).await.0.status();
    (status, wire)
}

#[tokio::test]
async fn two_gateways_have_exactly_the_number_at_a_time_with_sockets_and_streams() {
    needs!(redis);
    bounded(async {
        let server = Setup::redis().start().await;
        let upstream = Upstream::start().await;
        let text = rules(4, "1h");
        let gateways = [
            gateway(&text, &upstream, &server.url()).await,
            gateway(&text, &upstream, &server.url()).await,
        ];
        let mut running = vec![
            web_socket(&gateways[0]).await,
            stream(&gateways[1]).await,
            web_socket(&gateways[1]).await,
            stream(&gateways[0]).await,
        ];
        let statuses: Vec<u16> = running.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [101, 200, 101, 200]);
        for gateway in &gateways {
            assert_eq!(status(gateway, "a", "/").await, 429);
            assert_eq!(web_socket(gateway).await.0, 429);
        }
        // A WebSocket of one gateway ends, and a stream of the other.
        for ended in [0, 0] {
            drop(running.remove(ended));
            // The stream itself waits: a request that came before it could still hold the permit.
            let next = eventually("a permit", async || {
                Some(stream(&gateways[0]).await).filter(|(status, _)| *status == 200)
            });
            running.push(next.await);
            assert_eq!(status(&gateways[1], "a", "/").await, 429);
        }
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_killed_gateway_are_free_after_their_lease() {
    needs!(redis);
    bounded(async {
        let server = Setup::redis().start().await;
        let upstream = Upstream::start().await;
        // Renewed for as long as its gateway lives, however busy the machine is.
        let text = rules(1, "5s");
        let dying = gateway(&text, &upstream, &server.url()).await;
        let other = gateway(&text, &upstream, &server.url()).await;
        let (code, _socket) = web_socket(&dying).await;
        assert_eq!(code, 101);
        assert_eq!(status(&other, "a", "/").await, 429);
        // Dropped processes are killed.
        drop(dying);
        assert_eq!(status(&other, "a", "/").await, 429);
        until_free(&other).await;
    })
    .await;
}

/// Redis ends while a request runs.
async fn after_redis(treatment: &str) -> (Vec<u16>, String) {
    let mut server = Setup::redis().start().await;
    let upstream = Upstream::start().await;
    let text = format!("store: {{on_failure: {treatment}}}\n{}", rules(2, "1h"));
    let gateways = [
        gateway(&text, &upstream, &server.url()).await,
        gateway(&text, &upstream, &server.url()).await,
    ];
    let (code, _running) = stream(&gateways[0]).await;
    assert_eq!(code, 200);
    server.kill9();
    let mut kept = Vec::new();
    for gateway in [0, 0, 0, 1, 1, 1] {
        kept.push(stream(&gateways[gateway]).await);
    }
    let statuses = kept.iter().map(|(status, _)| *status).collect();
    (statuses, gateways[0].process.log())
}

#[tokio::test]
async fn on_failure_decides_while_redis_is_gone() {
    needs!(redis);
    bounded(async {
        // The stream that runs counts in its gateway, and in no other one.
        let (statuses, _) = after_redis("local").await;
        assert_eq!(statuses, [200, 429, 429, 200, 200, 429]);
        let (statuses, _) = after_redis("allow").await;
        assert_eq!(statuses, [200; 6]);
        let (statuses, log) = after_redis("deny").await;
        assert_eq!(statuses, [503; 6], "{log}");
    })
    .await;
}

//! Nothing is lost: no call at the shutdown, and no count at a reload.

use std::fs;

use serde_json::Value;
use testkit::{child_processes::eventually, needs, servers::Server};
use tonic::transport::Endpoint;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    raw_http::{send, try_send},
    service_process::{RULES, Service, about, call},
};

/// Calls one after another, each on its own connection, until one fails; the number of successes.
async fn calls(grpc: u16) -> u64 {
    let mut answered = 0;
    loop {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{grpc}")).unwrap();
        // A connection that is refused, or closed before it is accepted.
        let Ok(channel) = endpoint.connect().await else {
            return answered;
        };
        match call(channel, about("busy", "grpc")).await {
            Ok(_) => answered += 1,
            Err(_) => return answered,
        }
    }
}

/// Requests over HTTP, likewise.
async fn questions(http: u16) -> u64 {
    let question =
        r#"{"domain": "rl", "descriptors": [{"entries": [{"key": "busy", "value": "http"}]}]}"#;
    let mut answered = 0;
    while let Some(answer) = try_send(http, "POST /json HTTP/1.1", question).await {
        assert_eq!(answer.status, 200, "{}", answer.body);
        answered += 1;
    }
    answered
}

/// Rules with a limit out of reach.
fn rules() -> String {
    RULES.to_owned() + "  - {key: busy, rate_limit: {unit: year, requests_per_unit: 4000000}}\n"
}

/// The calls that were counted.
async fn counted(service: &Service, value: &str) -> u64 {
    let path = format!("/v1/keys?rule=rl.busy&key=busy={value}");
    let host = format!("host: 127.0.0.1:{}", service.admin);
    let answer = send(service.admin, &format!("GET {path} HTTP/1.1\r\n{host}"), "").await;
    let reported: Value = serde_json::from_str(&answer.body).unwrap();
    reported["limits"][0]["used"].as_u64().unwrap()
}

#[tokio::test]
async fn no_call_is_lost_while_the_service_ends() {
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("busy.yaml");
    fs::write(&file, rules()).unwrap();
    let file = file.to_str().unwrap();
    let options = [file, "--redis", &url, "--redis-deadline", "20s"];
    let other = Service::launch_bare(&options, &[]);
    other.ready().await;
    let mut service = Service::launch_bare(&[&options[..], &["--drain", "0s"]].concat(), &[]);
    service.ready().await;
    let (grpc, http) = (service.grpc, service.http);
    let by_grpc: Vec<_> = (0..4).map(|_| tokio::spawn(calls(grpc))).collect();
    let by_http: Vec<_> = (0..4).map(|_| tokio::spawn(questions(http))).collect();
    eventually("calls", async || {
        let [grpc, http] = [counted(&other, "grpc").await, counted(&other, "http").await];
        (grpc > 20 && http > 20).then_some(())
    })
    .await;
    service.process.terminate();
    for (value, clients) in [("grpc", by_grpc), ("http", by_http)] {
        let mut answered = 0;
        for client in clients {
            answered += client.await.unwrap();
        }
        assert_eq!(counted(&other, value).await, answered, "{value}");
    }
    eventually("the end", async || {
        service.process.has_ended().then_some(())
    })
    .await;
    let log = service.process.log();
    assert!(log.contains("all requests are answered"), "{log}");
}

#[tokio::test]
async fn reload_under_load_changes_no_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("busy.yaml");
    fs::write(&file, rules()).unwrap();
    let service = Service::launch_bare(&[file.to_str().unwrap()], &[]);
    service.ready().await;
    let clients = (0..4).map(|_| {
        let channel = service.channel();
        tokio::spawn(async move {
            for _ in 0..250 {
                let answer = call(channel.clone(), about("busy", "grpc")).await.unwrap();
                assert_eq!(answer.overall_code(), Code::Ok);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut reloads = 0;
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        reloads += 1;
        let other =
            format!("  - {{key: k{reloads}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n");
        fs::write(&file, rules() + &other).unwrap();
        service.process.hang_up();
        // Concurrent signals may merge into one.
        eventually("a reload", async || {
            let log = service.process.log();
            (log.matches("read the rules again").count() >= reloads).then_some(())
        })
        .await;
    }
    for client in clients {
        client.await.unwrap();
    }
    assert!(reloads > 0);
    assert_eq!(counted(&service, "grpc").await, 1_000);
}

//! The page's configuration for tokens of language models, with a real Envoy: an estimate when a request arrives, and
//! the usage when its stream has ended.

use std::{fs, net::Ipv4Addr, process::Command, sync::Arc};

use serde_json::Value;
use testkit::{
    child_processes::{Process, eventually, find, free_port},
    llm::bodies,
    needs,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    raw_http::{Answer, send},
    service_process::{Service, about},
};

const PAGE: &str = include_str!("../../../envoy/docs/envoy.md");

const ENVOY: &str = include_str!("../../../envoy/docs/tokens.yaml");

/// The budget of the page's rules, and the estimate of its filter.
const BUDGET: u64 = 10_000;
const ESTIMATE: u64 = 1_000;

/// A model behind an Envoy that calls the service.
struct Gateway {
    service: Service,
    envoy: Process,
    listener: u16,
    /// A permit for each stream that may end.
    ends: Arc<Semaphore>,
}

impl Gateway {
    /// Starts the files of the page, with another estimate.
    async fn start(estimate: u64) -> Self {
        let (_, page) = PAGE
            .split_once("## Tokens of language models\n")
            .expect("the section");
        let (_, rules) = page.split_once("```yaml\n").expect("rules");
        let (rules, _) = rules.split_once("```").expect("their end");
        let service = Service::start(&[]).await;
        // No test meets the end of the window.
        let rules = replaced(rules, "unit: day", "unit: year");
        fs::write(service.folder.path().join("rules.yaml"), rules).unwrap();
        service.process.hang_up();
        eventually("the rules of the page", async || {
            service.process.log().contains("1 limit").then_some(())
        })
        .await;
        let ends = Arc::new(Semaphore::new(0));
        let (listener, model) = (free_port(), model(Arc::clone(&ends)).await);
        let mut config = ENVOY.replace("timeout: 0.1s", "timeout: 60s");
        for (port, free) in [(8888, listener), (8081, service.grpc), (9999, model)] {
            config = replaced(
                &config,
                &format!("port_value: {port}}}"),
                &format!("port_value: {free}}}"),
            );
        }
        let [own, wanted] = [ESTIMATE, estimate].map(|units| format!("ESTIMATE = {units}\n"));
        config = replaced(&config, &own, &wanted);
        let envoy = envoy_with(&service, &config);
        eventually("an Envoy that listens", async || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, listener))
                .await
                .ok()
        })
        .await;
        Self {
            service,
            envoy,
            listener,
            ends,
        }
    }

    /// The response to eve, of a model that uses these tokens and responds with this status.
    async fn request(&self, used: u64, status: u16) -> Answer {
        request(self.listener, used, status).await
    }

    /// The units that eve has left, and whether the next one would pass.
    async fn left(&self) -> (u64, bool) {
        let question = r#"{"domain": "llm", "dry_run": true, "descriptors": [{
            "entries": [{"key": "user", "value": "eve"}], "hitsAddend": 1}]}"#;
        let reported = send(self.service.http, "POST /v1/check HTTP/1.1", question).await;
        let reported: Value = serde_json::from_str(&reported.body).unwrap();
        let left = reported["policies"][0]["remaining"].as_u64().unwrap();
        (left, reported["allowed"].as_bool().unwrap())
    }

    async fn refund(&self, units: u64) {
        let mut request = about("user", "eve");
        request.domain = "llm".to_owned();
        request.descriptors[0].hits_addend = Some(units);
        request.descriptors[0].is_negative_hits = true;
        self.service.call(request).await.unwrap();
    }

    /// Waits until eve has these units left.
    async fn has_left(&self, units: u64) {
        eventually(&format!("{units} units left"), async || {
            (self.left().await.0 == units).then_some(())
        })
        .await;
    }
}

fn replaced(config: &str, old: &str, new: &str) -> String {
    assert!(config.contains(old), "{old:?} is on the page");
    config.replace(old, new)
}

fn envoy_with(service: &Service, config: &str) -> Process {
    let file = service.folder.path().join("envoy.yaml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(find("envoy", Some("ENVOY")).unwrap());
    command
        .arg("--config-path")
        .arg(&file)
        .args(["--use-dynamic-base-id", "--concurrency", "1"]);
    Process::start(&mut command, &service.folder.path().join("envoy.log"))
}

async fn request(port: u16, used: u64, status: u16) -> Answer {
    let lines = format!("GET / HTTP/1.1\r\nx-user: eve\r\nx-used: {used}\r\nx-answer: {status}");
    send(port, &lines, "").await
}

/// A server that streams a chat whose usage, and whose status, its request sets. A stream of 200 waits before its end
/// for one of the permits.
async fn model(ends: Arc<Semaphore>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, Arc::clone(&ends)));
        }
    });
    port
}

async fn respond(mut stream: TcpStream, ends: Arc<Semaphore>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let field = |name: &str| -> Option<u64> {
        let (_, rest) = head.split_once(name)?;
        rest.split("\r\n").next()?.trim().parse().ok()
    };
    let (used, status) = (field("x-used:")?, field("x-answer:")?);
    let usage = (used > 0).then_some((used / 3, used - used / 3));
    let body = bodies::chat_stream(&bodies::words(20), usage);
    let mut events: Vec<&str> = body.split_inclusive("\n\n").collect();
    if status >= 400 {
        events.clear();
    }
    let head = format!(
        "HTTP/1.1 {status} Test\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    for (at, event) in events.iter().enumerate() {
        if at == 10 {
            ends.acquire().await.ok()?.forget();
        }
        // The usage arrives in pieces.
        for piece in event.as_bytes().chunks(90) {
            let size = format!("{:x}\r\n", piece.len());
            let chunk = [size.as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&chunk).await.ok()?;
        }
    }
    stream.write_all(b"0\r\n\r\n").await.ok()
}

#[tokio::test]
async fn usage_is_charged_when_a_stream_has_ended() {
    needs!(envoy);
    let gateway = Gateway::start(0).await;
    gateway.ends.add_permits(2);
    let first = gateway.request(6_000, 200).await;
    assert_eq!(first.status, 200);
    assert!(first.body.contains("\"total_tokens\":6000"), "unchanged");
    gateway.has_left(4_000).await;
    // Nothing is known about the second one when it arrives.
    assert_eq!(gateway.request(5_999, 200).await.status, 200);
    gateway.has_left(0).await;
    assert_eq!(gateway.request(1, 200).await.status, 429, "1,999 too much");
    // Exactly the tokens that were reported.
    gateway.refund(1_999).await;
    assert_eq!(gateway.left().await, (0, false));
    gateway.refund(1).await;
    assert_eq!(gateway.left().await, (1, true));
}

#[tokio::test]
async fn streams_that_are_open_are_estimated() {
    needs!(envoy);
    let gateway = Gateway::start(ESTIMATE).await;
    let mut open = JoinSet::new();
    for _ in 0..BUDGET / ESTIMATE {
        let listener = gateway.listener;
        open.spawn(async move { request(listener, 300, 200).await.status });
    }
    gateway.has_left(0).await;
    assert_eq!(gateway.request(300, 200).await.status, 429);
    gateway.ends.add_permits(open.len());
    assert_eq!(open.join_all().await, [200; 10]);
    // The estimate of the denied request is back as well.
    gateway.has_left(BUDGET - 10 * 300).await;
    assert_eq!(gateway.request(300, 503).await.status, 503);
    gateway.has_left(BUDGET - 10 * 300).await;
    gateway.ends.add_permits(2);
    assert_eq!(gateway.request(2_500, 200).await.status, 200);
    gateway.has_left(BUDGET - 10 * 300 - 2_500).await;
    // Without a usage the estimate stays.
    assert_eq!(gateway.request(0, 200).await.status, 200);
    gateway.has_left(BUDGET - 10 * 300 - 2_500 - ESTIMATE).await;
    assert!(
        !gateway.envoy.log().contains("error"),
        "{}",
        gateway.envoy.log()
    );
}

//! Shares of limits: options, and a real Envoy that decides by them.

use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};

use testkit::{
    needs,
    programs::{Process, eventually, find, free_port},
    servers::Server,
};
use tokio::task::JoinSet;

use crate::{
    http::{send, try_send},
    metrics::reported,
    service_process::Service,
};

const PAGE: &str = include_str!("../../../docs/service.md");

/// The files of the page, and the ports that replace its own.
fn envoy_of_page(service: &Service, listener: u16) -> Process {
    let (_, page) = PAGE.split_once("## Shares for Envoy\n").unwrap();
    let mut blocks = page.split("```yaml\n").skip(1);
    let mut block = || blocks.next().unwrap().split_once("```").unwrap().0;
    let (_, mut config) = (block(), block().to_owned());
    for (port, free) in [(8888, listener), (8081, service.grpc)] {
        let place = |port: u16| format!("port_value: {port}}}");
        assert!(config.contains(&place(port)), "{port}");
        config = config.replace(&place(port), &place(free));
    }
    let file = service.folder.path().join("envoy.yaml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(find("envoy", Some("ENVOY")).unwrap());
    command
        .arg("--config-path")
        .arg(&file)
        .args(["--use-dynamic-base-id", "--concurrency", "1"]);
    Process::start(&mut command, &service.folder.path().join("envoy.log"))
}

fn rules_of_page() -> &'static str {
    let (_, page) = PAGE.split_once("## Shares for Envoy\n").unwrap();
    let (_, rules) = page.split_once("```yaml\n").unwrap();
    rules.split_once("```").unwrap().0
}

/// The statuses of requests at the same time.
async fn statuses(listener: u16, number: usize) -> Vec<u16> {
    let mut requests = JoinSet::new();
    for _ in 0..number {
        requests.spawn(async move {
            let answer = send(listener, "GET / HTTP/1.1\r\nx-user: eve", "").await;
            answer.status
        });
    }
    requests.join_all().await
}

#[tokio::test]
async fn page_leads_to_an_envoy_that_decides_by_itself() {
    needs!(envoy);
    let service = Service::start(&["--rlqs"]).await;
    let (_envoy, listener) = envoy_of(&service).await;
    assert_eq!(statuses(listener, 1).await, [429], "without a share");
    let began_at = Instant::now();
    eventually("a share", async || {
        (statuses(listener, 1).await == [200]).then_some(())
    })
    .await;
    // As many as it takes to use up the share.
    let passed = AtomicUsize::new(1);
    eventually("a limited request", async || {
        let statuses = statuses(listener, 200).await;
        let of_these = statuses.iter().filter(|status| **status == 200);
        passed.fetch_add(of_these.count(), Relaxed);
        statuses.contains(&429).then_some(())
    })
    .await;
    let passed = passed.into_inner();
    let most = 10.0 + 90.0 * began_at.elapsed().as_secs_f64();
    assert!((passed as f64) <= most, "{passed} of {most}");
    let series = [
        "ratelimit_rlqs_streams",
        "ratelimit_rlqs_buckets",
        "ratelimit_rlqs_refused_total{reason=\"unread\"}",
    ];
    // Requests without the header have no bucket.
    let numbers = reported(&service, series).await;
    assert_eq!(numbers, [Some(1.0), Some(1.0), None]);
    // A stream has no end of its own.
    service.process.terminate();
    eventually("an end", async || {
        let log = service.process.log();
        log.contains("all requests are answered").then_some(())
    })
    .await;
}

#[tokio::test]
async fn envoys_of_two_instances_share_a_limit() {
    needs!(envoy);
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = ["--rlqs", "--redis", &url, "--redis-deadline", "20s"];
    let services = [
        Service::start(&options).await,
        Service::start(&options).await,
    ];
    let envoys = [envoy_of(&services[0]).await, envoy_of(&services[1]).await];
    let (began_at, passed) = (Instant::now(), AtomicUsize::new(0));
    // The first has the whole limit until the second one wants its part.
    for (_, listener) in &envoys {
        eventually("a share", async || {
            let statuses = statuses(*listener, 20).await;
            let of_these = statuses.iter().filter(|status| **status == 200);
            passed.fetch_add(of_these.count(), Relaxed);
            statuses.contains(&200).then_some(())
        })
        .await;
    }
    let passed = passed.into_inner();
    let most = 10.0 + 90.0 * began_at.elapsed().as_secs_f64();
    assert!((passed as f64) <= most, "{passed} of {most}");
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
}

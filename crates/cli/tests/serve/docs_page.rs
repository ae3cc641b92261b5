//! The example of the page works.

use std::{fs, process::Command};

use testkit::{
    child_processes::{Process, eventually, find, free_port},
    needs,
};

use crate::{
    raw_http::{send, try_send, upstream},
    service_process::Service,
};

const PAGE: &str = include_str!("../../../envoy/docs/envoy.md");

const ENVOY: &str = include_str!("../../../envoy/docs/envoy.yaml");

#[tokio::test]
async fn page_leads_from_a_file_to_a_limited_route() {
    needs!(envoy);
    let mut blocks = PAGE.split("```yaml\n").skip(1);
    let mut block = || blocks.next().unwrap().split_once("```").unwrap().0;
    let (rules, excerpt) = (block(), block());
    for line in excerpt.lines() {
        assert!(ENVOY.contains(line.trim()), "{line}");
    }
    assert!(ENVOY.contains("grpc_health_check"), "a restart loses calls");
    let service = Service::start(&["--rls-headers", "retry-after"]).await;
    fs::write(service.folder.path().join("rules.yaml"), rules).unwrap();
    service.process.hang_up();
    eventually("the rules of the page", async || {
        service.process.log().contains("2 limits").then_some(())
    })
    .await;

    let (listener, upstream) = (free_port(), upstream().await);
    let mut config = ENVOY.replace("timeout: 0.1s", "timeout: 60s");
    for (port, free) in [(8888, listener), (8081, service.grpc), (9999, upstream)] {
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
    let _envoy = Process::start(&mut command, &service.folder.path().join("envoy.log"));
    eventually("an Envoy that listens", async || {
        try_send(listener, "GET / HTTP/1.1", "").await.map(drop)
    })
    .await;

    // The hour may end in between, once.
    let mut reported = Vec::new();
    for _ in 0..9 {
        let answer = send(listener, "GET / HTTP/1.1\r\nx-user: eve", "").await;
        assert!(answer.header("x-ratelimit-remaining").is_some());
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
        reported.push(answer.status);
    }
    let passed = reported.iter().filter(|status| **status == 200).count();
    assert!((3..=6).contains(&passed), "{reported:?}");
    assert_eq!(reported[..3], [200; 3]);
    let vip = send(listener, "GET / HTTP/1.1\r\nx-user: vip", "").await;
    assert_eq!(vip.status, 200);
}

//! The operator's page for denied requests.

use std::{fs, path::Path, process::Command};

use testkit::child_processes::{Process, eventually};

use crate::{
    gateway_process::{Gateway, RULES, bounded},
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

const BROWSER: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

const PAGE: &str = "<p>Wieder möglich in {retry_after} s";

async fn start(upstream: u16, page: &str, options: &[&str]) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("page.html"), page).unwrap();
    let options = [&["--denied-page", "page.html"], options].concat();
    Gateway::start_in(folder, upstream, &options).await
}

async fn limited(wire: &mut Wire, fields: &str) -> (Head, String) {
    wire.answer(&format!("GET /limited HTTP/1.1\n{fields}"))
        .await
}

#[tokio::test]
async fn browsers_get_the_page_and_programs_the_problem() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start(upstream.port, PAGE, &[]).await;
        let mut wire = gateway.connect().await;
        for _ in 0..2 {
            let (head, body) = limited(&mut wire, BROWSER).await;
            assert_eq!((head.status(), &*body), (200, "ok"));
        }
        let (head, body) = limited(&mut wire, BROWSER).await;
        assert_eq!(head.status(), 429);
        let wait = head.field("retry-after").unwrap();
        assert_eq!(body, format!("<p>Wieder möglich in {wait} s"));
        assert_eq!(head.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(head.field("cache-control"), Some("no-store"));
        assert_eq!(head.field("content-length"), Some(&*body.len().to_string()));
        assert!(head.field("ratelimit").is_some());
        for accept in [
            "x-none: 1",
            "accept: */*",
            "accept: application/json, text/html",
        ] {
            let (head, body) = limited(&mut wire, accept).await;
            assert_eq!(head.status(), 429);
            assert_eq!(head.field("content-type"), Some("application/problem+json"));
            assert!(
                body.contains(r#""violated-policies":["limited"]"#),
                "{body}"
            );
        }
        wire.request(&format!("HEAD /limited HTTP/1.1\nhost: test\n{BROWSER}"))
            .await;
        let head = wire.head().await.unwrap();
        assert_eq!(head.status(), 429);
        assert_eq!(head.field("content-type"), Some("text/html; charset=utf-8"));
        // The connection has no body of that response.
        assert_eq!(limited(&mut wire, BROWSER).await.0.status(), 429);
        assert_eq!(upstream.requests().len(), 2);
    })
    .await;
}

/// An upstream may have limits, and pages, of its own.
#[tokio::test]
async fn upstream_429_stays_as_it_is() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start(upstream.port, PAGE, &[]).await;
        let mut wire = gateway.connect().await;
        let (head, body) = wire.answer(&format!("GET /429 HTTP/1.1\n{BROWSER}")).await;
        assert_eq!((head.status(), &*body), (429, "its own"));
    })
    .await;
}

#[tokio::test]
async fn page_is_read_again_with_the_rules() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = start(upstream.port, "first", &["--watch"]).await;
        let page = gateway.folder.path().join("page.html");
        let mut wire = gateway.connect().await;
        for _ in 0..2 {
            limited(&mut wire, BROWSER).await;
        }
        assert_eq!(limited(&mut wire, BROWSER).await.1, "first");
        // By --watch.
        fs::write(&page, "the second").unwrap();
        gateway
            .logs("read the page for denied requests again")
            .await;
        assert_eq!(limited(&mut wire, BROWSER).await.1, "the second");
        fs::write(&page, b"\xff").unwrap();
        gateway.process.hang_up();
        gateway
            .logs("the page for denied requests stays as it was: --denied-page page.html")
            .await;
        assert_eq!(limited(&mut wire, BROWSER).await.1, "the second");
    })
    .await;
}

#[tokio::test]
async fn page_with_a_fault_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("rules.yaml"), RULES).unwrap();
    fs::write(path.join("large.html"), vec![b'a'; 256 * 1024 + 1]).unwrap();
    fs::write(path.join("latin1.html"), b"<p>\nf\xfcr").unwrap();
    for (page, reason) in [
        ("none.html", "--denied-page none.html:\nNo such file"),
        ("large.html", "a page has at most 256 KiB"),
        ("latin1.html", "it is not UTF-8, in line 2"),
        (".", "--denied-page .:\n"),
    ] {
        let log = start_and_end(path, page).await;
        assert!(log.contains(reason), "{reason}: {log}");
    }
}

/// The log of a gateway that does not start.
async fn start_and_end(folder: &Path, page: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command
        .current_dir(folder)
        .args(["gateway", "rules.yaml", "--http", "off", "--admin", "off"])
        .args([
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "http://127.0.0.1:1",
        ])
        .args(["--denied-page", page]);
    let log = folder.join("log");
    fs::write(&log, "").unwrap();
    let mut process = Process::start(&mut command, &log);
    eventually("the end", async || process.has_ended().then_some(())).await;
    process.log()
}

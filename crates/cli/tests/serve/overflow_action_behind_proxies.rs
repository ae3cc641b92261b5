//! Rules of the action `overflow` behind proxies, by the page's configurations.

use tempfile::TempDir;

use crate::{
    auth::{is_missing, nginx, proxy, service_of},
    raw_http::{get, send},
    service_process::Service,
};

const RULES: &str = "rules:
  - {name: fast, match: {path: /reports}, key: peer_ip, quota: 2/day, action: overflow}
  - {name: all, match: {path: /reports}, key: peer_ip, quota: 4/day}
";

async fn service() -> (Service, TempDir) {
    service_of(RULES, &[]).await
}

/// The page's block of this language after this text.
fn block(language: &str, after: &str) -> &'static str {
    let page = include_str!("../../../service/docs/auth.md");
    let (_, rest) = page.split_once(after).unwrap();
    let (_, block) = rest.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}

/// Of five requests two are marked for the upstream and one is denied, whatever the client writes.
async fn marks_what_overflows(port: u16) {
    for (status, seen) in [
        (200, None),
        (200, None),
        (200, Some("fast")),
        (200, Some("fast")),
        (429, None),
    ] {
        let lines = "GET /reports HTTP/1.1\r\nhost: a\r\nx-ratelimit-overflow: forged";
        let answer = send(port, lines, "").await;
        assert_eq!((answer.status, answer.header("x-seen")), (status, seen));
    }
    assert_eq!(get(port, "/").await.header("x-seen"), None);
}

#[tokio::test]
async fn nginx_marks_what_overflows() {
    if is_missing("nginx") {
        return;
    }
    let (service, _rules) = service().await;
    let lines = block("nginx", "the response is 200, with a field");
    let config = |port: u16, upstream: u16| {
        let config = nginx(port, service.http, upstream);
        config.replacen("location / {", &format!("location / {{ {lines}"), 1)
    };
    let arguments = ["-e", "stderr", "-p", ".", "-c", "config"];
    let (port, _process, _folder) = proxy("nginx", &arguments, config).await;
    marks_what_overflows(port).await;
}

#[tokio::test]
async fn caddy_marks_what_overflows() {
    if is_missing("caddy") {
        return;
    }
    let (service, _rules) = service().await;
    let config = |port: u16, upstream: u16| {
        let site = block("caddyfile", "");
        let site = site.replace(":80 {", &format!("http://:{port} {{"));
        let site = site.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", service.http));
        let site = site.replace("127.0.0.1:9999", &format!("127.0.0.1:{upstream}"));
        format!("{{\n    admin off\n    auto_https off\n}}\n{site}")
    };
    let arguments = ["run", "--config", "config", "--adapter", "caddyfile"];
    let (port, _process, _folder) = proxy("caddy", &arguments, config).await;
    marks_what_overflows(port).await;
}

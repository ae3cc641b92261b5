//! `/v1/auth` with proxies that act on its status.

use std::{fs, process::Command};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port, missing};
use tonic::Code as GrpcCode;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    raw_http::{Answer, get, send, try_send, upstream},
    service_process::{Service, about},
};

const RULES: &str = "rules:
  - name: login
    match: {method: POST, path: /login, host: shop.example}
    key: peer_ip
    quota: 2/day
";

pub(crate) async fn service(options: &[&str]) -> (Service, TempDir) {
    service_of(RULES, options).await
}

/// A service that decides by these rules.
pub(crate) async fn service_of(rules: &str, options: &[&str]) -> (Service, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth.yaml");
    fs::write(&file, rules).unwrap();
    let options = [&["--auth-rules", file.to_str().unwrap()], options].concat();
    (Service::start(&options).await, folder)
}

/// A proxy's description of a login from this address.
pub(crate) fn login(query: &str, client: &str) -> String {
    format!(
        "GET /v1/auth{query} HTTP/1.1\r\nx-forwarded-method: POST\r\nx-forwarded-uri: /login?next=1\r\n\
         x-forwarded-host: shop.example\r\nx-forwarded-for: {client}"
    )
}

#[tokio::test]
async fn rules_decide_about_the_request_that_the_proxy_describes() {
    let (service, _folder) = service(&[]).await;
    let call = async |lines: String| send(service.http, &lines, "").await;
    let alice = "203.0.113.7";
    for status in [200, 200, 429] {
        let answer = call(login("", alice)).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
    }
    let forbidden = call(login("?deny=403", alice)).await;
    assert_eq!(forbidden.status, 403);
    assert!(forbidden.header("retry-after").is_some());
    // The proxy added the last address; a client may have written the ones before it.
    assert_eq!(
        call(login("", &format!("198.51.100.1, {alice}")))
            .await
            .status,
        429
    );
    assert_eq!(
        call(login("", &format!("{alice}, 198.51.100.1")))
            .await
            .status,
        200
    );
    let in_the_other_fields = login("", alice)
        .replace("x-forwarded-method", "x-original-method")
        .replace("x-forwarded-uri", "x-original-uri");
    assert_eq!(call(in_the_other_fields).await.status, 429);
    // Some servers read this as POST.
    let in_another_case = login("", alice).replace("POST", "POSt");
    assert_eq!(call(in_another_case).await.status, 429);
    for (field, other) in [
        ("POST", "GET"),
        ("/login", "/logout"),
        ("shop.example", "other.example"),
    ] {
        let answer = call(login("", alice).replace(field, other)).await;
        assert_eq!(answer.status, 200, "{other}");
    }
    // A client may have written one of them, if the proxy did not remove it.
    for second in [
        "x-original-method: GET",
        "x-original-uri: /logout",
        "x-forwarded-uri: /logout",
        "x-forwarded-host: other.example",
    ] {
        let both = format!("{}\r\n{second}", login("", alice));
        assert_eq!(call(both).await.status, 400, "{second}");
    }
    let twice = format!("{}\r\nx-original-method: POST", login("", alice));
    assert_eq!(call(twice).await.status, 429, "the same twice");
    assert_eq!(call(login("", "nobody")).await.status, 400);
    assert_eq!(
        call(login("", alice).replace("/login?next=1", "ht tp"))
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn only_trusted_proxies_are_believed() {
    let (service, folder) = service(&["--trust", "192.0.2.0/24"]).await;
    assert_eq!(
        send(service.http, &login("", "203.0.113.7"), "")
            .await
            .status,
        403
    );
    drop((service, folder));
    let none = Service::start(&[]).await;
    assert_eq!(get(none.http, "/v1/auth").await.status, 404);
}

#[tokio::test]
async fn there_need_be_no_limits_of_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth.yaml");
    fs::write(&file, RULES).unwrap();
    let service = Service::launch_bare(&["--auth-rules", file.to_str().unwrap()], &[]);
    service.ready().await;
    let call = async || {
        let question = login("", "203.0.113.7");
        send(service.http, &question, "").await.status
    };
    assert_eq!([call().await, call().await, call().await], [200, 200, 429]);
    let refused = service.call(about("foo", "bar")).await.unwrap_err();
    assert_eq!(refused.code(), GrpcCode::Unavailable);
    let mut health = HealthClient::new(service.channel());
    for (name, status) in [("", 1), ("ratelimit", 2)] {
        let service = HealthCheckRequest {
            service: name.to_owned(),
        };
        let answer = health.check(service).await.unwrap();
        assert_eq!(answer.into_inner().status, status, "{name:?}");
    }
    service.process.hang_up();
    service.process.logs("/v1/auth again").await;
    assert!(service.call(about("foo", "bar")).await.is_err());
    assert_eq!(get(service.http, "/readyz").await.status, 200);
}

#[tokio::test]
async fn rules_are_read_again() {
    let (service, folder) = service(&[]).await;
    let call = async || {
        send(service.http, &login("", "203.0.113.7"), "")
            .await
            .status
    };
    assert_eq!([call().await, call().await, call().await], [200, 200, 429]);
    let file = folder.path().join("auth.yaml");
    fs::write(&file, RULES.replace("path: /login", "path: /other")).unwrap();
    service.process.hang_up();
    service.process.logs("/v1/auth again").await;
    assert_eq!(call().await, 200);
}

/// A proxy with this configuration in front of an upstream.
pub(crate) async fn proxy(
    program: &str,
    arguments: &[&str],
    config: impl Fn(u16, u16) -> String,
) -> (u16, Process, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (port, upstream) = (free_port(), upstream().await);
    fs::write(folder.path().join("config"), config(port, upstream)).unwrap();
    let mut command = Command::new(find(program, None).unwrap());
    command
        .current_dir(folder.path())
        .args(arguments)
        .env("HOME", folder.path());
    let process = Process::start(&mut command, &folder.path().join("log"));
    eventually("a proxy that listens", async || {
        try_send(port, "GET / HTTP/1.1", "").await.map(drop)
    })
    .await;
    (port, process, folder)
}

pub(crate) fn is_missing(program: &str) -> bool {
    missing(
        find(program, None).is_some(),
        program,
        &format!("apt-get install {program}"),
    )
}

/// The page's configuration of nginx, with these ports.
pub(crate) fn nginx(port: u16, service: u16, upstream: u16) -> String {
    let page = include_str!("../../../service/docs/auth.md");
    let (_, block) = page.split_once("```nginx\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let block = block.replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
    let block = block.replace("127.0.0.1:8080", &format!("127.0.0.1:{service}"));
    let block = block.replace("127.0.0.1:9999", &format!("127.0.0.1:{upstream}"));
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}
         http {{
             access_log off;
             client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
             uwsgi_temp_path temp; scgi_temp_path temp;
             {block}
         }}"
    )
}

/// The page's directive of Caddy, with these ports.
fn caddy(port: u16, service: u16, upstream: u16) -> String {
    format!(
        "{{
    admin off
    auto_https off
}}
http://:{port} {{
    forward_auth 127.0.0.1:{service} {{
        uri /v1/auth
    }}
    reverse_proxy 127.0.0.1:{upstream}
}}
"
    )
}

async fn try_login(port: u16) -> Answer {
    send(
        port,
        "POST /login HTTP/1.1\r\nhost: shop.example",
        "user=eve",
    )
    .await
}

#[tokio::test]
async fn nginx_denies_what_the_rules_deny() {
    if is_missing("nginx") {
        return;
    }
    let (service, _rules) = service(&[]).await;
    let http = service.http;
    let arguments = ["-e", "stderr", "-p", ".", "-c", "config"];
    let (port, _process, _folder) = proxy("nginx", &arguments, |port, upstream| {
        nginx(port, http, upstream)
    })
    .await;
    for status in [200, 200, 429] {
        let answer = try_login(port).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
    }
    assert_eq!(get(port, "/").await.status, 200);
    // A client cannot make the description invalid.
    for field in [
        "x-original-uri: /zzz",
        "x-original-method: GET",
        "content-type: application/grpc",
    ] {
        let lines = format!("POST / HTTP/1.1\r\nhost: shop.example\r\n{field}");
        assert_eq!(send(port, &lines, "").await.status, 200, "{field}");
        let lines = format!("POST /login HTTP/1.1\r\nhost: shop.example\r\n{field}");
        assert_eq!(send(port, &lines, "").await.status, 429, "{field}");
    }
    assert_eq!(get(port, "/<").await.status, 429, "no path to the service");
    let many: String = (0..300).map(|at| format!("\r\nx-{at}: a")).collect();
    let lines = format!("POST / HTTP/1.1\r\nhost: shop.example{many}");
    assert_eq!(send(port, &lines, "").await.status, 429, "too many fields");
    drop(service);
    assert_eq!(
        try_login(port).await.status,
        500,
        "closed without the service"
    );
}

#[tokio::test]
async fn caddy_denies_what_the_rules_deny() {
    if is_missing("caddy") {
        return;
    }
    let (service, _rules) = service(&[]).await;
    let http = service.http;
    let arguments = ["run", "--config", "config", "--adapter", "caddyfile"];
    let (port, _process, _folder) = proxy("caddy", &arguments, |port, upstream| {
        caddy(port, http, upstream)
    })
    .await;
    for status in [200, 200, 429] {
        let answer = try_login(port).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
    }
    assert_eq!(get(port, "/").await.status, 200);
}

const WITH_ORIGINS: &str = "cors_origins: [\"https://app.example\"]
rules: [{name: login, match: {path: /login}, key: peer_ip, quota: 2/day}]
";

/// Preflight requests are not counted, and a script of the listed origin alone sees why it is denied.
async fn scripts_see_denials(port: u16) {
    let request = |method: &str, fields: &str| {
        format!("{method} /login HTTP/1.1\r\nhost: shop.example{fields}")
    };
    let listed = "\r\norigin: https://app.example";
    let preflight = request(
        "OPTIONS",
        &format!("{listed}\r\naccess-control-request-method: GET"),
    );
    for _ in 0..3 {
        assert_eq!(send(port, &preflight, "").await.status, 200);
    }
    let statuses = [200, 200, 429, 429].map(|status| (status, listed));
    for (status, origin) in statuses
        .into_iter()
        .chain([(429, ""), (429, "\r\norigin: https://evil.test")])
    {
        let answer = send(port, &request("GET", origin), "").await;
        assert_eq!(answer.status, status);
        let is_seen = status == 429 && origin == listed;
        for (name, value) in [
            ("access-control-allow-origin", "https://app.example"),
            ("access-control-allow-credentials", "true"),
        ] {
            assert_eq!(answer.header(name), is_seen.then_some(value), "{origin}");
        }
        let exposed = answer.header("access-control-expose-headers");
        let names = exposed.is_some_and(|names| names.contains("retry-after"));
        assert_eq!(names, is_seen, "{exposed:?}");
        let vary = answer.header("vary").map(str::to_ascii_lowercase);
        assert_eq!(vary.as_deref(), (status == 429).then_some("origin"));
    }
    assert_eq!(send(port, &preflight, "").await.status, 200);
}

#[tokio::test]
async fn scripts_of_listed_origins_see_denials_through_nginx() {
    if is_missing("nginx") {
        return;
    }
    let (service, _rules) = service_of(WITH_ORIGINS, &[]).await;
    let page = include_str!("../../../service/docs/auth.md");
    let (_, rest) = page.split_once("For scripts of other origins").unwrap();
    let mut blocks = rest
        .split("```nginx\n")
        .skip(1)
        .map(|block| block.split_once("```").unwrap().0);
    let [of_request, of_denial] = [(); 2].map(|()| blocks.next().unwrap());
    let arguments = ["-e", "stderr", "-p", ".", "-c", "config"];
    let (port, _process, _folder) = proxy("nginx", &arguments, |port, upstream| {
        let config = nginx(port, service.http, upstream);
        let config = config.replacen("location / {", &format!("location / {{ {of_request}"), 1);
        config.replacen(
            "location @limited {",
            &format!("location @limited {{ {of_denial}"),
            1,
        )
    })
    .await;
    scripts_see_denials(port).await;
}

#[tokio::test]
async fn scripts_of_listed_origins_see_denials_through_caddy() {
    if is_missing("caddy") {
        return;
    }
    let (service, _rules) = service_of(WITH_ORIGINS, &[]).await;
    let http = service.http;
    let arguments = ["run", "--config", "config", "--adapter", "caddyfile"];
    let (port, _process, _folder) = proxy("caddy", &arguments, |port, upstream| {
        caddy(port, http, upstream)
    })
    .await;
    scripts_see_denials(port).await;
}

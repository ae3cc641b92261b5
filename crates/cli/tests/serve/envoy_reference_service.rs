//! `envoy` as a drop-in for Envoy's reference service: its variables, its socket, its health.

use std::{fs, path::Path, process::Command};

use testkit::{
    child_processes::{Process, eventually, free_port},
    needs,
    servers::Server,
};
use tonic::transport::Endpoint;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    raw_http::send,
    service_process::{RULES, Service, about, call},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tower-ratelimit");

/// `tower-ratelimit envoy` with these variables and nothing else.
fn launch(variables: &[(&str, &str)]) -> Service {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("ratelimit/config");
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("rl.yaml"), RULES).unwrap();
    let [grpc, http, admin] = [free_port(), free_port(), free_port()];
    let mut command = Command::new(PROGRAM);
    command.env_clear().arg("envoy");
    command.env("RUNTIME_ROOT", folder.path());
    command.env("RUNTIME_SUBDIRECTORY", "ratelimit");
    command.env("GRPC_PORT", grpc.to_string());
    command.env("PORT", http.to_string());
    command.env("DEBUG_PORT", admin.to_string());
    let command = command.envs(variables.iter().copied());
    let process = Process::start(command, &folder.path().join("log"));
    Service {
        folder,
        grpc,
        http,
        admin,
        process,
    }
}

fn is_healthy(service: &Service) -> bool {
    let address = format!("0.0.0.0:{}", service.http);
    let mut command = Command::new(PROGRAM);
    let output = command
        .args(["healthcheck", "--http", &address])
        .output()
        .unwrap();
    let reported = String::from_utf8(output.stdout).unwrap();
    assert_eq!(reported == "ready\n", output.status.success(), "{reported}");
    output.status.success()
}

#[tokio::test]
async fn variables_of_the_reference_are_enough() {
    let service = launch(&[
        ("USE_STATSD", "false"),
        ("TRACING_ENABLED", "true"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
    ]);
    service.ready().await;
    assert!(is_healthy(&service));
    let ignored = "without a meaning here: TRACING_ENABLED, USE_STATSD";
    service.process.logs(ignored).await;
    service.process.logs("no REDIS_URL").await;
    let answer = service.call(about("foo", "bar")).await.unwrap();
    let names = answer.response_headers_to_add.iter();
    let names: Vec<&str> = names.map(|field| field.key.as_str()).collect();
    assert_eq!(names, ["ratelimit-limit", "ratelimit-remaining", "x-reset"]);
    // A changed file is read again.
    let file = service.folder.path().join("ratelimit/config/rl.yaml");
    fs::write(&file, RULES.replace(": 2", ": 50")).unwrap();
    eventually("rules that were read again", async || {
        let answer = service.call(about("foo", "x")).await.unwrap();
        (answer.statuses[0].limit_remaining > 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn counts_are_in_the_redis_that_is_named() {
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let address = url.strip_prefix("redis://").unwrap();
    let variables = [("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", address)];
    let (one, two) = (launch(&variables), launch(&variables));
    one.ready().await;
    two.ready().await;
    let mut codes = Vec::new();
    for service in [&one, &two, &one] {
        let answer = service.call(about("foo", "bar")).await.unwrap();
        codes.push(answer.overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
}

/// Faults and lines of the log name variables: `envoy` has no options.
#[tokio::test]
async fn no_line_names_an_option() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let service = launch(&[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &nobody)]);
    let log = service.process.logs("Redis cannot be used").await;
    assert!(log.contains("failure_mode_deny of Envoy decides"), "{log}");
    assert!(!log.contains("--"), "{log}");
    let mut service = launch(&[
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "/missing/tls.crt"),
        ("GRPC_SERVER_TLS_KEY", "/missing/tls.key"),
    ]);
    eventually("the end", async || {
        service.process.has_ended().then_some(())
    })
    .await;
    let log = service.process.log();
    assert!(
        log.contains("GRPC_SERVER_TLS_CERT /missing/tls.crt"),
        "{log}"
    );
}

#[tokio::test]
async fn readiness_needs_redis_if_the_variable_says_so() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let url = [("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", &*nobody)];
    let service = launch(&url);
    service.ready().await;
    let check = ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true");
    let service = launch(&[url[0], url[1], check]);
    service.process.logs("Redis cannot be used").await;
    assert!(!is_healthy(&service));
}

#[tokio::test]
async fn what_there_is_not_is_refused() {
    for (variable, word) in [
        (("BACKEND_TYPE", "memcache"), "BACKEND_TYPE"),
        (("CONFIG_TYPE", "HTTP"), "CONFIG_TYPE"),
        (("DEBUG_PORT", "99999"), "DEBUG_PORT"),
        (("REDIS_URL", "redis://a b"), "REDIS_URL:"),
    ] {
        let mut service = launch(&[variable]);
        eventually("the end", async || {
            service.process.has_ended().then_some(())
        })
        .await;
        assert!(
            service.process.log().contains(word),
            "{}",
            service.process.log()
        );
        assert!(!is_healthy(&service));
    }
}

async fn answers_on(socket: &Path) {
    let uri = format!("unix://{}", socket.display());
    let channel = Endpoint::from_shared(uri).unwrap().connect_lazy();
    let answer = call(channel, about("foo", "bar")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
}

#[tokio::test]
async fn calls_come_through_a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("rl.sock");
    let start = async || {
        let service = launch(&[("GRPC_UDS", socket.to_str().unwrap())]);
        service.ready().await;
        service
    };
    let service = start().await;
    answers_on(&socket).await;
    service.process.logs("rl.sock").await;
    let mut second = launch(&[("GRPC_UDS", socket.to_str().unwrap())]);
    eventually("the end", async || second.process.has_ended().then_some(())).await;
    assert!(second.process.log().contains("GRPC_UDS: "), "it is taken");
    // A killed process leaves its socket behind.
    drop(service);
    assert!(socket.exists());
    let _service = start().await;
    answers_on(&socket).await;
}

#[tokio::test]
async fn denied_clients_get_a_problem_document_on_demand() {
    let service = Service::start(&["--rls-body", "problem"]).await;
    for _ in 0..2 {
        let passed = service.call(about("foo", "bar")).await.unwrap();
        assert!(passed.raw_body.is_empty() && passed.response_headers_to_add.is_empty());
    }
    let denied = service.call(about("foo", "bar")).await.unwrap();
    let body = String::from_utf8(denied.raw_body).unwrap();
    assert!(
        body.contains("\"violated-policies\":[\"rl.foo\"]"),
        "{body}"
    );
    let [field] = denied.response_headers_to_add.as_slice() else {
        panic!("one field");
    };
    assert_eq!(
        (field.key.as_str(), field.value.as_str()),
        ("content-type", "application/problem+json")
    );
    let question =
        r#"{"domain": "rl", "descriptors": [{"entries": [{"key": "foo", "value": "bar"}]}]}"#;
    let reported = send(service.http, "POST /json HTTP/1.1", question).await;
    assert!(reported.body.contains("rawBody"), "{}", reported.body);
}

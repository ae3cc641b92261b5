//! Limits from a control plane, by the program: options, the variables of Envoy Gateway, the recipe of the page.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use testkit::{
    child_processes::{Process, eventually, free_port},
    needs,
    servers::certificates::{
        AUTHORITY, CERTIFICATE, KEY, make_certificates, make_client_certificate,
    },
};
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    control_plane::{Plane, config},
    raw_http::{get, send, try_send},
    service_process::{Service, about},
};

#[tokio::test]
async fn service_follows_a_control_plane_by_option() {
    let mut plane = Plane::start().await;
    let url = format!("http://127.0.0.1:{}", plane.port);
    let service = Service::launch_bare(&["--xds", &url, "--xds-node", "shop"], &[]);
    let (first, _) = plane.request().await;
    assert_eq!(first.node.unwrap().id, "shop");
    service.process.logs("waiting for the limits").await;
    plane.set("1", &[config("rl", &[("foo", 1)])]);
    service.ready().await;
    plane.reply().await;
    let codes = [
        service.call(about("foo", "eve")).await.unwrap(),
        service.call(about("foo", "eve")).await.unwrap(),
    ];
    assert_eq!(
        codes.map(|answer| answer.overall_code()),
        [Code::Ok, Code::OverLimit]
    );
    // Files are not read, and the limits stay.
    service.process.hang_up();
    plane.stop().await;
    service.process.logs("the limits stay").await;
    let answer = service.call(about("foo", "eve")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn service_that_waits_for_limits_can_be_stopped() {
    let mut plane = Plane::start().await;
    let url = format!("http://127.0.0.1:{}", plane.port);
    let mut service = Service::launch_bare(&["--xds", &url], &[]);
    plane.request().await;
    service.process.terminate();
    eventually("the end", async || {
        service.process.has_ended().then_some(())
    })
    .await;
}

#[test]
fn files_and_a_control_plane_exclude_each_other() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        let output = command.arg("serve").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let url = "http://127.0.0.1:1";
    for files in [
        &["rules.yaml"][..],
        &["--auth-rules", "rules.yaml"],
        &["--watch"],
    ] {
        let error = run(&[&["--xds", url], files].concat());
        assert!(error.contains("cannot be used with"), "{error}");
    }
    let error = run(&["--xds", "gateway"]);
    assert!(error.contains("http://10.0.0.7:18000"), "{error}");
}

/// The variables of Envoy Gateway with Prometheus, from `expectedRateLimitContainerEnv` in its source of August 2026. A
/// test has other ports, and its files are in another folder.
const ENVOY_GATEWAY: &str = "
RUNTIME_ROOT=/data
RUNTIME_SUBDIRECTORY=ratelimit
RUNTIME_IGNOREDOTFILES=true
RUNTIME_WATCH_ROOT=false
LOG_LEVEL=info
USE_STATSD=false
CONFIG_TYPE=GRPC_XDS_SOTW
CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001
CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit
GRPC_SERVER_USE_TLS=true
GRPC_SERVER_TLS_CERT=/certs/tls.crt
GRPC_SERVER_TLS_KEY=/certs/tls.key
GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt
CONFIG_GRPC_XDS_SERVER_USE_TLS=true
CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt
CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt
FORCE_START_WITHOUT_INITIAL_CONFIG=true
USE_PROMETHEUS=true
PROMETHEUS_ADDR=:19001
PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml
";

/// The program under the name that Envoy Gateway starts, with its variables.
fn envoy_gateway(folder: &Path, ports: [u16; 4], plane: u16) -> Process {
    let certs = folder.join("certs");
    let [grpc, http, admin, metrics] = ports;
    let variables = ENVOY_GATEWAY
        .replace("envoy-gateway:18001", &format!("127.0.0.1:{plane}"))
        .replace(":19001", &format!("127.0.0.1:{metrics}"))
        .replace("/certs/", &format!("{}/", certs.display()));
    let variables = variables.lines().filter_map(|line| line.split_once('='));
    let program = folder.join("ratelimit");
    symlink(env!("CARGO_BIN_EXE_tower-ratelimit"), &program).unwrap();
    let mut command = Command::new(program);
    let listeners = [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", admin)];
    command
        .env_clear()
        .envs(variables)
        .envs(listeners.map(|(name, port)| (name, port.to_string())));
    Process::start(&mut command, &folder.join("log"))
}

#[tokio::test]
async fn environment_of_envoy_gateway_starts() {
    needs!(openssl);
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    fs::create_dir(&certs).unwrap();
    make_certificates(&certs);
    make_client_certificate(&certs);
    // One certificate for both ends, as from Envoy Gateway.
    fs::copy(certs.join(AUTHORITY), certs.join("ca.crt")).unwrap();
    fs::copy(certs.join("client.pem"), certs.join("tls.crt")).unwrap();
    fs::copy(certs.join("client.key"), certs.join("tls.key")).unwrap();
    assert!(certs.join(CERTIFICATE).exists() && certs.join(KEY).exists());
    let mut plane = Plane::with_tls(certs.clone()).await;
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let [_, http, _, metrics] = ports;
    let process = envoy_gateway(folder.path(), ports, plane.port);

    // Its probes, before the first set.
    eventually("the probes", async || {
        let answer = try_send(http, "GET /healthcheck HTTP/1.1", "").await?;
        (answer.status == 200).then_some(())
    })
    .await;
    let (first, _) = plane.request().await;
    assert_eq!(first.node.unwrap().id, "envoy-ratelimit");
    plane.set("1", &[config("rl", &[("foo", 1)])]);
    assert_eq!(plane.reply().await.error_detail, None);
    let text = get(metrics, "/metrics").await.body;
    assert!(text.contains("ratelimit_config_connected 1\n"), "{text}");
    assert!(text.contains("ratelimit_rules 1\n"), "{text}");
    let ignored = "without a meaning here: GRPC_SERVER_TLS_CA_CERT, PROMETHEUS_MAPPER_YAML, \
                   RUNTIME_IGNOREDOTFILES, RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_WATCH_ROOT, USE_STATSD";
    process.logs(ignored).await;
}

const PAGE: &str = include_str!("../../../envoy/docs/envoy.md");

const CONTROL_PLANE: &str = include_str!("../../../envoy/docs/control-plane.py");

/// The control plane of the page is grpcio for Python: another implementation of the protocol.
#[tokio::test]
async fn page_leads_from_a_message_to_a_limit() {
    needs!(grpcio);
    let (_, page) = PAGE.split_once("## A control plane\n").unwrap();
    let (_, message) = page.split_once("```json\n").unwrap();
    let (message, _) = message.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let limits = |requests: u32, key: &str| {
        // An hour may end during the test.
        let text = message
            .replace("HOUR", "YEAR")
            .replace(
                "\"requestsPerUnit\": 3",
                &format!("\"requestsPerUnit\": {requests}"),
            )
            .replace("\"key\": \"user\"", &format!("\"key\": \"{key}\""));
        let whole = file("whole.json");
        fs::write(&whole, text).unwrap();
        fs::rename(whole, file("limits.json")).unwrap();
    };
    limits(3, "user");
    let port = free_port();
    fs::write(
        file("control-plane.py"),
        CONTROL_PLANE.replace(":18000", &format!(":{port}")),
    )
    .unwrap();
    let mut command = Command::new("python3");
    command
        .arg(file("control-plane.py"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/proto/xds.binpb"))
        .arg(file("limits.json"))
        .env("PYTHONPATH", std::env::var_os("GRPCIO").unwrap());
    let plane = Process::start(&mut command, &file("log"));
    let prints = async |text: &str| {
        eventually(text, async || plane.log().contains(text).then_some(())).await;
    };

    let url = format!("http://127.0.0.1:{port}");
    let service = Service::launch_bare(&["--xds", &url], &[]);
    service.ready().await;
    let body = page
        .split_once("curl -s -d '")
        .unwrap()
        .1
        .split_once('\'')
        .unwrap()
        .0;
    let codes = async |calls: usize| {
        let mut passed = Vec::new();
        for _ in 0..calls {
            let answer = send(service.http, "POST /json HTTP/1.1", body).await;
            let over = answer.body.contains("\"overallCode\":\"OVER_LIMIT\"");
            assert!(
                over || answer.body.contains("\"overallCode\":\"OK\""),
                "{}",
                answer.body
            );
            passed.push(!over);
        }
        passed
    };
    assert_eq!(codes(4).await, [true, true, true, false]);
    limits(6, "user");
    eventually("a change", async || {
        let log = plane.log();
        (log.matches("is in force").count() == 2).then_some(())
    })
    .await;
    // The denied request counts, too.
    assert_eq!(codes(3).await, [true, true, false]);
    limits(9, "");
    prints("shop: descriptors[0]: R02 the key of the descriptor is empty").await;
    assert_eq!(codes(1).await, [false]);
}

//! `deploy/`: the dashboard and the alerts, with a real Prometheus.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port};

use crate::{
    auth::{is_missing, login, service},
    control_plane::{Plane, config},
    raw_http::{get, send, try_send, upstream},
    service_process::{Service, about},
};

const DASHBOARD: &str = include_str!("../../../../deploy/grafana.json");
const ALERTS: &str = include_str!("../../../../deploy/alerts.yml");

fn promtool(arguments: &[&str]) -> Output {
    let mut command = Command::new(find("promtool", None).unwrap());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    command
        .current_dir(deploy)
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn alerts_pass_their_tests() {
    if is_missing("prometheus") {
        return;
    }
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let output = promtool(&arguments);
        let reported =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{reported}");
    }
    let tests = include_str!("../../../../deploy/alerts.test.yml");
    for alert in ALERTS.lines().filter_map(|line| line.split_once("alert: ")) {
        let fires = format!("alertname: {}\n", alert.1);
        assert!(tests.contains(&fires), "{} is not shown to fire", alert.1);
    }
}

/// A Prometheus that scrapes these ports.
struct Prometheus {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    async fn start(targets: &[u16]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets: Vec<String> = targets
            .iter()
            .map(|port| format!("'127.0.0.1:{port}'"))
            .collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  \
             - {{job_name: ratelimit, static_configs: [{{targets: [{}]}}]}}\n",
            targets.join(", ")
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let port = free_port();
        let mut command = Command::new(find("prometheus", None).unwrap());
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start(&mut command, &folder.path().join("log"));
        eventually("a ready Prometheus", async || {
            let answer = try_send(port, "GET /-/ready HTTP/1.0", "").await?;
            (answer.status == 200).then_some(())
        })
        .await;
        Self {
            port,
            _process: process,
            _folder: folder,
        }
    }

    /// The values of a query's answer.
    async fn query(&self, query: &str) -> Vec<f64> {
        let encode = |byte: u8| format!("%{byte:02X}");
        let body: String = query.bytes().map(encode).collect();
        // HTTP/1.0, so that the response is not chunked.
        let lines =
            "POST /api/v1/query HTTP/1.0\r\ncontent-type: application/x-www-form-urlencoded";
        let answer = send(self.port, lines, &format!("query={body}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        let samples = answer["data"]["result"].as_array().unwrap();
        let values = samples
            .iter()
            .map(|sample| sample["value"][1].as_str().unwrap());
        values.map(|value| value.parse().unwrap()).collect()
    }
}

/// The panels' expressions, each with its panel's title.
fn expressions() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().unwrap().clone();
        targets.into_iter().map(move |target| {
            let expression = target["expr"].as_str().unwrap();
            (title.clone(), expression.replace("$__rate_interval", "1m"))
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("ratelimit_"))
        .collect()
}

async fn call(service: &Service) {
    for _ in 0..3 {
        service.call(about("foo", "bar")).await.unwrap();
        send(service.http, &login("", "203.0.113.7"), "").await;
    }
}

/// A gateway, and the ports of its requests and metrics.
struct Gateway {
    port: u16,
    http: u16,
    _process: Process,
    _folder: TempDir,
}

impl Gateway {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rules = "rules: [{name: gateway, key: client_ip, quota: 2/day, in_flight: 8}]";
        fs::write(folder.path().join("rules.yaml"), rules).unwrap();
        let (port, http, upstream) = (free_port(), free_port(), upstream().await);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        command
            .current_dir(folder.path())
            .args(["gateway", "rules.yaml", "--admin", "off"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--http", &format!("127.0.0.1:{http}")])
            .args(["--upstream", &format!("http://127.0.0.1:{upstream}")]);
        let process = Process::start(&mut command, &folder.path().join("log"));
        eventually("a ready gateway", async || {
            let answer = try_send(http, "GET /readyz HTTP/1.1", "").await?;
            (answer.status == 200).then_some(())
        })
        .await;
        Self {
            port,
            http,
            _process: process,
            _folder: folder,
        }
    }
}

#[tokio::test]
async fn panels_and_alerts_are_about_what_prometheus_reads() {
    if is_missing("prometheus") {
        return;
    }
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let (local, _rules) = service(&[]).await;
    let (shared, _more_rules) = service(&["--redis", &nobody]).await;
    let gateway = Gateway::start().await;
    let plane = Plane::start().await;
    plane.set("1", &[config("rl", &[("foo", 1)])]);
    let url = format!("http://127.0.0.1:{}", plane.port);
    let following = Service::launch_bare(&["--xds", &url], &[]);
    following.ready().await;
    let ports = [local.http, shared.http, gateway.http, following.http];
    let prometheus = Prometheus::start(&ports).await;
    for (panel, expression) in expressions() {
        eventually(&format!("numbers of {panel}: {expression}"), async || {
            call(&local).await;
            call(&shared).await;
            get(gateway.port, "/").await;
            let values = prometheus.query(&expression).await;
            let reported = !values.is_empty() && values.iter().all(|value| value.is_finite());
            reported.then_some(())
        })
        .await;
    }
    for name in names(ALERTS) {
        let values = prometheus.query(name).await;
        assert!(!values.is_empty(), "an alert is about {name}");
    }
    let down = prometheus.query("ratelimit_store_up == 0").await;
    assert_eq!(down.len(), 1);
}

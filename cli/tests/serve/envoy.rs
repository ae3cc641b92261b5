//! A real Envoy that asks the service, in front of an upstream.

use std::{fs, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    needs,
    programs::{Process, eventually, find, free_port},
    servers::Server,
};
use tonic::{Code as GrpcCode, transport::Endpoint};

use crate::{
    http::{Answer, get, send, try_send, upstream},
    service::{Service, about, ask},
};

/// An Envoy with a listener for each way in which it may take a service that does not answer.
struct Envoy {
    _folder: TempDir,
    _process: Process,
    /// Lets requests pass that nobody decides about.
    open: u16,
    /// Answers them 500.
    closed: u16,
    /// The same, and waits for the service no longer than a moment.
    open_soon: u16,
    closed_soon: u16,
}

impl Envoy {
    async fn start(service: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let upstream = upstream().await;
        let ports = [(); 5].map(|()| free_port());
        let [open, closed, open_soon, closed_soon, admin] = ports;
        let config = json!({
            "admin": {"address": address(admin)},
            "static_resources": {
                "clusters": [cluster("service", service, true), cluster("upstream", upstream, false)],
                "listeners": [
                    listener(open, false, "60s"),
                    listener(closed, true, "60s"),
                    listener(open_soon, false, "0.3s"),
                    listener(closed_soon, true, "0.3s"),
                ],
            },
        });
        let file = folder.path().join("envoy.json");
        fs::write(&file, config.to_string()).unwrap();
        let program = find("envoy", Some("ENVOY")).expect("an Envoy");
        let mut command = Command::new(program);
        command.arg("--config-path").arg(&file);
        command.args([
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
            "--log-level",
            "warn",
        ]);
        let process = Process::start(&mut command, &folder.path().join("log"));
        eventually("an Envoy that is ready", async || {
            let answer = try_send(admin, "GET /ready HTTP/1.1", "").await?;
            (answer.status == 200).then_some(())
        })
        .await;
        Self {
            _folder: folder,
            _process: process,
            open,
            closed,
            open_soon,
            closed_soon,
        }
    }
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}

fn cluster(name: &str, port: u16, is_http2: bool) -> Value {
    let mut cluster = json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "60s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}],
        },
    });
    if is_http2 {
        let options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": options,
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        });
    }
    cluster
}

fn listener(port: u16, failure_mode_deny: bool, timeout: &str) -> Value {
    let of = |kind: &str| format!("type.googleapis.com/envoy.extensions.filters.{kind}");
    let limit = json!({
        "@type": of("http.ratelimit.v3.RateLimit"),
        "domain": "rl",
        "failure_mode_deny": failure_mode_deny,
        "timeout": timeout,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limited_as_resource_exhausted": true,
        "rate_limit_service": {
            "grpc_service": {"envoy_grpc": {"cluster_name": "service"}},
            "transport_api_version": "V3",
        },
    });
    let manager = json!({
        "@type": of("network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "ingress",
        "http_filters": [
            {"name": "envoy.filters.http.set_metadata", "typed_config": {
                "@type": of("http.set_metadata.v3.Config"),
                "metadata": [{
                    "metadata_namespace": "plan",
                    "value": {"limit": {"requests_per_unit": 2, "unit": "DAY"}},
                }],
            }},
            {"name": "envoy.filters.http.ratelimit", "typed_config": limit},
            {"name": "envoy.filters.http.router", "typed_config": {"@type": of("http.router.v3.Router")}},
        ],
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes()}],
        },
    });
    json!({
        "address": address(port),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

fn routes() -> Value {
    let header = json!({"request_headers": {"header_name": "foo", "descriptor_key": "foo"}});
    let heavy = json!({"generic_key": {"descriptor_value": "heavy"}});
    let routes = [
        ("/header", json!([{"actions": [header]}])),
        ("/address", json!([{"actions": [{"remote_address": {}}]}])),
        (
            "/heavy",
            json!([{"actions": [heavy], "hits_addend": {"number": 3}}]),
        ),
        (
            "/look",
            json!([{"actions": [heavy], "hits_addend": {"number": 0}}]),
        ),
        (
            "/done",
            json!([{"actions": [heavy], "hits_addend": {"number": 6}, "apply_on_stream_done": true}]),
        ),
        (
            "/free",
            json!([{"actions": [{"generic_key": {"descriptor_value": "free"}}]}]),
        ),
    ];
    let mode =
        |value: &str| json!({"generic_key": {"descriptor_key": "mode", "descriptor_value": value}});
    let limits = |modes: &[&str]| {
        modes
            .iter()
            .map(|name| json!({"actions": [mode(name)]}))
            .collect()
    };
    let own =
        json!({"dynamic_metadata": {"metadata_key": {"key": "plan", "path": [{"key": "limit"}]}}});
    let routes = routes.into_iter().chain([
        ("/shadow", limits(&["shadow"])),
        ("/quotas", limits(&["one", "two"])),
        ("/base", limits(&["base"])),
        ("/vip", limits(&["base", "vip"])),
        ("/own", json!([{"actions": [mode("own")], "limit": own}])),
        (
            "/tokens",
            json!([
                {"actions": [mode("two")], "hits_addend": {"number": 0}},
                {"actions": [mode("two")], "apply_on_stream_done": true},
            ]),
        ),
        ("/envoy.service", limits(&["grpc"])),
    ]);
    // By the filter, whose actions have `hits_addend`.
    let route = |(prefix, limits): (&str, Value)| {
        json!({
            "match": {"prefix": prefix},
            "route": {"cluster": if prefix.starts_with("/envoy") { "service" } else { "upstream" }},
            "response_headers_to_add": [{"header": {
                "key": "service",
                "value": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:service)%",
            }}],
            "typed_per_filter_config": {"envoy.filters.http.ratelimit": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
                "rate_limits": limits,
            }},
        })
    };
    routes.map(route).collect()
}

async fn with_foo(port: u16, value: &str) -> Answer {
    send(port, &format!("GET /header HTTP/1.1\r\nfoo: {value}"), "").await
}

#[tokio::test]
async fn requests_pass_up_to_the_limit() {
    needs!(envoy);
    let service = Service::start(&["--rls-headers", "envoy,retry-after"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = with_foo(envoy.closed, "bar").await;
        told.push((
            answer.status,
            answer.header("ratelimit-remaining").map(str::to_owned),
        ));
        // Envoy's own, which it makes of the status.
        let limit = answer.header("x-ratelimit-limit").unwrap();
        assert!(limit.starts_with("2"), "{limit}");
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            answer.header("ratelimit-remaining")
        );
        assert_eq!(answer.header("ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
        assert_eq!(answer.body == "up", answer.status == 200);
    }
    let left = |units: &str| Some(units.to_owned());
    assert_eq!(told, [(200, left("1")), (200, left("0")), (429, left("0"))]);
    assert_eq!(with_foo(envoy.closed, "other").await.status, 200);
    // Without the header there is no descriptor, and with another one no limit.
    assert_eq!(get(envoy.closed, "/header").await.status, 200);
    assert_eq!(get(envoy.closed, "/free").await.status, 200);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(get(envoy.closed, "/address").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn units_are_those_that_the_route_says() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    let status = async |path| get(envoy.closed, path).await.status;
    assert_eq!(status("/look").await, 200);
    assert_eq!(status("/heavy").await, 200, "3 of 5");
    assert_eq!(status("/look").await, 200);
    assert_eq!(status("/heavy").await, 429, "6 of 5");
    assert_eq!(status("/look").await, 429);
}

/// What is charged when the response is done is not waited for.
#[tokio::test]
async fn units_may_be_charged_after_the_response() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    assert_eq!(get(envoy.closed, "/done").await.status, 200);
    eventually("a charge", async || {
        (get(envoy.closed, "/look").await.status == 429).then_some(())
    })
    .await;
}

#[tokio::test]
async fn modes_of_limits_are_what_envoy_makes_of_them() {
    needs!(envoy);
    let service = Service::start(&["--metadata"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let statuses = async |path: &str, times: usize| {
        let mut statuses = Vec::new();
        for _ in 0..times {
            statuses.push(get(envoy.closed, path).await.status);
        }
        statuses
    };
    assert_eq!(statuses("/shadow", 3).await, [200; 3]);
    // Of quotas one is enough, and the metadata says which.
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = get(envoy.closed, "/quotas").await;
        told.push((answer.status, answer.header("service").map(str::to_owned)));
    }
    let by = |service: &str| Some(service.to_owned());
    assert_eq!(told[..2], [(200, by("one")), (200, by("two"))]);
    assert_eq!(told[2].0, 429);
    // A limit that another replaces is not counted.
    assert_eq!(statuses("/vip", 2).await, [200; 2]);
    assert_eq!(statuses("/base", 2).await, [200, 429]);
    assert_eq!(statuses("/vip", 2).await, [200, 429], "by its own limit");
    // The limit that comes with the descriptor; the rules have none.
    assert_eq!(statuses("/own", 3).await, [200, 200, 429]);
}

/// A look finds 2 of 2 units not beyond the limit: the third request passes, and its own unit is charged.
#[tokio::test]
async fn quotas_of_tokens_let_one_more_pass() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    for used in 1..=3 {
        assert_eq!(get(envoy.closed, "/tokens").await.status, 200, "{used}");
        eventually("the charge", async || {
            let question = r#"{"domain": "rl", "dry_run": true, "descriptors": [{
                "entries": [{"key": "mode", "value": "two"}], "hitsAddend": 0}]}"#;
            let told = send(service.http, "POST /v1/check HTTP/1.1", question).await;
            let left = told.body.split("\"remaining\":").nth(1)?.chars().next()?;
            let allowed = told.body.contains("\"allowed\":true");
            ((left, allowed) == [('1', true), ('0', true), ('0', false)][used - 1]).then_some(())
        })
        .await;
    }
    assert_eq!(get(envoy.closed, "/tokens").await.status, 429);
}

#[tokio::test]
async fn calls_of_grpc_are_denied_in_its_terms() {
    needs!(envoy);
    let service = Service::start(&["--rls-body", "problem"]).await;
    let envoy = Envoy::start(service.grpc).await;
    let address = format!("http://127.0.0.1:{}", envoy.closed);
    let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
    assert!(ask(channel.clone(), about("unmatched", "")).await.is_ok());
    let denied = ask(channel, about("unmatched", "")).await.unwrap_err();
    assert_eq!(denied.code(), GrpcCode::ResourceExhausted);
    assert!(denied.message().contains("rl.mode_grpc"), "{denied:?}");
}

/// What becomes of requests that nobody decides about: they pass or not, as Envoy is told.
async fn check_failure(open: u16, closed: u16, how: &str) {
    let passed = with_foo(open, "bar").await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "up"), "{how}");
    assert_eq!(with_foo(closed, "bar").await.status, 500, "{how}");
}

#[tokio::test]
async fn service_that_stopped_or_hangs_is_what_envoy_makes_of_it() {
    needs!(envoy);
    let service = Service::start(&[]).await;
    let envoy = Envoy::start(service.grpc).await;
    for _ in 0..2 {
        assert_eq!(with_foo(envoy.closed, "bar").await.status, 200);
    }
    service.process.pause();
    check_failure(envoy.open_soon, envoy.closed_soon, "hung").await;
    service.process.resume();
    service.ready().await;
    assert_eq!(
        with_foo(envoy.closed, "bar").await.status,
        429,
        "it goes on"
    );
    drop(service);
    check_failure(envoy.open, envoy.closed, "stopped").await;
}

/// Never an answer of which Envoy lets all pass, whatever it is told.
#[tokio::test]
async fn store_that_is_gone_is_what_envoy_makes_of_it() {
    needs!(envoy);
    needs!(redis);
    let server = Server::start().await;
    let url = server.url();
    let options = [
        "--redis",
        &url,
        "--redis-deadline",
        "20s",
        "--on-failure",
        "deny",
    ];
    let service = Service::start(&options).await;
    let envoy = Envoy::start(service.grpc).await;
    assert_eq!(with_foo(envoy.closed, "bar").await.status, 200);
    drop(server);
    check_failure(envoy.open, envoy.closed, "without Redis").await;
}

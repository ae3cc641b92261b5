//! An Envoy in front of an upstream, with routes that call the service.

use std::{fs, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port};

use crate::raw_http::{try_send, upstream};

/// An Envoy with a listener for each reaction to a service that does not respond.
pub(crate) struct Envoy {
    _folder: TempDir,
    _process: Process,
    /// Lets requests without a decision pass.
    pub(crate) open: u16,
    /// Responds 500 to them.
    pub(crate) closed: u16,
    /// Responds 500 as well, after a short timeout.
    pub(crate) open_soon: u16,
    pub(crate) closed_soon: u16,
}

impl Envoy {
    pub(crate) async fn start(service: u16) -> Self {
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
            "/format",
            json!([{"actions": [heavy], "hits_addend": {"format": "%REQ(x-units)%"}}]),
        ),
        (
            "/back",
            json!([{"actions": [heavy], "hits_addend": {"number": 2, "is_negative_hits": true}}]),
        ),
        (
            "/masked",
            json!([{"actions": [{"masked_remote_address": {"v4_prefix_mask_len": 8}}]}]),
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

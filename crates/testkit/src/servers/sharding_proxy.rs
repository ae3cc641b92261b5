//! Proxies that spread keys over several servers, each by the first key of a command.

use std::{fs, process::Command};

use redis::{Client, Value};
use serde_json::json;
use tempfile::TempDir;

use super::redis_server::{Server, connect};
use crate::child_processes::{Process, eventually, find, free_port};

const SERVERS: usize = 3;

/// A proxy before three servers.
#[derive(Debug)]
pub struct ShardingProxy {
    // Before the folder: it is killed before its files go.
    _process: Process,
    _folder: TempDir,
    servers: Vec<Server>,
    port: u16,
}

impl ShardingProxy {
    /// Starts an Envoy, the program in `ENVOY` or that of the search path.
    pub async fn envoy() -> Self {
        Self::start(|file, servers, port| {
            fs::write(file, envoy_config(servers, port)).expect("a configuration");
            let mut command = Command::new(find("envoy", Some("ENVOY")).expect("an Envoy"));
            command.arg("--config-path").arg(file).args([
                "--use-dynamic-base-id",
                "--concurrency",
                "1",
                "--log-level",
                "warn",
            ]);
            command
        })
        .await
    }

    /// Starts a twemproxy, whose program is `nutcracker`.
    pub async fn twemproxy() -> Self {
        Self::start(|file, servers, port| {
            fs::write(file, twemproxy_config(servers, port)).expect("a configuration");
            let mut command = Command::new(find("nutcracker", None).expect("a twemproxy"));
            command.arg("--conf-file").arg(file);
            let statistics = free_port().to_string();
            command.args(["--stats-addr", "127.0.0.1", "--stats-port", &statistics]);
            command
        })
        .await
    }

    async fn start(command: impl FnOnce(&std::path::Path, &[u16], u16) -> Command) -> Self {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(Server::start().await);
        }
        let ports: Vec<_> = servers.iter().map(Server::port).collect();
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        // Envoy goes by the file's ending, and twemproxy takes any.
        let mut command = command(&folder.path().join("config.yaml"), &ports, port);
        let process = Process::start(&mut command, &folder.path().join("log"));
        let proxy = Self {
            _process: process,
            _folder: folder,
            servers,
            port,
        };
        eventually("a proxy that reaches its servers", async || {
            for key in 0..16 {
                proxy.exists(&key.to_string()).await?;
            }
            Some(())
        })
        .await;
        proxy
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// `None` until the server of this key responds.
    async fn exists(&self, key: &str) -> Option<Value> {
        use redis::IntoConnectionInfo as _;

        let info = self.url().into_connection_info().ok()?;
        // Twemproxy ends connections on which a client names itself.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(settings)).ok()?;
        let mut connection = connect(client).await.ok()?;
        let exists = redis::cmd("EXISTS").arg(key).to_owned();
        exists.query_async(&mut connection).await.ok()
    }
}

fn envoy_config(servers: &[u16], port: u16) -> String {
    let address =
        |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let endpoints: Vec<_> = servers
        .iter()
        .map(|port| json!({"endpoint": {"address": address(*port)}}))
        .collect();
    let proxy = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
        "stat_prefix": "redis",
        "settings": {"op_timeout": "60s"},
        "prefix_routes": {"catch_all_route": {"cluster": "redis"}},
    });
    let filter = json!({"name": "envoy.filters.network.redis_proxy", "typed_config": proxy});
    let config = json!({
        "static_resources": {
            "clusters": [{
                "name": "redis",
                "type": "STATIC",
                "connect_timeout": "60s",
                "lb_policy": "MAGLEV",
                "load_assignment": {"cluster_name": "redis", "endpoints": [{"lb_endpoints": endpoints}]},
            }],
            "listeners": [{
                "name": "redis",
                "address": address(port),
                "filter_chains": [{"filters": [filter]}],
            }],
        },
    });
    config.to_string()
}

fn twemproxy_config(servers: &[u16], port: u16) -> String {
    let servers: String = servers
        .iter()
        .map(|port| format!("   - 127.0.0.1:{port}:1\n"))
        .collect();
    format!(
        "redis:\n  listen: 127.0.0.1:{port}\n  hash: murmur\n  distribution: ketama\n  redis: true\n  \
         servers:\n{servers}"
    )
}

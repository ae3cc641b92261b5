//! The process under test.

use std::{fs, process::Command};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, free_port};
use tonic::{
    Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::protobuf_messages::{
    Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};

use crate::raw_http::try_send;

/// Limits with periods longer than any test.
pub(crate) const RULES: &str = "domain: rl
descriptors:
  - key: foo
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: generic_key
    value: heavy
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: year, requests_per_unit: 3}
  - {key: masked_remote_address, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: mode, value: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: mode, value: one, quota_mode: true, metadata: {service: one}, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: mode, value: two, quota_mode: true, metadata: {service: two}, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: mode, value: base, rate_limit: {unit: year, requests_per_unit: 1, name: base}}
  - {key: mode, value: vip, rate_limit: {unit: year, requests_per_unit: 3, name: vip, replaces: [{name: base}]}}
  - {key: mode, value: grpc, rate_limit: {unit: year, requests_per_unit: 1}}
";

pub(crate) struct Service {
    pub(crate) folder: TempDir,
    pub(crate) grpc: u16,
    pub(crate) http: u16,
    pub(crate) admin: u16,
    pub(crate) process: Process,
}

impl Service {
    pub(crate) async fn start(options: &[&str]) -> Self {
        let service = Self::launch(options);
        service.ready().await;
        service
    }

    /// Starts it, and does not wait.
    pub(crate) fn launch(options: &[&str]) -> Self {
        Self::launch_with(options, &[])
    }

    /// Starts it with these variables in its environment, and does not wait.
    pub(crate) fn launch_with(options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::launch_bare(&[&["rules.yaml"], options].concat(), variables)
    }

    /// Starts it without files of limits, and does not wait.
    pub(crate) fn launch_bare(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
        let [grpc, http, admin] = [free_port(), free_port(), free_port()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        command.current_dir(folder.path()).arg("serve");
        command.args(["--grpc", &format!("127.0.0.1:{grpc}")]);
        command.args(["--http", &format!("127.0.0.1:{http}")]);
        command.args(["--admin", &format!("127.0.0.1:{admin}")]);
        command.args(options).envs(variables.iter().copied());
        let process = Process::start(&mut command, &folder.path().join("log"));
        Self {
            folder,
            grpc,
            http,
            admin,
            process,
        }
    }

    pub(crate) async fn ready(&self) {
        eventually("a ready service", async || {
            let answer = try_send(self.http, "GET /readyz HTTP/1.1", "").await?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://127.0.0.1:{}", self.grpc))
            .unwrap()
            .connect_lazy()
    }

    pub(crate) async fn call(
        &self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        call(self.channel(), request).await
    }
}

/// Sends a request as a client of the protocol.
pub(crate) async fn call(
    channel: Channel,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    call_method(channel, path, request).await
}

/// Calls the method at this path.
pub(crate) async fn call_method<Q, A>(
    channel: Channel,
    path: &'static str,
    question: Q,
) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = client
        .unary(tonic::Request::new(question), path, codec)
        .await?;
    Ok(answer.into_inner())
}

/// A request in the domain `rl` about one entry.
pub(crate) fn about(key: &str, value: &str) -> RateLimitRequest {
    let [key, value] = [key, value].map(str::to_owned);
    RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key, value }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

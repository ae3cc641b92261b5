//! A service in this process that follows a control plane.

use std::{net::Ipv4Addr, time::Duration};

use serde_json::Value;
use testkit::child_processes::{eventually, free_port};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tonic::{
    Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::{
    protobuf_messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse},
    serve::{Settings, serve},
    xds::ControlPlane,
};

pub(crate) struct Service {
    pub(crate) http: u16,
    pub(crate) admin: u16,
    channel: Channel,
    _task: JoinSet<()>,
}

/// The control plane on this port, with short pauses.
pub(crate) fn at(port: u16) -> ControlPlane {
    let mut plane = ControlPlane::new(&format!("http://127.0.0.1:{port}")).unwrap();
    plane.initial_backoff = Duration::from_millis(50);
    plane.max_backoff = Duration::from_millis(200);
    plane.connect_retry = Duration::from_millis(50);
    plane
}

impl Service {
    /// Starts it, and does not wait.
    pub(crate) fn launch(plane: ControlPlane) -> Self {
        let [grpc, http, admin] = [free_port(), free_port(), free_port()];
        let mut settings = Settings::new(Vec::new());
        settings.xds = plane;
        settings.grpc = (Ipv4Addr::LOCALHOST, grpc).into();
        settings.http = (Ipv4Addr::LOCALHOST, http).into();
        settings.operators.admin = Some((Ipv4Addr::LOCALHOST, admin).into());
        let mut task = JoinSet::new();
        task.spawn(async move { serve(settings).await.unwrap() });
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{grpc}"));
        Self {
            http,
            admin,
            channel: channel.unwrap().connect_lazy(),
            _task: task,
        }
    }

    /// Starts it, and waits until it is ready.
    pub(crate) async fn start(plane: ControlPlane) -> Self {
        let service = Self::launch(plane);
        service.becomes("/readyz", 200).await;
        service
    }

    /// Waits for this status of a route.
    pub(crate) async fn becomes(&self, path: &str, status: u16) {
        let line = format!("GET {path}");
        eventually(&format!("{status} of {path}"), async || {
            let (found, _) = send(self.http, &line).await?;
            (found == status).then_some(())
        })
        .await;
    }

    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = send(self.http, "GET /metrics").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line?.trim().parse().ok()
    }

    /// Waits until the metric has this value.
    pub(crate) async fn measures(&self, name: &str, value: f64) {
        eventually(&format!("{name} {value}"), async || {
            (self.metric(name).await == Some(value)).then_some(())
        })
        .await;
    }

    pub(crate) async fn operate(&self, line: &str, body: &str) -> (u16, Value) {
        let (status, body) = send_body(self.admin, line, body).await.unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The rules, as operators see them.
    pub(crate) async fn rules(&self) -> Value {
        self.operate("GET /v1/rules", "").await.1
    }

    pub(crate) async fn call(
        &self,
        domain: &str,
        key: &str,
        units: u32,
    ) -> Result<RateLimitResponse, Status> {
        let mut client = Grpc::new(self.channel.clone());
        let ready = client.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries: vec![Entry {
                    key: key.to_owned(),
                    value: "eve".to_owned(),
                }],
                ..RateLimitDescriptor::default()
            }],
            hits_addend: units,
        };
        let path = PathAndQuery::from_static(path);
        let answer = client.unary(tonic::Request::new(request), path, ProstCodec::default());
        Ok(answer.await?.into_inner())
    }

    /// Waits until the health service of gRPC reports this.
    pub(crate) async fn serves(&self, expected: ServingStatus) {
        eventually(&format!("{expected:?}"), async || {
            let mut client = HealthClient::new(self.channel.clone());
            let request = HealthCheckRequest {
                service: "ratelimit".to_owned(),
            };
            let answer = client.check(request).await.ok()?.into_inner();
            (answer.status() == expected).then_some(())
        })
        .await;
    }

    /// Whether a call with one unit passes, and the remaining units of its limit; `None` without a limit.
    pub(crate) async fn decide(&self, domain: &str, key: &str) -> (bool, Option<u32>) {
        let answer = self.call(domain, key, 1).await.unwrap();
        let status = &answer.statuses[0];
        let remaining = status
            .current_limit
            .as_ref()
            .map(|_| status.limit_remaining);
        (answer.overall_code() == Code::Ok, remaining)
    }
}

/// Sends a request without a body; `None` without a response.
pub(crate) async fn send(port: u16, line: &str) -> Option<(u16, String)> {
    send_body(port, line, "").await
}

async fn send_body(port: u16, line: &str, body: &str) -> Option<(u16, String)> {
    let length = body.len();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let head = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

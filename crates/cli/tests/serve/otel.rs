//! Spans, as a collector receives them.

use std::{
    convert::Infallible,
    fs,
    net::Ipv4Addr,
    pin::Pin,
    process::Command,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use testkit::child_processes::{Process, eventually, free_port};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    client,
    codegen::{Service as TowerService, http, http::uri::PathAndQuery},
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::protobuf_messages::{RateLimitRequest, RateLimitResponse};

use crate::{
    raw_http::{send, try_send, upstream},
    service_process::{Service, about},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const SECRET: &str = "a-secret-value";
const RULES: &str = "rules:
  - {name: by-user, match: {path: /**}, key: {header: x-user}, quota: 1/day}
";

/// The fields of OTLP's messages that the test reads.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Export {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<OfResource>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OfResource {
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<OfScope>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct OfScope {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<Attribute>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Attribute {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Value>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Value {
        #[prost(string, optional, tag = "1")]
        pub(super) text: Option<String>,
        #[prost(int64, optional, tag = "3")]
        pub(super) number: Option<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Answer {}
}

/// A collector that stores its spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<wire::Span>>>);

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl TowerService<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        Box::pin(async move {
            let codec: ProstCodec<wire::Answer, wire::Export> = ProstCodec::default();
            Ok(Grpc::new(codec).unary(collector, request).await)
        })
    }
}

impl UnaryService<wire::Export> for Collector {
    type Response = wire::Answer;
    type Future = BoxFuture<Response<wire::Answer>, Status>;

    fn call(&mut self, request: Request<wire::Export>) -> Self::Future {
        let resources = request.into_inner().resources.into_iter();
        let spans = resources
            .flat_map(|resource| resource.scopes)
            .flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Box::pin(async { Ok(Response::new(wire::Answer {})) })
    }
}

impl Collector {
    /// A collector, and the variables with its address.
    async fn start() -> (Self, [(&'static str, String); 2]) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self::default();
        let services = Server::builder().add_service(collector.clone());
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(services.serve_with_incoming(incoming));
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", address),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ];
        (collector, variables)
    }

    /// The attributes of this many spans. Each must be in the caller's trace, without a key.
    async fn attributes(&self, count: usize) -> Vec<String> {
        let spans = eventually("spans", async || {
            let spans = self.0.lock().unwrap().clone();
            (spans.len() >= count).then_some(spans)
        })
        .await;
        assert_eq!(spans.len(), count, "{spans:?}");
        for span in &spans {
            assert_eq!(span.name, "ratelimit.check");
            assert_eq!((hex(&span.trace), hex(&span.parent)), caller());
            assert!(!format!("{span:?}").contains(SECRET), "{span:?}");
        }
        spans.iter().map(attributes).collect()
    }
}

fn caller() -> (String, String) {
    (TRACE.to_owned(), PARENT.to_owned())
}

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sorted by name.
fn attributes(span: &wire::Span) -> String {
    let attributes = span.attributes.iter().map(|attribute| {
        let value = attribute.value.clone().unwrap_or_default();
        let number = value.number.map(|number| number.to_string());
        let value = value.text.or(number).unwrap_or_default();
        let key = attribute.key.strip_prefix("rate_limit.");
        format!("{}={value}", key.unwrap_or(&attribute.key))
    });
    let mut attributes: Vec<String> = attributes.collect();
    attributes.sort();
    attributes.join(" ")
}

fn borrowed<'v>(variables: &'v [(&'static str, String)]) -> Vec<(&'static str, &'v str)> {
    let pairs = variables.iter();
    pairs.map(|(name, value)| (*name, value.as_str())).collect()
}

async fn call(service: &Service, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut request = Request::new(request);
    let parent = traceparent().parse().unwrap();
    request.metadata_mut().insert("traceparent", parent);
    let mut client = client::Grpc::new(service.channel());
    client.ready().await.unwrap();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let path = PathAndQuery::from_static(path);
    let answer = client.unary(request, path, ProstCodec::default()).await?;
    Ok(answer.into_inner())
}

#[tokio::test]
async fn calls_are_spans_in_the_trace_of_their_caller() {
    let (collector, variables) = Collector::start().await;
    let service = Service::launch_with(&[], &borrowed(&variables));
    service.ready().await;
    for _ in 0..3 {
        call(&service, about("foo", SECRET)).await.unwrap();
    }
    call(&service, about("mode", "base")).await.unwrap();
    let mut nowhere = about("foo", SECRET);
    nowhere.domain.clear();
    call(&service, nowhere).await.unwrap_err();
    assert_eq!(
        collector.attributes(5).await,
        [
            "backend=local policy=rl remaining=1 result=allowed",
            "backend=local policy=rl remaining=0 result=allowed",
            "backend=local policy=rl remaining=0 result=limited",
            "backend=local policy=base remaining=0 result=allowed",
            "backend=local error.type=invalid result=error",
        ]
    );
}

#[tokio::test]
async fn questions_by_http_are_spans_with_their_route() {
    let (collector, variables) = Collector::start().await;
    let rules = tempfile::tempdir().unwrap();
    let file = rules.path().join("requests.yaml");
    fs::write(&file, RULES).unwrap();
    let options = ["--auth-rules", file.to_str().unwrap()];
    let service = Service::launch_with(&options, &borrowed(&variables));
    service.ready().await;
    let fields = format!(
        "traceparent: {}\r\nx-forwarded-uri: /a\r\nx-user: {SECRET}",
        traceparent()
    );
    let descriptors = format!(
        r#"{{"domain": "rl", "descriptors": [{{"entries": [{{"key": "foo", "value": "{SECRET}"}}]}}]}}"#
    );
    let request = format!(r#"{{"path": "/a", "headers": {{"x-user": "{SECRET}"}}}}"#);
    for (line, body) in [
        ("POST /json HTTP/1.1", descriptors.as_str()),
        ("POST /v1/check HTTP/1.1", &descriptors),
        ("POST /v1/check HTTP/1.1", &request),
        ("GET /v1/auth HTTP/1.1", ""),
    ] {
        let head = format!("{line}\r\n{fields}");
        let answer = send(service.http, &head, body).await;
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    }
    assert_eq!(
        collector.attributes(4).await,
        [
            "backend=local http.route=/json policy=rl remaining=1 result=allowed",
            "backend=local http.route=/v1/check policy=rl remaining=0 result=allowed",
            "backend=local http.route=/v1/check policy=by-user remaining=0 result=allowed",
            "backend=local http.route=/v1/auth policy=by-user remaining=0 result=limited",
        ]
    );
}

#[tokio::test]
async fn limits_of_the_gateway_are_spans() {
    let (collector, variables) = Collector::start().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    let (port, upstream) = (free_port(), upstream().await);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command
        .current_dir(folder.path())
        .args(["gateway", "rules.yaml"])
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(["--upstream", &format!("http://127.0.0.1:{upstream}")])
        .args(["--drain", "0s", "--http", "off", "--admin", "off"])
        .envs(borrowed(&variables))
        // Queued spans are sent at shutdown.
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let mut process = Process::start(&mut command, &folder.path().join("log"));
    let head = format!(
        "GET / HTTP/1.1\r\ntraceparent: {}\r\nx-user: {SECRET}",
        traceparent()
    );
    let first = eventually("a gateway", async || try_send(port, &head, "").await).await;
    let second = send(port, &head, "").await;
    assert_eq!((first.status, second.status), (200, 429));
    process.terminate();
    eventually("its end", async || process.has_ended().then_some(())).await;
    assert_eq!(
        collector.attributes(2).await,
        [
            "backend=local policy=by-user remaining=0 result=allowed",
            "backend=local policy=by-user remaining=0 result=limited",
        ]
    );
}

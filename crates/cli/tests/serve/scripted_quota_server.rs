//! A quota server whose tests choose each assignment, with an Envoy that applies them.

use std::{
    convert::Infallible,
    future::Future,
    net::Ipv4Addr,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, free_port};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_stream::{Stream, StreamExt as _, wrappers::UnboundedReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    server::{Grpc, StreamingService},
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::protobuf_messages::{
    self, AbandonAction, Action, BlanketRule, BucketAction, BucketId, BucketQuotaUsage,
    QuotaAssignment, RateLimitQuotaUsageReports, RateLimitStrategy, Strategy, TokenBucket,
};

use crate::{
    envoy_quota_shares::{config_of_page, start_envoy},
    raw_http::{send, try_send},
};

/// A `RateLimitQuotaResponse` whose actions are bytes, so that it can contain what the service never sends.
#[derive(Clone, PartialEq, Message)]
struct RawResponse {
    #[prost(bytes = "vec", repeated, tag = "1")]
    bucket_action: Vec<Vec<u8>>,
}

/// The bucket that shows to `apply` which actions are in force.
const MARKER: &str = "marker";

/// Closes connections without a delay of a second, which each request would wait for.
const CLOSE_AT_ONCE: (&str, &str) = (
    "stat_prefix: ingress",
    "stat_prefix: ingress\n                delayed_close_timeout: 0s",
);

/// An Envoy and its quota server.
pub(crate) struct ScriptedEnvoy {
    pub(crate) listener: u16,
    pub(crate) process: Process,
    state: State,
    marker: BlanketRule,
    _folder: TempDir,
}

#[derive(Clone, Default)]
struct State {
    messages: Arc<Mutex<Vec<Vec<BucketQuotaUsage>>>>,
    streams: Arc<Mutex<Vec<mpsc::UnboundedSender<RawResponse>>>>,
}

impl ScriptedEnvoy {
    /// Starts both. The page's configuration has these replacements.
    pub(crate) async fn start(replacements: &[(&str, &str)]) -> Self {
        let grpc = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let listener = free_port();
        let mut config = config_of_page(listener, grpc.local_addr().unwrap().port());
        for (text, replacement) in [CLOSE_AT_ONCE].iter().chain(replacements) {
            assert!(config.contains(text), "{text}");
            config = config.replace(text, replacement);
        }
        let state = State::default();
        tokio::spawn(serve(grpc, state.clone()));
        let folder = tempfile::tempdir().unwrap();
        let envoy = Self {
            listener,
            process: start_envoy(&config, folder.path()),
            state,
            marker: BlanketRule::DenyAll,
            _folder: folder,
        };
        // Without the header there is no bucket.
        eventually("an Envoy that listens", async || {
            try_send(listener, "GET / HTTP/1.1", "").await.map(drop)
        })
        .await;
        envoy
    }

    /// Sends a request of this user, and returns its status.
    pub(crate) async fn status(&self, user: &str) -> u16 {
        let lines = format!("GET / HTTP/1.1\r\nx-user: {user}");
        send(self.listener, &lines, "").await.status
    }

    /// The number of requests that pass until one is denied, at most 100.
    pub(crate) async fn passes(&self, user: &str) -> usize {
        for passed in 0..100 {
            if self.status(user).await == 429 {
                return passed;
            }
        }
        100
    }

    /// Sends requests until this is their status.
    pub(crate) async fn becomes(&self, user: &str, status: u16) {
        eventually(&format!("{status} for {user}"), async || {
            (self.status(user).await == status).then_some(())
        })
        .await;
    }

    /// Sends the first request of each bucket, and waits for the reports: Envoy applies no action to a bucket before.
    pub(crate) async fn create(&self, users: &[&str]) {
        for user in users {
            assert_eq!(self.status(user).await, 429, "{user} has no assignment");
            self.reports_of(user, 1).await;
        }
    }

    /// Sends a response with these actions. Returns when Envoy's worker decides by them.
    ///
    /// Envoy applies actions in their order, so they are in force when a last one is, which changes a bucket between
    /// none and all.
    pub(crate) async fn apply(&mut self, actions: Vec<Vec<u8>>) {
        if self.reports(MARKER).is_empty() {
            self.create(&[MARKER]).await;
        }
        self.send(actions);
        let (rule, status) = match self.marker {
            BlanketRule::AllowAll => (BlanketRule::DenyAll, 429),
            BlanketRule::DenyAll => (BlanketRule::AllowAll, 200),
        };
        self.marker = rule;
        self.send(vec![assign(MARKER, blanket(rule), LONG)]);
        self.becomes(MARKER, status).await;
    }

    /// Sends a response, and does not wait.
    pub(crate) fn send(&self, actions: Vec<Vec<u8>>) {
        let streams = self.state.streams.lock().unwrap();
        let response = RawResponse {
            bucket_action: actions,
        };
        streams.last().expect("a stream").send(response).unwrap();
    }

    /// The number of streams that Envoy has opened.
    pub(crate) fn streams(&self) -> usize {
        self.state.streams.lock().unwrap().len()
    }

    /// The reports about a bucket.
    pub(crate) fn reports(&self, user: &str) -> Vec<BucketQuotaUsage> {
        let messages = self.messages();
        let reports = messages.into_iter().flatten();
        reports.filter(|report| user_of(report) == user).collect()
    }

    /// The reports about a bucket, when there are so many or more.
    pub(crate) async fn reports_of(&self, user: &str, number: usize) -> Vec<BucketQuotaUsage> {
        eventually(&format!("{number} reports about {user}"), async || {
            let reports = self.reports(user);
            (reports.len() >= number).then_some(reports)
        })
        .await
    }

    /// Waits for two more reports of all buckets.
    pub(crate) async fn two_intervals(&self) {
        let number = self.reports(MARKER).len();
        self.reports_of(MARKER, number + 2).await;
    }

    /// The reports of each message.
    pub(crate) fn messages(&self) -> Vec<Vec<BucketQuotaUsage>> {
        self.state.messages.lock().unwrap().clone()
    }
}

pub(crate) fn user_of(report: &BucketQuotaUsage) -> &str {
    &report.bucket_id.as_ref().unwrap().bucket["user"]
}

/// A time to live longer than any test.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(3600));

pub(crate) fn blanket(rule: BlanketRule) -> Strategy {
    Strategy::Blanket(rule.into())
}

/// A bucket of this size that gets one token in each interval.
pub(crate) fn tokens(max_tokens: u32, interval: Duration) -> Strategy {
    Strategy::TokenBucket(TokenBucket {
        max_tokens,
        tokens_per_fill: Some(1),
        fill_interval: Some(in_message(interval)),
    })
}

fn in_message(duration: Duration) -> protobuf_messages::Duration {
    protobuf_messages::Duration {
        seconds: duration.as_secs().try_into().unwrap(),
        nanos: duration.subsec_nanos().try_into().unwrap(),
    }
}

/// The action that assigns this strategy.
pub(crate) fn assign(user: &str, strategy: Strategy, time_to_live: Option<Duration>) -> Vec<u8> {
    let strategy = RateLimitStrategy {
        strategy: Some(strategy),
    };
    let assignment = QuotaAssignment {
        assignment_time_to_live: time_to_live.map(in_message),
        rate_limit_strategy: Some(strategy),
    };
    action(user, Action::Assign(assignment))
}

/// The action that assigns 100 `requests_per_time_unit` of a second.
pub(crate) fn assign_requests_per_second(user: &str) -> Vec<u8> {
    let assignment = QuotaAssignment {
        assignment_time_to_live: LONG.map(in_message),
        rate_limit_strategy: None,
    };
    let mut bytes = action(user, Action::Assign(assignment));
    // The assignment again, whose fields are merged: strategy (3), requests per time unit (2), number (1) and unit (2).
    bytes.extend([0x12, 8, 0x1a, 6, 0x12, 4, 0x08, 100, 0x10, 1]);
    bytes
}

pub(crate) fn abandon(user: &str) -> Vec<u8> {
    action(user, Action::Abandon(AbandonAction {}))
}

fn action(user: &str, action: Action) -> Vec<u8> {
    let bucket = [("user".to_owned(), user.to_owned())].into();
    let action = BucketAction {
        bucket_id: Some(BucketId { bucket }),
        action: Some(action),
    };
    action.encode_to_vec()
}

async fn serve(listener: TcpListener, state: State) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(serve_connection(connection, state.clone()));
    }
}

async fn serve_connection(connection: TcpStream, state: State) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let server = QuotaServer(state.clone());
        async move { Ok::<http::Response<Body>, Infallible>(server.answer(request).await) }
    });
    let http = http2::Builder::new(TokioExecutor::new());
    // Clients that are gone are no failure.
    let _ = http
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

struct QuotaServer(State);

impl QuotaServer {
    async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        let method =
            "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
        assert_eq!(request.uri().path(), method);
        let codec = ProstCodec::<RawResponse, RateLimitQuotaUsageReports>::default();
        Grpc::new(codec).streaming(self, request).await
    }
}

type Responses = Pin<Box<dyn Stream<Item = Result<RawResponse, Status>> + Send>>;

impl StreamingService<RateLimitQuotaUsageReports> for QuotaServer {
    type Response = RawResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<RateLimitQuotaUsageReports>>) -> Self::Future {
        let (sender, responses) = mpsc::unbounded_channel();
        self.0.streams.lock().unwrap().push(sender);
        let (messages, mut requests) = (self.0.messages.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(message)) = requests.message().await {
                messages.lock().unwrap().push(message.bucket_quota_usages);
            }
        });
        let responses: Responses = Box::pin(UnboundedReceiverStream::new(responses).map(Ok));
        Box::pin(async { Ok(Response::new(responses)) })
    }
}

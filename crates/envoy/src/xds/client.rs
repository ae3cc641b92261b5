//! The client of the control plane: one stream at a time, on which it accepts or rejects each set of limits.

use std::{
    error::Error,
    hash::{BuildHasher as _, RandomState},
    pin::pin,
    str::FromStr as _,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use http::uri::PathAndQuery;
use hyper::client::conn::http2::SendRequest;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{
    Code, Request, Status,
    body::Body,
    client::Grpc,
    metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue},
};
use tonic_prost::ProstCodec;
use tower::service_fn;
use tracing::{info, warn};

use super::{
    ControlPlane,
    connection::{Connected, begin, causes, had_too_many_pings, open},
    resources::TYPE_URL,
};
use crate::protobuf_messages::{
    ClientNode, DiscoveryRequest, DiscoveryResponse, ErrorDetail, Struct, Value,
};
use tower_ratelimit_service::errors::ServeError;

const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// How long connecting may take, with TLS.
const CONNECT_TIME: Duration = Duration::from_secs(20);

/// The interval of pings for a control plane that finds the set one too short: more than the 5 minutes that servers of
/// gRPC demand by default.
const RARE_PINGS: Duration = Duration::from_secs(310);

/// Puts a set of limits into force, or returns its faults.
pub(crate) type Accept = Arc<dyn Fn(DiscoveryResponse) -> Result<(), String> + Send + Sync>;

/// The client of a control plane.
pub(crate) struct Client {
    plane: ControlPlane,
    headers: MetadataMap,
    connected: Connected,
    ping_interval: Duration,
    /// The version in force; empty before the first.
    version: String,
}

/// The end of a stream.
#[derive(Debug)]
pub(super) enum End {
    /// A connection that could not be opened.
    Unconnected(String),
    Ended(String),
    TooManyPings,
}

impl Client {
    /// # Errors
    ///
    /// When a header field is invalid.
    pub(crate) fn new(plane: ControlPlane, connected: Connected) -> Result<Self, ServeError> {
        let mut headers = MetadataMap::new();
        for (name, value) in &plane.headers {
            let key = MetadataKey::<Ascii>::from_str(&name.to_ascii_lowercase());
            let (Ok(key), Ok(value)) = (key, MetadataValue::from_str(value)) else {
                let address = plane.address();
                let text =
                    format!("the control plane {address:?}: {name:?} is no valid header field");
                return Err(ServeError(text));
            };
            headers.append(key, value);
        }
        Ok(Self {
            ping_interval: plane.ping_interval,
            headers,
            connected,
            version: String::new(),
            plane,
        })
    }

    /// Follows the control plane; never completes.
    pub(crate) async fn run(mut self, accept: Accept) {
        let mut backoff = Backoff::new(&self.plane);
        loop {
            let begun = Instant::now();
            let end = self.connect_once(&accept).await;
            self.connected.store(false, Relaxed);
            if !matches!(end, End::Unconnected(_)) {
                backoff.connected(begun.elapsed());
            }
            let pause = backoff.next();
            let address = self.plane.address();
            let next = if pause.is_zero() {
                "at once".to_owned()
            } else {
                format!("in {pause:.1?}")
            };
            let then = format!("the limits stay as they are; the next attempt is {next}");
            match end {
                End::TooManyPings => {
                    self.ping_interval = self.ping_interval.max(RARE_PINGS);
                    info!("the control plane {address} demands fewer pings; {then}");
                }
                End::Unconnected(fault) => {
                    warn!("the control plane {address} cannot be reached: {fault}; {then}");
                }
                End::Ended(fault) => {
                    warn!("the control plane {address} is disconnected: {fault}; {then}");
                }
            }
            sleep(pause).await;
        }
    }

    /// Opens a connection, and follows the stream until its end.
    pub(super) async fn connect_once(&mut self, accept: &Accept) -> End {
        let io = match timeout(CONNECT_TIME, open(&self.plane)).await {
            Ok(Ok(io)) => io,
            Ok(Err(fault)) => return End::Unconnected(fault),
            Err(_) => return End::Unconnected(format!("no connection within {CONNECT_TIME:?}")),
        };
        let begun = begin(io, self.ping_interval, self.connected.clone()).await;
        let (channel, mut connection) = match begun {
            Ok(begun) => begun,
            Err(error) => return End::Unconnected(causes(&error)),
        };
        // Biased: the connection knows better than the stream why both ended.
        let ended = tokio::select! {
            biased;
            ended = &mut connection => match ended {
                Ok(()) => return End::Ended("the connection was closed".to_owned()),
                Err(error) => End::of(&error, causes(&error)),
            },
            ended = self.follow(channel, accept) => match ended {
                Ok(()) => End::Ended("the stream was closed".to_owned()),
                Err(status) => End::of(&status, self.described(&status)),
            },
        };
        ended
    }

    /// Opens a stream, and replies until its end.
    async fn follow(
        &mut self,
        mut channel: SendRequest<Body>,
        accept: &Accept,
    ) -> Result<(), Status> {
        let (requests, outgoing) = mpsc::channel(1);
        send(&requests, self.first_request()).await?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        *request.metadata_mut() = self.headers.clone();
        let channel = service_fn(move |call| channel.send_request(call));
        let mut client = Grpc::with_origin(channel, self.plane.xds.clone().unwrap_or_default())
            .max_decoding_message_size(self.plane.xds_max_message_bytes);
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        // A control plane without a set for this service sends no header until it has one.
        let responses = client.streaming(request, PathAndQuery::from_static(METHOD), codec);
        let responses = responses.await?.into_inner();
        self.answer(responses, &requests, accept).await
    }

    /// Replies to responses, until their end. A good set is in force and accepted at once. Rejections have the pauses of
    /// attempts to connect, since a control plane may answer each with the same set: only the newest one is sent then.
    pub(super) async fn answer(
        &mut self,
        responses: impl Stream<Item = Result<DiscoveryResponse, Status>>,
        requests: &mpsc::Sender<DiscoveryRequest>,
        accept: &Accept,
    ) -> Result<(), Status> {
        let mut responses = pin!(responses);
        let mut backoff = Backoff::of_rejections(&self.plane);
        let (mut rejection, mut rejects_at) = (None, Instant::now());
        loop {
            tokio::select! {
                response = responses.next() => {
                    let Some(response) = response else {
                        return Ok(());
                    };
                    let reply = self.reply(response?, accept).await;
                    if reply.error_detail.is_some() {
                        rejection = Some(reply);
                    } else {
                        backoff = Backoff::of_rejections(&self.plane);
                        (rejection, rejects_at) = (None, Instant::now());
                        send(requests, reply).await?;
                    }
                }
                () = sleep_until(rejects_at), if rejection.is_some() => {
                    if let Some(reply) = rejection.take() {
                        send(requests, reply).await?;
                    }
                    rejects_at = Instant::now() + backoff.next();
                }
            }
        }
    }

    fn first_request(&self) -> DiscoveryRequest {
        let metadata = self.plane.node_metadata.iter();
        let fields = metadata.map(|(key, value)| (key.clone(), Value::from(value.as_str())));
        let metadata = Struct {
            fields: fields.collect(),
        };
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(ClientNode {
                id: self.plane.xds_node.clone(),
                metadata: Some(metadata).filter(|metadata| !metadata.fields.is_empty()),
            }),
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        }
    }

    /// Puts the limits of a response into force, if they have no fault, and returns the reply.
    pub(super) async fn reply(
        &mut self,
        response: DiscoveryResponse,
        accept: &Accept,
    ) -> DiscoveryRequest {
        let (version, nonce) = (response.version_info.clone(), response.nonce.clone());
        let accept = Arc::clone(accept);
        let accepted = spawn_blocking(move || accept(response)).await;
        let accepted = accepted.unwrap_or_else(|_| Err("the limits could not be read".to_owned()));
        let error_detail = accepted.err().map(|message| ErrorDetail {
            code: Code::InvalidArgument.into(),
            message,
        });
        if error_detail.is_none() {
            self.version = version;
        }
        DiscoveryRequest {
            version_info: self.version.clone(),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            error_detail,
            node: None,
        }
    }

    /// The text of a status, with the remedy for a response that is too large.
    fn described(&self, status: &Status) -> String {
        let text = format!("{:?}: {}", status.code(), status.message());
        let cause = Error::source(status).map(causes);
        let cause = cause.filter(|cause| !text.contains(cause.as_str()));
        let text = cause.map_or(text.clone(), |cause| format!("{text}: {cause}"));
        if status.code() == Code::OutOfRange {
            let most = self.plane.xds_max_message_bytes;
            return format!(
                "{text}; a response has at most {most} bytes, by --xds-max-message-bytes or \
                 XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"
            );
        }
        text
    }
}

async fn send(
    requests: &mpsc::Sender<DiscoveryRequest>,
    request: DiscoveryRequest,
) -> Result<(), Status> {
    let sent = requests.send(request).await;
    sent.map_err(|_| Status::unavailable("the stream was closed"))
}

impl End {
    fn of(error: &(dyn Error + 'static), text: String) -> Self {
        if had_too_many_pings(error) {
            Self::TooManyPings
        } else {
            Self::Ended(text)
        }
    }
}

/// The pauses after failures in a row.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The pause until the control plane has been reached once: without limits a service waits for it.
    at_start: Duration,
    initial: Duration,
    max: Duration,
    has_connected: bool,
    /// The number of failures since a stream lasted.
    failures: u32,
}

impl Backoff {
    pub(super) const fn new(plane: &ControlPlane) -> Self {
        Self {
            at_start: plane.connect_retry,
            initial: plane.initial_backoff,
            max: plane.max_backoff,
            has_connected: false,
            failures: 0,
        }
    }

    /// The pauses between rejections of sets, on a stream that exists.
    const fn of_rejections(plane: &ControlPlane) -> Self {
        let mut backoff = Self::new(plane);
        backoff.has_connected = true;
        backoff
    }

    /// Records a stream that existed for this time. After a short one the next attempt is not at once, since the
    /// control plane may end each stream.
    pub(super) fn connected(&mut self, time: Duration) {
        self.has_connected = true;
        if time >= self.initial {
            self.failures = 0;
        }
    }

    /// The pause before the next attempt, without jitter.
    fn pause(&mut self) -> Duration {
        if !self.has_connected {
            return self.at_start;
        }
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        let is_first = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        if is_first {
            return Duration::ZERO;
        }
        self.initial.saturating_mul(doubled).min(self.max)
    }

    /// The pause before the next attempt: half to all of it, so that instances do not return together.
    pub(super) fn next(&mut self) -> Duration {
        let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        self.pause().mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let seconds = |backoff: &mut Backoff| backoff.pause().as_secs();
        let mut backoff = Backoff::new(&ControlPlane::new("http://gateway:18001").expect("a URL"));
        assert_eq!([0; 3].map(|_| seconds(&mut backoff)), [3, 3, 3]);
        backoff.connected(Duration::ZERO);
        let pauses = [0; 6].map(|_| seconds(&mut backoff));
        assert_eq!(pauses, [0, 10, 20, 40, 60, 60]);
        backoff.connected(Duration::from_secs(9));
        assert_eq!(seconds(&mut backoff), 60, "a short stream");
        backoff.connected(Duration::from_secs(10));
        assert_eq!([0; 2].map(|_| seconds(&mut backoff)), [0, 10]);
        backoff.failures = u32::MAX;
        assert_eq!(seconds(&mut backoff), 60);
        for _ in 0..100 {
            assert!((30..=60).contains(&backoff.next().as_secs()));
        }
    }
}

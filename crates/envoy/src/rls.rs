//! The gRPC service `envoy.service.ratelimit.v3.RateLimitService`.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::Buf as _;
use metrics::{SharedString, counter, histogram};
use prost::{
    Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use tokio::time::Instant;
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder},
    metadata::MetadataMap,
    server::{Grpc, NamedService},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::{
    decide::{DecideError, RateLimits},
    protobuf_messages::{MAX_DESCRIPTORS, MAX_ENTRIES, RateLimitRequest, RateLimitResponse},
};
use tower_ratelimit_service::{
    metrics::{RLS_DURATION, RLS_REQUESTS},
    otel_spans::Caller,
};

/// The service's name, also for the health service.
pub const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How much earlier than the caller's deadline the fallback decides, so that its response arrives in time.
const MARGIN: Duration = Duration::from_millis(1);

/// The gRPC service, for a server of your own, as in
/// `tonic::transport::Server::builder().add_service(service(limits))`.
pub const fn service(limits: RateLimits) -> RateLimitService {
    RateLimitService(limits)
}

/// The gRPC service. Made by [`service`].
#[derive(Debug, Clone)]
pub struct RateLimitService(RateLimits);

impl NamedService for RateLimitService {
    const NAME: &'static str = NAME;
}

pub(crate) type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<Body>> for RateLimitService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let limits = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != SHOULD_RATE_LIMIT {
                return Ok(Status::unimplemented("the service has no such method").into_http());
            }
            let caller = Caller::of(request.headers(), None);
            let method = move |request| should_rate_limit(limits.clone(), request);
            Ok(caller.within(unary(method, request)).await)
        })
    }
}

async fn should_rate_limit(
    limits: RateLimits,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let began_at = Instant::now();
    let decide = |until| limits.decide_until(until, request.get_ref());
    let answer = by_deadline(request.metadata(), decide).await;
    let code = match &answer {
        Ok(answer) => answer.overall_code().name(),
        Err(status) => code_of(status),
    };
    let domain = known_domain(&limits, &request.get_ref().domain);
    histogram!(RLS_DURATION, "domain" => domain.clone(), "code" => code).record(began_at.elapsed());
    counter!(RLS_REQUESTS, "domain" => domain, "code" => code).increment(1);
    answer
}

/// The response of a method whose requests have few descriptors.
pub(crate) async fn unary<Question, Answer, F>(
    method: impl Fn(Request<Question>) -> F,
    request: http::Request<Body>,
) -> http::Response<Body>
where
    Question: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
    F: Future<Output = Result<Answer, Status>> + Send + 'static,
{
    let codec = CheckedCodec::<Question, Answer>::new(few_descriptors);
    let method = service_fn(move |request| {
        let answer = method(request);
        async { answer.await.map(Response::new) }
    });
    Grpc::new(codec).unary(method, request).await
}

/// Runs a decision, which gets the latest instant for the store, until the caller's deadline.
pub(crate) async fn by_deadline<T, F: Future<Output = Result<T, DecideError>>>(
    metadata: &MetadataMap,
    decide: impl FnOnce(Option<Instant>) -> F,
) -> Result<T, Status> {
    let timeout = grpc_timeout(metadata);
    let latest = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let until = latest.and_then(|latest| latest.checked_sub(MARGIN));
    let answer = decide(until);
    let answer = match latest {
        None => answer.await,
        // Limiters of the embedding program may have no deadline.
        Some(latest) => {
            let late = |_| DecideError::Unavailable("no answer by the deadline".to_owned());
            let answer = tokio::time::timeout_at(latest, answer).await;
            answer.map_err(late).flatten()
        }
    };
    answer.map_err(status_of)
}

/// The status of a failed decision.
pub(crate) fn status_of(error: DecideError) -> Status {
    match error {
        DecideError::Invalid(text) => Status::invalid_argument(text),
        DecideError::Unavailable(text) => Status::unavailable(text),
    }
}

/// The name of a failed call's status, for metrics.
pub(crate) fn code_of(status: &Status) -> &'static str {
    match status.code() {
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        _ => "UNAVAILABLE",
    }
}

/// The domain for metrics, or one for all that no rules have: clients could invent any number.
pub(crate) fn known_domain(limits: &RateLimits, domain: &str) -> SharedString {
    match limits.rules() {
        Some(rules) if rules.knows(domain) => domain.to_owned().into(),
        _ => SharedString::const_str("unknown"),
    }
}

/// The caller's timeout, if it sends one.
fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // At most eight digits, so that no unit overflows a duration.
    let number: u64 = number.parse().ok().filter(|_| number.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The check of a message, before it takes memory.
type Check = fn(&[u8]) -> Result<(), Status>;

/// Decodes messages that pass a check, and encodes responses.
#[derive(Debug)]
pub(crate) struct CheckedCodec<Question, Answer>(ProstCodec<Answer, Question>, Check);

impl<Question, Answer> CheckedCodec<Question, Answer> {
    pub(crate) fn new(check: Check) -> Self {
        Self(ProstCodec::default(), check)
    }
}

#[derive(Debug)]
pub(crate) struct CheckedDecoder<D>(D, Check);

impl<Question, Answer> Codec for CheckedCodec<Question, Answer>
where
    Question: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
{
    type Encode = Answer;
    type Decode = Question;
    type Encoder = <ProstCodec<Answer, Question> as Codec>::Encoder;
    type Decoder = CheckedDecoder<<ProstCodec<Answer, Question> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(self.0.decoder(), self.1)
    }
}

impl<D: Decoder<Error = Status>> Decoder for CheckedDecoder<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        // All of the message is in one piece.
        (self.1)(message.chunk())?;
        self.0.decode(message)
    }
}

/// The check of a request, whose field 2 has descriptors.
fn few_descriptors(message: &[u8]) -> Result<(), Status> {
    if fits(message) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "a request has at most {MAX_DESCRIPTORS} descriptors of at most {MAX_ENTRIES} entries"
    )))
}

/// Whether the numbers of descriptors and entries are within their limits. Two bytes encode one, which takes many
/// times as much memory.
fn fits(message: &[u8]) -> bool {
    let mut descriptors = fields(message)
        .filter(|(tag, _)| *tag == 2)
        .map(|(_, descriptor)| descriptor);
    let has_few = |descriptor| {
        let entries = fields(descriptor).filter(|(tag, _)| *tag == 1);
        entries.take(MAX_ENTRIES + 1).count() <= MAX_ENTRIES
    };
    descriptors.by_ref().take(MAX_DESCRIPTORS).all(has_few) && descriptors.next().is_none()
}

/// The fields of a message that have a length, and their numbers, up to the first invalid one.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let (number, kind) = decode_key(&mut message).ok()?;
            if kind != WireType::LengthDelimited {
                skip_field(kind, number, &mut message, DecodeContext::default()).ok()?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
            let (field, rest) = message.split_at_checked(length)?;
            message = rest;
            return Some((number, field));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use testkit::fake_redis::FakeServer;
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic_prost::ProstCodec;
    use tower_ratelimit::{OnFailure, RedisStore};

    use super::*;
    use crate::{
        decide::{ChargedRequests, Modes},
        limiters_by_period::Counters,
        lyft::Rules,
        protobuf_messages::{
            Code, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
        },
    };

    const RULES: &str = "domain: rl
descriptors: [{key: foo, rate_limit: {unit: year, requests_per_unit: 2}}]
";

    /// The response to a caller with this timeout while Redis takes far longer, and its time.
    async fn answered(
        on_failure: OnFailure,
        modes: Modes,
        wait: Duration,
    ) -> (Result<Code, tonic::Code>, Duration) {
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        // In the paused time of this runtime.
        let silent = FakeServer::replying(|_| Box::pin(pending()));
        let store = store.connection(silent).expect("a store");
        let limits = RateLimits::new(Counters::redis(&store, on_failure), modes);
        let rules = Rules::builder().parse([("rules.yaml", RULES)]);
        limits.set_rules(rules.expect("rules"));
        let [key, value] = ["foo", "bar"].map(str::to_owned);
        let mut request = Request::new(RateLimitRequest {
            domain: "rl".to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries: vec![Entry { key, value }],
                ..RateLimitDescriptor::default()
            }],
            hits_addend: 0,
        });
        request.set_timeout(wait);
        let mut client = tonic::client::Grpc::new(service(limits));
        let path = PathAndQuery::from_static(SHOULD_RATE_LIMIT);
        let began_at = Instant::now();
        let answer = client.unary(request, path, ProstCodec::default()).await;
        let answer = answer
            .map(|answer: Response<RateLimitResponse>| answer.get_ref().overall_code())
            .map_err(|status| status.code());
        (answer, began_at.elapsed())
    }

    #[tokio::test]
    async fn request_with_too_much_is_not_read() {
        let store = tower_ratelimit::LocalStore::new();
        let limits = RateLimits::new(Counters::local(&store), Modes::default());
        let mut client = tonic::client::Grpc::new(service(limits));
        let request = Request::new(RateLimitRequest {
            descriptors: vec![RateLimitDescriptor::default(); 2_000_000],
            ..RateLimitRequest::default()
        });
        let path = PathAndQuery::from_static(SHOULD_RATE_LIMIT);
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let response = client.unary(request, path, codec).await;
        let error = response.expect_err("more entries than allowed");
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert!(error.message().contains("of at most 64"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn caller_is_answered_in_time_by_what_stands_in_for_redis() {
        let wait = Duration::from_millis(500);
        for charge in [ChargedRequests::Always, ChargedRequests::Admitted] {
            for (on_failure, expected) in [
                (OnFailure::local(), Ok(Code::Ok)),
                (OnFailure::allow(), Ok(Code::Ok)),
                (OnFailure::deny(), Err(tonic::Code::Unavailable)),
            ] {
                let modes = Modes {
                    charge,
                    ..Modes::default()
                };
                let (answer, took) = answered(on_failure, modes, wait).await;
                assert_eq!(answer, expected, "{on_failure:?} {charge:?}");
                assert!(took < wait, "{took:?}");
            }
        }
    }

    #[test]
    fn timeouts_have_a_unit_and_at_most_eight_digits() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("ASCII"));
            grpc_timeout(&metadata)
        };
        assert_eq!(read("20m"), Some(Duration::from_millis(20)));
        assert_eq!(read("1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(
            read("99999999H"),
            Some(Duration::from_secs(359_999_996_400))
        );
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        for text in ["", "m", "20", "20x", "999999999S", "-1S", "1.5S"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(grpc_timeout(&MetadataMap::new()), None);
    }

    fn request(descriptors: usize, entries: usize) -> Vec<u8> {
        let entry = Entry {
            key: "key".repeat(100),
            value: String::new(),
        };
        let limit = RateLimitOverride {
            requests_per_unit: 300,
            unit: 1,
            unit_multiplier: Some(2),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry; entries],
            limit: Some(limit),
            hits_addend: Some(1_000),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: "domain".to_owned(),
            descriptors: vec![descriptor; descriptors],
            hits_addend: 7,
        };
        request.encode_to_vec()
    }

    #[test]
    fn descriptors_and_entries_are_counted_before_they_are_read() {
        assert!(fits(&request(0, 0)));
        assert!(fits(&request(MAX_DESCRIPTORS, MAX_ENTRIES)));
        assert!(!fits(&request(MAX_DESCRIPTORS + 1, 0)));
        assert!(!fits(&request(1, MAX_ENTRIES + 1)));
    }

    /// Unknown fields do not hide those after them.
    #[test]
    fn unknown_fields_are_passed_over() {
        let many = [0x12, 0].repeat(MAX_DESCRIPTORS + 1);
        for before in [
            &[][..],
            &[0x7b, 0x7c],
            &[0x79, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x7d, 1, 2, 3, 4],
            &[0x78, 0xff, 1],
            &[0x7a, 3, 1, 2, 3],
        ] {
            assert!(!fits(&[before, &many].concat()), "{before:?}");
            assert!(fits(&[before, &many[2..]].concat()), "{before:?}");
        }
        for nonsense in [&[0x12][..], &[0x12, 9], &[0x7e], &[0xff; 20]] {
            assert!(
                fits(nonsense),
                "the decoder reports the fault: {nonsense:?}"
            );
        }
    }
}

//! The gRPC service `envoy.service.ratelimit.v3.RateLimitService`.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tonic::{
    Request, Response, Status,
    body::Body,
    metadata::MetadataMap,
    server::{Grpc, NamedService, UnaryService},
};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::{
    decide::{DecideError, RateLimits},
    events,
    messages::{Code, RateLimitRequest, RateLimitResponse},
    telemetry::Caller,
};

/// The service's name, by which its health can be asked, too.
pub const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How much earlier than the caller's deadline an answer is given up: it would come too late.
const MARGIN: Duration = Duration::from_millis(1);

/// The gRPC service, for a server of your own, as in `tonic::transport::Server::builder().add_service(service(limits))`.
#[must_use]
pub const fn service(limits: RateLimits) -> RateLimitService {
    RateLimitService(limits)
}

/// The gRPC service. Made by [`service`].
#[derive(Debug, Clone)]
pub struct RateLimitService(RateLimits);

impl NamedService for RateLimitService {
    const NAME: &'static str = NAME;
}

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<Body>> for RateLimitService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = ShouldRateLimit(self.0.clone());
        Box::pin(async move {
            if request.uri().path() != SHOULD_RATE_LIMIT {
                return Ok(Status::unimplemented("the service has no such method").into_http());
            }
            let caller = Caller::of(request.headers(), None);
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(caller.within(grpc.unary(method, request)).await)
        })
    }
}

struct ShouldRateLimit(RateLimits);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let limits = self.0.clone();
        Box::pin(async move {
            let asked_at = Instant::now();
            let timeout = grpc_timeout(request.metadata());
            let answer = limits.decide(request.get_ref());
            let answer = match timeout {
                None => answer.await,
                Some(timeout) => {
                    let timeout = timeout.saturating_sub(MARGIN);
                    let late = |_| DecideError::Unavailable("no answer by the deadline".to_owned());
                    tokio::time::timeout(timeout, answer)
                        .await
                        .map_err(late)
                        .flatten()
                }
            };
            let code = match &answer {
                Ok(answer) if answer.overall_code() == Code::OverLimit => "OVER_LIMIT",
                Ok(_) => "OK",
                Err(DecideError::Invalid(_)) => "INVALID_ARGUMENT",
                Err(DecideError::Unavailable(_)) => "UNAVAILABLE",
            };
            let domain = request.into_inner().domain;
            let rules = limits.rules();
            let domain =
                Some(domain).filter(|domain| rules.is_some_and(|rules| rules.knows(domain)));
            events::rls_answered(domain, code, asked_at.elapsed());
            answer.map(Response::new).map_err(|error| match error {
                DecideError::Invalid(text) => Status::invalid_argument(text),
                DecideError::Unavailable(text) => Status::unavailable(text),
            })
        })
    }
}

/// The time in which the caller waits for the answer, if it says.
fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // At most eight digits, so no unit leads beyond what a duration can hold.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

//! The gRPC service `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`: Envoy decides by itself, by shares of
//! limits that this service assigns, and reports its use.
//!
//! A limit that is a rate is divided into smaller rates (`divided_rate`), by instances with one Redis together
//! (`divided_rate_in_redis`). Of all other limits clients get units (`unit_leases`), which the limit's own counter has
//! charged.

mod actions;
mod assignments;
mod client_share;
mod divided_rate;
mod divided_rate_in_redis;
mod lease_accounts;
#[cfg(test)]
mod redis_stand_in;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;
mod unit_leases;

use std::{
    convert::Infallible,
    future::ready,
    task::{Context, Poll},
};

use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    server::{Grpc, NamedService},
};
use tower::{Service, service_fn};
use tower_ratelimit::{OnFailure, RedisStore};

pub(crate) use self::assignments::Shares;
pub use self::assignments::{Excess, RlqsSettings};
use self::{assignments::PoolsInRedis, client_share::ClientId};
use crate::{
    decide::RateLimits,
    protobuf_messages::{RateLimitQuotaResponse, RateLimitQuotaUsageReports},
    rls::{BoxFuture, CheckedCodec, fields},
};

/// The service's name.
pub const NAME: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";

const STREAM: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The most bytes of a message: 10,000 buckets with ids of a kibibyte, and their numbers.
const MAX_MESSAGE: usize = 16 << 20;

/// The quota service, for a server of your own.
pub fn service(limits: RateLimits, settings: RlqsSettings) -> RateLimitQuotaService {
    RateLimitQuotaService(Shares::new(limits, settings, None))
}

/// The quota service of several instances, which divide limits together through Redis. While it does not respond,
/// [`OnFailure::local`] renews the shares of each instance, [`OnFailure::allow`] lets all requests pass, and
/// [`OnFailure::deny`] lets shares end. All instances need the same `ttl`.
pub fn shared_service(
    limits: RateLimits,
    settings: RlqsSettings,
    (store, on_failure): (&RedisStore, OnFailure),
) -> RateLimitQuotaService {
    let redis = PoolsInRedis::new(store, on_failure);
    RateLimitQuotaService(Shares::new(limits, settings, Some(redis)))
}

/// The quota service. Made by [`service`].
#[derive(Debug, Clone)]
pub struct RateLimitQuotaService(pub(crate) Shares);

impl NamedService for RateLimitQuotaService {
    const NAME: &'static str = NAME;
}

impl Service<http::Request<Body>> for RateLimitQuotaService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shares = self.0.clone();
        let stream = move |request: Request<Streaming<RateLimitQuotaUsageReports>>| {
            let client = ClientId::of(&request, shares.settings().client_header.as_ref());
            let responses = stream::serve(shares.clone(), client, request.into_inner());
            ready(Ok(Response::new(ReceiverStream::new(responses))))
        };
        Box::pin(async move {
            if request.uri().path() != STREAM {
                return Ok(Status::unimplemented("the service has no such method").into_http());
            }
            let grpc = Grpc::new(ReportCodec::new(few_fields));
            let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE);
            Ok(grpc.streaming(service_fn(stream), request).await)
        })
    }
}

/// The most buckets and pairs of a message, together: twice those of a stream with one pair each.
const MAX_FIELDS: usize = 200_000;

type ReportCodec = CheckedCodec<RateLimitQuotaUsageReports, RateLimitQuotaResponse>;

/// The check of reports.
fn few_fields(message: &[u8]) -> Result<(), Status> {
    if fits(message) {
        return Ok(());
    }
    let text = format!("a message has at most {MAX_FIELDS} buckets and pairs");
    Err(Status::resource_exhausted(text))
}

fn fits(message: &[u8]) -> bool {
    let with = |number| move |(field, bytes): (u32, _)| (field == number).then_some(bytes);
    let mut left = MAX_FIELDS;
    for usage in fields(message).filter_map(with(2)) {
        let pairs = fields(usage).filter_map(with(1)).flat_map(fields);
        let taken = 1 + pairs.take(left + 1).count();
        if taken > left {
            return false;
        }
        left -= taken;
    }
    true
}

#[cfg(test)]
mod codec_tests {
    use super::*;

    #[test]
    fn buckets_and_pairs_are_counted_before_they_are_read() {
        let buckets = |number: usize| [0x12, 0].repeat(number);
        assert!(fits(&buckets(MAX_FIELDS)));
        assert!(!fits(&buckets(MAX_FIELDS + 1)));
        // One bucket whose id has empty pairs.
        let pairs = [0x0a, 0].repeat(MAX_FIELDS / 2);
        let within = |field: u8, bytes: &[u8]| {
            let mut message = vec![field];
            prost::encode_length_delimiter(bytes.len(), &mut message).expect("room");
            message.extend(bytes);
            message
        };
        let bucket = within(0x12, &within(0x0a, &pairs));
        assert!(fits(&bucket));
        assert!(!fits(&bucket.repeat(2)));
    }
}

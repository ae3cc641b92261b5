//! The gRPC service `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`: Envoy decides by itself, by shares of
//! limits that this service assigns, and reports its use.
//!
//! A limit that is a rate is divided into smaller rates (`pool`), by instances with one Redis together
//! (`pool_of_instance`). Of all other limits clients get `units`, which the limit's own counter has charged.

mod actions;
mod client;
mod clients_of_bucket;
mod codec;
mod demand;
mod fair_shares;
pub mod messages;
mod pool;
mod pool_of_instance;
mod pools_in_redis;
mod rate;
mod row;
mod settings;
mod shares;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;
mod treatment;
mod units;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    server::{Grpc, NamedService, StreamingService},
};
use tower_ratelimit::{OnFailure, RedisStore};
use tower_service::Service;

pub use self::settings::RlqsSettings;
use self::{
    client::ClientId,
    codec::ReportCodec,
    messages::{RateLimitQuotaResponse, RateLimitQuotaUsageReports},
    pools_in_redis::PoolsInRedis,
};
pub(crate) use self::{
    clients_of_bucket::{ClientOfBucket, ShareOfClient},
    shares::Shares,
};
use crate::{decide::RateLimits, rls::BoxFuture};

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
        let method = StreamRateLimitQuotas(self.0.clone());
        Box::pin(async move {
            if request.uri().path() != STREAM {
                return Ok(Status::unimplemented("the service has no such method").into_http());
            }
            let grpc = Grpc::new(ReportCodec::default());
            let mut grpc = grpc.max_decoding_message_size(MAX_MESSAGE);
            Ok(grpc.streaming(method, request).await)
        })
    }
}

struct StreamRateLimitQuotas(Shares);

impl StreamingService<RateLimitQuotaUsageReports> for StreamRateLimitQuotas {
    type Response = RateLimitQuotaResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Self::Response, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<RateLimitQuotaUsageReports>>) -> Self::Future {
        let header = self.0.settings().client_header.as_ref();
        let client = ClientId::of(&request, header);
        let name = client::name(&request, header);
        let responses = stream::serve(self.0.clone(), (client, name), request.into_inner());
        let responses: Self::ResponseStream = Box::pin(ReceiverStream::new(responses));
        Box::pin(async { Ok(Response::new(responses)) })
    }
}

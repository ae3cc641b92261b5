//! The gRPC service `kuadrant.service.ratelimit.v1.RateLimitService`, its part for reservations: `Reserve` charges an estimate
//! when a request arrives, and `Commit` settles it when its units are known.
//!
//! Nothing is stored about an open reservation: its id is the sealed receipt of the charge (`sealed_receipt`). Only
//! reservations that were committed lately are remembered (`committed_ids`), so that none gives units back twice.

mod committed_ids;
pub mod messages;
mod sealed_receipt;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use prost::Message;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
};
use tower_service::Service;

pub use self::sealed_receipt::ReservationKey;
use self::{
    committed_ids::{Commit, CommittedIds, MOST},
    messages::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse},
};
use crate::{
    decide::{RateLimits, ReservedUnits},
    events,
    protobuf_messages::{Code, RateLimitDescriptor, RateLimitRequest},
    rls::{BoxFuture, RequestCodec, by_deadline, code_of, known_domain, status_of},
    telemetry::Caller,
};

/// The service's name.
pub const NAME: &str = "kuadrant.service.ratelimit.v1.RateLimitService";

const RESERVE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";

const COMMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";

/// The most units of an amount: counts are exact up to it.
const MOST_UNITS: u64 = (1 << 53) - 1;

/// The service of reservations, for a server of your own.
pub fn service(limits: RateLimits, key: ReservationKey) -> ReservationService {
    ReservationService(Arc::new(Inner {
        limits,
        key,
        committed: Mutex::new(CommittedIds::new(MOST)),
    }))
}

/// The service of reservations. Made by [`service`].
#[derive(Debug, Clone)]
pub struct ReservationService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: RateLimits,
    key: ReservationKey,
    committed: Mutex<CommittedIds>,
}

impl NamedService for ReservationService {
    const NAME: &'static str = NAME;
}

impl Service<http::Request<Body>> for ReservationService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let caller = Caller::of(request.headers(), None);
            let answer = async move {
                match request.uri().path() {
                    RESERVE => unary(Reserve(service), request).await,
                    COMMIT => unary(Settle(service), request).await,
                    _ => {
                        let text = "the service has Reserve and Commit only; ShouldRateLimit of \
                                    envoy.service.ratelimit.v3.RateLimitService checks and reports";
                        Status::unimplemented(text).into_http()
                    }
                }
            };
            Ok(caller.within(answer).await)
        })
    }
}

async fn unary<Question, S>(method: S, request: http::Request<Body>) -> http::Response<Body>
where
    Question: Message + Default + Send + 'static,
    S: UnaryService<Question, Response: Message + Send + 'static>,
{
    let codec = RequestCodec::<Question, S::Response>::default();
    Grpc::new(codec).unary(method, request).await
}

struct Reserve(ReservationService);

impl UnaryService<ReserveRequest> for Reserve {
    type Response = ReserveResponse;
    type Future = BoxFuture<Response<ReserveResponse>, Status>;

    fn call(&mut self, request: Request<ReserveRequest>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let domain = request.get_ref().domain.clone();
            let answer = service.reserve(request).await;
            let code = match &answer {
                Ok(answer) => answer.code().name(),
                Err(status) => code_of(status),
            };
            service.count(domain, "reserve", code);
            answer.map(Response::new)
        })
    }
}

struct Settle(ReservationService);

impl UnaryService<CommitRequest> for Settle {
    type Response = CommitResponse;
    type Future = BoxFuture<Response<CommitResponse>, Status>;

    fn call(&mut self, request: Request<CommitRequest>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let domain = request.get_ref().domain.clone();
            let answer = service.commit(request).await;
            let code = match &answer {
                Ok(answer) if answer.reservation_released => "OK",
                Ok(_) => "NOT_RELEASED",
                Err(status) => code_of(status),
            };
            service.count(domain, "commit", code);
            answer.map(Response::new)
        })
    }
}

impl ReservationService {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<ReserveResponse, Status> {
        let Inner { limits, key, .. } = &*self.0;
        let (metadata, _, request) = request.into_parts();
        let amount = checked("amount", request.amount)?;
        let request = self.limited(request.domain, request.descriptors)?;
        let reserve = |until| limits.reserve(until, &request, amount);
        let (code, units) = by_deadline(&metadata, reserve).await?;
        let reservation_id = match code {
            Code::Ok => key.seal(&request, now(), units),
            _ => String::new(),
        };
        Ok(ReserveResponse {
            code: code.into(),
            reservation_id,
        })
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Result<CommitResponse, Status> {
        let (metadata, _, request) = request.into_parts();
        let actual = checked("actual_amount", request.actual_amount)?;
        let id = request.reservation_id;
        let request = self.limited(request.domain, request.descriptors)?;
        let (units, reservation_released) = self.open(&request, &id)?;
        let reserved = (units, reservation_released);
        let limits = &self.0.limits;
        let commit = |until| limits.commit(until, &request, actual, reserved);
        by_deadline(&metadata, commit).await?;
        Ok(CommitResponse {
            reservation_released,
        })
    }

    /// The units of a reservation, and whether they can be refunded. From then on it counts as committed, whatever
    /// becomes of the call: a store may have applied what it does not confirm.
    fn open(
        &self,
        request: &RateLimitRequest,
        id: &str,
    ) -> Result<(Vec<ReservedUnits>, bool), Status> {
        if id.is_empty() {
            return Ok((Vec::new(), false));
        }
        let receipt = self.0.key.open(request, id).ok_or_else(|| {
            Status::invalid_argument(
                "reservation_id is not one of this domain and these descriptors, or another process made it, whose key \
                 this one does not have (--reservation-key-file); without an id, all of actual_amount is charged",
            )
        })?;
        let committed = self.0.committed.lock();
        let mut committed = committed.unwrap_or_else(PoisonError::into_inner);
        match committed.commit(receipt.id(), now()) {
            Commit::First => {
                let refunds = receipt.units.iter().all(ReservedUnits::can_be_refunded);
                Ok((receipt.units, refunds))
            }
            Commit::Late => Ok((receipt.units, false)),
            Commit::Repeated => Err(Status::already_exists(
                "the reservation was committed before; this call changed nothing",
            )),
        }
    }

    /// The descriptors as a request without units, which has rules.
    fn limited(
        &self,
        domain: String,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitRequest, Status> {
        let mut each = descriptors.iter();
        if each.any(|descriptor| descriptor.hits_addend.is_some() || descriptor.is_negative_hits) {
            return Err(Status::invalid_argument(
                "a descriptor of a reservation has no hits_addend and no is_negative_hits: its units are the amount",
            ));
        }
        let request = RateLimitRequest {
            domain,
            descriptors,
            hits_addend: 0,
        };
        let rules = self.0.limits.rules_for(&request).map_err(status_of)?;
        if !rules.knows(&request.domain) {
            let text = format!("no limits have the domain {:?}", request.domain);
            return Err(Status::not_found(text));
        }
        Ok(request)
    }

    fn count(&self, domain: String, call: &'static str, code: &'static str) {
        events::reservation_answered(known_domain(&self.0.limits, domain), call, code);
    }
}

fn checked(field: &str, units: u64) -> Result<u64, Status> {
    if units > MOST_UNITS {
        let text = format!("{field} is {units}; it can be at most {MOST_UNITS}");
        return Err(Status::invalid_argument(text));
    }
    Ok(units)
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

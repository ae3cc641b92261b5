//! The gRPC service `kuadrant.service.ratelimit.v1.RateLimitService`, its part for reservations: `Reserve` charges an
//! estimate when a request arrives, and `Commit` settles it when its units are known.
//!
//! Nothing is stored about an open reservation: its id is the sealed receipt of the charge, which a client keeps and
//! cannot change. Only reservations that were committed lately are remembered, so that none gives units back twice.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use metrics::counter;
use prost::Message as _;
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use tonic::{Request, Status, body::Body, server::NamedService};
use tower::Service;

use crate::{
    decide::{RateLimits, ReservedUnits},
    protobuf_messages::{
        Code, CommitRequest, CommitResponse, RateLimitDescriptor, RateLimitRequest, ReserveRequest,
        ReserveResponse,
    },
    rls::{BoxFuture, by_deadline, code_of, known_domain, status_of, unary},
};
use tower_ratelimit_service::{
    ServeError, admin::read_secret, metrics::RESERVATIONS, otel_spans::Caller,
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
                    RESERVE => {
                        unary(move |request| service.clone().reserve(request), request).await
                    }
                    COMMIT => unary(move |request| service.clone().commit(request), request).await,
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

impl ReservationService {
    async fn reserve(self, request: Request<ReserveRequest>) -> Result<ReserveResponse, Status> {
        let domain = request.get_ref().domain.clone();
        let answer = self.charge(request).await;
        let code = match &answer {
            Ok(answer) => answer.code().name(),
            Err(status) => code_of(status),
        };
        self.count(&domain, "reserve", code);
        answer
    }

    async fn commit(self, request: Request<CommitRequest>) -> Result<CommitResponse, Status> {
        let domain = request.get_ref().domain.clone();
        let answer = self.settle(request).await;
        let code = match &answer {
            Ok(answer) if answer.reservation_released => "OK",
            Ok(_) => "NOT_RELEASED",
            Err(status) => code_of(status),
        };
        self.count(&domain, "commit", code);
        answer
    }

    async fn charge(&self, request: Request<ReserveRequest>) -> Result<ReserveResponse, Status> {
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

    async fn settle(&self, request: Request<CommitRequest>) -> Result<CommitResponse, Status> {
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

    fn count(&self, domain: &str, call: &'static str, code: &'static str) {
        let domain = known_domain(&self.0.limits, domain);
        counter!(RESERVATIONS, "domain" => domain, "call" => call, "code" => code).increment(1);
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

/// The most reservations remembered, in 13 MB.
const MOST: usize = 1 << 18;

/// How long a reservation can give units back, in milliseconds.
const LONGEST: u64 = 60 * 60 * 1_000;

/// The number of a reservation, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ReservationId {
    /// Milliseconds since 1970.
    reserved_at: u64,
    process: u64,
    number: u64,
}

/// The newest reservations that were committed.
#[derive(Debug)]
struct CommittedIds {
    committed: BTreeSet<ReservationId>,
    /// Reservations up to this time may have been committed and forgotten.
    forgotten_until: Option<u64>,
    most: usize,
}

/// Whether a commit is the first of its reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    First,
    Repeated,
    /// It may be the first.
    Late,
}

impl CommittedIds {
    /// Remembers at most this many.
    const fn new(most: usize) -> Self {
        Self {
            committed: BTreeSet::new(),
            forgotten_until: None,
            most,
        }
    }

    /// Adds a reservation, at this time.
    fn commit(&mut self, id: ReservationId, now: u64) -> Commit {
        while let Some(oldest) = self.committed.first()
            && is_late(oldest.reserved_at, now)
        {
            self.forget_oldest();
        }
        let ReservationId { reserved_at, .. } = id;
        if self.committed.contains(&id) {
            return Commit::Repeated;
        }
        let is_forgotten = self
            .forgotten_until
            .is_some_and(|until| reserved_at <= until);
        if is_forgotten || is_late(reserved_at, now) {
            return Commit::Late;
        }
        self.committed.insert(id);
        if self.committed.len() > self.most {
            self.forget_oldest();
        }
        Commit::First
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.committed.pop_first() {
            self.forgotten_until = self.forgotten_until.max(Some(oldest.reserved_at));
        }
    }
}

const fn is_late(reserved_at: u64, now: u64) -> bool {
    now.saturating_sub(reserved_at) > LONGEST
}

/// The bytes of a seal.
const SEAL: usize = 32;

/// The use of the key, so that no seal of another use of the same secret fits.
const CONTEXT: &[u8] = b"tower-ratelimit reservation 1";

/// The receipt of a reservation.
#[derive(Clone, PartialEq, prost::Message)]
struct Receipt {
    /// The number of the process, random.
    #[prost(fixed64, tag = "1")]
    process: u64,
    /// The number of the reservation in its process.
    #[prost(uint64, tag = "2")]
    number: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    reserved_at: u64,
    #[prost(message, repeated, tag = "4")]
    units: Vec<ReservedUnits>,
}

impl Receipt {
    const fn id(&self) -> ReservationId {
        ReservationId {
            reserved_at: self.reserved_at,
            process: self.process,
            number: self.number,
        }
    }
}

/// The key that seals reservations, by HMAC-SHA-256. Instances that share it, and their counts, accept the
/// reservations of each other.
#[derive(Debug)]
pub struct ReservationKey {
    seal: hmac::Key,
    process: u64,
    reservations: AtomicU64,
}

impl ReservationKey {
    /// A random key. Only this process accepts its reservations.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub fn random() -> Result<Self, ServeError> {
        let secret: [u8; 32] = random()?;
        Self::of_secret(&secret)
    }

    /// The key with the secret in a file, of at least 32 characters.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, the secret is short, or the system has no random numbers.
    pub fn read(file: &Path) -> Result<Self, ServeError> {
        let secret = read_secret(file, "--reservation-key-file", "key")?;
        Self::of_secret(secret.as_bytes())
    }

    fn of_secret(secret: &[u8]) -> Result<Self, ServeError> {
        Ok(Self {
            seal: hmac::Key::new(hmac::HMAC_SHA256, secret),
            process: u64::from_le_bytes(random()?),
            reservations: AtomicU64::new(0),
        })
    }

    /// The id of a new reservation.
    fn seal(
        &self,
        request: &RateLimitRequest,
        reserved_at: u64,
        units: Vec<ReservedUnits>,
    ) -> String {
        let receipt = Receipt {
            process: self.process,
            number: self.reservations.fetch_add(1, Ordering::Relaxed),
            reserved_at,
            units,
        };
        let receipt = receipt.encode_to_vec();
        let seal = hmac::sign(&self.seal, &sealed(&receipt, request));
        BASE64_URL_SAFE_NO_PAD.encode([seal.as_ref(), &receipt].concat())
    }

    /// The receipt in an id, if it was sealed with this key for these descriptors.
    fn open(&self, request: &RateLimitRequest, id: &str) -> Option<Receipt> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let (seal, receipt) = bytes.split_at_checked(SEAL)?;
        hmac::verify(&self.seal, &sealed(receipt, request), seal).ok()?;
        Receipt::decode(receipt).ok()
    }
}

fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| ServeError("the system has no random numbers".to_owned()))?;
    Ok(bytes)
}

/// The text under a seal: the receipt, and the request that it belongs to.
fn sealed(receipt: &[u8], request: &RateLimitRequest) -> Vec<u8> {
    let length = (receipt.len() as u64).to_le_bytes();
    [CONTEXT, &length, receipt, &request.encode_to_vec()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(reserved_at: u64, number: u64) -> ReservationId {
        ReservationId {
            reserved_at,
            process: 9,
            number,
        }
    }

    #[test]
    fn reservation_is_committed_once() {
        let mut ids = CommittedIds::new(MOST);
        assert_eq!(ids.commit(id(5, 1), 6), Commit::First);
        assert_eq!(ids.commit(id(5, 1), 7), Commit::Repeated);
        assert_eq!(ids.commit(id(5, 2), 7), Commit::First);
        assert_eq!(ids.commit(id(4, 1), 7), Commit::First);
    }

    #[test]
    fn full_memory_refuses_what_it_may_have_forgotten() {
        let mut ids = CommittedIds::new(2);
        for (reserved_at, expected) in [
            (10, Commit::First),
            (20, Commit::First),
            (30, Commit::First),
            // The first one is forgotten.
            (10, Commit::Late),
            (9, Commit::Late),
            (11, Commit::First),
            (11, Commit::Late),
            (20, Commit::Repeated),
            (30, Commit::Repeated),
        ] {
            let commit = ids.commit(id(reserved_at, 7), 40);
            assert_eq!(commit, expected, "{reserved_at}");
            assert!(ids.committed.len() <= 2);
        }
    }

    #[test]
    fn full_memory_takes_16_mb_at_most() {
        let mut ids = CommittedIds::new(MOST);
        let used = allocation_counter::measure(|| {
            for at in 0..2 * MOST as u64 {
                assert_eq!(ids.commit(id(at, at), at), Commit::First);
            }
        });
        assert_eq!(ids.committed.len(), MOST);
        assert!(used.bytes_max < 16_000_000, "{used:?}");
    }

    #[test]
    fn reservation_of_more_than_an_hour_ago_is_late_also_when_the_clock_steps_back() {
        let mut ids = CommittedIds::new(MOST);
        assert_eq!(ids.commit(id(1_000, 1), 1_000 + LONGEST), Commit::First);
        assert_eq!(ids.commit(id(2_000, 2), 2_001 + LONGEST), Commit::Late);
        assert_eq!(ids.commit(id(1_000, 1), 2_001 + LONGEST), Commit::Late);
        assert!(ids.committed.is_empty());
        assert_eq!(ids.commit(id(1_000, 1), 1_500), Commit::Late);
        // Clocks of instances differ.
        assert_eq!(ids.commit(id(9_000, 3), 8_000), Commit::First);
    }
}

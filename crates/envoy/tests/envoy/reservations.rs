//! Reservations: an estimate is charged when a request arrives, and settled when its units are known.

use std::{fs, path::Path, time::Duration};

use prost::Message;
use testkit::{needs, servers::Server};
use tonic::{
    Code as GrpcCode, Request, Response, Status, client::Grpc, codegen::http::uri::PathAndQuery,
};
use tonic_prost::ProstCodec;
use tower_ratelimit::{OnFailure, RedisStore};
use tower_ratelimit_envoy::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    protobuf_messages::{
        Code, CommitRequest, CommitResponse, RateLimitOverride, ReserveRequest, ReserveResponse,
        Unit,
    },
    reservation_service::{self, NAME, ReservationKey, ReservationService},
};

use crate::lyft::{
    model::Dice,
    test_support::{Bench, SHORT_UNITS, request, rules},
};

const RULES: &str = "domain: rl
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 10000}}
  - {key: team, rate_limit: {unit: hour, requests_per_unit: 20000}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1500}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 3600, algorithm: token_bucket, burst: 2000}}
  - {key: free, rate_limit: {unlimited: true}}
";

/// A service of reservations as a client sees it.
struct Reservations {
    limits: RateLimits,
    client: Grpc<ReservationService>,
}

impl Reservations {
    fn new(limits: &RateLimits) -> Self {
        Self::with(limits, ReservationKey::random().unwrap())
    }

    fn with(limits: &RateLimits, key: ReservationKey) -> Self {
        Self {
            limits: limits.clone(),
            client: Grpc::new(reservation_service::service(limits.clone(), key)),
        }
    }

    async fn call<Q, A>(&mut self, method: &str, question: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let path = PathAndQuery::try_from(format!("/{NAME}/{method}")).unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let answer = self.client.unary(Request::new(question), path, codec).await;
        answer.map(Response::into_inner)
    }

    async fn send(&mut self, question: ReserveRequest) -> Result<ReserveResponse, Status> {
        self.call("Reserve", question).await
    }

    async fn settle(&mut self, question: CommitRequest) -> Result<CommitResponse, Status> {
        self.call("Commit", question).await
    }

    /// The id of a reservation; `None` for a request over its limit.
    async fn reserve(&mut self, descriptors: &[&str], amount: u64) -> Option<String> {
        let answer = self.send(reserve(descriptors, amount)).await.unwrap();
        assert_eq!(answer.code() == Code::Ok, !answer.reservation_id.is_empty());
        Some(answer.reservation_id).filter(|id| !id.is_empty())
    }

    /// Whether a commit released its reservation.
    async fn commit(&mut self, descriptors: &[&str], id: &str, actual: u64) -> bool {
        let answer = self.settle(commit(descriptors, id, actual)).await.unwrap();
        answer.reservation_released
    }

    async fn left(&self, descriptor: &str) -> u32 {
        let look = request(&[&format!("{descriptor} +0")]);
        let answer = self.limits.decide(&look).await.unwrap();
        answer.statuses[0].limit_remaining
    }
}

fn reserve(descriptors: &[&str], amount: u64) -> ReserveRequest {
    let request = request(descriptors);
    ReserveRequest {
        domain: request.domain,
        descriptors: request.descriptors,
        amount,
        ttl: None,
    }
}

fn commit(descriptors: &[&str], id: &str, actual_amount: u64) -> CommitRequest {
    let request = request(descriptors);
    CommitRequest {
        domain: request.domain,
        descriptors: request.descriptors,
        reservation_id: id.to_owned(),
        actual_amount,
    }
}

const EVE: &[&str] = &["user=eve"];

#[tokio::test]
async fn commit_leaves_the_actual_units_charged() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    for (estimate, actual, left) in [(1_000, 300, 9_700), (500, 500, 9_200), (100, 2_200, 7_000)] {
        let before = service.left("user=eve").await;
        let id = service.reserve(EVE, estimate).await.unwrap();
        assert_eq!(service.left("user=eve").await, before - estimate as u32);
        assert!(service.commit(EVE, &id, actual).await);
        assert_eq!(service.left("user=eve").await, left);
    }
    // Units that were used are charged beyond the limit.
    let id = service.reserve(EVE, 1_000).await.unwrap();
    assert!(service.commit(EVE, &id, 50_000).await);
    assert_eq!(service.reserve(EVE, 1).await, None);
    bench
        .limits
        .set_rules(rules(&RULES.replace("10000", "60000")));
    assert_eq!(service.left("user=eve").await, 7_000, "53,000 in all");
}

#[tokio::test]
async fn open_reservations_never_exceed_a_limit() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let both = &["user=eve", "team=a"];
    for _ in 0..10 {
        assert!(service.reserve(both, 1_000).await.is_some());
    }
    assert_eq!(service.reserve(both, 1).await, None);
    assert_eq!(service.left("team=a").await, 10_000, "all or nothing");
    assert!(service.reserve(&["team=a"], 10_000).await.is_some());
    // More than a limit can have available is all of it.
    assert!(service.reserve(&["user=bob"], 90_000).await.is_some());
    assert_eq!(service.left("user=bob").await, 0);
    assert_eq!(service.reserve(&["none"], 1).await, None);
    // A look.
    assert!(service.reserve(EVE, 0).await.is_some());
    assert!(service.reserve(&["free", "unknown=x"], 7).await.is_some());
}

#[tokio::test]
async fn units_go_back_to_the_window_that_they_were_taken_from() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let less = service.reserve(EVE, 1_000).await.unwrap();
    let more = service.reserve(EVE, 1_000).await.unwrap();
    bench.clock.advance(Duration::from_secs(86_400));
    bench.call(&["user=eve +400"]).await;
    assert!(service.commit(EVE, &less, 10).await);
    assert_eq!(service.left("user=eve").await, 9_600, "the units of others");
    assert!(service.commit(EVE, &more, 1_250).await);
    assert_eq!(service.left("user=eve").await, 9_350);
}

#[tokio::test]
async fn buckets_are_reserved_and_settled() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let bucket = &["bucket=1"];
    let id = service.reserve(bucket, 5_000).await.unwrap();
    assert_eq!(service.left("bucket=1").await, 0, "the capacity");
    assert!(service.commit(bucket, &id, 500).await);
    assert_eq!(service.left("bucket=1").await, 1_500);
    let id = service.reserve(bucket, 100).await.unwrap();
    assert!(service.commit(bucket, &id, 400).await);
    assert_eq!(service.left("bucket=1").await, 1_100);
}

#[tokio::test]
async fn shadow_limits_reserve_what_they_have() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let shadow = &["shadow=1"];
    let first = service.reserve(shadow, 1_000).await.unwrap();
    let second = service.reserve(shadow, 1_000).await.unwrap();
    assert_eq!(service.left("shadow=1").await, 500);
    assert!(service.commit(shadow, &first, 200).await);
    assert!(service.commit(shadow, &second, 300).await);
    assert_eq!(service.left("shadow=1").await, 1_000);
}

#[tokio::test]
async fn rules_may_change_while_a_reservation_is_open() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let [kept, moved] = [
        service.reserve(EVE, 1_000).await.unwrap(),
        service.reserve(EVE, 1_000).await.unwrap(),
    ];
    // Another number counts in the same window, another unit in one that has none of the units.
    bench
        .limits
        .set_rules(rules(&RULES.replace("10000", "9000")));
    assert!(service.commit(EVE, &kept, 400).await);
    assert_eq!(service.left("user=eve").await, 9_000 - 1_400);
    bench
        .limits
        .set_rules(rules(&RULES.replace("unit: day", "unit: week")));
    bench.call(&["user=eve +100"]).await;
    assert!(service.commit(EVE, &moved, 400).await);
    assert_eq!(service.left("user=eve").await, 10_000 - 500);
}

#[tokio::test]
async fn reservation_is_committed_once() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let id = service.reserve(EVE, 1_000).await.unwrap();
    bench.call(&["user=eve +2000"]).await;
    assert!(service.commit(EVE, &id, 100).await);
    for actual in [0, 100, 5_000] {
        let refused = service.settle(commit(EVE, &id, actual)).await.unwrap_err();
        assert_eq!(refused.code(), GrpcCode::AlreadyExists);
        assert_eq!(service.left("user=eve").await, 7_900);
    }
}

/// A count of a window by the definition: reservations that fit, and the actual units in their place.
#[derive(Default)]
struct Count {
    used: u64,
    open: Vec<(String, u64)>,
    committed: Vec<String>,
}

impl Count {
    const LIMIT: u64 = 10_000;

    async fn reserve(&mut self, service: &mut Reservations, amount: u64) {
        let charge = amount.min(Self::LIMIT);
        let id = service.reserve(EVE, amount).await;
        assert_eq!(id.is_some(), self.used + charge <= Self::LIMIT, "{amount}");
        if let Some(id) = id {
            self.used += charge;
            self.open.push((id, charge));
        }
    }

    async fn commit(&mut self, service: &mut Reservations, (at, actual): (usize, u64)) {
        if self.open.is_empty() {
            return;
        }
        let (id, reserved) = self.open.swap_remove(at % self.open.len());
        assert!(service.commit(EVE, &id, actual).await);
        self.used = self.used - reserved + actual;
        self.committed.push(id);
    }

    async fn commit_again(&self, service: &mut Reservations, (at, actual): (usize, u64)) {
        if !self.committed.is_empty() {
            let id = &self.committed[at % self.committed.len()];
            let refused = service.settle(commit(EVE, id, actual)).await.unwrap_err();
            assert_eq!(refused.code(), GrpcCode::AlreadyExists);
        }
    }
}

#[tokio::test]
async fn any_order_of_reservations_counts_by_the_definition() {
    for seed in 0..20 {
        let bench = Bench::new(RULES);
        let mut service = Reservations::new(&bench.limits);
        let (mut count, mut dice) = (Count::default(), Dice::new(seed, SHORT_UNITS));
        for step in 0..150 {
            let units = dice.of(&[0, 1, 250, 1_000, 4_000, 30_000]);
            let which = (dice.below(1 << 20) as usize, units);
            match dice.below(6) {
                0..3 => count.reserve(&mut service, units).await,
                3..5 => count.commit(&mut service, which).await,
                _ => count.commit_again(&mut service, which).await,
            }
            if dice.one_in(3) && count.used > 0 {
                // Units that another caller returned.
                let back = count.used.min(2_000);
                let mut returned = request(EVE);
                returned.descriptors[0].hits_addend = Some(back);
                returned.descriptors[0].is_negative_hits = true;
                // Not those of open reservations.
                let open: u64 = count.open.iter().map(|(_, units)| units).sum();
                if count.used - back >= open {
                    bench.decide(&returned).await.unwrap();
                    count.used -= back;
                }
            }
            let left = u64::from(service.left("user=eve").await);
            let expected = Count::LIMIT.saturating_sub(count.used);
            assert_eq!(left, expected, "seed {seed}, step {step}");
        }
    }
}

#[tokio::test]
async fn commit_without_a_reservation_charges_all() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    assert!(!service.commit(EVE, "", 700).await);
    assert!(!service.commit(EVE, "", 0).await);
    assert_eq!(service.left("user=eve").await, 9_300);
}

/// The ids that no seal of `id` fits.
fn forged(id: &str) -> Vec<String> {
    let mut forged = vec![
        "x".to_owned(),
        "ä".to_owned(),
        "A".repeat(500),
        format!("{id}A"),
    ];
    forged.extend(
        (1..id.len())
            .step_by(7)
            .map(|length| id[..length].to_owned()),
    );
    for at in 0..id.len() {
        let mut changed = id.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        forged.push(String::from_utf8(changed).unwrap());
    }
    forged
}

#[tokio::test]
async fn foreign_and_forged_ids_change_nothing() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let id = service.reserve(EVE, 1_000).await.unwrap();
    let mut questions: Vec<_> = forged(&id).iter().map(|id| commit(EVE, id, 0)).collect();
    // Ids of another process, and of other descriptors.
    let foreign = Reservations::new(&bench.limits).reserve(EVE, 1_000).await;
    questions.push(commit(EVE, &foreign.unwrap(), 0));
    for others in [&["user=bob"][..], &["team=eve"], &["user=eve", "user=eve"]] {
        questions.push(commit(others, &id, 0));
    }
    let mut own_limit = commit(EVE, &id, 0);
    own_limit.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 5,
        unit: Unit::Day.into(),
        unit_multiplier: None,
    });
    questions.push(own_limit);
    for question in questions {
        let text = format!("{question:?}");
        let refused = service.settle(question).await.expect_err(&text);
        assert_eq!(refused.code(), GrpcCode::InvalidArgument, "{text}");
        assert!(refused.message().contains("reservation_id"), "{refused}");
    }
    assert_eq!(service.left("user=eve").await, 8_000);
    assert_eq!(service.left("user=bob").await, 10_000);
    assert!(service.commit(EVE, &id, 0).await, "none of them used it up");
    assert_eq!(service.left("user=eve").await, 9_000);
}

#[tokio::test]
async fn invalid_questions_change_nothing() {
    let bench = Bench::new(RULES);
    let mut service = Reservations::new(&bench.limits);
    let id = service.reserve(EVE, 1_000).await.unwrap();
    let change = |change: fn(&mut ReserveRequest)| {
        let mut question = reserve(EVE, 10);
        change(&mut question);
        question
    };
    for (question, code, part) in [
        (
            change(|it| it.amount = 1 << 53),
            GrpcCode::InvalidArgument,
            "at most 9007199254740991",
        ),
        (
            change(|it| it.domain.clear()),
            GrpcCode::InvalidArgument,
            "domain",
        ),
        (
            change(|it| it.domain = "other".to_owned()),
            GrpcCode::NotFound,
            "\"other\"",
        ),
        (
            change(|it| it.descriptors.clear()),
            GrpcCode::InvalidArgument,
            "descriptor list",
        ),
        (
            change(|it| it.descriptors[0].is_negative_hits = true),
            GrpcCode::InvalidArgument,
            "is_negative_hits",
        ),
        (
            change(|it| it.descriptors[0].hits_addend = Some(2)),
            GrpcCode::InvalidArgument,
            "hits_addend",
        ),
        (
            change(|it| it.descriptors = vec![it.descriptors[0].clone(); 257]),
            GrpcCode::InvalidArgument,
            "at most 256 descriptors",
        ),
    ] {
        let settlement = CommitRequest {
            domain: question.domain.clone(),
            descriptors: question.descriptors.clone(),
            reservation_id: id.clone(),
            actual_amount: question.amount,
        };
        let refused = service.send(question).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(part), "{refused}");
        let refused = service.settle(settlement).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(part), "{refused}");
    }
    let unknown: Result<CommitResponse, _> = service.call("Report", commit(EVE, "", 1)).await;
    assert_eq!(unknown.unwrap_err().code(), GrpcCode::Unimplemented);
    assert!(service.commit(EVE, &id, 0).await, "none of them used it up");
    assert_eq!(service.left("user=eve").await, 10_000);

    let empty = RateLimits::new(
        Counters::new(|_, _| unreachable!("no rules")),
        Modes::default(),
    );
    let refused = Reservations::new(&empty).send(reserve(EVE, 1)).await;
    assert_eq!(refused.unwrap_err().code(), GrpcCode::Unavailable);
}

#[test]
fn shared_key_has_at_least_32_characters() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    assert!(ReservationKey::read(&file).is_err(), "no file");
    fs::write(&file, "too short").unwrap();
    let error = ReservationKey::read(&file).unwrap_err().to_string();
    assert!(error.contains("--reservation-key-file"), "{error}");
    assert!(error.contains("the key has 9 characters"), "{error}");
}

fn shared_key(folder: &Path) -> ReservationKey {
    let file = folder.join("key");
    fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    ReservationKey::read(&file).unwrap()
}

#[tokio::test]
async fn instances_with_one_key_settle_each_others_reservations() {
    needs!(redis);
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut instances = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        let store = store.connect(&server.url()).unwrap();
        let counters = Counters::redis(&store, OnFailure::local());
        let limits = RateLimits::new(counters, Modes::default());
        // No test meets the end of the window.
        limits.set_rules(rules(&RULES.replace("unit: day", "unit: year")));
        instances.push(Reservations::with(&limits, shared_key(folder.path())));
    }
    let [one, other] = &mut instances[..] else {
        unreachable!("two")
    };
    for (actual, left) in [(300, 9_700), (1_700, 8_000)] {
        let id = one.reserve(EVE, 1_000).await.unwrap();
        assert!(other.commit(EVE, &id, actual).await);
        assert_eq!(one.left("user=eve").await, left);
    }
    // Without the store each counts alone, and nobody can refund what another one counted.
    let before = one.reserve(EVE, 1_000).await.unwrap();
    drop(server);
    let id = one.reserve(EVE, 1_000).await.unwrap();
    let left = other.left("user=eve").await;
    assert!(!other.commit(EVE, &id, 0).await);
    assert_eq!(other.left("user=eve").await, left);
    drop(before);
}

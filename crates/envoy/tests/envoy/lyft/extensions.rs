//! Limits that the reference lacks: other algorithms, and charges of passing requests only.

use std::{pin::Pin, sync::Arc, time::Duration};

use testkit::{needs, servers::Server};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tower_ratelimit::{
    AnyLimiter, Decision, Limiter, LimiterError, LocalLimiter, OnFailure, RedisStore,
    decision::Policy,
    limiter::{Call, Pending},
};
use tower_ratelimit_envoy::{
    decide::RateLimits,
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{Code, Unit},
};

use super::test_support::{Bench, charge_admitted, passes, reported, request, rules};

const OWN: &str = "domain: rl
descriptors:
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, burst: 3}
  - key: sliding
    rate_limit: {unit: minute, requests_per_unit: 6, algorithm: sliding_window, slices: 6}
  - key: log
    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: sliding_log}
  - key: soft
    rate_limit: {unit: minute, requests_per_unit: 4, soft: 50}
  - key: weeks
    rate_limit: {unit: week, unit_multiplier: 2, requests_per_unit: 5}
";

#[tokio::test]
async fn limits_count_by_the_algorithm_that_they_name() {
    let bench = Bench::new(OWN);
    let three = bench.call(&["bucket=1 +3"]).await;
    assert_eq!(reported(&three), [(true, 0)]);
    let over = bench.status("bucket=1").await;
    assert_eq!((over.code(), over.limit_remaining), (Code::OverLimit, 0));
    assert_eq!(over.duration_until_reset.unwrap().seconds, 1);
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(reported(&bench.call(&["bucket=1"]).await), [(true, 0)]);
    let limit = bench.status("bucket=2").await.current_limit.unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (60, Unit::Minute));

    // Both entries expire a minute after each, not with the minute.
    assert_eq!(reported(&bench.call(&["log=1"]).await), [(true, 1)]);
    bench.clock.advance(Duration::from_secs(46));
    assert_eq!(reported(&bench.call(&["log=1"]).await), [(true, 0)]);
    bench.clock.advance(Duration::from_secs(2));
    let over = bench.status("log=1").await;
    assert_eq!(over.code(), Code::OverLimit, "of the next minute");
    assert_eq!(over.duration_until_reset.unwrap().seconds, 12);

    let reported_soft = reported(&bench.call(&["soft=1 +4", "soft=1 +2", "soft=1"]).await);
    assert_eq!(reported_soft, [(true, 0), (true, 0), (false, 0)]);
    assert_eq!(reported(&bench.call(&["sliding=1 +6"]).await), [(true, 0)]);
    assert_eq!(reported(&bench.call(&["sliding=1"]).await), [(false, 0)]);
}

/// Units of 0 report whether one more would pass; negative ones are refunded.
#[tokio::test]
async fn looks_and_refunds_are_of_any_algorithm() {
    let bench = Bench::new(OWN);
    assert_eq!(reported(&bench.call(&["bucket=1 +0"]).await), [(true, 3)]);
    assert_eq!(reported(&bench.call(&["bucket=1 +5"]).await), [(false, 0)]);
    assert_eq!(
        reported(&bench.call(&["bucket=1 +0"]).await),
        [(false, 0)],
        "what does not fit is charged all the same"
    );
    let mut back = request(&["bucket=1 +2"]);
    back.descriptors[0].is_negative_hits = true;
    assert_eq!(reported(&bench.decide(&back).await.unwrap()), [(true, 2)]);
}

#[tokio::test]
async fn periods_of_several_units() {
    let status = Bench::new(OWN).status("weeks=1").await;
    let limit = status.current_limit.unwrap();
    assert_eq!((limit.unit(), limit.unit_multiplier), (Unit::Week, Some(2)));
    let period = 14 * 86_400;
    let reset = status.duration_until_reset.unwrap().seconds;
    assert_eq!(
        reset,
        period - super::test_support::START.cast_signed() % period
    );
}

#[test]
fn strict_files_have_what_the_reference_knows() {
    let strict = |text: &str| Rules::builder().strict(true).parse([("rules.yaml", text)]);
    let error = strict(OWN).unwrap_err();
    assert_eq!(error.problems().len(), 7, "{error}");
    assert!(
        error
            .to_string()
            .contains("\"unit_multiplier\", which Envoy's"),
        "{error}"
    );
    let plain =
        "domain: rl\ndescriptors: [{key: a, rate_limit: {unit: week, requests_per_unit: 1}}]\n";
    assert!(strict(plain).is_ok());
}

/// The remaining units of each descriptor after `charge_admitted`.
async fn left(limits: &RateLimits, descriptors: &[&str]) -> Vec<u32> {
    let looks: Vec<String> = descriptors
        .iter()
        .map(|text| format!("{text} +0"))
        .collect();
    let looks: Vec<&str> = looks.iter().map(String::as_str).collect();
    let response = limits.decide(&request(&looks)).await.unwrap();
    let statuses = response.statuses.iter();
    statuses.map(|status| status.limit_remaining).collect()
}

const LIMITS: &str = "domain: rl
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: other, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 3, algorithm: sliding_log}}
";

async fn charges_what_passes(limits: &RateLimits) {
    limits.set_rules(rules(LIMITS));
    let call = async |descriptors: &[&str]| limits.decide(&request(descriptors)).await.unwrap();
    assert!(passes(&call(&["a=1 +8", "b=1", "shadow=1"]).await));
    let denied = call(&["a=1 +1", "b=1", "shadow=1", "log=1", "quota=1"]).await;
    assert!(!passes(&denied));
    let expected = [(true, 2), (false, 0), (true, 1), (true, 3), (true, 1)];
    assert_eq!(reported(&denied), expected, "as it is afterwards");
    assert_eq!(
        left(limits, &["a=1", "b=1", "shadow=1", "log=1", "quota=1"]).await,
        [2, 0, 1, 3, 1]
    );
    assert!(!passes(&call(&["a=1 +3"]).await));
    assert!(
        passes(&call(&["a=1 +2"]).await),
        "a larger one took nothing"
    );
    // Equal descriptors find what the first took, and none of them is charged.
    assert!(!passes(&call(&["log=1 +2", "log=1 +2"]).await));
    assert_eq!(left(limits, &["log=1"]).await, [3]);
    // One quota with room is enough.
    for (passed, rest) in [(true, [0, 1]), (true, [0, 0]), (false, [0, 0])] {
        let response = call(&["quota=1", "other=1", "b=2 +0"]).await;
        assert_eq!(passes(&response), passed);
        assert_eq!(left(limits, &["quota=1", "other=1"]).await, rest);
    }
    // A shadow counts at most its limit, and denies nothing.
    for rest in [0, 0] {
        assert!(passes(&call(&["shadow=1"]).await));
        assert_eq!(left(limits, &["shadow=1"]).await, [rest]);
    }
}

/// A limiter that charges at once, and responds when the test releases it.
#[derive(Clone)]
struct Late {
    limiter: LocalLimiter,
    may_answer: Arc<Semaphore>,
}

impl Limiter for Late {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let Pending::Ready(decision) = self.limiter.call(call);
        let may_answer = Arc::clone(&self.may_answer);
        Pending::Later(Box::pin(async move {
            drop(may_answer.acquire().await);
            decision
        }))
    }

    fn policies(&self) -> &[Policy] {
        self.limiter.policies()
    }
}

/// A caller with a deadline may leave before the counters respond.
#[tokio::test(start_paused = true)]
async fn cancelled_requests_refund_their_charges() {
    let may_answer = Arc::new(Semaphore::new(0));
    let answers = Arc::clone(&may_answer);
    let counters = Counters::new(move |quota, _| {
        let limiter = LocalLimiter::try_new(quota)?;
        let may_answer = Arc::clone(&answers);
        Ok(AnyLimiter::new(Late {
            limiter,
            may_answer,
        }))
    });
    let limits = RateLimits::new(counters, charge_admitted());
    limits.set_rules(rules(LIMITS));
    let request = request(&["a=1 +3", "b=1 +2"]);
    let late = timeout(Duration::from_secs(1), limits.decide(&request)).await;
    assert!(late.is_err(), "nobody has answered");
    may_answer.add_permits(1);
    // Paused time advances when nothing else can run.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(left(&limits, &["a=1", "b=1"]).await, [10, 1]);
}

#[tokio::test]
async fn only_requests_that_pass_are_charged_on_demand() {
    let modes = || charge_admitted();
    let bench = Bench::with(LIMITS, modes());
    charges_what_passes(&bench.limits).await;

    needs!(redis);
    let server = Server::start().await;
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).unwrap();
    let counters = Counters::redis(&store, OnFailure::deny());
    charges_what_passes(&RateLimits::new(counters, modes())).await;
}

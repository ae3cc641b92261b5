//! Rows 6 to 8 and 12: counts and their statuses.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;
use tower_ratelimit::{
    AnyLimiter, Decision, Limiter, LimiterError, LocalLimiter,
    decision::Policy,
    limiter::{Call, OwnedCharge, Pending},
};
use tower_ratelimit_envoy::{
    decide::{DecideError, Modes, RateLimits},
    limiters_by_period::Counters,
    protobuf_messages::{Code, RateLimitOverride, RateLimitRequest, Unit},
};

use super::test_support::{Bench, charge_admitted, descriptor, passes, reported, request};

const TEN: &str = "domain: rl
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: most, rate_limit: {unit: second, requests_per_unit: 4294967295}}
";

/// Row 6: all descriptors are charged, also if another denies, and beyond the limit.
#[tokio::test]
async fn each_descriptor_is_charged_whatever_becomes_of_the_others() {
    let bench = Bench::new(TEN);
    assert!(passes(&bench.call(&["a=1 +8", "b=1"]).await));
    let denied = bench.call(&["a=1 +1", "b=1"]).await;
    assert!(!passes(&denied));
    assert_eq!(reported(&denied), [(true, 1), (false, 0)]);
    let over = bench.call(&["a=1 +4"]).await;
    assert_eq!(reported(&over), [(false, 0)], "9 and 4 are beyond 10");
    // Fourteen so far; the next limit would leave one.
    assert_eq!(reported(&bench.call(&["a=1"]).await), [(false, 0)]);
    bench
        .limits
        .set_rules(super::test_support::rules(&TEN.replace(": 10", ": 16")));
    assert_eq!(reported(&bench.call(&["a=1"]).await), [(true, 1)]);
}

/// Row 7: the descriptor's units, if it has any. 0 is a peek, and over only beyond the limit.
#[tokio::test]
async fn units_of_the_descriptor_come_before_those_of_the_request() {
    let bench = Bench::new(TEN);
    let with = |hits_addend, descriptors: &[&str]| RateLimitRequest {
        hits_addend,
        ..request(descriptors)
    };
    let call = async |hits, descriptors: &[&str]| {
        reported(&bench.decide(&with(hits, descriptors)).await.unwrap())
    };
    assert_eq!(call(0, &["a=1"]).await, [(true, 9)]);
    assert_eq!(call(3, &["a=1", "a=2 +1"]).await, [(true, 6), (true, 9)]);
    assert_eq!(call(3, &["a=1 +0"]).await, [(true, 6)]);
    assert_eq!(call(0, &["a=1 +6"]).await, [(true, 0)]);
    assert_eq!(
        call(0, &["a=1 +0"]).await,
        [(true, 0)],
        "10 is not beyond 10"
    );
    assert_eq!(call(0, &["a=1 +1"]).await, [(false, 0)]);
    assert_eq!(call(0, &["a=1 +0"]).await, [(false, 0)]);
    assert_eq!(call(0, &["none=1 +0"]).await, [(true, 0)]);
    assert_eq!(call(0, &["none=1"]).await, [(false, 0)]);
    assert_eq!(call(0, &["most=1 +4294967295"]).await, [(true, 0)]);
    assert_eq!(
        call(0, &["most=1 +18446744073709551615"]).await,
        [(false, 0)]
    );
}

/// Row 7: equal descriptors of a request count one after another.
#[tokio::test]
async fn equal_descriptors_count_one_after_another() {
    let bench = Bench::new(TEN);
    let response = bench.call(&["a=1 +6", "a=1 +4", "a=1 +1", "a=2"]).await;
    assert_eq!(
        reported(&response),
        [(true, 4), (true, 0), (false, 0), (true, 9)]
    );
}

/// A limiter that executes the newest waiting operation first.
#[derive(Clone)]
struct Overtaking {
    limiter: LocalLimiter,
    waiting: Arc<Mutex<Vec<Waiting>>>,
}

struct Waiting {
    charge: OwnedCharge,
    answer: oneshot::Sender<Result<Decision, LimiterError>>,
}

impl Limiter for Overtaking {
    type Future = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        let charge = call.one().unwrap().to_owned();
        let (answer, answered) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap()
            .push(Waiting { charge, answer });
        let this = self.clone();
        Pending::Later(Box::pin(async move {
            for Waiting { charge, answer } in this.waiting.lock().unwrap().drain(..).rev() {
                let Pending::Ready(decision) = this.limiter.call(&Call::of(&[charge.as_ref()]));
                answer.send(decision).unwrap();
            }
            answered.await.unwrap()
        }))
    }

    fn policies(&self) -> &[Policy] {
        self.limiter.policies()
    }
}

/// Also if the store would execute them in another order.
#[tokio::test]
async fn equal_descriptors_do_not_overtake_each_other() {
    let counters = Counters::new(|quota, _| {
        let limiter = LocalLimiter::try_new(quota)?;
        let waiting = Arc::default();
        Ok(AnyLimiter::new(Overtaking { limiter, waiting }))
    });
    let limits = RateLimits::new(counters, Modes::default());
    limits.set_rules(super::test_support::rules(&TEN.replace("minute", "year")));
    let request = request(&["a=1 +6", "a=2", "a=1 +4", "b=1", "a=1 +1"]);
    let response = limits.decide(&request).await.unwrap();
    let expected = [(true, 4), (true, 9), (true, 0), (true, 0), (false, 0)];
    assert_eq!(reported(&response), expected);
}

/// Row 7: negative units are refunded, down to zero, and always pass.
#[tokio::test]
async fn negative_units_are_given_back() {
    let bench = Bench::new(TEN);
    let back = async |units| {
        let mut request = request(&["a=1"]);
        request.descriptors[0].hits_addend = Some(units);
        request.descriptors[0].is_negative_hits = true;
        reported(&bench.decide(&request).await.unwrap())
    };
    bench.call(&["a=1 +14"]).await;
    assert_eq!(back(1).await, [(true, 0)], "13 stay");
    assert_eq!(back(6).await, [(true, 3)]);
    assert_eq!(reported(&bench.call(&["a=1"]).await), [(true, 2)]);
    assert_eq!(back(100).await, [(true, 10)]);
}

/// An estimate that is charged when a request arrives, and returned when its stream has ended, before the usage.
#[tokio::test]
async fn estimate_of_a_stream_is_returned_to_the_window_in_force() {
    let bench = Bench::new(&TEN.replace(": 10", ": 10000"));
    let end = async |estimate: u64, used: u64| {
        let mut ended = request(&["a=1", "a=1"]);
        ended.descriptors[0].hits_addend = Some(estimate);
        ended.descriptors[0].is_negative_hits = true;
        ended.descriptors[1].hits_addend = Some(used);
        let reported = reported(&bench.decide(&ended).await.unwrap());
        reported[1]
    };
    bench.call(&["a=1 +1000"]).await;
    assert_eq!(end(1_000, 300).await, (true, 9_700));
    bench.call(&["a=1 +1000"]).await;
    bench.call(&["a=1 +1000"]).await;
    bench.clock.advance(Duration::from_secs(60));
    bench.call(&["a=1 +1400"]).await;
    // 1,000 units of others are returned, and then the other 700.
    assert_eq!(end(1_000, 300).await, (true, 9_300));
    assert_eq!(end(1_000, 300).await, (true, 9_700));
}

/// Row 8: the fields of a status.
#[tokio::test]
async fn statuses_have_limit_remaining_and_reset() {
    let bench = Bench::new(TEN);
    bench.clock.advance(Duration::from_millis(500));
    let status = bench.status("a=1").await;
    let limit = status.current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (10, Unit::Minute));
    assert_eq!((limit.name.as_str(), limit.unit_multiplier), ("", None));
    let reset = status.duration_until_reset.unwrap();
    assert_eq!(
        (reset.seconds, reset.nanos),
        (48, 0),
        "whole seconds, rounded up"
    );
    bench.clock.advance(Duration::from_millis(47_499));
    assert_eq!(
        bench
            .status("a=1")
            .await
            .duration_until_reset
            .unwrap()
            .seconds,
        1
    );
    bench.clock.advance(Duration::from_millis(1));
    let next = bench.status("a=1").await;
    assert_eq!(next.limit_remaining, 9);
    assert_eq!(next.duration_until_reset.unwrap().seconds, 60);

    let unmatched = bench.status("x").await;
    assert_eq!((unmatched.code(), unmatched.limit_remaining), (Code::Ok, 0));
    assert_eq!(
        (unmatched.current_limit, unmatched.duration_until_reset),
        (None, None)
    );
    let free = bench.status("free=1").await;
    assert_eq!((free.code(), free.limit_remaining), (Code::Ok, u32::MAX));
    assert_eq!(
        (free.current_limit, free.duration_until_reset),
        (None, None)
    );
}

#[tokio::test]
async fn units_begin_in_1970() {
    for (unit, seconds) in [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ] {
        let rules = format!(
            "domain: rl
descriptors: [{{key: a, rate_limit: {{unit: {unit}, requests_per_unit: 1}}}}]
"
        );
        let reset = Bench::new(&rules).status("a").await.duration_until_reset;
        let start = super::test_support::START.cast_signed();
        assert_eq!(reset.unwrap().seconds, seconds - start % seconds, "{unit}");
    }
}

/// Row 12: a limit that comes with the descriptor, in a known domain.
#[tokio::test]
async fn limit_of_the_descriptor_comes_before_the_rules() {
    let bench = Bench::new(TEN);
    let with = |text: &str, requests_per_unit, unit: Unit, unit_multiplier| {
        let mut request = request(&[text]);
        request.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit,
            unit: unit.into(),
            unit_multiplier,
        });
        request
    };
    let call = async |request: &RateLimitRequest| reported(&bench.decide(request).await.unwrap());
    // The rules do not apply, and the counter is that of the entries.
    assert_eq!(call(&with("a=1", 3, Unit::Minute, None)).await, [(true, 2)]);
    assert_eq!(call(&request(&["a=1"])).await, [(true, 8)]);
    assert_eq!(
        call(&with("unmatched=1", 3, Unit::Minute, None)).await,
        [(true, 2)]
    );
    assert_eq!(
        call(&with("free=1", 0, Unit::Minute, None)).await,
        [(false, 0)]
    );
    let five = with("a=1", 3, Unit::Minute, Some(5));
    let status = bench.decide(&five).await.unwrap().statuses.remove(0);
    assert_eq!(status.limit_remaining, 2);
    assert_eq!(status.duration_until_reset.unwrap().seconds, 288);
    assert_eq!(status.current_limit.unwrap().unit_multiplier, Some(5));
    // Both descriptors of one request use one counter.
    let mut both = with("a=2", 3, Unit::Minute, None);
    both.descriptors.push(descriptor("a=2"));
    assert_eq!(call(&both).await, [(true, 2), (true, 8)]);

    let elsewhere = RateLimitRequest {
        domain: "elsewhere".to_owned(),
        ..with("a=1", 0, Unit::Minute, None)
    };
    assert_eq!(call(&elsewhere).await, [(true, 0)]);
    for (unit, times) in [
        (Unit::Unknown, None),
        (Unit::Year, Some(0)),
        (Unit::Year, Some(19)),
    ] {
        let refused = bench.decide(&with("a=1", 1, unit, times)).await;
        assert!(
            matches!(refused, Err(DecideError::Invalid(_))),
            "{refused:?}"
        );
    }
}

/// Each costs time and memory, and clients may be able to invent them.
#[tokio::test]
async fn requests_of_too_many_parts_are_refused() {
    let most = vec!["a=1 +0"; 256];
    let entries = vec!["a=1"; 64].join(",");
    for modes in [Modes::default(), charge_admitted()] {
        let bench = Bench::with(TEN, modes);
        let passes = bench.decide(&request(&most)).await.unwrap();
        assert_eq!(passes.statuses.len(), 256);
        let more = [most.as_slice(), &["a=1"]].concat();
        let long = format!("{entries},a=1");
        assert!(bench.decide(&request(&[&entries])).await.is_ok());
        for (request, word) in [
            (request(&more), "256 descriptors"),
            (request(&["a=1", &long]), "64 entries"),
        ] {
            for answer in [
                bench.decide(&request).await,
                bench.limits.dry_run(&request).await,
            ] {
                let Err(DecideError::Invalid(text)) = answer else {
                    panic!("{word}");
                };
                assert!(text.contains(word), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn request_without_domain_or_descriptors_is_refused() {
    let bench = Bench::new(TEN);
    let mut nowhere = request(&["a=1"]);
    nowhere.domain.clear();
    for (request, word) in [(nowhere, "domain"), (request(&[]), "descriptor")] {
        let Err(DecideError::Invalid(text)) = bench.decide(&request).await else {
            panic!("{word}");
        };
        assert!(text.contains(word), "{text}");
    }
}

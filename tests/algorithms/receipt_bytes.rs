//! Receipts as bytes: they refund as the receipts that they were written from.

use std::time::Duration;

use tower_ratelimit::{
    Decision, Key, LocalLimiter, LocalStore, Quota,
    clock::ManualClock,
    decision::{Op, Receipt},
    limiter::{JointLimiter, Pending, RequestQuota, Tier},
};

use super::alice;

const QUOTAS: [Quota; 7] = [
    Quota::per_minute(60).burst(100),
    Quota::per_minute(60).burst(100).debt(50),
    Quota::per_minute(60)
        .burst(100)
        .refill_every(Duration::from_secs(1)),
    Quota::per_minute(60).leaky_bucket(99),
    Quota::per_minute(100).fixed_window().uncapped(),
    Quota::per_minute(100).sliding_window().slices(4),
    Quota::per_minute(100).sliding_log(),
];

fn limiter(quotas: &[Quota]) -> (ManualClock, LocalLimiter) {
    let clock = ManualClock::new();
    let builder = LocalLimiter::builder(quotas.to_vec()).clock(clock.clone());
    (clock, builder.build().expect("good quotas"))
}

fn in_tier(limiter: &LocalLimiter, tier: &Tier, op: Op) -> Decision {
    let Pending::Ready(decision) = testkit::apply_in(limiter, tier, &alice(), op);
    decision.expect("a good tier")
}

/// Decisions of two limiters with the same history about a refund of 40 of 90 units, by the receipt and by its
/// bytes.
fn refunded(quotas: &[Quota], tier: &Tier, later: Duration) -> [Decision; 2] {
    [false, true].map(|by_bytes| {
        let (clock, limiter) = limiter(quotas);
        let mut receipt = in_tier(&limiter, tier, Op::Acquire(90)).receipt();
        assert_eq!(receipt.charged(), 90);
        if by_bytes {
            let bytes = receipt.to_bytes().expect("one limit, in this process");
            receipt = Receipt::from_bytes(&bytes).expect("the bytes of a receipt");
            assert_eq!(receipt.to_bytes(), Some(bytes));
        }
        clock.advance(later);
        in_tier(&limiter, tier, Op::Settle(50, receipt))
    })
}

#[test]
fn bytes_refund_as_their_receipt() {
    let own = Tier::from(RequestQuota::limit(95));
    for quota in QUOTAS {
        let day = Quota::per_day(1_000).named("day");
        for seconds in [0, 20, 61] {
            let later = Duration::from_secs(seconds);
            let lists = [vec![quota], vec![quota.named("q"), day]];
            for quotas in lists {
                let [expected, by_bytes] = refunded(&quotas, &Tier::DEFAULT, later);
                assert_eq!(by_bytes, expected, "{quotas:?} after {later:?}");
            }
            let [expected, by_bytes] = refunded(&[quota], &own, later);
            assert_eq!(
                by_bytes, expected,
                "a request's own, {quota:?} after {later:?}"
            );
        }
    }
}

#[test]
fn other_bytes_are_no_receipt() {
    let (_, limiter) = limiter(&[QUOTAS[0], QUOTAS[4].named("window")]);
    let receipt = limiter.acquire(&alice(), 3).receipt();
    let bytes = receipt.to_bytes().expect("one limit, in this process");
    assert_eq!(Receipt::from_bytes(&bytes), Some(receipt));
    for length in 0..bytes.len() {
        assert_eq!(
            Receipt::from_bytes(&bytes[..length]),
            None,
            "{length} bytes"
        );
    }
    assert_eq!(
        Receipt::from_bytes(&[bytes.clone(), vec![0]].concat()),
        None
    );
    let mut newer = bytes.clone();
    newer[0] += 1;
    assert_eq!(Receipt::from_bytes(&newer), None);
    // None of them panics, whatever the numbers are.
    for at in 0..bytes.len() {
        for changed in [0, 1, 0x7f, 0xff] {
            let mut wrong = bytes.clone();
            wrong[at] = changed;
            if let Some(receipt) = Receipt::from_bytes(&wrong) {
                let _ = limiter.refund(&alice(), 2, Some(receipt));
            }
        }
    }
}

#[test]
fn several_limits_have_a_receipt_of_each() {
    let store = LocalStore::new();
    let limits = ["a", "b"].map(|name| {
        let builder = LocalLimiter::builder(Quota::per_minute(10).named(name)).name(name);
        builder.build_in(&store).expect("a good quota")
    });
    let joint = JointLimiter::new(limits).expect("limits of one store");
    let keys = [alice(), Key::from("bob")];
    let decision = testkit::now(async { joint.acquire_all(&keys, 2).await });
    let receipt = decision.expect("two keys").receipt();
    assert_eq!(receipt.to_bytes(), None);
    assert!(receipt.each().all(|each| each.to_bytes().is_some()));
}

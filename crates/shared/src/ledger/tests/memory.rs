//! Memory of leased keys.

use super::*;

/// A table that is full of leases, its own memory included. `docs/redis.md` states the number.
#[test]
fn leased_key_takes_less_than_promised() {
    const LEASES: usize = 4_096;
    const PROMISED: u64 = 250;
    let (now, plans) = (Instant::now(), (current(), plan()));
    let mut held = 0;
    let memory = allocation_counter::measure(|| {
        let denials = Arc::new(DenyCache::new());
        let terms = terms(u32::MAX, LEASES);
        let ledger = Ledger::new(terms, false, (denials, Some(1)));
        for number in 0..4 * LEASES {
            held += u64::from(is_leased_with(&ledger, number, &plans, now));
        }
        std::mem::forget(ledger);
    });
    let of_denials = allocation_counter::measure(|| std::mem::forget(DenyCache::new()));
    let each = (memory.bytes_current - of_denials.bytes_current) as u64 / held;
    assert!(held > LEASES as u64 * 98 / 100, "{held} leases");
    assert!(each <= PROMISED, "{each} bytes a key");
}

/// Requests units of a key that becomes busy. Returns whether the node got a lease.
fn is_leased_with(
    ledger: &Ledger,
    number: usize,
    (plan, tier): &(Arc<Plan>, Arc<ReplyPlan>),
    now: Instant,
) -> bool {
    let subject = MeasuredSubject {
        tag: ledger.tag(&tower_ratelimit_core::Key::from(number as u64)),
        ..SUBJECT
    };
    let place = || KeyPlace {
        key: format!("tenant-{number:05}").into(),
        plan: Arc::clone(plan),
    };
    let _ = ledger.decide(subject, &Op::Acquire(20), now, place);
    let call = SentCall { subject, at: now };
    let attached = ledger.message((&call, Some(ONE)), (place, 1_000));
    let Some(message) = attached.message() else {
        return false;
    };
    let reply = granted(RowStatus::New, 10);
    let answer = denied_bucket(Duration::from_millis(1), Duration::from_secs(1));
    let reply = ledger.receive(&call, (message, &reply), Some((tier, &answer)), now);
    reply == 0
}

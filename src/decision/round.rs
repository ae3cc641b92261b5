use std::time::Duration;

/// Whole seconds, rounded up: who waits that long does not come too early.
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let partial = duration.subsec_nanos() > 0;
    duration.as_secs().saturating_add(partial as u64)
}

/// Whole microseconds, rounded up.
pub(super) const fn micros_up(duration: Duration) -> u64 {
    let partial = !duration.subsec_nanos().is_multiple_of(1_000);
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_micros() as u64 + partial as u64)
}

/// `u64::MAX` stands for whatever did not fit, so a wait of `Duration::MAX` stays that long.
pub(super) const fn from_micros(micros: Option<u64>) -> Option<Duration> {
    match micros {
        Some(u64::MAX) => Some(Duration::MAX),
        Some(micros) => Some(Duration::from_micros(micros)),
        None => None,
    }
}

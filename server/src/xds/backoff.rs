//! Pauses between attempts to reach the control plane, and between rejections of its sets.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use super::settings::ControlPlane;

/// The pauses after failures in a row.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The pause until the control plane has been reached once: without limits a service waits for it.
    at_start: Duration,
    initial: Duration,
    max: Duration,
    has_connected: bool,
    /// The number of failures since a stream lasted.
    failures: u32,
}

impl Backoff {
    pub(super) const fn new(plane: &ControlPlane) -> Self {
        Self {
            at_start: plane.connect_retry,
            initial: plane.initial_backoff,
            max: plane.max_backoff,
            has_connected: false,
            failures: 0,
        }
    }

    /// The pauses between rejections of sets, on a stream that exists.
    pub(super) const fn of_rejections(plane: &ControlPlane) -> Self {
        let mut backoff = Self::new(plane);
        backoff.has_connected = true;
        backoff
    }

    /// Records a stream that existed for this time. After a short one the next attempt is not at once, since the
    /// control plane may end each stream.
    pub(super) fn connected(&mut self, time: Duration) {
        self.has_connected = true;
        if time >= self.initial {
            self.failures = 0;
        }
    }

    /// The pause before the next attempt, without jitter.
    fn pause(&mut self) -> Duration {
        if !self.has_connected {
            return self.at_start;
        }
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        let is_first = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        if is_first {
            return Duration::ZERO;
        }
        self.initial.saturating_mul(doubled).min(self.max)
    }

    /// The pause before the next attempt: half to all of it, so that instances do not return together.
    pub(super) fn next(&mut self) -> Duration {
        let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        self.pause().mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let seconds = |backoff: &mut Backoff| backoff.pause().as_secs();
        let mut backoff = Backoff::new(&ControlPlane::new("gateway:18001"));
        assert_eq!([0; 3].map(|_| seconds(&mut backoff)), [3, 3, 3]);
        backoff.connected(Duration::ZERO);
        let pauses = [0; 6].map(|_| seconds(&mut backoff));
        assert_eq!(pauses, [0, 10, 20, 40, 60, 60]);
        backoff.connected(Duration::from_secs(9));
        assert_eq!(seconds(&mut backoff), 60, "a short stream");
        backoff.connected(Duration::from_secs(10));
        assert_eq!([0; 2].map(|_| seconds(&mut backoff)), [0, 10]);
        backoff.failures = u32::MAX;
        assert_eq!(seconds(&mut backoff), 60);
        for _ in 0..100 {
            assert!((30..=60).contains(&backoff.next().as_secs()));
        }
    }
}

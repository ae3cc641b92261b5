//! `Bucket`: the quotas whose whole state is one instant.

use super::{
    ClockSkew, Counts, Divisible, Most, leaky_bucket::LeakyBucket,
    stepped_token_bucket::SteppedBucket, token_bucket::TokenBucket,
};
use crate::quota::{Algorithm, Priority, Quota};

/// A quota whose state of a key is one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bucket {
    Token(TokenBucket),
    Stepped(SteppedBucket),
    Leaky(LeakyBucket),
}

impl Bucket {
    /// The bucket of a valid quota; `None` for windows and logs.
    pub(crate) fn new(quota: &Quota, most: Most, skew: ClockSkew) -> Option<Self> {
        match quota.algorithm() {
            Algorithm::TokenBucket => Some(Self::token(quota, most, skew)),
            Algorithm::LeakyBucket { .. } => Some(Self::leaky(quota, most, skew)),
            _ => None,
        }
    }

    pub(super) fn token(quota: &Quota, most: Most, skew: ClockSkew) -> Self {
        match quota.refill_every_nanos() {
            Some(step) => Self::Stepped(SteppedBucket::new(quota, step, most, skew)),
            None => Self::Token(TokenBucket::new(quota, most, skew)),
        }
    }

    pub(super) fn leaky(quota: &Quota, most: Most, skew: ClockSkew) -> Self {
        Self::Leaky(LeakyBucket::new(quota, most, skew))
    }

    pub(super) fn as_counts(&self) -> &dyn Counts<State = u64> {
        match self {
            Self::Token(bucket) => bucket,
            Self::Stepped(bucket) => bucket,
            Self::Leaky(bucket) => bucket,
        }
    }

    /// Nanoseconds of refill between the state and a fresh one.
    pub(super) fn used(&self, state: u64, now: u64) -> u64 {
        state.saturating_sub(self.fresh_until(now))
    }

    /// The latest state that is fresh at `now`.
    pub(crate) fn fresh_until(&self, now: u64) -> u64 {
        match self {
            Self::Stepped(bucket) => bucket.last_step(now),
            Self::Token(_) | Self::Leaky(_) => now,
        }
    }

    /// Nanoseconds until the state is fresh.
    pub(super) fn reset_after(&self, state: u64, now: u64) -> u64 {
        match self {
            Self::Stepped(bucket) => bucket.reset_after(state, now),
            Self::Token(_) | Self::Leaky(_) => state.saturating_sub(now),
        }
    }

    /// The latest possible state at `now`: that of an exhausted key.
    pub(crate) fn latest(&self, now: u64) -> u64 {
        let full = match self {
            Self::Token(bucket) => bucket.most(),
            Self::Stepped(bucket) => bucket.most(),
            Self::Leaky(bucket) => bucket.most(),
        };
        self.fresh_until(now).saturating_add(full)
    }
}

impl Divisible for Bucket {
    fn part(&self, class: Priority) -> Self {
        match self {
            Self::Token(bucket) => Self::Token(bucket.part(class)),
            Self::Stepped(bucket) => Self::Stepped(bucket.part(class)),
            Self::Leaky(bucket) => Self::Leaky(bucket.part(class)),
        }
    }
}

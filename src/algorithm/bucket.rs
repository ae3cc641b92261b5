use super::{leaky_bucket::LeakyBucket, token_bucket::TokenBucket};

/// A quota for which an instant is all there is to remember of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bucket {
    Token(TokenBucket),
    Leaky(LeakyBucket),
}

impl Bucket {
    /// A state has nothing left to remember once this has reached it.
    #[inline]
    pub(crate) fn fresh_until(&self, now: u64) -> u64 {
        match self {
            Self::Token(bucket) => bucket.last_step(now),
            Self::Leaky(_) => now,
        }
    }

    /// The latest instant that a state can be at: that of a key that is exhausted now.
    pub(crate) fn latest(&self, now: u64) -> u64 {
        let full = match self {
            Self::Token(bucket) => bucket.refill(),
            Self::Leaky(bucket) => bucket.longest(),
        };
        self.fresh_until(now).saturating_add(full)
    }
}

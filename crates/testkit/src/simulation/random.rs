//! Numbers that look random and are the same for the same seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        random.number();
        random
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number from 0 up to, but not including, 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below this one.
    pub(super) fn below(&mut self, most: usize) -> usize {
        (self.share() * most as f64) as usize
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// A number of an exponential distribution of this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    pub(super) fn choice<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

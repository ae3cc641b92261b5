//! Reproducible numbers.

/// A generator of numbers, whose state is the seed: splitmix64 by Steele, Lea and Flood.
#[derive(Debug)]
pub(in crate::rlqs) struct Random(pub(in crate::rlqs) u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub(in crate::rlqs) const fn up_to(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    pub(in crate::rlqs) const fn one_in(&mut self, most: u64) -> bool {
        self.up_to(most) == 0
    }
}

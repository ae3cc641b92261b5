//! Shares of a quota, for places that count independently.

use super::{Algorithm, Quota};

impl Quota {
    /// The share of place `index` among places that count independently, such as regions. `weights`
    /// has the weight of each place. The shares of all places sum to exactly the limit, and so do the
    /// shares of a burst and of a queue: together they allow no more than the whole quota.
    ///
    /// Each share is rounded down. The remaining units go to the places that lost the most by that,
    /// the first of equals first.
    ///
    /// A share of 0, which a place outside the list also has, allows nothing:
    /// [`check`](Self::check) refuses its quota.
    ///
    /// ```
    /// use tower_ratelimit::Quota;
    ///
    /// let whole = Quota::per_second(1_000);
    /// let weights = [3, 7, 5];
    /// let shares = [0, 1, 2].map(|region| whole.share(region, &weights).limit());
    /// assert_eq!(shares, [200, 467, 333]);
    /// assert!(whole.share(3, &weights).check().is_err());
    /// ```
    pub fn share(mut self, index: u32, weights: &[u32]) -> Self {
        let index = index as usize;
        self = self.with_limits(|limit| share_of(limit, index, weights));
        self.burst = self.burst.map(|burst| share_of(burst, index, weights));
        if let Algorithm::LeakyBucket { queue } = &mut self.algorithm {
            *queue = share_of(*queue, index, weights);
        }
        self
    }
}

/// The share of `units` by the largest-remainder method.
fn share_of(whole: u64, index: usize, weights: &[u32]) -> u64 {
    let sum: u128 = weights.iter().copied().map(u128::from).sum();
    if index >= weights.len() || sum == 0 {
        return 0;
    }
    let part = |weight: &u32| {
        let product = u128::from(whole) * u128::from(*weight);
        (product / sum, product % sum)
    };
    let given: u128 = weights.iter().map(|weight| part(weight).0).sum();
    let left = u128::from(whole) - given;
    let (own, remainder) = part(&weights[index]);
    let goes_first = |(at, weight): (usize, &u32)| {
        let other = part(weight).1;
        other > remainder || (other == remainder && at < index)
    };
    let before = weights.iter().enumerate().filter(|at| goes_first(*at));
    let is_rounded_up = (before.count() as u128) < left;
    own as u64 + u64::from(is_rounded_up)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ConfigErrorKind;

    proptest! {
        #[test]
        fn shares_sum_to_the_whole_and_are_less_than_a_unit_off(
            whole in any::<u64>(),
            weights in prop::collection::vec(0..=u32::MAX, 1..20),
        ) {
            let sum: u128 = weights.iter().copied().map(u128::from).sum();
            prop_assume!(sum > 0);
            let mut all = 0_u128;
            for (at, weight) in weights.iter().enumerate() {
                let share = u128::from(share_of(whole, at, &weights));
                let product = u128::from(whole) * u128::from(*weight);
                prop_assert!((share * sum).abs_diff(product) < sum);
                all += share;
            }
            prop_assert_eq!(all, u128::from(whole));
        }
    }

    #[test]
    fn bursts_and_queues_are_shared_like_limits() {
        let weights = [1, 1, 2];
        let shares = |quota: Quota| [0, 1, 2].map(|at| quota.share(at, &weights));
        let of_bucket = shares(Quota::per_second(10).burst(21).named("api"));
        assert_eq!(of_bucket.map(|share| share.limit()), [3, 2, 5]);
        assert_eq!(of_bucket.map(|share| share.capacity()), [5, 5, 11]);
        assert_eq!(of_bucket.map(|share| share.name()), [Some("api"); 3]);
        let of_queue = shares(Quota::per_second(10).leaky_bucket(7));
        assert_eq!(of_queue.map(|share| share.capacity()), [3, 3, 4]);
    }

    #[test]
    fn share_of_nothing_is_refused() {
        let refused = |share: Quota| share.check().map_err(|error| error.kind());
        let ten = Quota::per_second(10);
        for (index, weights) in [(0, &[][..]), (1, &[1]), (0, &[0, 0]), (0, &[0, 1])] {
            assert_eq!(
                refused(ten.share(index, weights)),
                Err(ConfigErrorKind::Limit)
            );
        }
        let small = Quota::per_second(1).share(1, &[1, 1]);
        assert_eq!(refused(small), Err(ConfigErrorKind::Limit));
        let burst = ten.burst(1).share(1, &[1, 1]);
        assert_eq!(refused(burst), Err(ConfigErrorKind::Burst));
    }
}

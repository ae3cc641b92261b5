//! Max-min fair shares of a rate.

/// The share of each demand, in the same unit as the rate. A demand below an equal part gets a quarter more than it is;
/// the others share the rest. Half of the part that no demand claims stays free, for clients to come.
///
/// The sum is at most `rate`, and each share is at least 1 if the rate suffices.
pub(super) fn fair_shares(demands: &[u64], rate: u64) -> Vec<u64> {
    let mut shares = vec![0; demands.len()];
    let mut order: Vec<(u64, usize)> = demands
        .iter()
        .enumerate()
        .map(|(at, demand)| (demand.saturating_add(demand / 4).max(1), at))
        .collect();
    order.sort_unstable();
    let mut left = rate;
    let mut others = demands.len() as u64;
    for (wanted, at) in order {
        let share = wanted.min(left / others);
        shares[at] = share;
        left -= share;
        others -= 1;
    }
    let extra = (left / 2)
        .checked_div(demands.len() as u64)
        .unwrap_or_default();
    for share in &mut shares {
        *share += extra;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::fair_shares;

    #[test]
    fn small_demands_are_met_and_the_others_share_the_rest() {
        assert_eq!(fair_shares(&[900, 300, 0], 600), [300, 299, 1]);
        assert_eq!(fair_shares(&[900, 300, 600], 600), [200, 200, 200]);
        assert_eq!(fair_shares(&[80, 10_000], 1_000), [100, 900]);
        assert_eq!(fair_shares(&[u64::MAX, u64::MAX], 1_001), [500, 501]);
    }

    #[test]
    fn half_of_the_unclaimed_part_stays_free() {
        // 500 and 100 are claimed; of 400 others 200 stay free.
        assert_eq!(fair_shares(&[400, 80], 1_000), [600, 200]);
        assert_eq!(fair_shares(&[0], 1_000), [500]);
        assert_eq!(fair_shares(&[], 1_000), Vec::<u64>::new());
    }

    #[test]
    fn shares_are_at_least_one_and_at_most_the_rate() {
        assert_eq!(fair_shares(&[0, 0, u64::MAX], 3), [1, 1, 1]);
        assert_eq!(fair_shares(&[5, 5, 5], 2).iter().sum::<u64>(), 2);
        assert_eq!(fair_shares(&[1, 2], 0), [0, 0]);
    }
}

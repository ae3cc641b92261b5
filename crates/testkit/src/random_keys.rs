//! Which key each request of a run is for: numbers that look random and are the same in every run.

use std::{iter, sync::Arc};

/// How requests spread over keys, which are numbered from 0.
#[derive(Debug, Clone)]
pub enum Spread {
    /// All requests are for one key.
    OneKey,
    /// Every one of so many keys is as likely as the others.
    Uniform(u32),
    /// Some keys are far likelier than others: a ready list of numbers, which is gone round.
    Drawn(Arc<[u32]>),
}

impl Spread {
    /// A million requests in which the n-th of so many keys has the weight 1/n.
    pub fn zipf(keys: u32) -> Self {
        let mut total = 0.0;
        let up_to: Vec<f64> = (1..=keys)
            .map(|n| {
                total += 1.0 / f64::from(n);
                total
            })
            .collect();
        let drawn = random_numbers(0).take(1_000_000).map(|bits| {
            let at = (bits >> 11) as f64 / (1_u64 << 53) as f64 * total;
            up_to.partition_point(|&sum| sum < at) as u32
        });
        Self::Drawn(drawn.collect())
    }

    /// Numbers of keys without end, others for every `seed`.
    pub fn numbers(&self, seed: u64) -> impl Iterator<Item = u32> + '_ {
        let mut random = random_numbers(seed);
        let mut position = seed as usize;
        iter::from_fn(move || {
            Some(match self {
                Self::OneKey => 0,
                Self::Uniform(keys) => {
                    let bits = random.next()?;
                    ((u128::from(bits) * u128::from(*keys)) >> 64) as u32
                }
                Self::Drawn(numbers) => {
                    position = (position + 1) % numbers.len();
                    numbers[position]
                }
            })
        })
    }
}

/// A Weyl sequence, mixed as in SplitMix64.
fn random_numbers(seed: u64) -> impl Iterator<Item = u64> {
    let start = mixed(seed);
    (1_u64..).map(move |n| mixed(start.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
}

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

//! The treatment of a limit: a share of its rate, units, or all requests or none.

use std::time::Duration;

use tower_ratelimit::Key;

use super::{messages::BlanketRule, rate::DivisibleRate};
use crate::{
    decide::{BucketLimit, CountedLimit},
    limiters_by_period::Measure,
};

/// The time to live of answers without a share: no limit, and a limit of 0.
const UNLIMITED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(15);

/// The treatment of a limit.
pub(super) enum Treatment {
    Blanket(BlanketRule, Duration),
    Share(Key, DivisibleRate),
    Units(CountedLimit),
    /// None of these, for this reason.
    Excess(&'static str),
}

impl Treatment {
    pub(super) fn of(limit: BucketLimit) -> Self {
        match limit {
            BucketLimit::Nothing | BucketLimit::Shadow(_) => {
                Self::Blanket(BlanketRule::AllowAll, UNLIMITED)
            }
            BucketLimit::Limited(limit) => {
                let CountedLimit { counter, requests } = &limit.counted;
                match rate(counter.measure, *requests) {
                    _ if *requests == 0 => Self::Blanket(BlanketRule::DenyAll, DENIED),
                    Some(rate) => Self::Share(counter.key.clone(), rate),
                    None => Self::Units(limit.counted),
                }
            }
            BucketLimit::Ambiguous => Self::Excess("orders"),
        }
    }
}

fn rate(measure: Measure, requests: u32) -> Option<DivisibleRate> {
    match measure {
        Measure::Window(seconds) => {
            DivisibleRate::of_window(requests.into(), Duration::from_secs(seconds))
        }
        Measure::Quota(quota) => DivisibleRate::of_quota(&quota),
    }
}

//! What a rule allows: quotas, by tier or by time.

use std::time::Duration;

use http::{HeaderName, request::Parts};

use super::time::TimeWindow;
use crate::{
    clock::Timestamp,
    quota::{Algorithm, OwnedQuota},
};

/// Quotas that are charged together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuotaSet(pub(super) Box<[RuleQuota]>);

/// A quota under its policy's name, and the identity of its counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleQuota {
    /// Named `rule`, or `rule.quota` among several.
    pub(super) quota: OwnedQuota,
    pub(super) counter: CounterId,
}

/// What makes a counter the same one after a reload, beside the key. Neither the limit nor the
/// rule's place in the file is part of it: a changed limit goes on with the same counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CounterId {
    rule: Box<str>,
    /// The name that the quota was given, else its place in the list; the first character says which.
    quota: Box<str>,
    algorithm: u8,
    period: Duration,
    slices: u32,
    refill_every: Option<Duration>,
}

/// Algorithm, period, slices and refill step.
#[cfg(feature = "redis")]
pub(super) type CounterShape = (u8, Duration, u32, Option<Duration>);

impl CounterId {
    pub(super) fn new(rule: &str, at: usize, quota: &OwnedQuota) -> Self {
        let name = match quota.name() {
            Some(name) => format!("={name}"),
            None => format!("#{at}"),
        };
        let shape = quota.quota();
        Self {
            rule: rule.into(),
            quota: name.into(),
            algorithm: match shape.algorithm() {
                Algorithm::TokenBucket => b't',
                Algorithm::LeakyBucket { .. } => b'l',
                Algorithm::FixedWindow => b'f',
                Algorithm::SlidingWindow => b's',
                Algorithm::SlidingLog => b'g',
            },
            period: shape.period(),
            slices: shape.slice_count(),
            refill_every: shape.refill_every_set(),
        }
    }
}

impl CounterId {
    /// Which quota of the rule it counts for.
    pub(super) fn quota(&self) -> &str {
        &self.quota
    }

    /// The way it counts.
    #[cfg(feature = "redis")]
    pub(super) const fn shape(&self) -> CounterShape {
        (self.algorithm, self.period, self.slices, self.refill_every)
    }
}

impl QuotaSet {
    /// The quotas, each under the name of its policy.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &OwnedQuota> {
        self.0.iter().map(|quota| &quota.quota)
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = &CounterId> {
        self.0.iter().map(|quota| &quota.counter)
    }
}

/// The quotas of some times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scheduled {
    pub(super) windows: Box<[TimeWindow]>,
    pub(super) quotas: Option<QuotaSet>,
}

impl Scheduled {
    fn is_in_force(&self, now: Timestamp) -> bool {
        self.windows.iter().any(|time| time.contains(now))
    }
}

/// Where a rule's quotas come from. `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allowance {
    Always(Option<QuotaSet>),
    Scheduled {
        times: Box<[Scheduled]>,
        otherwise: Option<QuotaSet>,
    },
    Tiers {
        header: HeaderName,
        /// The place of the tier for all other values.
        default: usize,
        tiers: Box<[(Box<str>, Option<QuotaSet>)]>,
    },
}

/// The quotas of a request, if it is limited at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenQuotas<'r> {
    /// Their place among the rule's sets of quotas.
    pub(super) place: usize,
    pub(super) tier: Option<&'r str>,
    pub(super) quotas: Option<&'r QuotaSet>,
}

impl Allowance {
    /// The quotas of a request.
    #[inline]
    pub(super) fn of(&self, parts: &Parts, now: Timestamp) -> ChosenQuotas<'_> {
        match self {
            Self::Always(quotas) => ChosenQuotas {
                place: 0,
                tier: None,
                quotas: quotas.as_ref(),
            },
            _ => self.of_request(parts, now),
        }
    }

    #[inline(never)]
    fn of_request(&self, parts: &Parts, now: Timestamp) -> ChosenQuotas<'_> {
        match self {
            Self::Always(_) => self.of(parts, now),
            Self::Scheduled { times, otherwise } => {
                let hit = times.iter().position(|time| time.is_in_force(now));
                ChosenQuotas {
                    place: hit.unwrap_or(times.len()),
                    tier: None,
                    quotas: hit.map_or(otherwise, |at| &times[at].quotas).as_ref(),
                }
            }
            Self::Tiers {
                header,
                default,
                tiers,
            } => {
                let mut lines = parts.headers.get_all(header).iter();
                // Of several lines that differ none says which tier it is.
                let value = lines
                    .next()
                    .filter(|first| lines.all(|line| line == *first));
                let value = value.map(|value| value.as_bytes().trim_ascii());
                let named = |name: &str| value == Some(name.as_bytes());
                let at = tiers.iter().position(|(name, _)| named(name));
                let place = at.unwrap_or(*default);
                let (name, quotas) = &tiers[place];
                ChosenQuotas {
                    place,
                    tier: Some(name),
                    quotas: quotas.as_ref(),
                }
            }
        }
    }

    /// All sets of quotas with their places, the default one first.
    pub(super) fn places(&self) -> Vec<(usize, &QuotaSet)> {
        let (default, sets): (_, Vec<&Option<QuotaSet>>) = match self {
            Self::Always(quotas) => (0, vec![quotas]),
            Self::Scheduled { times, otherwise } => {
                let scheduled = times.iter().map(|time| &time.quotas);
                (times.len(), scheduled.chain([otherwise]).collect())
            }
            Self::Tiers { default, tiers, .. } => {
                (*default, tiers.iter().map(|(_, quotas)| quotas).collect())
            }
        };
        let sets = sets.into_iter().enumerate();
        let mut sets: Vec<_> = sets
            .filter_map(|(at, set)| Some((at, set.as_ref()?)))
            .collect();
        sets.sort_by_key(|(at, _)| *at != default);
        sets
    }

    /// The place of the default set, if that is limited; else the first that is.
    pub(super) fn first_place(&self) -> usize {
        self.places().first().map_or(0, |(place, _)| *place)
    }

    /// Whether some requests are not limited at all.
    pub(super) fn may_be_unlimited(&self) -> bool {
        match self {
            Self::Always(quotas) => quotas.is_none(),
            Self::Scheduled { times, otherwise } => {
                otherwise.is_none() || times.iter().any(|time| time.quotas.is_none())
            }
            Self::Tiers { tiers, .. } => tiers.iter().any(|(_, quotas)| quotas.is_none()),
        }
    }

    /// All sets of quotas that a request may be measured by.
    pub(super) fn sets(&self) -> Vec<&QuotaSet> {
        self.places().into_iter().map(|(_, set)| set).collect()
    }
}

//! The quotas of a rule: the same for all requests, by tier, or by time; and the units that they count.

use std::sync::Arc;

use http::{HeaderName, request::Parts};
use tower_ratelimit_rulefile::weekly_time_window::TimeWindow;

use super::request_matcher::contains;
use tower_ratelimit_budgets::prices::{ModelPattern, ModelRates, TokenRates};
use tower_ratelimit_core::{
    clock::Timestamp,
    error::ConfigError,
    quota::{OwnedQuota, TimeOfDay},
    token_usage::Tokens,
};

/// A set of quotas that a request is charged by together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuotaSet(pub(super) Box<[RuleQuota]>);

/// A quota with the name of its policy, and that of its counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleQuota {
    /// The quota, named `rule`, or `rule.quota` in a set of several.
    pub(super) quota: OwnedQuota,
    /// The name of its counter across reloads, together with the key and the
    /// [`Quota::shape_numbers`](tower_ratelimit_core::quota::Quota::shape_numbers): `=` and the quota's name, or `#` and its
    /// index; then the label of the units that it counts, if it counts any. The limit and the rule's position are not part
    /// of it: a changed limit keeps its counter.
    pub(super) counter: Box<str>,
    /// The units of responses that it counts; `None` for requests.
    pub(super) counts: Option<CountedUnits>,
}

impl RuleQuota {
    pub(super) fn varying(
        &self,
        zone: Option<&str>,
        limits: &[(TimeOfDay, u64)],
    ) -> Result<Self, ConfigError> {
        let quota = self.quota.quota().try_varying(limits)?;
        let quota = quota.in_civil_time(zone, None)?;
        quota.check()?;
        Ok(Self {
            quota: quota.named_owned(self.quota.name().unwrap_or_default()),
            ..self.clone()
        })
    }

    /// The label of the units that it counts; `None` for requests.
    pub(super) fn label(&self) -> Option<&str> {
        self.counts.as_ref().map(CountedUnits::label)
    }
}

impl QuotaSet {
    /// A set of quotas. Those that count alike follow one another, those of requests first.
    pub(super) fn new(mut quotas: Vec<RuleQuota>) -> Self {
        quotas.sort_by(|one, other| one.label().cmp(&other.label()));
        Self(quotas.into())
    }

    /// The quotas, and the units of responses that each counts.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&OwnedQuota, Option<&CountedUnits>)> {
        self.0
            .iter()
            .map(|quota| (&quota.quota, quota.counts.as_ref()))
    }

    /// The kinds of units that the quotas count, each once.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Option<&CountedUnits>> {
        let alike = self.0.chunk_by(|one, other| one.label() == other.label());
        alike.map(|quotas| quotas[0].counts.as_ref())
    }

    /// The quotas that count units of this kind; `None` if there are none.
    pub(super) fn of_kind(&self, kind: Option<&CountedUnits>) -> Option<Self> {
        let label = kind.map(CountedUnits::label);
        let quotas = self.0.iter().filter(|quota| quota.label() == label);
        let quotas: Box<[_]> = quotas.cloned().collect();
        (!quotas.is_empty()).then_some(Self(quotas))
    }

    pub(crate) fn quotas(&self) -> impl Iterator<Item = &OwnedQuota> {
        self.0.iter().map(|quota| &quota.quota)
    }

    pub(super) fn to_owned_quotas(&self) -> Vec<OwnedQuota> {
        self.quotas().cloned().collect()
    }
}

/// A set of quotas at times.
pub(super) type Scheduled = (Box<[TimeWindow]>, Option<QuotaSet>);

/// The sets of quotas of a rule, of which each request has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowance {
    /// `None` is unlimited.
    pub(super) sets: Box<[Option<QuotaSet>]>,
    /// The index of the set for which nothing has to be chosen.
    default: usize,
    pub(super) choice: SetChoice,
}

/// The choice of a request's set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SetChoice {
    Nothing,
    /// The first of these times that contains the request's.
    Time(Box<[Box<[TimeWindow]>]>),
    /// The header, and the names of the sets, which are tiers.
    Tier(HeaderName, Box<[Box<str>]>),
}

impl Allowance {
    pub(super) fn always(set: Option<QuotaSet>) -> Self {
        Self {
            sets: Box::from([set]),
            default: 0,
            choice: SetChoice::Nothing,
        }
    }

    pub(super) fn by_time(times: Vec<Scheduled>, otherwise: Option<QuotaSet>) -> Self {
        let (times, mut sets): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        sets.push(otherwise);
        Self {
            default: times.len(),
            sets: sets.into(),
            choice: SetChoice::Time(times.into()),
        }
    }

    /// Tiers by the value of a header. The one of this index is for all other values.
    pub(super) fn by_tier(
        header: HeaderName,
        default: usize,
        tiers: Vec<(Box<str>, Option<QuotaSet>)>,
    ) -> Self {
        let (names, sets): (Vec<_>, Vec<_>) = tiers.into_iter().unzip();
        Self {
            default,
            sets: sets.into(),
            choice: SetChoice::Tier(header, names.into()),
        }
    }

    /// Removes the quotas that count the units of responses.
    pub(super) fn keep_requests_only(&mut self) {
        for set in &mut self.sets {
            *set = set.take().and_then(|set| set.of_kind(None));
        }
    }

    /// The index of the set of a request.
    #[inline]
    pub(super) fn index_of(&self, parts: &Parts, now: Timestamp) -> usize {
        match &self.choice {
            SetChoice::Nothing => self.default,
            choice => choice.of_request(parts, now).unwrap_or(self.default),
        }
    }

    /// The names of the sets, if they are tiers.
    pub(super) fn tiers(&self) -> Option<&[Box<str>]> {
        match &self.choice {
            SetChoice::Tier(_, names) => Some(names),
            SetChoice::Nothing | SetChoice::Time(_) => None,
        }
    }

    /// The limited sets of quotas with their indexes, the default set first.
    pub(super) fn indexed_sets(&self) -> Vec<(usize, &QuotaSet)> {
        let sets = self.sets.iter().enumerate();
        let mut sets: Vec<_> = sets
            .filter_map(|(at, set)| Some((at, set.as_ref()?)))
            .collect();
        sets.sort_by_key(|(at, _)| *at != self.default);
        sets
    }

    /// The kinds of units that the quotas count, each once: those of requests first.
    pub(super) fn kinds(&self) -> Box<[Option<CountedUnits>]> {
        let sets = self.sets();
        let kinds = sets.iter().flat_map(|set| set.kinds());
        let mut kinds: Vec<Option<CountedUnits>> = kinds.map(Option::<&_>::cloned).collect();
        let label = |kind: &Option<CountedUnits>| {
            let label = kind.as_ref().map(CountedUnits::label);
            label.map(str::to_owned)
        };
        kinds.sort_by_key(label);
        kinds.dedup_by_key(|kind| label(kind));
        kinds.into()
    }

    pub(super) fn may_be_unlimited(&self) -> bool {
        self.sets.iter().any(Option::is_none)
    }

    /// The limited sets of quotas, the default set first.
    pub(super) fn sets(&self) -> Vec<&QuotaSet> {
        self.indexed_sets()
            .into_iter()
            .map(|(_, set)| set)
            .collect()
    }
}

impl SetChoice {
    #[inline(never)]
    fn of_request(&self, parts: &Parts, now: Timestamp) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Time(times) => times.iter().position(|times| contains(times, now)),
            Self::Tier(header, names) => {
                let mut lines = parts.headers.get_all(header).iter();
                // Several lines that differ name no tier.
                let value = lines
                    .next()
                    .filter(|first| lines.all(|line| line == *first));
                let value = value?.as_bytes().trim_ascii();
                names.iter().position(|name| name.as_bytes() == value)
            }
        }
    }
}

/// The units of responses that a quota counts, as a sum over the tokens. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedUnits(Arc<UnitSum>);

#[derive(Debug, PartialEq, Eq)]
struct UnitSum {
    /// Two counts of one file with one label are the same. A rule counts each label in a limiter of its own.
    label: Box<str>,
    rates: ModelRates,
}

impl CountedUnits {
    pub(super) fn new(
        label: &str,
        rates: impl IntoIterator<Item = (ModelPattern, TokenRates)>,
        divisor: u64,
    ) -> Self {
        Self(Arc::new(UnitSum {
            label: label.into(),
            rates: ModelRates::new(rates, divisor),
        }))
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    /// The units of tokens; 0 for a model without rates.
    pub(super) fn of(&self, tokens: &Tokens) -> u64 {
        self.0.rates.units(tokens)
    }
}

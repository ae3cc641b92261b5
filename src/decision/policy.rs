//! Policies: quotas as clients see them.

use std::{borrow::Cow, time::Duration};

#[cfg(feature = "metrics")]
use super::policy_name::Label;
use super::{policy_name::Name, rounding::Nanos};
use crate::quota::{Quota, UnitName};

/// A quota as clients see it in the `RateLimit-Policy` field: name, limit, window and unit, without
/// the algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Policy {
    pub(super) name: Name,
    pub(super) terms: Terms,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(super) limit: u64,
    window: Option<Nanos>,
    /// 0 for requests, 1 for requests in flight, and from 2 on a name: each status copies it.
    unit: u8,
    marks: PolicyMarks,
}

/// Three facts in one byte, since each status copies it and each response compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PolicyMarks(u8);

impl PolicyMarks {
    const NONE: Self = Self(0);
    /// More than the limit may pass.
    const SOFT: u8 = 1;
    /// The window is the mean of those of a calendar, which clients do not see.
    const VARIES: u8 = 2;
    /// The limit is the largest of the day. A status has the one in force.
    const LIMIT_VARIES: u8 = 4;

    const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }
}

/// The unit that a policy counts: the `qu` parameter of the `RateLimit-Policy` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unit {
    /// Requests, or the units of the layer's [cost](crate::RateLimitLayer::cost). The field has no `qu`,
    /// since this is the draft's default.
    #[default]
    Requests,
    /// Requests in flight at the same time: `qu="concurrent-requests"`.
    ConcurrentRequests,
    /// The units that a [`Quota::unit`] names: `qu="tokens"`.
    Named(UnitName),
}

impl Policy {
    /// A policy of `limit` units, without a window.
    ///
    /// For a limiter of your own. The name should be 1 to 64 printable ASCII characters, which
    /// [`Quota::check`] demands and this constructor does not check, and differ from the names of other
    /// policies in the same response.
    pub const fn new(name: &'static str, limit: u64) -> Self {
        Self {
            name: Name::fixed(name),
            terms: Terms::new(limit),
        }
    }

    /// A policy of `limit` units that owns its name, which is freed with the last decision about
    /// it.
    pub fn owned(name: impl Into<String>, limit: u64) -> Self {
        Self::named(Cow::Owned(name.into()), limit)
    }

    /// Sets the time in which `limit` units become available again. More than 584 years are
    /// [`Duration::MAX`]. Defaults to none, as for a limit on concurrency.
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.terms.window = Some(Nanos::from_duration(window));
        self.terms.marks.0 &= !PolicyMarks::VARIES;
        self
    }

    /// Sets the unit that is counted. Defaults to [`Unit::Requests`].
    pub const fn with_unit(mut self, unit: Unit) -> Self {
        self.terms.unit = match unit {
            Unit::Requests => 0,
            Unit::ConcurrentRequests => 1,
            Unit::Named(name) => name.number() + 2,
        };
        self
    }

    /// The name in headers, problem documents and metrics.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The most units that can be available at once, a quota's [capacity](Quota::capacity): the `q`
    /// parameter of the field. A decision about a quota that [varies](Quota::varying) has a policy with
    /// the limit in force.
    pub const fn limit(&self) -> u64 {
        self.terms.limit
    }

    /// The time in which [`limit`](Self::limit) units become available again, the `w` parameter of the
    /// field: for a token bucket the time in which it fills, for a window or log the period. `None` for
    /// windows of the calendar, whose length varies, and for a limit without time, such as one on
    /// concurrency.
    pub const fn window(&self) -> Option<Duration> {
        self.terms.window()
    }

    /// The unit that is counted.
    pub const fn unit(&self) -> Unit {
        self.terms.unit()
    }
}

impl Policy {
    /// A policy of `limit` units under a name that may be owned.
    pub(crate) fn named(name: Cow<'static, str>, limit: u64) -> Self {
        Self {
            name: Name::alone(name),
            terms: Terms::new(limit),
        }
    }

    pub(crate) fn of_set(named: Vec<(Cow<'static, str>, Quota)>) -> Vec<Self> {
        let (names, quotas): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let names = Name::of_set(names).into_iter();
        let policies = names.zip(&quotas);
        policies
            .map(|(name, quota)| {
                Self {
                    name,
                    terms: Terms::of_quota(quota),
                }
                .in_unit_of(quota)
            })
            .collect()
    }

    /// The policy as a decision has it whose fields have the same texts each time.
    pub(crate) fn constant(&self) -> Self {
        Self {
            name: self.name.clone(),
            terms: self.terms.constant(),
        }
    }

    /// The policy of another quota under the same name.
    pub(crate) fn with_quota(&self, quota: &Quota) -> Self {
        Self {
            name: self.name.clone(),
            terms: Terms {
                unit: self.terms.unit,
                ..Terms::of_quota(quota)
            },
        }
    }

    /// The policy with the quota's unit, which its check has accepted.
    fn in_unit_of(self, quota: &Quota) -> Self {
        let unit = quota.unit_set().map(UnitName::of_static);
        match unit {
            Some(Ok(unit)) => self.with_unit(Unit::Named(unit)),
            _ => self,
        }
    }

    /// A copy of the name; a static one is not allocated.
    #[cfg(feature = "shared")]
    pub(crate) fn to_name(&self) -> Cow<'static, str> {
        match self.name.in_set() {
            None => Cow::Borrowed(self.name.fixed),
            Some(_) => Cow::Owned(self.name().to_owned()),
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn label(&self) -> Label {
        Label::new(self.name.fixed, self.name.in_set())
    }

    #[cfg(feature = "shared")]
    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }
}

impl Terms {
    const fn new(limit: u64) -> Self {
        Self {
            limit,
            window: None,
            unit: 0,
            marks: PolicyMarks::NONE,
        }
    }

    fn of_quota(quota: &Quota) -> Self {
        let soft = u8::from(quota.soft_percent() > 0) * PolicyMarks::SOFT;
        let varies = u8::from(quota.calendar().is_some()) * PolicyMarks::VARIES;
        let limit_varies = u8::from(quota.varying_limits().is_some()) * PolicyMarks::LIMIT_VARIES;
        Self {
            window: Some(Nanos::from_duration(quota.window())),
            marks: PolicyMarks(soft | varies | limit_varies),
            ..Self::new(quota.capacity())
        }
    }

    pub(super) const fn unit(&self) -> Unit {
        match self.unit {
            0 => Unit::Requests,
            1 => Unit::ConcurrentRequests,
            name => Unit::Named(UnitName::of_number(name - 2)),
        }
    }

    /// Whether more than the limit may pass, see [`Quota::soft`].
    pub(super) const fn is_soft(&self) -> bool {
        self.marks.has(PolicyMarks::SOFT)
    }

    pub(super) const fn window(&self) -> Option<Duration> {
        match self.window {
            Some(window) if !self.marks.has(PolicyMarks::VARIES) => Some(window.duration()),
            _ => None,
        }
    }

    /// Whether the limit is another one at other times of the day.
    pub(super) const fn has_varying_limit(&self) -> bool {
        self.marks.has(PolicyMarks::LIMIT_VARIES)
    }

    /// The terms that no status has, if the limit varies: fields of such a quota are not constant.
    const fn constant(self) -> Self {
        if self.has_varying_limit() {
            return self.with_limit(u64::MAX);
        }
        self
    }

    pub(super) const fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The window in nanoseconds; 0 without one.
    pub(super) const fn window_nanos(&self) -> u64 {
        match self.window {
            Some(window) => window.get(),
            None => 0,
        }
    }
}

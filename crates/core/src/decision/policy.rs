//! Policies: quotas as clients see them.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    ptr,
    sync::Arc,
    time::Duration,
};

use super::{LONGEST, UNKNOWN, nanos_of};
use crate::quota::{Kind, Quota, UnitName};

/// A quota as clients see it in the `RateLimit-Policy` field: name, limit, window and unit, without
/// the algorithm.
#[derive(Clone)]
#[must_use]
pub struct Policy {
    #[doc(hidden)]
    pub name: Name,
    #[doc(hidden)]
    pub limit: u64,
    /// In nanoseconds.
    window: u64,
    /// Nanoseconds between two steps of a bucket that refills in steps, otherwise 0.
    pub(super) step: u64,
    /// The kind of the counter; `NONE` for a quota of a user's limiter.
    pub(super) kind: Kind,
    /// 0 for requests, 1 for requests in flight, and from 2 on a name: each decision copies it.
    unit: u8,
    /// Whether more than the limit may pass, see [`Quota::soft`].
    pub(super) is_soft: bool,
    /// Whether the window is the mean of those of a calendar, which clients do not see.
    window_varies: bool,
    /// Whether the limit is the largest of the day. A decision has the one in force.
    pub(super) limit_varies: bool,
}

/// Policies that clients see alike are equal.
impl PartialEq for Policy {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.has_terms_of(other) && self.name == other.name
    }
}

impl Eq for Policy {}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.limit, self.window, self.unit).hash(state);
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("window", &self.window())
            .field("unit", &self.unit())
            .finish_non_exhaustive()
    }
}

/// A policy's name. A static one has no reference count; an owned one has one pointer, so that a decision is short.
#[derive(Clone)]
#[doc(hidden)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
pub enum Name {
    Static(&'static str),
    Owned(Arc<Arc<str>>),
}

impl Name {
    #[inline]
    #[doc(hidden)]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Static(name) => name,
            Self::Owned(name) => name,
        }
    }
}

impl From<Cow<'static, str>> for Name {
    fn from(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::Static(name),
            Cow::Owned(name) => Self::Owned(Arc::new(name.into())),
        }
    }
}

/// Nearly always both names are one text, which is cheaper to compare.
impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.as_str(), other.as_str());
        ptr::eq(one, other) || one == other
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The unit that a policy counts: the `qu` parameter of the `RateLimit-Policy` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unit {
    /// Requests, or the units of the layer's [cost](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.cost). The field has no `qu`,
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
        Self::of(Name::Static(name), limit)
    }

    /// A policy of `limit` units that owns its name, which is freed with the last decision about
    /// it.
    pub fn owned(name: impl Into<String>, limit: u64) -> Self {
        Self::named(Cow::Owned(name.into()), limit)
    }

    /// Sets the time in which `limit` units become available again. More than 584 years are
    /// [`Duration::MAX`]. Defaults to none, as for a limit on concurrency.
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.window = nanos_of(window);
        self.window_varies = false;
        self
    }

    /// Sets the unit that is counted. Defaults to [`Unit::Requests`].
    pub const fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = match unit {
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
        self.limit
    }

    /// The time in which [`limit`](Self::limit) units become available again, the `w` parameter of the
    /// field: for a token bucket the time in which it fills, for a window or log the period. `None` for
    /// windows of the calendar, whose length varies, and for a limit without time, such as one on
    /// concurrency.
    pub const fn window(&self) -> Option<Duration> {
        match self.window {
            _ if self.window_varies => None,
            UNKNOWN => None,
            LONGEST => Some(Duration::MAX),
            window => Some(Duration::from_nanos(window)),
        }
    }

    /// The unit that is counted.
    pub const fn unit(&self) -> Unit {
        match self.unit {
            0 => Unit::Requests,
            1 => Unit::ConcurrentRequests,
            name => Unit::Named(UnitName::of_number(name - 2)),
        }
    }
}

impl Policy {
    /// A policy of `limit` units under a name that may be owned.
    #[doc(hidden)]
    pub fn named(name: Cow<'static, str>, limit: u64) -> Self {
        Self::of(name.into(), limit)
    }

    const fn of(name: Name, limit: u64) -> Self {
        Self {
            name,
            limit,
            window: UNKNOWN,
            step: 0,
            kind: Kind::NONE,
            unit: 0,
            is_soft: false,
            window_varies: false,
            limit_varies: false,
        }
    }

    pub(crate) fn of_quota(name: Cow<'static, str>, quota: &Quota) -> Self {
        let policy = Self::named(name, 0).with_quota(quota);
        // Its check has accepted the unit.
        match quota.unit_set().map(UnitName::of_static) {
            Some(Ok(unit)) => policy.with_unit(Unit::Named(unit)),
            _ => policy,
        }
    }

    /// The policy of another quota under the same name.
    pub(crate) fn with_quota(&self, quota: &Quota) -> Self {
        Self {
            name: self.name.clone(),
            limit: quota.capacity(),
            window: nanos_of(quota.window()),
            step: quota.refill_every_nanos().unwrap_or(0),
            kind: quota.kind(),
            unit: self.unit,
            is_soft: quota.soft_percent() > 0,
            window_varies: quota.calendar().is_some(),
            limit_varies: quota.varying_limits().is_some(),
        }
    }

    pub(crate) fn with_kind(&self, kind: Kind) -> Self {
        Self {
            kind,
            ..self.clone()
        }
    }

    /// The policy as a decision has it whose fields have the same texts each time. No decision has it if the limit
    /// varies.
    pub(crate) fn constant(&self) -> Self {
        let limit = if self.limit_varies {
            u64::MAX
        } else {
            self.limit
        };
        self.with_limit(limit)
    }

    pub(super) fn with_limit(&self, limit: u64) -> Self {
        Self {
            limit,
            ..self.clone()
        }
    }

    /// A copy of the name; a static one is not allocated.
    #[doc(hidden)]
    pub fn to_name(&self) -> Cow<'static, str> {
        match &self.name {
            Name::Static(name) => Cow::Borrowed(name),
            Name::Owned(name) => Cow::Owned(name.to_string()),
        }
    }

    /// The name as a label that outlives the policy.
    #[doc(hidden)]
    pub fn label(&self) -> Name {
        self.name.clone()
    }

    #[inline]
    fn has_terms_of(&self, other: &Self) -> bool {
        let terms = |policy: &Self| {
            let marks = (policy.is_soft, policy.window_varies, policy.limit_varies);
            (policy.limit, policy.window, policy.unit, marks)
        };
        terms(self) == terms(other)
    }

    /// Nanoseconds in which a unit of a bucket refills. The window of a limit of 0 is that of one unit.
    pub(super) fn interval(&self) -> u64 {
        self.window / self.limit.max(1)
    }

    /// Nanoseconds between two steps of a bucket that refills in steps, otherwise 0.
    pub(crate) const fn step(&self) -> u64 {
        self.step
    }

    /// The last instant at which a bucket refilled.
    pub(crate) const fn last_refill(&self, now: u64) -> u64 {
        match self.step {
            0 => now,
            step => now - now % step,
        }
    }
}

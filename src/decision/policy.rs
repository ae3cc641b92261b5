use std::time::Duration;

use crate::quota::Quota;

/// A quota as the outside world knows it: what the policy header renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Policy {
    name: &'static str,
    limit: u64,
    window: Option<Duration>,
    unit: Unit,
    /// Whether more than the limit may pass, see [`Quota::soft`].
    soft: bool,
}

/// What a policy counts: the `qu` parameter of `RateLimit-Policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unit {
    /// Requests, or whatever the layer's cost says.
    #[default]
    Requests,
    /// Requests in flight at the same time.
    ConcurrentRequests,
}

impl Policy {
    /// A policy of `limit` units.
    pub const fn new(name: &'static str, limit: u64) -> Self {
        Self {
            name,
            limit,
            window: None,
            unit: Unit::Requests,
            soft: false,
        }
    }

    /// The time in which `limit` units become available again. Defaults to none, as for a limit
    /// on concurrency.
    pub const fn with_window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// What is counted. Defaults to [`Unit::Requests`].
    pub const fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The name in headers, problem documents and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The most units that can be available at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time in which [`limit`](Self::limit) units become available again.
    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        self.window
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }
}

impl Policy {
    /// The policy of `quota` under this name.
    pub(crate) fn of_quota(name: &'static str, quota: &Quota) -> Self {
        Self {
            soft: quota.get_soft() > 0,
            ..Self::new(name, quota.capacity()).with_window(quota.window())
        }
    }

    /// The same policy with the numbers of `quota`.
    pub(crate) fn resized(&self, quota: &Quota) -> Self {
        Self {
            limit: quota.capacity(),
            window: Some(quota.window()),
            ..*self
        }
    }

    pub(super) const fn is_soft(&self) -> bool {
        self.soft
    }

    /// The window in nanoseconds; 0 without one.
    pub(super) fn window_nanos(&self) -> u64 {
        let window = self.window.unwrap_or_default();
        u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)
    }
}

//! `QuotaStatus`: one quota's name and numbers, borrowed from a decision.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Policy, Unit,
    policy_name::{Label, Name, Names},
    quota_status_without_name::{Status, duration},
    rounding::Micros,
    usage::{Counted, Units},
};

/// The status of one quota after a decision.
///
/// Durations are relative to the decision, in microseconds, rounded up. The name is borrowed from the
/// decision, or from the policy that the status was made for.
#[derive(Clone, Copy)]
pub struct QuotaStatus<'a> {
    pub(super) status: Status,
    /// The set that owns the name, and the name's index in it; `None` for a static name.
    pub(super) owned: Option<(&'a Names, usize)>,
}

impl<'a> QuotaStatus<'a> {
    /// A status of the quota that `policy` describes: not denied, remaining units and times unknown.
    ///
    /// For a limiter of your own, which adds the numbers that it knows: responses contain only the fields
    /// that follow from these.
    pub const fn new(policy: &'a Policy) -> Self {
        Self {
            status: Status::new(policy),
            owned: policy.name.in_set(),
        }
    }

    /// Sets the units left. Defaults to unknown: then responses have no `RateLimit` field.
    #[must_use]
    pub fn with_remaining(self, remaining: u64) -> Self {
        self.with_numbers(Counted {
            remaining: Some(Units::new(remaining)),
            ..self.status.numbers()
        })
    }

    /// Sets the time until the key is as good as new, rounded up to microseconds. Defaults to unknown.
    #[must_use]
    pub fn with_reset_after(self, reset_after: Duration) -> Self {
        self.with_numbers(Counted {
            reset_after: Some(Micros::from_duration(reset_after)),
            ..self.status.numbers()
        })
    }

    /// Sets the time within which a client can use no more than the units left: the `t` parameter of
    /// draft-11. Defaults to unknown: then the field has no `t`.
    #[must_use]
    pub fn with_effective_window(self, window: Duration) -> Self {
        self.with_numbers(Counted {
            effective_window: Some(Micros::from_duration(window)),
            ..self.status.numbers()
        })
    }

    const fn with_numbers(mut self, numbers: Counted) -> Self {
        self.status = self.status.with_numbers(numbers);
        self
    }

    /// Marks the quota as denying. The same cost passes after `retry_after`; `None` if it never does,
    /// or the wait is unknown. A wait of zero becomes a microsecond, so that a denied client never
    /// retries at once.
    #[must_use]
    pub const fn with_denial(mut self, retry_after: Option<Duration>) -> Self {
        self.status = self.status.with_denial(retry_after);
        self
    }

    /// The policy as it was in force for this decision.
    pub fn policy(&self) -> Policy {
        let name = match self.owned {
            Some((names, place)) => Name::owned(Arc::clone(names), place),
            None => Name::fixed(self.status.name),
        };
        let terms = self.status.terms_in_force();
        Policy { name, terms }
    }

    /// The policy's name.
    pub fn name(&self) -> &'a str {
        match self.owned {
            Some((names, place)) => &names[place],
            None => self.status.name,
        }
    }

    pub(crate) fn label(&self) -> Label {
        Label::new(self.status.name, self.owned)
    }

    /// The most units that can be available at once.
    pub const fn limit(&self) -> u64 {
        self.status.limit()
    }

    /// The time in which [`limit`](Self::limit) units become available again, see
    /// [`Policy::window`].
    pub const fn window(&self) -> Option<Duration> {
        self.status.terms.window()
    }

    /// The unit that is counted.
    pub const fn unit(&self) -> Unit {
        self.status.unit()
    }

    /// Units left; `None` if the limiter does not report them.
    pub fn remaining(&self) -> Option<u64> {
        self.status.remaining()
    }

    /// Units in use; `None` if the limiter does not report them. For a fixed window it is the count,
    /// which exceeds the limit if the window is [uncapped](crate::Quota::uncapped); for other
    /// algorithms it is the limit less the units left.
    pub fn used(&self) -> Option<u64> {
        self.status.used()
    }

    /// Time from the decision until the key is as good as new if nothing else comes on it: the bucket is
    /// full, or all counted units have left the window or log. `None` if the limiter does not report it.
    pub fn reset_after(&self) -> Option<Duration> {
        duration(self.status.numbers().reset_after)
    }

    /// The wait after which a denied cost passes; `None` if the quota did not deny, the cost can never
    /// fit, or the wait is unknown.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.status.retry_after()
    }

    /// The time within which a client can use no more than the units left; for a denied quota its
    /// [`retry_after`](Self::retry_after).
    pub fn effective_window(&self) -> Option<Duration> {
        self.status.effective_window()
    }

    /// Whether this quota denied. Of several quotas that are charged together one is enough to deny the
    /// request.
    pub const fn is_denied(&self) -> bool {
        self.status.is_denied()
    }

    /// Whether the usage exceeds the nominal limit, as [`Quota::soft`](crate::Quota::soft) allows.
    pub const fn is_excess(&self) -> bool {
        self.status.is_excess()
    }

    /// Whether at least 80 % of the limit is used, for warnings before the first denial. If the limiter does
    /// not report the units left: whether it denied.
    pub fn is_near_limit(&self) -> bool {
        match self.remaining() {
            Some(remaining) => remaining <= self.limit() / 5,
            None => self.is_denied(),
        }
    }
}

/// Two statuses are equal if they report the same name and numbers.
impl PartialEq for QuotaStatus<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.status.reports_like(&other.status)
    }
}

impl Eq for QuotaStatus<'_> {}

impl fmt::Debug for QuotaStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaStatus")
            .field("policy", &self.policy())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .field("retry_after", &self.retry_after())
            .field("effective_window", &self.effective_window())
            .field("denied", &self.is_denied())
            .field("excess", &self.is_excess())
            .finish_non_exhaustive()
    }
}

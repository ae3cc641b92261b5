//! The limit on concurrency: how many, and under what name.

use std::borrow::Cow;

use tower_ratelimit_core::{
    decision::{Policy, Unit},
    error::{ConfigError, ConfigErrorKind},
    quota::check_name,
};

/// How many requests of one key may be in flight at the same time.
///
/// As with a [`Quota`](tower_ratelimit_core::Quota), constructors and builders never fail, so that it can be a
/// constant. [`check`](Self::check) and [`ConcurrencyLayer`](crate::layer::ConcurrencyLayer) report an invalid
/// limit.
///
/// ```
/// use tower_ratelimit::Concurrency;
///
/// const EXPORTS: Concurrency = Concurrency::max(2).named("exports");
///
/// assert!(EXPORTS.check().is_ok());
/// assert!(Concurrency::max(0).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Concurrency {
    limit: u64,
    name: &'static str,
}

impl Concurrency {
    /// At most `limit` requests of one key at the same time, at least 1. A request above it is denied at
    /// once, without a `Retry-After`: nobody knows when another one ends.
    pub const fn max(limit: u64) -> Self {
        Self {
            limit,
            name: "concurrency",
        }
    }

    /// The policy's name in headers, problem documents and metrics. Defaults to `concurrency`.
    ///
    /// 1 to 64 printable ASCII characters. [`named_owned`](Self::named_owned) takes a name that is known at
    /// run time.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// A name that is known at run time, for example from a configuration file. Otherwise as
    /// [`named`](Self::named); no memory is leaked.
    ///
    /// ```
    /// use tower_ratelimit::{Concurrency, ConcurrencyLayer, PeerIp};
    ///
    /// let route = String::from("/export");
    /// let layer = ConcurrencyLayer::new(Concurrency::max(2).named_owned(route), PeerIp);
    /// # let _ = layer;
    /// ```
    pub fn named_owned(self, name: impl Into<String>) -> OwnedConcurrency {
        OwnedConcurrency {
            limit: self.limit,
            name: Cow::Owned(name.into()),
        }
    }

    /// The most requests of one key at the same time.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The policy's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the limit makes sense.
    ///
    /// # Errors
    ///
    /// A limit of 0; a name that is empty, longer than 64 bytes or not printable ASCII.
    pub fn check(&self) -> Result<(), ConfigError> {
        OwnedConcurrency::from(*self).check()
    }
}

/// A limit on concurrency that owns its name, made by [`Concurrency::named_owned`]. It is accepted
/// wherever a [`Concurrency`] is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct OwnedConcurrency {
    limit: u64,
    name: Cow<'static, str>,
}

impl OwnedConcurrency {
    /// The most requests of one key at the same time.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the limit makes sense.
    ///
    /// # Errors
    ///
    /// Those of [`Concurrency::check`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.limit == 0 {
            return Err(ConfigError::new(
                ConfigErrorKind::Limit,
                "a concurrency of 0 lets nothing pass; it must be at least 1",
            ));
        }
        check_name(&self.name)
    }

    /// Nobody knows in what time permits come back, so the policy has no window.
    pub(super) fn policy(&self) -> Policy {
        Policy::named(self.name.clone(), self.limit).with_unit(Unit::ConcurrentRequests)
    }
}

impl From<Concurrency> for OwnedConcurrency {
    fn from(Concurrency { limit, name }: Concurrency) -> Self {
        Self {
            limit,
            name: Cow::Borrowed(name),
        }
    }
}

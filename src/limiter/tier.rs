use std::fmt;

/// Which of a limiter's sets of quotas a request is measured by: the plan of a customer, say.
///
/// The counters belong to the key, not to the tier: a key that changes its tier keeps what it has
/// used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Default,
    Named(&'static str),
    Unlimited,
}

impl Tier {
    /// The quotas that the limiter was made with.
    pub const DEFAULT: Self = Self(Kind::Default);

    /// No quota: the request passes uncounted.
    pub const UNLIMITED: Self = Self(Kind::Unlimited);

    /// The tier of this name, as it was given to the limiter.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self(Kind::Named(name))
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Default => f.write_str("the default tier"),
            Kind::Named(name) => write!(f, "tier {name:?}"),
            Kind::Unlimited => f.write_str("the unlimited tier"),
        }
    }
}

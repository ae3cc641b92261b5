use std::fmt;

use crate::error::LimiterError;

/// Which of a limiter's sets of quotas a request is measured by: the plan of a customer, say.
///
/// The counters belong to the key, not to the tier: a key that changes its tier keeps what it has
/// used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier(Option<&'static str>);

impl Tier {
    /// The quotas that the limiter was made with.
    pub const DEFAULT: Self = Self::named("");

    /// No quota: the request passes uncounted.
    pub const UNLIMITED: Self = Self(None);

    /// The tier of this name, as it was given to the limiter. The empty name is the
    /// [default](Self::DEFAULT) tier's.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self(Some(name))
    }

    /// The error of a limiter that has only the tiers `known`.
    pub(crate) fn unknown(self, known: impl Iterator<Item = Self>) -> LimiterError {
        let known: Vec<_> = known.map(|tier| format!("{tier:?}")).collect();
        LimiterError::unsupported(format!(
            "the limiter was given no quota for {self:?}; there is {}",
            known.join(", ")
        ))
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the unlimited tier"),
            Some("") => f.write_str("the default tier"),
            Some(name) => write!(f, "tier {name:?}"),
        }
    }
}

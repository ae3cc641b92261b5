//! Validation of quotas: the values that limiters accept.

use std::time::Duration;

use super::{Algorithm, Quota, UnitName};
use crate::error::{ConfigError, ConfigErrorKind as Kind};

/// The longest time in nanoseconds in which a full capacity may refill, about 18 years: it keeps the
/// local table's 61-bit nanoseconds valid for decades of uptime.
#[doc(hidden)]
pub const MAX_REFILL_NANOS: u64 = 1 << 59;

/// The shortest time between two units in nanoseconds: a million requests a second.
#[doc(hidden)]
pub const MIN_INTERVAL_NANOS: u64 = 1_000;

/// The longest policy name in bytes. The name is in a header of every response.
const MAX_NAME_LEN: usize = 64;

/// The largest limit of a log, which needs 16 bytes for each admitted request.
const MAX_LOG_LIMIT: u64 = 65_536;

/// The most slices of a window, which needs 8 bytes for each slice of each key.
const MAX_SLICES: u32 = 1_000;

const MAX_SOFT_PERCENT: u32 = 1_000;

/// The largest count of an uncapped window. Every store counts exactly up to this number. The
/// window's limit is less.
#[doc(hidden)]
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// The highest rate of an uncapped window in units per second: the largest limit of other systems.
const MAX_UNCAPPED_A_SECOND: u64 = u32::MAX as u64;

impl Quota {
    /// Checks that limiters accept the quota.
    ///
    /// # Errors
    ///
    /// Each fault has a [kind](ConfigError::kind), and a message with the value and the accepted ones:
    ///
    /// | kind | fault |
    /// |---|---|
    /// | [`Limit`](Kind::Limit) | a limit of 0, unless the quota is [uncapped](Self::uncapped) |
    /// | [`Period`](Kind::Period) | a period of 0; an uncapped window of less than a microsecond |
    /// | [`Rate`](Kind::Rate) | more than a million units a second; for an uncapped window more than 4,294,967,295 |
    /// | [`Burst`](Kind::Burst) | a burst of 0, or one without a token bucket |
    /// | [`RefillStep`](Kind::RefillStep) | a refill step of 0, of a fraction of a microsecond, or without a token bucket |
    /// | [`Slices`](Kind::Slices) | slices without a sliding window, 0 or more than 1,000 of them, or of a fraction of a microsecond |
    /// | [`LogLimit`](Kind::LogLimit) | a log of more than 65,536 units, soft share and debt included |
    /// | [`Soft`](Kind::Soft) | a soft share above 1000 % |
    /// | [`Unit`](Kind::Unit) | a [unit](Self::unit) of other characters than are accepted |
    /// | [`Debt`](Kind::Debt) | a leaky bucket with a [debt](Self::debt) |
    /// | [`Uncapped`](Kind::Uncapped) | an uncapped quota that is no fixed window |
    /// | [`Calendar`](Kind::Calendar) | a zone or a first day of a quota that follows no calendar, a day that is not in every month, another algorithm than a fixed window (feature `calendar`) |
    /// | [`Varying`](Kind::Varying) | limits by the time of day of another algorithm than a window, of a slice that does not divide 24 hours or that a zone does not have, or in a list that is not [accepted](Self::varying) |
    /// | [`Zone`](Kind::Zone) | a time zone that the system does not know (feature `calendar`) |
    /// | [`Overflow`](Kind::Overflow) | a capacity with its debt, a period or a step of more than 18 years; an uncapped limit of 2^53 − 1 or more |
    /// | [`Name`](Kind::Name) | a name that is empty, longer than 64 bytes or not printable ASCII |
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(limits) = self.varying_limits() {
            self.check_varying(limits)?;
        }
        self.check_rate()?;
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar() {
            calendar.check(self)?;
        }
        self.check_token_bucket()?;
        self.check_slices()?;
        if self.soft_percent() > MAX_SOFT_PERCENT {
            return refuse(
                Kind::Soft,
                format!(
                    "soft({}) is too soft; accepted are 0 to {MAX_SOFT_PERCENT} percent",
                    self.soft_percent()
                ),
            );
        }
        if self.debt_units() > 0 && !self.can_spend() {
            return refuse(
                Kind::Debt,
                format!(
                    "debt({}): a leaky bucket is a queue of requests and cannot owe units; use another \
                     algorithm, such as a token bucket",
                    self.debt_units()
                ),
            );
        }
        let most = self.most_units();
        if self.algorithm() == Algorithm::SlidingLog && most > MAX_LOG_LIMIT {
            return refuse(
                Kind::LogLimit,
                format!("a log of {most} times is too long; accepted are up to {MAX_LOG_LIMIT}"),
            );
        }
        self.check_texts()?;
        self.check_span()
    }

    fn check_texts(&self) -> Result<(), ConfigError> {
        self.name().map_or(Ok(()), check_name)?;
        let unit = self.unit_set().map(UnitName::of_static);
        unit.transpose().map(|_| ())
    }

    fn check_rate(&self) -> Result<(), ConfigError> {
        if self.limit() == 0 && !self.is_uncapped() {
            return refuse(
                Kind::Limit,
                "a limit of 0 lets nothing pass; it must be at least 1",
            );
        }
        if self.period().is_zero() {
            return refuse(
                Kind::Period,
                "a period of 0 is no rate; it must be at least 1 microsecond per unit",
            );
        }
        if self.is_uncapped() {
            return self.check_uncapped();
        }
        if self.interval_nanos() < MIN_INTERVAL_NANOS {
            return refuse(
                Kind::Rate,
                format!(
                    "{} in {:?} is more than a million a second, the most that is accepted",
                    self.limit(),
                    self.period()
                ),
            );
        }
        Ok(())
    }

    fn check_uncapped(&self) -> Result<(), ConfigError> {
        if self.algorithm() != Algorithm::FixedWindow {
            return refuse(
                Kind::Uncapped,
                "only a fixed window counts beyond its limit: uncapped needs fixed_window",
            );
        }
        if self.period() < Duration::from_micros(1) {
            return refuse(
                Kind::Period,
                format!(
                    "a window of {:?} is too short; it must be at least 1 microsecond",
                    self.period()
                ),
            );
        }
        let most = u128::from(MAX_UNCAPPED_A_SECOND) * self.period().as_nanos();
        if u128::from(self.limit()) * 1_000_000_000 > most {
            return refuse(
                Kind::Rate,
                format!(
                    "{} in {:?} is more than {MAX_UNCAPPED_A_SECOND} a second, the most that is \
                     accepted of a window that counts on",
                    self.limit(),
                    self.period()
                ),
            );
        }
        if self.most_units() >= MAX_COUNT {
            return refuse(
                Kind::Overflow,
                format!(
                    "{} is as much as a window can count, so that no count would be beyond it",
                    self.most_units()
                ),
            );
        }
        Ok(())
    }

    fn check_token_bucket(&self) -> Result<(), ConfigError> {
        let token_bucket = self.algorithm() == Algorithm::TokenBucket;
        match (self.burst_set(), self.refill_step()) {
            (Some(0), _) => refuse(
                Kind::Burst,
                "a burst of 0 lets nothing pass; it must be at least 1",
            ),
            (Some(_), _) if !token_bucket => refuse(Kind::Burst, "only a token bucket has a burst"),
            (_, Some(Duration::ZERO)) => refuse(
                Kind::RefillStep,
                "refill_every: tokens cannot come every 0 seconds; the step must be at least 1 \
                 microsecond",
            ),
            (_, Some(step)) if step.subsec_nanos() % 1_000 > 0 => refuse(
                Kind::RefillStep,
                format!("refill_every: {step:?} is not a whole number of microseconds"),
            ),
            (_, Some(_)) if !token_bucket => refuse(
                Kind::RefillStep,
                "refill_every: only a token bucket is refilled in steps",
            ),
            _ => Ok(()),
        }
    }

    fn check_slices(&self) -> Result<(), ConfigError> {
        let sliding = self.algorithm() == Algorithm::SlidingWindow;
        let slices = self.slice_count();
        if self.slices_set().is_some() && !sliding {
            return refuse(Kind::Slices, "only a sliding window has slices");
        }
        if slices == 0 || slices > MAX_SLICES {
            return refuse(
                Kind::Slices,
                format!("slices({slices}): accepted are 1 to {MAX_SLICES}"),
            );
        }
        let whole = self
            .period()
            .as_nanos()
            .is_multiple_of(u128::from(slices) * 1_000);
        if sliding && !whole {
            return refuse(
                Kind::Slices,
                format!(
                    "{:?} in {slices} slices: a slice must be a whole number of microseconds",
                    self.period()
                ),
            );
        }
        Ok(())
    }

    /// Checks that classes of requests can share the quota, whatever their shares are.
    #[doc(hidden)]
    pub fn check_priority(&self, name: &str) -> Result<(), ConfigError> {
        let fault = match self.algorithm() {
            _ if self.is_uncapped() => "it counts beyond its limit".to_owned(),
            Algorithm::LeakyBucket { queue: 0 } => "its queue is 0".to_owned(),
            _ if self.least_capacity() < 2 => format!("it holds {}", self.least_capacity()),
            _ => return Ok(()),
        };
        refuse(
            Kind::Priority,
            format!(
                "the quota {name:?} cannot be shared by priority: {fault}; a share needs a limit of \
                 at least 2 units, which is not uncapped"
            ),
        )
    }

    /// The capacity, or the smallest limit of the day if it varies.
    fn least_capacity(&self) -> u64 {
        let limits = self.varying_limits().unwrap_or_default().iter();
        limits
            .map(|(_, limit)| *limit)
            .min()
            .unwrap_or(self.capacity())
    }

    /// The quota with a debt of one capacity at least, for stores that count units after they were spent.
    pub(crate) fn owing_its_capacity(self) -> Self {
        let units = self.capacity() + self.extra();
        let most = match self.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket { .. } => {
                MAX_REFILL_NANOS / self.interval_nanos()
            }
            // The largest number with which the scripts calculate exactly.
            _ => 1 << 49,
        };
        let debt = units.min(most.saturating_sub(units));
        self.debt(debt.max(self.debt_units()))
    }

    /// The most units that count at once: the capacity, the soft share and the debt.
    const fn most_units(&self) -> u64 {
        let units = self.capacity().saturating_add(self.extra());
        units.saturating_add(self.debt_units())
    }

    fn check_span(&self) -> Result<(), ConfigError> {
        let capacity = u128::from(self.capacity()) + u128::from(self.extra());
        let capacity = capacity + u128::from(self.debt_units());
        let refill = u128::from(self.interval_nanos()).checked_mul(capacity);
        let step = self.refill_step().unwrap_or_default().as_nanos();
        let longest = refill.map(|refill| refill.max(self.period().as_nanos()).max(step));
        if longest.is_none_or(|longest| longest > u128::from(MAX_REFILL_NANOS)) {
            return refuse(
                Kind::Overflow,
                format!(
                    "{capacity} at {} in {:?} take more than 18 years to come back, the most that \
                     is accepted",
                    self.limit(),
                    self.period()
                ),
            );
        }
        Ok(())
    }
}

#[doc(hidden)]
pub fn check_name(name: &str) -> Result<(), ConfigError> {
    let printable = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if name.is_empty() || name.len() > MAX_NAME_LEN || !printable {
        return refuse(
            Kind::Name,
            format!(
                "{name:?} is no policy name; accepted are 1 to {MAX_NAME_LEN} printable ASCII \
                 characters"
            ),
        );
    }
    Ok(())
}

pub(super) fn refuse<T>(
    kind: Kind,
    message: impl Into<std::borrow::Cow<'static, str>>,
) -> Result<T, ConfigError> {
    Err(ConfigError::new(kind, message))
}

//! Quotas in configuration files.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{Algorithm, OwnedQuota, Quota, parse};
use crate::error::{ConfigError, ConfigErrorKind};

/// The form with more than a rate in it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "AlgorithmName::is_default")]
    algorithm: AlgorithmName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refill_every: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slices: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soft: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AlgorithmName {
    #[default]
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
}

impl AlgorithmName {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&OwnedQuota> for Table {
    fn from(owned: &OwnedQuota) -> Self {
        let quota = owned.quota();
        let (algorithm, queue) = match quota.algorithm() {
            Algorithm::TokenBucket => (AlgorithmName::TokenBucket, None),
            Algorithm::LeakyBucket { queue } => (AlgorithmName::LeakyBucket, Some(queue)),
            Algorithm::FixedWindow => (AlgorithmName::FixedWindow, None),
            Algorithm::SlidingWindow => (AlgorithmName::SlidingWindow, None),
            Algorithm::SlidingLog => (AlgorithmName::SlidingLog, None),
        };
        Self {
            rate: quota.to_string(),
            name: owned.name().map(str::to_owned),
            algorithm,
            burst: quota.burst_set(),
            refill_every: quota.refill_every_set().map(parse::period_text),
            queue,
            slices: quota.slices_set(),
            soft: Some(quota.soft_percent()).filter(|percent| *percent > 0),
        }
    }
}

impl TryFrom<Table> for OwnedQuota {
    type Error = ConfigError;

    fn try_from(table: Table) -> Result<Self, ConfigError> {
        let mut quota: Quota = table.rate.parse()?;
        quota = match (table.algorithm, table.queue) {
            (AlgorithmName::LeakyBucket, Some(queue)) => quota.leaky_bucket(queue),
            (AlgorithmName::LeakyBucket, None) => return Err(queue("a leaky bucket needs one")),
            (_, Some(_)) => return Err(queue("only a leaky bucket has one")),
            (AlgorithmName::TokenBucket, None) => quota.token_bucket(),
            (AlgorithmName::FixedWindow, None) => quota.fixed_window(),
            (AlgorithmName::SlidingWindow, None) => quota.sliding_window(),
            (AlgorithmName::SlidingLog, None) => quota.sliding_log(),
        };
        if let Some(burst) = table.burst {
            quota = quota.burst(burst);
        }
        if let Some(step) = table.refill_every {
            quota = quota.refill_every(parse::period(&step)?);
        }
        if let Some(slices) = table.slices {
            quota = quota.slices(slices);
        }
        quota = quota.soft(table.soft.unwrap_or(0));
        let owned = match table.name {
            Some(name) => quota.named_owned(name),
            None => quota.into(),
        };
        owned.check()?;
        Ok(owned)
    }
}

fn queue(what: &str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Queue, format!("queue: {what}"))
}

/// As a string, `"100/60s"`, where the rate says it all; else as a table.
impl Serialize for OwnedQuota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quota = self.quota();
        let rate = Quota::per(quota.limit(), quota.period());
        if self.name().is_none() && quota == rate {
            serializer.serialize_str(&rate.to_string())
        } else {
            Table::from(self).serialize(serializer)
        }
    }
}

/// As an [`OwnedQuota`].
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OwnedQuota::from(*self).serialize(serializer)
    }
}

/// From a string such as `"100/minute"`, or from a table of `rate`, which is such a string, and
/// whatever else is to be said: `name`, `algorithm` (`token_bucket`, `leaky_bucket`,
/// `fixed_window`, `sliding_window` or `sliding_log`), `burst`, `refill_every` (`"10s"`), `queue`
/// (of a leaky bucket), `slices` and `soft` (percent). What [`Quota::check`] refuses is an error.
impl<'de> Deserialize<'de> for OwnedQuota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuotaVisitor)
    }
}

/// As an [`OwnedQuota`], but a `name` is an error, since a `Quota` cannot own it.
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let owned = OwnedQuota::deserialize(deserializer)?;
        match owned.name() {
            None => Ok(owned.quota()),
            Some(name) => Err(Error::custom(format_args!(
                "a `Quota` cannot own the name {name:?}; deserialize an `OwnedQuota` instead"
            ))),
        }
    }
}

struct QuotaVisitor;

impl<'de> Visitor<'de> for QuotaVisitor {
    type Value = OwnedQuota;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quota, such as \"100/minute\" or a table with a rate")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OwnedQuota, E> {
        let quota: Quota = text.parse().map_err(E::custom)?;
        Ok(quota.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OwnedQuota, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        table.try_into().map_err(Error::custom)
    }
}

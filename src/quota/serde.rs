//! Quotas in configuration files: a text, or a table with the same words as fields.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    OwnedQuota, Quota, QuotaList, UnitName,
    display::{self, Words},
    parse::{self, PeriodText},
    varying,
};
use crate::error::{ConfigError, ConfigErrorKind};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaTable {
    rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    debt: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starting_on: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    varying: Option<String>,
}

impl From<&OwnedQuota> for QuotaTable {
    fn from(owned: &OwnedQuota) -> Self {
        let quota = owned.quota();
        let words = Words::of(&quota);
        Self {
            rate: quota.rate_text(),
            name: owned.name().map(str::to_owned),
            algorithm: words.algorithm.map(str::to_owned),
            burst: words.burst,
            refill_every: words.refill_every.map(|step| PeriodText(step).to_string()),
            queue: words.queue,
            slices: words.slices,
            soft: words.soft,
            debt: words.debt,
            unit: words.unit.map(str::to_owned),
            zone: words.zone,
            starting_on: words.starting_on,
            varying: words.varying.as_deref().map(varying::text),
        }
    }
}

impl TryFrom<QuotaTable> for OwnedQuota {
    type Error = ConfigError;

    fn try_from(table: QuotaTable) -> Result<Self, ConfigError> {
        let (rate, mut words) = Words::with_rate(&table.rate)?;
        let algorithm = table.algorithm.map(|name| display::algorithm_named(&name));
        let step = table.refill_every.map(|step| parse::period(&step));
        merge(&mut words.algorithm, algorithm.transpose()?, "algorithm")?;
        merge(&mut words.refill_every, step.transpose()?, "refill_every")?;
        merge(&mut words.burst, table.burst, "burst")?;
        merge(&mut words.queue, table.queue, "queue")?;
        merge(&mut words.slices, table.slices, "slices")?;
        merge(&mut words.soft, table.soft, "soft")?;
        merge(&mut words.debt, table.debt, "debt")?;
        let unit = table.unit.map(|unit| UnitName::of(&unit)).transpose()?;
        merge(&mut words.unit, unit.map(UnitName::as_str), "unit")?;
        merge(&mut words.zone, table.zone, "zone")?;
        merge(&mut words.starting_on, table.starting_on, "starting_on")?;
        let limits = table.varying.map(|limits| varying::parse(&limits));
        merge(&mut words.varying, limits.transpose()?, "varying")?;
        let quota = words.applied_to(rate)?;
        let owned = match table.name {
            Some(name) => quota.named_owned(name),
            None => quota.into(),
        };
        owned.check()?;
        Ok(owned)
    }
}

/// Merges a field of the table with the same word of `rate`.
fn merge<T>(word: &mut Option<T>, field: Option<T>, name: &str) -> Result<(), ConfigError> {
    if word.is_some() && field.is_some() {
        return Err(ConfigError::new(
            ConfigErrorKind::Syntax,
            format!("{name} appears twice, in the rate and as a field; accepted is once"),
        ));
    }
    *word = word.take().or(field);
    Ok(())
}

/// A string such as `"100/60s"` if the rate alone describes the quota; otherwise a table.
impl Serialize for OwnedQuota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quota = self.quota();
        let rate = quota.rate_text();
        if self.name().is_none() && quota.to_string() == rate {
            serializer.serialize_str(&rate)
        } else {
            QuotaTable::from(self).serialize(serializer)
        }
    }
}

/// The form of an [`OwnedQuota`], with the name if there is one. Only an `OwnedQuota` can read a name
/// back.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OwnedQuota::from(*self).serialize(serializer)
    }
}

/// Reads a text such as `"100/minute burst 200"`, like [`Quota`]'s `FromStr`, or a table. The table has a `rate`, which
/// is such a text, and the optional fields `name`, `algorithm` (its word in a text, such as `"fixed_window"`), `burst`,
/// `refill_every` (`"10s"`), `queue`, `slices`, `soft` (percent), `debt`, `unit`, `zone`, `starting_on` and `varying`
/// (`"00:00=10/08:00=20"`). Only a
/// table has a name. A word of the rate that is also a field is an error, and so is a quota that [`Quota::check`]
/// refuses.
impl<'de> Deserialize<'de> for OwnedQuota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuotaVisitor)
    }
}

/// Reads the form of an [`OwnedQuota`]. A `name` is an error, since a `Quota` cannot own it.
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
        f.write_str("a quota, such as \"100/minute burst 200\" or a table with a rate")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OwnedQuota, E> {
        let quota: Quota = text.parse().map_err(E::custom)?;
        Ok(quota.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OwnedQuota, A::Error> {
        let table = QuotaTable::deserialize(MapAccessDeserializer::new(map))?;
        table.try_into().map_err(Error::custom)
    }
}

/// A list of quotas, each in the form of an [`OwnedQuota`].
impl Serialize for QuotaList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

/// Reads a text of one or several quotas, such as `"10/second; 1000/hour"`, a table of an
/// [`OwnedQuota`], or a list of texts and tables.
impl<'de> Deserialize<'de> for QuotaList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuotaListVisitor)
    }
}

struct QuotaListVisitor;

impl<'de> Visitor<'de> for QuotaListVisitor {
    type Value = QuotaList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "quotas, such as \"10/second; 1000/hour\", a table with a rate, or a list of these",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<QuotaList, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QuotaList, A::Error> {
        QuotaVisitor
            .visit_map(map)
            .map(|quota| QuotaList(vec![quota]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<QuotaList, A::Error> {
        let mut all = Vec::new();
        while let Some(QuotaList(quotas)) = seq.next_element()? {
            all.extend(quotas);
        }
        if all.is_empty() {
            return Err(Error::custom(
                "an empty list of quotas; accepted is one or more",
            ));
        }
        Ok(QuotaList(all))
    }
}

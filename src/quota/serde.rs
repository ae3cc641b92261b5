use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::Quota;

/// The form with more than a rate in it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// As a string, `"100/60s"`, where the rate says it all; else as a table of `rate`, `burst` and
/// `name`.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rate = self.to_string();
        if self.get_burst().is_none() && self.name().is_none() {
            return serializer.serialize_str(&rate);
        }
        let table = Table {
            rate,
            burst: self.get_burst(),
            name: self.name().map(str::to_owned),
        };
        table.serialize(serializer)
    }
}

/// From a string such as `"100/minute"`, or from a table: `rate` is such a string; `burst` and
/// `name` may be left out. What [`Quota::check`] refuses is an error.
///
/// Each distinct name is kept for the rest of the process, as a constant would be.
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuotaVisitor)
    }
}

struct QuotaVisitor;

impl<'de> Visitor<'de> for QuotaVisitor {
    type Value = Quota;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quota, such as \"100/minute\" or a table with rate, burst and name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quota, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Quota, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let mut quota: Quota = self.visit_str(&table.rate)?;
        if let Some(burst) = table.burst {
            quota = quota.burst(burst);
        }
        if let Some(name) = table.name {
            super::check_name(&name).map_err(Error::custom)?;
            quota = quota.named(super::name::interned(name));
        }
        quota.check().map_err(Error::custom)?;
        Ok(quota)
    }
}

//! Quotas in configuration files: a text, or a table with the same words as fields.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
    ser::SerializeStruct as _,
};

use super::{
    OwnedQuota, Quota, QuotaList,
    text::{SETTINGS, Values},
};

const RATE: &str = "rate";
const NAME: &str = "name";

/// The names of all fields, and whether their values are numbers.
fn fields() -> impl Iterator<Item = (&'static str, bool)> {
    let settings = SETTINGS.iter();
    let settings = settings.map(|setting| (setting.field, setting.is_number()));
    [(RATE, false), (NAME, false)].into_iter().chain(settings)
}

/// The name of a field.
#[derive(Deserialize)]
#[serde(field_identifier)]
enum Field {
    Named(String),
}

/// A string such as `"100/60s"` if the rate alone describes the quota; otherwise a table.
impl Serialize for OwnedQuota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let quota = self.quota();
        let rate = quota.rate_text();
        if self.name().is_none() && quota.to_string() == rate {
            serializer.serialize_str(&rate)
        } else {
            let settings = SETTINGS.iter();
            let settings = settings.filter_map(|setting| Some((setting, (setting.get)(&quota)?)));
            let settings: Vec<_> = settings.collect();
            let named = usize::from(self.name().is_some());
            let mut table =
                serializer.serialize_struct("QuotaTable", 1 + named + settings.len())?;
            table.serialize_field(RATE, &rate)?;
            if let Some(name) = self.name() {
                table.serialize_field(NAME, name)?;
            }
            for (setting, value) in settings {
                match value.parse::<u64>() {
                    Ok(number) if setting.is_number() => {
                        table.serialize_field(setting.field, &number)?;
                    }
                    _ => table.serialize_field(setting.field, &value)?,
                }
            }
            table.end()
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnedQuota, A::Error> {
        let mut values = Values::new();
        while let Some(Field::Named(name)) = map.next_key()? {
            let Some((field, is_number)) = fields().find(|(field, _)| *field == name) else {
                let known: Vec<_> = fields().map(|(field, _)| format!("`{field}`")).collect();
                let known = known.join(", ");
                let message = format!("unknown field `{name}`, expected one of {known}");
                return Err(Error::custom(message));
            };
            let value: Option<String> = if is_number {
                map.next_value::<Option<u64>>()?
                    .map(|number| number.to_string())
            } else {
                map.next_value()?
            };
            if let Some(value) = value
                && values.insert(field, value).is_some()
            {
                return Err(Error::duplicate_field(field));
            }
        }
        let (rate, name) = (values.remove(RATE), values.remove(NAME));
        let rate = rate.ok_or_else(|| Error::missing_field(RATE))?;
        OwnedQuota::of_table(&rate, name, values).map_err(Error::custom)
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

//! Keys of log lines: what a limit would count by.

use std::{borrow::Cow, str::FromStr};

use tower_ratelimit::{Key, key::IpPrefix};

use super::log::Entry;

/// The parts of a line that its key is made of.
#[derive(Debug, Clone)]
pub(super) struct KeySpec {
    parts: Vec<KeyPart>,
    text: String,
}

#[derive(Debug, Clone)]
enum KeyPart {
    Ip(IpPrefix),
    User,
    Path,
    Field(String),
}

impl FromStr for KeySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split('+').map(|part| part.trim().parse());
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
            text: text.to_owned(),
        })
    }
}

impl FromStr for KeyPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no key; accepted are ip, ip/48 (the prefix of IPv6), user, path, \
                 field:NAME, and several with + between them"
            )
        };
        match text.split_once([':', '/']) {
            None => match text {
                "ip" => Ok(Self::Ip(IpPrefix::new())),
                "user" => Ok(Self::User),
                "path" => Ok(Self::Path),
                _ => Err(wrong()),
            },
            Some(("ip", bits)) => {
                let bits = bits.parse().ok().filter(|bits| (1..=128).contains(bits));
                bits.map(|bits| Self::Ip(IpPrefix::new().v6(bits)))
                    .ok_or_else(wrong)
            }
            Some(("field", name)) if !name.is_empty() => Ok(Self::Field(name.to_owned())),
            Some(_) => Err(wrong()),
        }
    }
}

impl KeySpec {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The field of a JSON line that is to be kept for the key.
    pub(super) fn field(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            KeyPart::Field(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The key of a line; `None` if it lacks a part.
    pub(super) fn key(&self, entry: &Entry<'_>) -> Option<Key> {
        if let [part] = self.parts.as_slice() {
            return part.key(entry);
        }
        let keys = self.parts.iter().map(|part| part.key(entry));
        Some(Key::tuple(keys.collect::<Option<Vec<_>>>()?))
    }
}

impl KeyPart {
    fn key(&self, entry: &Entry<'_>) -> Option<Key> {
        let text = |text: &Option<Cow<'_, str>>| Some(Key::from(text.as_deref()?));
        match self {
            Self::Ip(prefix) => {
                let client = entry.client.as_deref()?;
                Some(
                    client
                        .parse()
                        .map_or_else(|_| Key::from(client), |ip| prefix.key(ip)),
                )
            }
            Self::User => text(&entry.user),
            Self::Path => entry.path().map(Key::from),
            Self::Field(_) => text(&entry.field),
        }
    }
}

//! Keys of log lines.

use std::{borrow::Cow, str::FromStr};

use tower_ratelimit::{Key, key::IpPrefix};

use super::entry::Entry;

/// The parts of a line that form its key.
#[derive(Debug, Clone)]
pub(super) struct KeySpec {
    parts: Vec<KeyPart>,
    /// The names of its JSON fields.
    fields: Vec<String>,
    text: String,
}

#[derive(Debug, Clone)]
enum KeyPart {
    Ip(IpPrefix),
    User,
    Path,
    /// The index of the field among those of keys.
    Field(usize),
}

impl FromStr for KeySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        let parts = text
            .split('+')
            .map(|part| KeyPart::read(part.trim(), &mut fields));
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
            fields,
            text: text.to_owned(),
        })
    }
}

impl KeyPart {
    fn read(text: &str, fields: &mut Vec<String>) -> Result<Self, String> {
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
            Some(("field", name)) if !name.is_empty() => {
                fields.push(name.to_owned());
                Ok(Self::Field(fields.len() - 1))
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl KeySpec {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a part of the key is the client's address.
    pub(super) fn needs_address(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, KeyPart::Ip(_)))
    }

    /// The JSON fields to keep for the key.
    pub(super) fn fields(&self) -> &[String] {
        &self.fields
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
        let text = |text: Option<&Cow<'_, str>>| Some(Key::from(&**text?));
        match self {
            Self::Ip(prefix) => match entry.client_ip() {
                Some(ip) => Some(prefix.key(ip)),
                None => text(entry.client.as_ref()),
            },
            Self::User => text(entry.user.as_ref()),
            Self::Path => entry.path().map(Key::from),
            Self::Field(place) => text(entry.fields.get(*place).and_then(Option::as_ref)),
        }
    }
}

//! Names of keys in Redis.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::{
    error::{ConfigError, ConfigErrorKind},
    key::Key,
};

/// The longest text that is part of a Redis key as it is.
const MAX_READABLE_LEN: usize = 48;

/// 144 bits: no collisions can be made.
const DIGEST_LEN: usize = 18;

/// The version of the layout of keys and values.
pub(crate) const LAYOUT: &str = "v1";

/// Adds the name of `key` in Redis: readable when it is short and of harmless characters, otherwise
/// a digest. Never anything that Redis, a cluster or an ACL pattern reads a meaning into.
pub(crate) fn push(key: &Key, text: &mut String) {
    let start = text.len();
    let is_readable = key.write_readable(text).is_some();
    let name = &text.as_bytes()[start..];
    if is_readable && name.len() <= MAX_READABLE_LEN && name.iter().copied().all(is_harmless) {
        return;
    }
    text.truncate(start);
    text.push('#');
    let digest = Sha256::digest(key.as_bytes());
    URL_SAFE_NO_PAD.encode_string(&digest[..DIGEST_LEN], text);
}

/// The whole name of `key` among those of a limiter.
pub(crate) fn of_subject(keyspace: &str, key: &Key) -> String {
    let mut name = keyspace.to_owned();
    push(key, &mut name);
    name
}

/// Letters, digits and a few marks; no braces, which would move a key to another slot of a cluster.
fn is_harmless(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":./-_@+".contains(&byte)
}

/// Where the limiters of one name and layout keep their subjects.
pub(crate) fn keyspace(prefix: &str, limiter: &str, plan_id: &str) -> String {
    let mut keyspace = String::new();
    write!(keyspace, "{prefix}:{LAYOUT}:{limiter}.{plan_id}:").expect("a text takes all");
    keyspace
}

/// The longest name that is part of every key.
const MAX_NAME_LEN: usize = 64;

/// The name; with a few letters of its digest where not all of it is accepted in a key.
pub(crate) fn accepted_name(name: String) -> String {
    if checked_name(&name).is_ok() {
        return name;
    }
    let digest = letters_of(&name);
    let accepted = name.chars().filter(|letter| is_accepted(*letter));
    let kept: String = accepted.take(MAX_NAME_LEN - 1 - digest.len()).collect();
    format!("{kept}.{digest}")
}

fn is_accepted(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.".contains(letter)
}

pub(crate) fn checked_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.chars().all(is_accepted) {
        return Err(ConfigError::new(
            ConfigErrorKind::Name,
            format!(
                "{name:?} is no limiter name; accepted are 1 to {MAX_NAME_LEN} letters, digits, \
                 `-`, `_` and `.`"
            ),
        ));
    }
    Ok(())
}

/// Four letters that are the same for two different texts in one of a million pairs.
pub(crate) fn letters_of(text: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(text);
    let bytes = digest.iter().take(4);
    bytes
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect()
}

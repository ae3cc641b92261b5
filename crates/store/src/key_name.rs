//! Names of keys in Redis.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use tower_ratelimit_core::{
    error::{ConfigError, ConfigErrorKind},
    key::Key,
};

/// Bytes of the longest key text that a Redis key contains unchanged.
const MAX_READABLE_LEN: usize = 48;

/// Bytes of a digest: 144 bits, too many for anyone to construct a collision.
const DIGEST_LEN: usize = 18;

/// The version of the layout of keys and values.
const LAYOUT: &str = "v1";

/// Appends the name of `key` in Redis: the text itself if it is short and has only harmless
/// characters, otherwise a digest. The name never has a character with a meaning to Redis, a
/// cluster or an ACL pattern.
pub fn push(key: &Key, text: &mut String) {
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

/// Returns the full name of `key` in a limiter's keyspace.
pub fn of_subject(keyspace: &str, key: &Key) -> String {
    let mut name = keyspace.to_owned();
    push(key, &mut name);
    name
}

/// Accepts letters, digits and a few marks. Braces are not accepted: they would move a key to
/// another slot of a cluster.
fn is_harmless(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":./-_@+".contains(&byte)
}

/// Returns the common beginning of all key names of limiters with this name and layout.
pub fn keyspace(prefix: &str, limiter: &str, plan_id: &str) -> String {
    let mut keyspace = String::new();
    write!(keyspace, "{prefix}:{LAYOUT}:{limiter}.{plan_id}:").expect("a text takes all");
    keyspace
}

/// Bytes of the longest limiter name; it is part of every key.
const MAX_NAME_LEN: usize = 64;

/// Returns the name unchanged if a key accepts it, otherwise shortened, with a few letters of its
/// digest.
pub fn accepted_name(name: String) -> String {
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

pub fn checked_name(name: &str) -> Result<(), ConfigError> {
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

/// Returns four letters. Two different texts have the same letters in one of a million pairs.
pub fn letters_of(text: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(text);
    let bytes = digest.iter().take(4);
    bytes
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect()
}

//! Names of keys in Redis.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::key::Key;

/// The longest text that is part of a Redis key as it is.
const LONGEST: usize = 48;

/// 144 bits: no collisions can be made.
const DIGEST_LEN: usize = 18;

/// The version of the layout of keys and values.
pub(super) const LAYOUT: &str = "v1";

/// The name of `key` in Redis: readable when it is short and of harmless characters, otherwise a
/// digest. Never anything that Redis, a cluster or an ACL pattern reads a meaning into.
pub(super) fn name(key: &Key) -> String {
    let readable = key.readable().filter(|text| text.len() <= LONGEST);
    if let Some(text) = readable.filter(|text| text.bytes().all(is_harmless)) {
        return text;
    }
    let digest = Sha256::digest(key.as_bytes());
    format!("#{}", URL_SAFE_NO_PAD.encode(&digest[..DIGEST_LEN]))
}

/// Letters, digits and a few marks; no braces, which would move a key to another slot of a cluster.
fn is_harmless(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":./-_@+".contains(&byte)
}

/// Where the limiters of one name and layout keep their subjects.
pub(super) fn keyspace(prefix: &str, limiter: &str, plan_id: &str) -> String {
    let mut keyspace = String::new();
    write!(keyspace, "{prefix}:{LAYOUT}:{limiter}.{plan_id}:").expect("a text takes all");
    keyspace
}

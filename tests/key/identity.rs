//! Identities of clients: credentials as keys, verified identities, and who can see them.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bypasses;
#[cfg(feature = "axum")]
mod claims;
mod credentials;
mod hidden_keys;

use http::request::Parts;

/// The head of a request with these fields.
fn request(path: &str, fields: &[(&'static str, &[u8])]) -> Parts {
    let (mut parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
    for (name, value) in fields {
        let value = http::HeaderValue::from_bytes(value).unwrap();
        parts.headers.append(*name, value);
    }
    parts
}

//! Keys from credentials: bearer tokens, and the user name of Basic.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{header, request::Parts};

use tower_ratelimit_core::error::KeyError;
use tower_ratelimit_core::key::{Key, KeyExtractor};

/// The digest of the bearer token in `Authorization: Bearer …` (RFC 6750).
///
/// The key is `Key::digest(token)`; the token itself is kept nowhere. Absent when there is no such
/// field, when it is of another scheme, and when the token is empty;
/// [ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous) when there are several fields that differ. The
/// scheme's case and the white space around the token make no difference, and any characters are
/// accepted in it.
///
/// Nothing is verified: the limit holds only where a wrong token is refused later. To count what
/// is in a token, such as its subject, see [`extension_fn`](tower_ratelimit_core::key::extension_fn).
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::BearerToken};
///
/// let (parts, ()) = http::Request::builder()
///     .header("authorization", "Bearer t0ken")
///     .body(())?
///     .into_parts();
/// assert_eq!(BearerToken.extract(&parts), Ok(Key::digest(b"t0ken")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct BearerToken;

impl KeyExtractor for BearerToken {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let token = credentials(parts, "Bearer")?;
        Ok(Key::digest(token))
    }
}

/// The digest of the user name in `Authorization: Basic …` (RFC 7617).
///
/// The key is `Key::digest(name)`, since many services take an API key for the name; the password
/// never enters it. Absent when there is no such field, when it is of another scheme or cannot be
/// decoded, and when the name is empty. [Ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous) when there are
/// several fields that differ. Padding makes no difference.
///
/// Names are compared as they are: where the service takes `alice` and `Alice` for one user, count
/// by the name as the service normalises it, in a [closure](tower_ratelimit_core::key::key_fn).
///
/// Nothing is verified. That suits a limit on attempts to log in; but anybody with a name can use
/// up its limit, so let only [failures count](crate::rate_limit::layer::RateLimitLayer::count_if), or count by name
/// and address, `(BasicUser, PeerIp)`.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::BasicUser};
///
/// let (parts, ()) = http::Request::builder()
///     .header("authorization", "Basic YWxpY2U6d29uZGVybGFuZA==")
///     .body(())?
///     .into_parts();
/// assert_eq!(BasicUser.extract(&parts), Ok(Key::digest(b"alice")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "a unit struct is its own value")]
pub struct BasicUser;

/// Takes what any application may take: an application that is laxer than this would know a user
/// that is not counted.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl KeyExtractor for BasicUser {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let encoded = credentials(parts, "Basic")?;
        let decoded = LENIENT_BASE64.decode(encoded).or(Err(KeyError::absent()))?;
        // A name has no colon (RFC 7617, section 2), a password may.
        match decoded.iter().position(|byte| *byte == b':') {
            None | Some(0) => Err(KeyError::absent()),
            Some(end) => Ok(Key::digest(&decoded[..end])),
        }
    }
}

/// The part of the `Authorization` field after the scheme.
fn credentials<'p>(parts: &'p Parts, scheme: &str) -> Result<&'p [u8], KeyError> {
    let mut lines = parts.headers.get_all(header::AUTHORIZATION).iter();
    let line = lines.next().ok_or(KeyError::absent())?;
    // An application that reads another line than this would know another client than is counted.
    if lines.any(|other| other != line) {
        return Err(KeyError::ambiguous());
    }
    after_scheme(line.as_bytes(), scheme).ok_or(KeyError::absent())
}

fn after_scheme<'l>(line: &'l [u8], scheme: &str) -> Option<&'l [u8]> {
    let (name, rest) = line.trim_ascii().split_at_checked(scheme.len())?;
    let credentials = rest.trim_ascii_start();
    let separated = credentials.len() < rest.len();
    let found = separated && name.eq_ignore_ascii_case(scheme.as_bytes());
    found
        .then_some(credentials)
        .filter(|found| !found.is_empty())
}

//! Keys from a value that the client sends: of a header, a cookie, a query parameter or its credentials, if it is one value
//! however the request is read.

use std::{borrow::Cow, fmt};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, HeaderName, header, request::Parts};
use percent_encoding::percent_decode;

use tower_ratelimit_core::error::KeyError;
use tower_ratelimit_core::key::{Key, extract::KeyExtractor};

/// The value of a header, such as an API key.
///
/// White space around the value does not count. Absent when the header is missing or empty,
/// [ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous) when it has lines that differ: some applications
/// read the first, some the last, and a client must not be counted by one and known by the other.
/// It is ambiguous, too, if another spelling of the name that some servers read alike, such as
/// `x_api_key`, has another value; such a line alone is no key. A value that is not UTF-8, or longer than 255 bytes, is replaced by its digest.
///
/// The client writes the header, so this is a key that the client chooses: the limit holds only
/// where a wrong value is refused later. The key contains the value as it is, and so does a store
/// that keeps keys; for one that is a credential there is [`secret`](Self::secret).
///
/// ```
/// use tower_ratelimit::{Header, Key, KeyExtractor};
///
/// let (parts, ()) = http::Request::builder()
///     .header("x-api-key", "k-123")
///     .body(())?
///     .into_parts();
/// assert_eq!(Header::new("X-API-Key").extract(&parts), Ok(Key::from("k-123")));
/// assert!(Header::new("x-other").extract(&parts).is_err());
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: HeaderName,
    secret: bool,
}

impl Header {
    /// The header of this name, a `&str` or a [`HeaderName`].
    ///
    /// # Panics
    ///
    /// When `name` is not a header name, such as `"x api key"`.
    #[track_caller]
    pub fn new<N>(name: N) -> Self
    where
        N: TryInto<HeaderName> + fmt::Debug,
    {
        let given = format!("{name:?}");
        match name.try_into() {
            Ok(name) => Self {
                name,
                secret: false,
            },
            Err(_) => panic!(
                "{given} is no header name; accepted are letters, digits and -_.~!#$%&'*+^`|"
            ),
        }
    }

    /// Keeps only the value's digest in the key, `Key::digest(value)`: an API key is then in no
    /// table, store or log, and looking it up takes as long as for any other.
    ///
    /// ```
    /// use tower_ratelimit::{Header, Key, KeyExtractor};
    ///
    /// let (parts, ()) = http::Request::builder()
    ///     .header("x-api-key", "k-123")
    ///     .body(())?
    ///     .into_parts();
    /// let key = Header::new("x-api-key").secret().extract(&parts);
    /// assert_eq!(key, Ok(Key::digest(b"k-123")));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn secret(self) -> Self {
        Self {
            secret: true,
            ..self
        }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let lines = parts.headers.get_all(&self.name).iter();
        let value = only(lines.map(|line| line.as_bytes().trim_ascii()))?;
        let spellings = lines_in_any_spelling(&parts.headers, &self.name);
        let value = agreed(value, spellings.map(<[u8]>::trim_ascii))?;
        Ok(match str::from_utf8(value) {
            Ok(text) if !self.secret => Key::from(text),
            _ => Key::digest(value),
        })
    }
}

/// The digest of a cookie, such as a session's.
///
/// The key is `Key::digest(value)`; the value itself is kept nowhere. Quotes around the value and
/// percent-encoding make no difference, so one session has one key however the client writes it.
///
/// Absent when there is no such cookie or an empty one, [ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous)
/// when there are several of the name with values that differ: some applications read the first and
/// some the last, so a client could be counted by one that it makes up and be known by the other.
///
/// Nothing is verified: a client that sends another value has another key. If it can continue
/// without a session, count the session's start by address.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::Cookie};
///
/// let (parts, ()) = http::Request::builder()
///     .header("cookie", "theme=dark; session=5e55")
///     .body(())?
///     .into_parts();
/// assert_eq!(Cookie::new("session").extract(&parts), Ok(Key::digest(b"5e55")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie(String);

impl Cookie {
    /// The cookie of this name; case matters.
    ///
    /// # Panics
    ///
    /// When `name` is empty or has characters that no cookie's name can have: white space, `=`, `;`
    /// and those that are not ASCII.
    #[track_caller]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let in_names = |byte: u8| byte.is_ascii_graphic() && !b"=;".contains(&byte);
        assert!(
            !name.is_empty() && name.bytes().all(in_names),
            "{name:?} is no cookie name; accepted are printable ASCII characters but = and ;"
        );
        Self(name)
    }

    fn value<'p>(&self, pair: &'p [u8]) -> Option<Cow<'p, [u8]>> {
        let end = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..end], &pair[end + 1..]);
        percent_decode(name.trim_ascii())
            .eq(self.0.bytes())
            .then(|| unquoted(percent_decode(value.trim_ascii()).into()))
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        // HTTP/2 sends the field in as many lines as it likes (RFC 9113, section 8.2.3).
        let lines = parts.headers.get_all(header::COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let value = only(pairs.filter_map(|pair| self.value(pair)))?;
        Ok(Key::digest(&value))
    }
}

fn unquoted(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match &*value {
        [b'"', inner @ .., b'"'] => Cow::Owned(inner.to_vec()),
        _ => value,
    }
}

/// The digest of a query parameter, such as an API key in `?api_key=…`.
///
/// The key is `Key::digest(value)` of the decoded value; the value itself is kept nowhere. `+` and
/// percent-encoding are decoded as in forms, in the name too.
///
/// Absent when there is no such parameter or an empty one,
/// [ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous) when there are several of the name with values that
/// differ: some applications read the first and some the last, so a client could
/// be counted by one that it makes up and be known by the other. A value with an unencoded `;` is
/// ambiguous for the same reason: some servers end it there.
///
/// Nothing is verified: the limit holds only where a wrong value is refused later.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, key::QueryParameter};
///
/// let (parts, ()) = http::Request::get("/search?q=tower&api_key=k%2D123").body(())?.into_parts();
/// let key = QueryParameter::new("api_key").extract(&parts);
/// assert_eq!(key, Ok(Key::digest(b"k-123")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryParameter(String);

impl QueryParameter {
    /// The parameter of this name after decoding; case matters.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl KeyExtractor for QueryParameter {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let query = parts.uri.query().unwrap_or_default();
        let of_name = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (name == self.0).then(|| value.into_owned())
        };
        let value = only(parameters(query).filter_map(of_name))?;
        let others = parameters_by_semicolons(query).into_iter().flatten();
        let value = agreed(value, others.filter_map(of_name))?;
        Ok(Key::digest(value.as_bytes()))
    }
}

/// The digest of the bearer token in `Authorization: Bearer …` (RFC 6750).
///
/// The key is `Key::digest(token)`; the token itself is kept nowhere. Absent when there is no such
/// field, when it is of another scheme, and when the token is empty;
/// [ambiguous](tower_ratelimit_core::KeyErrorKind::Ambiguous) when there are several fields that differ. The
/// scheme's case and the white space around the token make no difference, and any characters are
/// accepted in it.
///
/// Nothing is verified: the limit holds only where a wrong token is refused later. To count what
/// is in a token, such as its subject, see [`extension_fn`](tower_ratelimit_core::key::extract::extension_fn).
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
/// by the name as the service normalises it, in a [closure](tower_ratelimit_core::key::extract::key_fn).
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

/// The one value that the client sent.
///
/// If two differ, neither counts: readers disagree on whether the first or the last does, and a
/// client that is known to the application by one must not be counted by the other, which it could
/// choose anew for every request. Nor is such a client one that sent none, which may be counted by
/// something else: an account would have one more limit there.
fn only<V: AsRef<[u8]>>(mut values: impl Iterator<Item = V>) -> Result<V, KeyError> {
    let only = values.next().ok_or(KeyError::absent())?;
    let bytes = only.as_ref();
    if values.any(|other| other.as_ref() != bytes) {
        return Err(KeyError::ambiguous());
    }
    match bytes {
        [] => Err(KeyError::absent()),
        _ => Ok(only),
    }
}

/// Refuses a value where servers that read the request in another way find another one.
fn agreed<V: AsRef<[u8]>>(
    value: V,
    mut others: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Result<V, KeyError> {
    if others.all(|other| other.as_ref() == value.as_ref()) {
        Ok(value)
    } else {
        Err(KeyError::ambiguous())
    }
}

/// The lines of a field, and those of other names that servers with CGI's variables read as its name: `x_kind` and
/// `x.kind` for `x-kind`.
pub fn lines_in_any_spelling<'h>(
    headers: &'h HeaderMap,
    name: &'h HeaderName,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.iter();
    let lines = lines.filter(|(sent, _)| is_spelling(sent.as_str(), name.as_str()));
    lines.map(|(_, value)| value.as_bytes())
}

/// Whether two names differ in their signs at most.
fn is_spelling(one: &str, other: &str) -> bool {
    let is_same = |(one, other): (u8, u8)| {
        one == other || !(one.is_ascii_alphanumeric() || other.is_ascii_alphanumeric())
    };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(is_same)
}

/// The parameters of a query, as HTML forms have them.
pub fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.as_bytes())
}

/// The parameters of a query for servers that also end them at `;`, as HTML 4 recommended; `None` if that is no other
/// reading.
pub fn parameters_by_semicolons(
    query: &str,
) -> Option<impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)>> {
    let parts = query.contains(';').then(|| query.split(['&', ';']));
    parts.map(|parts| parts.flat_map(parameters))
}

//! Limits for servers of the Model Context Protocol (MCP): keys by tool, a reader of the calls in bodies, and rejections
//! in JSON-RPC.
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_ratelimit::{
//!     Header, Quota, RateLimitLayer, mcp::{Mcp, McpBodyLayer},
//! };
//!
//! // Each user may call each tool 30 times a minute. Older clients name the tool in the body alone.
//! let key = (Header::new("x-user"), Mcp::tool());
//! let layers = ServiceBuilder::new()
//!     .layer(McpBodyLayer::default())
//!     .layer(RateLimitLayer::new(Quota::per_minute(30), key).mcp());
//! # let _ = layers;
//! ```
//!
//! [`McpBodyLayer`] reads bodies, and refuses those that differ from their header. Leave it out if all clients send the
//! fields of revision 2026-07-28, and the server compares them with the body.

mod body;
mod call;
mod limit_layer;
mod message;
mod reject;

use http::request::Parts;

pub use self::{
    body::{McpBodyLayer, WithMcpCalls},
    limit_layer::{McpLayer, McpLimit},
    reject::McpRejection,
};
use self::{call::CallFields, message::Calls};
use crate::key::request_value::Header;
use tower_ratelimit_core::{
    error::{KeyError, KeyErrorKind},
    key::{Key, extract::KeyExtractor},
};

/// The key of a call of MCP: its method, such as `tools/call`, or the method and the name of the tool, prompt or
/// resource.
///
/// A [`McpBodyLayer`] outside reads it from the body. Without one it is read from the fields `Mcp-Method` and `Mcp-Name`,
/// which revision 2026-07-28 has. A value in Base64 (`=?base64?…?=`) is decoded. Only the methods `tools/call`,
/// `prompts/get` and `resources/read` have a name; with any other a client could invent names that no server compares.
///
/// The client chooses the key: combine it with an identity, as in `(user, Mcp::tool())`, and limit all calls of that
/// identity together, too. A long name is replaced by its digest.
///
/// A POST without these fields, or with fields that cannot be read, has the key `unreadable`: a method of more than 128
/// bytes, a name of more than 4,096, a name that is no Base64, or two lines of one field. Each client has one such key if
/// it is combined with the client's identity. A GET, HEAD, DELETE or OPTIONS calls nothing, and has no key.
///
/// ```
/// use tower_ratelimit::{Key, KeyExtractor, mcp::Mcp};
///
/// let (parts, ()) = http::Request::post("/mcp")
///     .header("mcp-method", "tools/call")
///     .header("mcp-name", "=?base64?c2VhcmNo?=")
///     .body(())?
///     .into_parts();
/// let key = Key::tuple([Key::from("tools/call"), Key::from("search")]);
/// assert_eq!(Mcp::tool().extract(&parts), Ok(key));
/// assert_eq!(Mcp::method().extract(&parts), Ok(Key::from("tools/call")));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mcp {
    has_name: bool,
}

impl Mcp {
    /// The method, and the name of the tool, prompt or resource that it is about.
    pub const fn tool() -> Self {
        Self { has_name: true }
    }

    /// The method alone, such as `tools/call`.
    pub const fn method() -> Self {
        Self { has_name: false }
    }

    /// The digest of the session's id, the field `Mcp-Session-Id`, which revisions before 2026-07-28 have.
    ///
    /// Absent in the request that begins the session. Nothing is verified: a client that sends another id has another key.
    /// Use it only where the server refuses ids that it did not issue, and limit the client, too:
    ///
    /// ```
    /// use tower_ratelimit::{KeyExtractor as _, PeerIp, Quota, RateLimitLayer, mcp::Mcp};
    ///
    /// let limit = RateLimitLayer::all([
    ///     Quota::per_minute(60).named("session").by(Mcp::session().or(PeerIp)),
    ///     Quota::per_minute(300).named("client").by(PeerIp),
    /// ]);
    /// # let _ = limit.mcp();
    /// ```
    pub fn session() -> Header {
        Header::new("mcp-session-id").secret()
    }

    /// Whether the request calls this tool, or cannot be read: for limits of one tool, and for costs.
    ///
    /// ```
    /// use tower_ratelimit::{Header, Quota, RateLimitLayer, mcp::Mcp};
    ///
    /// let key = (Header::new("x-user"), Mcp::tool());
    /// let images = RateLimitLayer::new(Quota::per_hour(10), key)
    ///     .skip(|parts| !Mcp::may_call(parts, "draw_image"))
    ///     .mcp();
    /// # let _ = images;
    /// ```
    pub fn may_call(parts: &Parts, tool: &str) -> bool {
        let is_it = |method: &str, name: Option<&str>| method == "tools/call" && name == Some(tool);
        Self::call_fits(parts, true, is_it)
    }

    /// Whether the request is such a call, and `in_doubt` if it cannot be read.
    #[doc(hidden)]
    pub fn call_fits(
        parts: &Parts,
        in_doubt: bool,
        fits: impl FnOnce(&str, Option<&str>) -> bool,
    ) -> bool {
        match with_call(parts, fits) {
            Ok(fits) => fits.unwrap_or(in_doubt),
            Err(error) => in_doubt && error.kind() == KeyErrorKind::Ambiguous,
        }
    }

    /// Whether a request may be a call, and if so, whether it says so itself.
    #[doc(hidden)]
    pub fn may_be_call(parts: &Parts) -> Option<bool> {
        (!call::calls_nothing(&parts.method)).then(|| call::seems_call(&parts.headers))
    }

    /// A copy of a batch for each of its calls, one after another; `None` for a request that is no batch.
    #[doc(hidden)]
    pub fn batch(parts: &Parts) -> Option<McpBatch> {
        let calls = parts.extensions.get::<Calls>()?;
        let is_batch = calls.calls.len() > 1 && calls.at.is_none();
        is_batch.then(|| McpBatch(parts.clone()))
    }

    fn key_of(self, method: &str, name: Option<&str>) -> Key {
        let method = Key::from(method);
        if !self.has_name {
            return method;
        }
        Key::tuple([Some(method), name.map(Key::from)].into_iter().flatten())
    }
}

/// A batch, call by call. Made by [`Mcp::batch`].
#[derive(Debug)]
#[doc(hidden)]
pub struct McpBatch(Parts);

impl McpBatch {
    /// The request as its next call.
    pub fn next_call(&mut self) -> Option<&Parts> {
        let calls = self.0.extensions.get_mut::<Calls>()?;
        let next = calls.at.map_or(0, |at| at + 1);
        calls.at = Some(next);
        (next < calls.calls.len()).then_some(&self.0)
    }
}

impl KeyExtractor for Mcp {
    fn extract(&self, parts: &Parts) -> Result<Key, KeyError> {
        let key = with_call(parts, |method, name| self.key_of(method, name))?;
        Ok(key.unwrap_or_else(|| Key::from("unreadable")))
    }
}

/// Calls `read` with the method and the name that the request calls; `None` if it cannot be read.
///
/// # Errors
///
/// Absent if the request calls nothing, ambiguous for a batch that is not charged call by call.
fn with_call<T>(
    parts: &Parts,
    read: impl FnOnce(&str, Option<&str>) -> T,
) -> Result<Option<T>, KeyError> {
    if call::calls_nothing(&parts.method) {
        return Err(KeyError::absent());
    }
    if let Some(calls) = parts.extensions.get::<Calls>() {
        let call = calls.charged()?;
        return Ok(Some(read(&call.method, call.name.as_deref())));
    }
    let fields = CallFields::of(&parts.headers).ok();
    let call = fields.as_ref().and_then(CallFields::call);
    Ok(call.map(|(method, name)| read(method, name)))
}

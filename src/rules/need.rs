//! Needs: the parts of requests that rules look at.

use http::HeaderName;

/// A part of requests that a rule looks at, beyond method, path, query and client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestPart {
    /// The header of this name.
    Header(HeaderName),
    /// The cookie of this name.
    Cookie(String),
    /// The token in `Authorization: Bearer`.
    BearerToken,
    /// The user in `Authorization: Basic`.
    BasicUser,
    /// The host that the request names.
    Host,
    /// The route that axum matched.
    Route,
    /// Whether the application takes the request for authenticated.
    Authenticated,
    /// The key that the application registers under this name.
    CustomKey(String),
}

/// A part of requests, and a rule that looks at it. Made by [`Rules::needs`](super::Rules::needs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleNeed<'r> {
    /// The rule's name.
    pub rule: &'r str,
    /// The part.
    pub part: &'r RequestPart,
    /// Whether the rule's key is made of it; else its match, its tier or its cost looks at it.
    pub is_key: bool,
}

//! The parts of requests that rules read.

use http::HeaderName;

/// A part of requests that a rule reads, in addition to method, path, query and client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestPart {
    /// The header of this name.
    Header(HeaderName),
    /// The cookie of this name.
    Cookie(String),
    /// The token in `Authorization: Bearer`, see [`BearerToken`](crate::key::BearerToken).
    BearerToken,
    /// The user in `Authorization: Basic`, see [`BasicUser`](crate::key::BasicUser).
    BasicUser,
    /// The host in `:authority` or `Host`.
    Host,
    /// The route that axum matched; no other server has one.
    Route,
    /// Whether the application considers the request authenticated, by the function of
    /// [`RulesBuilder::authenticated`](super::RulesBuilder::authenticated).
    Authenticated,
    /// The key that the application registers under this name by
    /// [`RulesBuilder::key`](super::RulesBuilder::key).
    CustomKey(String),
}

/// A part of requests, and a rule that reads it. Returned by [`Rules::needs`](super::Rules::needs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleNeed<'r> {
    /// The rule's name.
    pub rule: &'r str,
    /// The part of the request.
    pub part: &'r RequestPart,
    /// Whether the rule's key is made of the part. Otherwise its match, its tier or its cost reads it.
    pub is_key: bool,
}

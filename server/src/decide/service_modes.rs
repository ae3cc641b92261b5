//! Modes of the service: how requests are charged and answered.

use crate::{
    reference_statistics::NearLimit,
    response_headers::{HeaderNames, HeaderSet},
};

/// How requests are charged and answered, for all rules.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Modes {
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) metadata: bool,
    pub(super) charge_admitted: bool,
    pub(super) near_limit: NearLimit,
    pub(super) headers: Vec<HeaderSet>,
    pub(super) header_names: HeaderNames,
    pub(super) problem_body: bool,
}

impl Modes {
    /// Whether all requests pass; their statuses still report exceeded limits. Defaults to false.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Whether every limited descriptor is a quota, as if its rule had `quota_mode`: a request is denied only when
    /// all of them are exceeded. Defaults to false.
    pub const fn quota(mut self, quota: bool) -> Self {
        self.quota = quota;
        self
    }

    /// Whether responses have dynamic metadata: the request, and the `metadata` of the descriptors that passed.
    /// Defaults to false.
    pub const fn metadata(mut self, metadata: bool) -> Self {
        self.metadata = metadata;
        self
    }

    /// Whether only requests that pass are charged. Defaults to false, as in the reference: each descriptor is
    /// charged independently of the others, also beyond its limit.
    ///
    /// With `true`, each request is decided in a tokio task of its own. If one descriptor denies, the charges of the
    /// others are refunded at once. Until then concurrent requests may find less remaining, never more.
    pub const fn charge_admitted(mut self, admitted: bool) -> Self {
        self.charge_admitted = admitted;
        self
    }

    /// The share of a limit, from 0 to 1, above which statistics count units as near the limit. Defaults to 0.8.
    pub const fn near_limit(mut self, share: f32) -> Self {
        self.near_limit = NearLimit(share);
        self
    }

    /// The header fields for the response to the client. Defaults to none.
    pub fn headers(mut self, headers: impl IntoIterator<Item = HeaderSet>) -> Self {
        self.headers = headers.into_iter().collect();
        self
    }

    /// The names of the three fields of [`HeaderSet::Envoy`]: the limit, the units that remain, and the seconds to
    /// its end. They are written in lower case.
    pub fn header_names(mut self, names: [&str; 3]) -> Self {
        self.header_names = HeaderNames(names.map(str::to_ascii_lowercase));
        self
    }

    /// Whether denied clients get a problem document, as from the layers of tower-ratelimit. Defaults to false: an
    /// empty body. Envoy sends gRPC clients the document as the message.
    pub const fn problem_body(mut self, problem: bool) -> Self {
        self.problem_body = problem;
        self
    }
}

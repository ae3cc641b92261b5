use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Headers, IetfDraft, ietf,
    legacy::{self, SetText},
    policy::PolicyText,
    retry_after,
    scratch::{Scratch, Text},
};
use crate::decision::{Decision, Policy, QuotaStatus};

/// Writes the fields of a limiter's decisions; what never changes is rendered once.
#[derive(Debug)]
pub(crate) struct Renderer {
    headers: Headers,
    /// The value of `RateLimit-Policy`, if it is sent.
    policy_list: Option<HeaderValue>,
    policies: Box<[PolicyText]>,
    /// The policies that the rest was rendered for.
    rendered: Box<[Policy]>,
}

impl Renderer {
    pub(crate) fn new(headers: &Headers, policies: &[Policy]) -> Self {
        Self {
            headers: headers.clone(),
            policy_list: headers.ietf.and_then(|draft| policy_list(draft, policies)),
            policies: policies.iter().map(PolicyText::new).collect(),
            rendered: policies.into(),
        }
    }

    /// Adds the fields of `decision` to a response with this status.
    pub(crate) fn apply(&self, decision: &Decision, status: StatusCode, headers: &mut HeaderMap) {
        if status.is_redirection() {
            return;
        }
        let wait = decision.retry_after_seconds();
        headers.reserve(self.count(wait.is_some()));
        self.put_limits(decision, headers);
        if let Some(seconds) = wait {
            self.put_wait(seconds, headers);
        }
    }

    /// Adds to the answer to a request that the limiter could not decide about when to come back:
    /// a store that failed is tried several times a second.
    pub(crate) fn apply_failure(&self, headers: &mut HeaderMap) {
        self.put_wait(1, headers);
    }

    /// Whether a response that is no denial gets any field.
    #[inline]
    pub(crate) fn renders_limits(&self) -> bool {
        self.count(false) > 0
    }

    /// The most fields that a response gets.
    #[inline]
    fn count(&self, waits: bool) -> usize {
        let Headers {
            ietf,
            x_ratelimit,
            x_ratelimit_retry_after,
            retry_after,
            ..
        } = &self.headers;
        let always = 2 * usize::from(ietf.is_some()) + 3 * usize::from(x_ratelimit.is_some());
        let on_denial = usize::from(*retry_after) + usize::from(*x_ratelimit_retry_after);
        always + usize::from(waits) * on_denial
    }

    #[inline]
    fn put_limits(&self, decision: &Decision, headers: &mut HeaderMap) {
        let mut scratch = Scratch::new();
        let list =
            (self.headers.ietf).and_then(|draft| self.write_list(draft, decision, &mut scratch));
        let set = (self.headers.x_ratelimit)
            .map(|format| SetText::write(decision, format, &self.policies, &mut scratch));
        let finished = scratch.finish();
        if let Some(policies) = self.policies_of(decision) {
            headers.append(&ietf::POLICY, policies);
        }
        if let Some(list) = list {
            headers.append(&ietf::RATELIMIT, finished.value(list));
        }
        if let Some(set) = set {
            set.finish(&finished).put(headers);
        }
    }

    /// The policies that a decision is about: those that were rendered, unless it was made by
    /// another tier's quotas, or since a quota was changed.
    #[inline]
    fn policies_of(&self, decision: &Decision) -> Option<HeaderValue> {
        let policies = decision.quotas().iter().map(QuotaStatus::policy);
        if policies.clone().eq(&self.rendered) {
            return self.policy_list.clone();
        }
        let policies: Vec<_> = policies.copied().collect();
        self.headers
            .ietf
            .and_then(|draft| policy_list(draft, &policies))
    }

    #[inline]
    fn write_list(
        &self,
        IetfDraft::Draft11: IetfDraft,
        decision: &Decision,
        to: &mut Scratch,
    ) -> Option<Text> {
        ietf::write_statuses(decision, &self.policies, to);
        (to.len() > 0).then(|| Text::Written(0..to.len()))
    }

    fn put_wait(&self, seconds: u64, headers: &mut HeaderMap) {
        if self.headers.retry_after {
            retry_after::put(header::RETRY_AFTER, seconds, headers);
        }
        if self.headers.x_ratelimit_retry_after {
            retry_after::put(legacy::RETRY_AFTER.clone(), seconds, headers);
        }
    }
}

/// An RFC 9651 list must not be empty: without policies there is no field.
fn policy_list(IetfDraft::Draft11: IetfDraft, policies: &[Policy]) -> Option<HeaderValue> {
    if policies.is_empty() {
        return None;
    }
    let mut scratch = Scratch::new();
    ietf::write_policies(policies, &mut scratch);
    let whole = Text::Written(0..scratch.len());
    Some(scratch.finish().value(whole))
}

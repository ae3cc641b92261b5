use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Headers, IetfDraft, ResetFormat, ietf, legacy, number, retry_after,
    scratch::{Finished, Scratch, Text},
};
use crate::decision::{Decision, Policy, QuotaStatus, Unit, whole_seconds};

/// Writes the fields of a limiter's decisions; what never changes is rendered once.
#[derive(Debug)]
pub(crate) struct Renderer {
    headers: Headers,
    /// The value of `RateLimit-Policy`.
    policy_list: Option<HeaderValue>,
    policies: Box<[PolicyText]>,
}

/// What is ready of a policy before any decision.
#[derive(Debug)]
pub(super) struct PolicyText {
    name: &'static str,
    pub(super) quoted_name: Box<[u8]>,
    unit: Unit,
    limit: u64,
    limit_value: HeaderValue,
}

impl PolicyText {
    fn new(policy: &Policy) -> Self {
        Self {
            name: policy.name(),
            quoted_name: ietf::quoted(policy.name()).into_boxed_slice(),
            unit: policy.unit(),
            limit: policy.limit(),
            limit_value: number::header_value(policy.limit()),
        }
    }

    #[inline]
    pub(super) fn of<'a>(policies: &'a [Self], name: &str) -> Option<&'a Self> {
        policies.iter().find(|policy| policy.name == name)
    }

    /// The status's effective window, which a limit on concurrency has none of.
    #[inline]
    pub(super) fn window_of(policies: &[Self], status: &QuotaStatus) -> Option<Duration> {
        let timed = Self::of(policies, status.name())
            .is_none_or(|policy| policy.unit != Unit::ConcurrentRequests);
        status.effective_window().filter(|_| timed)
    }
}

impl Renderer {
    pub(crate) fn new(headers: &Headers, policies: &[Policy]) -> Self {
        Self {
            headers: headers.clone(),
            policy_list: policy_list(policies),
            policies: policies.iter().map(PolicyText::new).collect(),
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

    /// Whether a response that is no denial gets any field.
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
        let list = self.headers.ietf.and_then(|draft| match draft {
            IetfDraft::Draft11 => self.write_list(decision, &mut scratch),
        });
        let set = (self.headers.x_ratelimit)
            .map(|format| SetText::write(decision, format, &self.policies, &mut scratch));
        let finished = scratch.finish();
        if self.headers.ietf.is_some()
            && let Some(policies) = &self.policy_list
        {
            headers.append(&ietf::POLICY, policies.clone());
        }
        if let Some(list) = list {
            headers.append(&ietf::RATELIMIT, finished.value(list));
        }
        if let Some(set) = set {
            set.finish(&finished).put(headers);
        }
    }

    #[inline]
    fn write_list(&self, decision: &Decision, to: &mut Scratch) -> Option<Text> {
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
fn policy_list(policies: &[Policy]) -> Option<HeaderValue> {
    if policies.is_empty() {
        return None;
    }
    let mut scratch = Scratch::new();
    ietf::write_policies(policies, &mut scratch);
    let whole = Text::Written(0..scratch.len());
    Some(scratch.finish().value(whole))
}

/// A [`legacy::Set`] whose text is not cut out yet.
struct SetText<'a> {
    limit: LimitText<'a>,
    remaining: Option<(u64, Text)>,
    reset: Option<Text>,
}

enum LimitText<'a> {
    Ready(&'a HeaderValue),
    New(Text),
}

impl<'a> SetText<'a> {
    #[inline]
    fn write(
        decision: &Decision,
        format: ResetFormat,
        policies: &'a [PolicyText],
        to: &mut Scratch,
    ) -> Self {
        let status = decision.binding();
        let limit = match PolicyText::of(policies, status.name()) {
            Some(policy) if policy.limit == status.limit() => LimitText::Ready(&policy.limit_value),
            _ => LimitText::New(to.number(status.limit())),
        };
        let Some(remaining) = status.remaining() else {
            return Self {
                limit,
                remaining: None,
                reset: None,
            };
        };
        let reset = PolicyText::window_of(policies, status).map(|window| match format {
            ResetFormat::DeltaSeconds => whole_seconds(window),
            ResetFormat::EpochSeconds => {
                whole_seconds(since_epoch(decision).saturating_add(window))
            }
        });
        Self {
            limit,
            remaining: Some((remaining, to.number(remaining))),
            reset: reset.map(|seconds| to.number(seconds)),
        }
    }

    #[inline]
    fn finish(self, finished: &Finished) -> legacy::Set {
        legacy::Set {
            limit: match self.limit {
                LimitText::Ready(value) => value.clone(),
                LimitText::New(text) => finished.value(text),
            },
            remaining: self
                .remaining
                .map(|(units, text)| (units, finished.value(text))),
            reset: self.reset.map(|text| finished.value(text)),
        }
    }
}

fn since_epoch(decision: &Decision) -> Duration {
    Duration::from_micros(decision.receipt().charged_at().as_micros())
}

//! The renderer: writes the fields of a limiter's decisions.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{self, Entry},
};

use super::{
    Headers,
    binding::Binding,
    ietf, number,
    prepared::Prepared,
    text::FieldText,
    x_ratelimit::{self, XRateLimit},
};
use crate::{
    decision::{Decision, Policy},
    log::{self, Code},
};

/// Writes the fields of a limiter's decisions; constant parts are rendered once.
#[derive(Debug)]
pub(crate) struct Renderer {
    headers: Headers,
    /// The parts of the limiter's policies.
    texts: Prepared,
    /// How many responses that already had a policy were looked at for one of the same name.
    looked_at: AtomicU32,
}

/// The number of responses that are looked at: the layers around each other keep their policies.
const LOOKS: u32 = 16;

/// Two of one name were found, which is said once.
const REPORTED: u32 = 1 << 31;

impl Renderer {
    pub(crate) fn new(headers: &Headers, policies: &[Policy]) -> Self {
        Self {
            headers: headers.clone(),
            texts: Prepared::new(headers.ietf, policies),
            looked_at: AtomicU32::new(0),
        }
    }

    /// A renderer for this decision alone. It leaves policies of one name to those that see many
    /// responses.
    pub(crate) fn once(headers: &Headers, decision: &Decision) -> Self {
        Self {
            headers: headers.clone(),
            texts: texts_of(headers, decision),
            looked_at: AtomicU32::new(LOOKS),
        }
    }

    pub(crate) const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Adds the fields of `decision` to a response with this status.
    pub(crate) fn apply(&self, decision: &Decision, status: StatusCode, headers: &mut HeaderMap) {
        if status.is_redirection() {
            return;
        }
        if self.texts.fit(decision) {
            self.put(decision, &self.texts, headers);
        } else {
            self.put(decision, &texts_of(&self.headers, decision), headers);
        }
    }

    /// Adds to the answer to a request that the limiter could not decide about when to come back:
    /// a store that failed is tried several times a second.
    pub(crate) fn apply_failure(&self, headers: &mut HeaderMap) {
        self.put_wait(1, number::header_value(1), headers);
    }

    /// Whether a response that is no denial gets any field.
    #[inline]
    pub(crate) fn renders_limits(&self) -> bool {
        self.limit_fields() > 0
    }

    /// The time by which a denial is lengthened.
    pub(crate) fn draw_jitter(&self) -> Duration {
        self.headers.draw_jitter()
    }

    /// The most fields about limits that a response gets.
    #[inline]
    fn limit_fields(&self) -> usize {
        let Headers {
            ietf, x_ratelimit, ..
        } = &self.headers;
        2 * usize::from(ietf.is_some()) + 3 * usize::from(x_ratelimit.is_some())
    }

    /// How many fields tell of a wait.
    #[inline]
    fn wait_fields(&self) -> usize {
        let Headers {
            retry_after,
            x_ratelimit_retry_after,
            ..
        } = &self.headers;
        usize::from(*retry_after) + usize::from(*x_ratelimit_retry_after)
    }

    fn put(&self, decision: &Decision, texts: &Prepared, headers: &mut HeaderMap) {
        let wait = decision.retry_after_seconds();
        let fields = self.limit_fields() + wait.map_or(0, |_| self.wait_fields());
        if fields == 0 {
            return;
        }
        // One more for the length that a router adds last, so that the map grows once.
        headers.reserve(fields + 1);
        let binding = Binding::of(decision);
        let mut scratch = FieldText::new();
        let list = (self.headers.ietf)
            .and_then(|draft| ietf::status_list(draft, decision, &binding, texts, &mut scratch));
        let set = (self.headers.x_ratelimit)
            .map(|format| XRateLimit::write(format, decision, &binding, texts, &mut scratch));
        let wait = wait.map(|seconds| (seconds, scratch.number(seconds)));
        let finished = scratch.finish();
        if let Some(policies) = texts.list() {
            let follows_others = headers.append(ietf::POLICY, policies.clone());
            if follows_others {
                self.report_same_name(texts, headers);
            }
        }
        if let Some(list) = list {
            headers.append(ietf::RATELIMIT, finished.value(list));
        }
        if let Some(set) = set {
            set.put(&finished, headers);
        }
        if let Some((seconds, text)) = wait {
            self.put_wait(seconds, finished.value(text), headers);
        }
    }

    /// Logs that another layer's policy has the name of one of these, if one of the first responses
    /// has it.
    #[cold]
    fn report_same_name(&self, texts: &Prepared, headers: &HeaderMap) {
        if self.looked_at.load(Ordering::Relaxed) >= LOOKS
            || self.looked_at.fetch_add(1, Ordering::Relaxed) >= LOOKS
        {
            return;
        }
        let lines = headers.get_all(ietf::POLICY);
        // The last one is ours.
        let before = lines.iter().count().saturating_sub(1);
        let mut names = (lines.iter().take(before)).flat_map(|line| texts.named_in(line));
        if let Some(name) = names.next()
            && self.looked_at.swap(REPORTED, Ordering::Relaxed) < REPORTED
        {
            let fault = format!(
                "two layers limit by a policy named {name:?}, which clients cannot tell apart: give one \
                 of their quotas a name of its own, `.named(\"...\")`, or remove one if they are the same"
            );
            log::say(Code::SamePolicyName, &fault);
        }
    }

    fn put_wait(&self, seconds: u64, value: HeaderValue, headers: &mut HeaderMap) {
        if self.headers.retry_after {
            put_wait(header::RETRY_AFTER, seconds, value.clone(), headers);
        }
        if self.headers.x_ratelimit_retry_after {
            put_wait(x_ratelimit::RETRY_AFTER, seconds, value, headers);
        }
    }
}

/// The texts of the policies that the decision is about, where they are others than the limiter
/// names, or nobody names any.
#[cold]
fn texts_of(headers: &Headers, decision: &Decision) -> Prepared {
    let policies: Vec<_> = decision.quotas().map(|quota| quota.policy()).collect();
    Prepared::new(headers.ietf, &policies)
}

impl Headers {
    /// Adds the fields of `decision` to those of a response, for handlers that ask a limiter
    /// themselves. Fields that are there already are [treated](super#fields-that-are-there-already)
    /// as a layer does it, and a decision that was not [counted](Decision::is_counted) adds
    /// nothing.
    ///
    /// Waits are told of denials only, each time with a [`jitter`](Self::jitter) of its own. A
    /// redirect (3xx) should have none of the fields: the status is for the caller to know. To
    /// answer a denial, [`Decision::into_result`] does all of it.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tower_ratelimit::{Headers, Key, LocalLimiter, Quota};
    ///
    /// let limiter = LocalLimiter::new(Quota::per_day(10).fixed_window());
    /// let decision = limiter.acquire(&Key::from("Ann"), 3);
    /// let mut fields = HeaderMap::new();
    /// Headers::new().apply(&decision, &mut fields);
    /// assert_eq!(fields["x-ratelimit-remaining"], "7");
    /// ```
    pub fn apply(&self, decision: &Decision, headers: &mut HeaderMap) {
        if !decision.is_counted() {
            return;
        }
        let jitter = self.draw_jitter();
        if decision.is_denied() && !jitter.is_zero() {
            let mut later = decision.clone();
            later.lengthen(jitter);
            self.put_once(&later, headers);
        } else {
            self.put_once(decision, headers);
        }
    }

    fn put_once(&self, decision: &Decision, headers: &mut HeaderMap) {
        let renderer = Renderer::once(self, decision);
        renderer.put(decision, &renderer.texts, headers);
    }
}

/// Sets the field `name` to `value`, which says `seconds`, unless it already asks for a longer
/// wait, or for one in a form that cannot be compared.
fn put_wait(name: HeaderName, seconds: u64, value: HeaderValue, headers: &mut HeaderMap) {
    match headers.entry(name) {
        Entry::Vacant(free) => {
            free.insert(value);
        }
        Entry::Occupied(mut present) => {
            if number::parse(present.iter()).is_some_and(|theirs| theirs < seconds) {
                present.insert(value);
            }
        }
    }
}

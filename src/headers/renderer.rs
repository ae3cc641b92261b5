//! The renderer: writes the fields of a limiter's decisions.
//!
//! In: the choice of fields ([`Headers`]) and the limiter's policies, when the layer is built; then a decision, or the
//! numbers of one, the status of its response, and the response's fields. Out: the fields that the module page lists.
//!
//! A decision takes one of three ways, the shortest that it fits:
//!
//! 1. About the limiter's one quota: [`Renderer::numbers`] are three integers, which the response's future carries in
//!    place of the decision.
//! 2. About the limiter's few quotas, each with all numbers: their integers (`FewQuotas`).
//! 3. Any other, about other policies or with unknown numbers: [`Renderer::write_any`].
//!
//! By the integers of the first two a thread finds the texts that it wrote before (`rendered_text_cache.rs`), or writes
//! them into one buffer (`texts.rs`). The texts are `FieldValues`, which are put into a copy of a template, a map that has
//! all names already, or appended to the fields that the response has (`response_fields.rs`).
//!
//! For `100 per minute` with 42 left the numbers are `remaining` 42, `seconds` 26, `reset` 26. The texts are
//! `"default";r=42;t=26`, `42` and `26`, the template has `RateLimit-Policy: "default";q=100;w=60` and
//! `X-RateLimit-Limit: 100`, and the copy gets the three texts in their places.

use std::{
    iter,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{
    Headers, QuotaNumbers, ResetFormat,
    quota_numbers::{self, FewQuotas, KnownNumbers, MOST_QUOTAS, PolicyNumbers},
    rendered_text_cache::{self, CacheKey, KeyOfOne, KeyOfSeveral},
    response_fields::{FieldValues, POLICY, Templates, XRateLimit, put_wait},
    texts::{ConstantParts, FieldTexts, PolicyTexts, number_value},
};
use crate::{
    decision::{Decision, Policy, Status},
    log::{self, Code},
};

#[derive(Debug)]
pub(crate) struct Renderer {
    headers: Headers,
    parts: ConstantParts,
    /// The texts of other policies that decisions may have.
    others: PolicyTexts,
    /// Templates for each quota as the binding one, of a limiter of few quotas that decides about many
    /// requests; otherwise empty.
    templates: Box<[Templates]>,
    /// Unique among renderers, or 0 for a renderer of one decision.
    id: u64,
    /// How many responses with the policy of another layer were checked for one of the same name.
    checked: AtomicU32,
}

/// The fields of a denial, without those of its content.
pub(crate) struct DenialFields<'a> {
    renderer: &'a Renderer,
    templates: &'a Templates,
    numbers: QuotaNumbers,
}

impl DenialFields<'_> {
    /// All fields of a denial whose content has this type and length.
    pub(crate) fn with_content(self, content_type: &HeaderValue, length: usize) -> HeaderMap {
        self.renderer.with_values(&self.numbers, true, |values| {
            self.templates.denial(values, content_type, length)
        })
    }
}

/// The number of responses that are checked for policies of one name: nested layers keep theirs.
const CHECKS: u32 = 16;

/// The value of [`Renderer::checked`] after the report.
const REPORTED: u32 = 1 << 31;

impl Renderer {
    pub(crate) fn new(headers: &Headers, policies: &[Policy]) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);

        let mut renderer = Self {
            headers: headers.clone(),
            parts: ConstantParts::new(
                headers.ietf,
                policies.iter().cloned(),
                &PolicyTexts::default(),
            ),
            others: PolicyTexts::default(),
            templates: Box::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            checked: AtomicU32::new(0),
        };
        if policies.len() <= MOST_QUOTAS {
            let numbers = QuotaNumbers::default();
            let texts = renderer.texts_of_quotas(&FewQuotas::default());
            let templates = (0..policies.len()).map(|binding| {
                let limit = renderer.limit(binding);
                Templates::new(|denied, map| {
                    let values = renderer.values(&texts, &numbers, limit, None, denied);
                    values.append(&renderer.headers, map);
                })
            });
            let templates: Option<Box<[_]>> = templates.collect();
            renderer.templates = templates.unwrap_or_default();
        }
        renderer
    }

    /// This renderer, which knows the texts of some other policies.
    pub(crate) fn with_others(mut self, others: PolicyTexts) -> Self {
        self.others = others;
        self
    }

    /// A renderer of this decision alone, which checks no policies for one name.
    pub(crate) fn once(headers: &Headers, decision: &Decision) -> Self {
        Self {
            headers: headers.clone(),
            parts: parts_of(headers, decision, &PolicyTexts::default()),
            others: PolicyTexts::default(),
            templates: Box::default(),
            id: 0,
            checked: AtomicU32::new(CHECKS),
        }
    }

    pub(crate) const fn headers(&self) -> &Headers {
        &self.headers
    }

    pub(crate) fn apply(&self, decision: &Decision, status: StatusCode, headers: &mut HeaderMap) {
        if status.is_redirection() {
            return;
        }
        let wait = decision.retry_after_seconds();
        let agrees = |seconds| wait.is_none_or(|wait| wait == seconds);
        let denied = decision.is_denied();
        if let Some(numbers) = self.numbers(decision)
            && agrees(numbers.seconds)
        {
            self.with_values(&numbers, wait.is_some(), |values| {
                self.write_known(values, 0, denied, headers);
            });
        } else if !decision.is_about(&self.parts.policies) {
            let parts = parts_of(&self.headers, decision, &self.others);
            self.write_any(decision, &parts, headers);
        } else if let Some((key, numbers)) = self.several_numbers(decision)
            && agrees(numbers.seconds)
        {
            let write = || self.texts_of_quotas(&key.quotas);
            let limit = self.limit(key.quotas.binding);
            self.with_texts(key, write, &numbers, limit, wait.is_some(), |values| {
                self.write_known(values, key.quotas.binding, denied, headers);
            });
        } else {
            self.write_any(decision, &self.parts, headers);
        }
    }

    /// The numbers that all fields of `decision` follow from; `None` if it is not about the limiter's
    /// one quota, or does not report all numbers.
    #[inline]
    pub(crate) fn numbers(&self, decision: &Decision) -> Option<QuotaNumbers> {
        self.templates.first()?;
        let status = decision.status_alone_of(&self.parts.policies)?;
        let known = KnownNumbers::of_status(status, self.parts.policies[0].unit());
        let (remaining, seconds) = (known.remaining?, known.seconds?);
        Some(QuotaNumbers {
            remaining,
            seconds,
            reset: self.reset(decision, status, seconds),
        })
    }

    /// The numbers that all fields of `decision` about the limiter's quotas follow from: those of each
    /// quota, and those of the binding one. `None` if quotas are many, or do not report all numbers.
    fn several_numbers(&self, decision: &Decision) -> Option<(KeyOfSeveral, QuotaNumbers)> {
        self.templates.first()?;
        let quotas = FewQuotas::of(decision)?;
        let status = decision.statuses().get(quotas.binding)?;
        let PolicyNumbers { remaining, seconds } = quotas.of_binding();
        let key = KeyOfSeveral {
            renderer: self.id,
            quotas,
        };
        let numbers = QuotaNumbers {
            remaining,
            seconds,
            reset: self.reset(decision, status, seconds),
        };
        Some((key, numbers))
    }

    /// The number of `X-RateLimit-Reset` for an effective window of `seconds`.
    #[inline]
    fn reset(&self, decision: &Decision, status: &Status, seconds: u64) -> u64 {
        let format = self.headers.x_ratelimit;
        let format = format.unwrap_or(ResetFormat::DeltaSeconds);
        quota_numbers::reset(format, decision, status, seconds)
    }

    /// Adds the fields of an allowed request with these numbers to a response with this status.
    pub(crate) fn apply_numbers(
        &self,
        numbers: &QuotaNumbers,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if status.is_redirection() {
            return;
        }
        self.with_values(numbers, false, |values| self.write(values, 0, headers));
    }

    /// The fields of a denial by the limiter's one quota that reports a wait.
    #[inline]
    pub(crate) fn denial(&self, decision: &Decision) -> Option<DenialFields<'_>> {
        decision.retry_after_seconds()?;
        Some(DenialFields {
            templates: self.templates.first()?,
            numbers: self.numbers(decision)?,
            renderer: self,
        })
    }

    /// Adds the wait to the response to a request that the limiter failed to decide: one second, since
    /// a store that failed is probed several times a second.
    pub(crate) fn apply_failure(&self, headers: &mut HeaderMap) {
        put_wait(&self.headers, 1, &number_value(1), headers);
    }

    /// Whether the response to an allowed request gets any field.
    #[inline]
    pub(crate) const fn renders_limits(&self) -> bool {
        self.headers.ietf.is_some() || self.headers.x_ratelimit.is_some()
    }

    pub(crate) fn draw_jitter(&self) -> Duration {
        self.headers.draw_jitter()
    }

    /// Calls `then` with the values of the fields of the limiter's one quota.
    #[inline]
    fn with_values<R>(
        &self,
        numbers: &QuotaNumbers,
        waits: bool,
        then: impl FnMut(&FieldValues<'_>) -> R,
    ) -> R {
        let &QuotaNumbers {
            remaining, seconds, ..
        } = numbers;
        let key = KeyOfOne {
            renderer: self.id,
            quota: PolicyNumbers { remaining, seconds },
        };
        let write = || self.texts_of_quota(remaining, seconds);
        self.with_texts(key, write, numbers, self.limit(0), waits, then)
    }

    /// Calls `then` with the values of fields by the texts of `key`. `numbers` and `limit` are those of the
    /// binding quota.
    #[inline]
    fn with_texts<R>(
        &self,
        key: impl CacheKey,
        write: impl FnOnce() -> FieldTexts,
        numbers: &QuotaNumbers,
        limit: Option<&HeaderValue>,
        waits: bool,
        mut then: impl FnMut(&FieldValues<'_>) -> R,
    ) -> R {
        let reset = numbers.reset;
        let epoch_reset = (reset != numbers.seconds).then(|| number_value(reset));
        rendered_text_cache::with_texts(key, write, |texts| {
            then(&self.values(texts, numbers, limit, epoch_reset.as_ref(), waits))
        })
    }

    #[inline]
    fn values<'a>(
        &'a self,
        texts: &'a FieldTexts,
        numbers: &QuotaNumbers,
        limit: Option<&'a HeaderValue>,
        epoch_reset: Option<&'a HeaderValue>,
        waits: bool,
    ) -> FieldValues<'a> {
        FieldValues {
            policies: self.parts.policy_list.as_ref(),
            list: texts.list.as_ref(),
            set: limit.map(|limit| XRateLimit {
                limit,
                remaining: Some((numbers.remaining, &texts.remaining)),
                reset: Some(epoch_reset.unwrap_or(&texts.seconds)),
            }),
            wait: waits.then_some((numbers.seconds, &texts.seconds)),
        }
    }

    /// The text of `X-RateLimit-Limit` if the quota at `binding` binds; `None` if responses do not have it.
    #[inline]
    fn limit(&self, binding: usize) -> Option<&HeaderValue> {
        let limit = |_| &self.parts.texts[binding].limit;
        self.headers.x_ratelimit.map(limit)
    }

    #[inline(never)]
    fn texts_of_quota(&self, remaining: u64, seconds: u64) -> FieldTexts {
        let numbers = KnownNumbers {
            remaining: Some(remaining),
            seconds: Some(seconds),
        };
        let quota = iter::once(numbers).zip(&self.parts.texts);
        FieldTexts::write(self.headers.ietf, quota, (remaining, seconds), None)
    }

    #[inline(never)]
    fn texts_of_quotas(&self, quotas: &FewQuotas) -> FieldTexts {
        let PolicyNumbers { remaining, seconds } = quotas.of_binding();
        let quotas = quotas.numbers.iter().map(KnownNumbers::from);
        let quotas = quotas.zip(&self.parts.texts);
        FieldTexts::write(self.headers.ietf, quotas, (remaining, seconds), None)
    }

    /// Adds the fields of any decision; `parts` are those of its policies.
    fn write_any(&self, decision: &Decision, parts: &ConstantParts, headers: &mut HeaderMap) {
        let wait = decision.retry_after_seconds();
        if !self.renders_limits() && wait.is_none() {
            return;
        }
        let set = self.headers.x_ratelimit.map(|format| {
            let place = decision.binding_place();
            let binding = decision.quota(place);
            let known = KnownNumbers::of(&binding);
            let reset = (known.seconds)
                .map(|seconds| quota_numbers::reset(format, decision, binding.numbers(), seconds));
            (&parts.texts[place].limit, known.remaining, reset)
        });
        let (remaining, reset) =
            set.map_or((None, None), |(_, remaining, reset)| (remaining, reset));
        let quotas = decision.quotas().map(|quota| KnownNumbers::of(&quota));
        let texts = FieldTexts::write(
            self.headers.ietf,
            quotas.zip(&parts.texts),
            // An unknown number is written as 0, which takes no memory, and is not added.
            (remaining.unwrap_or_default(), reset.unwrap_or_default()),
            wait,
        );
        let values = FieldValues {
            policies: parts.policy_list.as_ref(),
            list: texts.list.as_ref(),
            set: set.map(|(limit, ..)| XRateLimit {
                limit,
                remaining: remaining.map(|units| (units, &texts.remaining)),
                reset: reset.map(|_| &texts.seconds),
            }),
            wait: wait.zip(texts.wait.as_ref()),
        };
        self.append(&values, parts, headers);
    }

    /// Adds the fields of a decision by the limiter's quotas.
    fn write_known(
        &self,
        values: &FieldValues<'_>,
        binding: usize,
        denied: bool,
        headers: &mut HeaderMap,
    ) {
        if denied {
            self.append(values, &self.parts, headers);
        } else {
            self.write(values, binding, headers);
        }
    }

    /// Adds the fields of the limiter's quotas to the response to an allowed request: by a template if
    /// one fits. `binding` is the index of the binding quota.
    #[inline]
    fn write(&self, values: &FieldValues<'_>, binding: usize, headers: &mut HeaderMap) {
        let templates = self.templates.get(binding);
        if !templates.is_some_and(|templates| templates.put(values, headers)) {
            self.append(values, &self.parts, headers);
        }
    }

    /// Adds the fields of any quotas to a response; `parts` are those of their policies.
    fn append(&self, values: &FieldValues<'_>, parts: &ConstantParts, headers: &mut HeaderMap) {
        let fields = values.len(&self.headers);
        if fields == 0 {
            return;
        }
        // One more for the length that a router adds last, so that the map grows once.
        headers.reserve(fields + 1);
        if values.append(&self.headers, headers) {
            self.report_same_name(parts, headers);
        }
    }

    /// Logs that another layer's policy has the name of one of these, if one of the first responses
    /// shows it.
    #[cold]
    fn report_same_name(&self, parts: &ConstantParts, headers: &HeaderMap) {
        if self.checked.load(Ordering::Relaxed) >= CHECKS
            || self.checked.fetch_add(1, Ordering::Relaxed) >= CHECKS
        {
            return;
        }
        let lines = headers.get_all(POLICY);
        // The last one is ours.
        let before = lines.iter().count().saturating_sub(1);
        let mut names = (lines.iter().take(before)).flat_map(|line| parts.named_in(line));
        if let Some(name) = names.next()
            && self.checked.swap(REPORTED, Ordering::Relaxed) < REPORTED
        {
            let fault = format!(
                "two layers limit by a policy named {name:?}, which clients cannot distinguish: give one \
                 of their quotas a name of its own, `.named(\"...\")`, or remove one if they are the same"
            );
            log::report(Code::SamePolicyName, &fault);
        }
    }
}

/// The constant parts of a decision about other policies than the limiter's.
#[cold]
fn parts_of(headers: &Headers, decision: &Decision, known: &PolicyTexts) -> ConstantParts {
    let policies = decision.quotas().map(|quota| quota.policy());
    ConstantParts::new(headers.ietf, policies, known)
}

impl Headers {
    /// Adds the fields of `decision` to those of a response, for handlers that call a limiter
    /// themselves. Fields that exist already are [treated](super#fields-that-exist-already) as by a
    /// layer, and a decision that was not [counted](Decision::is_counted) adds
    /// nothing.
    ///
    /// Denials alone report waits, each time with a [`jitter`](Self::jitter) of its own. A
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
            Renderer::once(self, &later).apply(&later, StatusCode::OK, headers);
        } else {
            Renderer::once(self, decision).apply(decision, StatusCode::OK, headers);
        }
    }
}

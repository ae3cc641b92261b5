//! The renderer: writes the fields of a limiter's decisions.

use std::{
    iter,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{
    Figures, Headers, ResetFormat,
    fields::{Fields, put_wait},
    figures::{self, ToldNumbers},
    ietf,
    kept::{self, Texts},
    number,
    prepared::Prepared,
    template::Templates,
    text::FieldText,
    x_ratelimit::XRateLimit,
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
    /// Where responses have the fields of one quota, and there are many responses.
    templates: Option<Templates>,
    /// Another one for each renderer.
    number: u64,
    /// How many responses that already had a policy were looked at for one of the same name.
    looked_at: AtomicU32,
}

/// The fields of a denial, of which only those of its content are not known.
pub(crate) struct DenialFields<'a> {
    renderer: &'a Renderer,
    templates: &'a Templates,
    figures: Figures,
}

impl DenialFields<'_> {
    /// All fields of the denial, which has a content of this type and length.
    pub(crate) fn with_content(self, content_type: &HeaderValue, length: usize) -> HeaderMap {
        self.renderer.with_fields(&self.figures, true, |fields| {
            self.templates.denial(fields, content_type, length)
        })
    }
}

/// The number of responses that are looked at: the layers around each other keep their policies.
const LOOKS: u32 = 16;

/// Two of one name were found, which is said once.
const REPORTED: u32 = 1 << 31;

impl Renderer {
    pub(crate) fn new(headers: &Headers, policies: &[Policy]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);

        let mut renderer = Self {
            headers: headers.clone(),
            texts: Prepared::new(headers.ietf, policies),
            templates: None,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            looked_at: AtomicU32::new(0),
        };
        if policies.len() == 1 {
            let numbers = Figures {
                remaining: 0,
                seconds: 0,
                reset: 0,
            };
            renderer.templates = Templates::new(|denied, map| {
                renderer.with_fields(&numbers, denied, |fields| fields.append(headers, map));
            });
        }
        renderer
    }

    /// A renderer for this decision alone. It leaves policies of one name to those that see many
    /// responses.
    pub(crate) fn once(headers: &Headers, decision: &Decision) -> Self {
        Self {
            headers: headers.clone(),
            texts: texts_of(headers, decision),
            templates: None,
            number: 0,
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
        if let (Some(figures), false) = (self.figures(decision), decision.is_denied()) {
            self.apply_figures(&figures, status, headers);
        } else if self.texts.fit(decision) {
            self.put(decision, &self.texts, headers);
        } else {
            self.put(decision, &texts_of(&self.headers, decision), headers);
        }
    }

    /// The numbers from which the fields of `decision` follow, if it is about the layer's one quota and
    /// says all that can be told.
    #[inline]
    pub(crate) fn figures(&self, decision: &Decision) -> Option<Figures> {
        self.templates.as_ref()?;
        let status = self.texts.status_alone(decision)?;
        let told = ToldNumbers::of(status);
        let (remaining, seconds) = (told.remaining?, told.seconds?);
        let format = self
            .headers
            .x_ratelimit
            .unwrap_or(ResetFormat::DeltaSeconds);
        Some(Figures {
            remaining,
            seconds,
            reset: figures::reset(format, decision, status, seconds),
        })
    }

    /// Adds the fields that these numbers make to a response with this status that is no denial.
    pub(crate) fn apply_figures(
        &self,
        figures: &Figures,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if status.is_redirection() {
            return;
        }
        self.with_fields(figures, false, |fields| {
            let templates = self.templates.as_ref();
            if !templates.is_some_and(|templates| templates.put(fields, headers)) {
                self.append(fields, &self.texts, headers);
            }
        });
    }

    /// The fields of a denial by the layer's one quota that will pass some time.
    #[inline]
    pub(crate) fn denial(&self, decision: &Decision) -> Option<DenialFields<'_>> {
        decision.retry_after_seconds()?;
        Some(DenialFields {
            templates: self.templates.as_ref()?,
            figures: self.figures(decision)?,
            renderer: self,
        })
    }

    /// Adds to the answer to a request that the limiter could not decide about when to come back:
    /// a store that failed is tried several times a second.
    pub(crate) fn apply_failure(&self, headers: &mut HeaderMap) {
        put_wait(&self.headers, 1, &number::header_value(1), headers);
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

    /// Adds the fields of any decision; `texts` are those of its policies.
    fn put(&self, decision: &Decision, texts: &Prepared, headers: &mut HeaderMap) {
        let wait = decision.retry_after_seconds();
        let fields = self.limit_fields() + wait.map_or(0, |_| self.wait_fields());
        if fields == 0 {
            return;
        }
        // One more for the length that a router adds last, so that the map grows once.
        headers.reserve(fields + 1);
        let mut scratch = FieldText::new();
        let told = decision.statuses().iter().map(ToldNumbers::of);
        let list = (self.headers.ietf)
            .and_then(|draft| ietf::status_list(draft, told.zip(texts.texts()), &mut scratch));
        let set = self.headers.x_ratelimit.map(|format| {
            let (place, binding) = decision.binding_place();
            let ToldNumbers { remaining, seconds } = ToldNumbers::of(binding);
            let reset = seconds.map(|seconds| figures::reset(format, decision, binding, seconds));
            let remaining = remaining.map(|units| (units, scratch.number(units)));
            let limit = &texts.texts()[place].limit;
            (limit, remaining, reset.map(|reset| scratch.number(reset)))
        });
        let wait = wait.map(|seconds| (seconds, scratch.number(seconds)));
        let finished = scratch.finish();
        let list = list.map(|list| finished.value(list));
        let set = set.map(|(limit, remaining, reset)| {
            let remaining = remaining.map(|(units, text)| (units, finished.value(text)));
            (limit, remaining, reset.map(|reset| finished.value(reset)))
        });
        let wait = wait.map(|(seconds, text)| (seconds, finished.value(text)));
        let set = set.as_ref().map(|(limit, remaining, reset)| XRateLimit {
            limit,
            remaining: remaining.as_ref().map(|(units, value)| (*units, value)),
            reset: reset.as_ref(),
        });
        let fields = Fields {
            policies: texts.list(),
            list: list.as_ref(),
            set,
            wait: wait.as_ref().map(|(seconds, value)| (*seconds, value)),
        };
        self.append(&fields, texts, headers);
    }

    fn append(&self, fields: &Fields<'_>, texts: &Prepared, headers: &mut HeaderMap) {
        if fields.append(&self.headers, headers) {
            self.report_same_name(texts, headers);
        }
    }

    /// Goes on with the fields of a decision about the layer's one quota, of which these are the
    /// numbers.
    #[inline]
    fn with_fields<R>(
        &self,
        figures: &Figures,
        denied: bool,
        mut then: impl FnMut(&Fields<'_>) -> R,
    ) -> R {
        let Figures {
            remaining,
            seconds,
            reset,
        } = *figures;
        let other_reset = (reset != seconds).then(|| number::header_value(reset));
        let write = || self.write(remaining, seconds);
        kept::with(self.number, (remaining, seconds), write, |texts| {
            then(&Fields {
                policies: self.texts.list(),
                list: texts.list.as_ref(),
                set: self.headers.x_ratelimit.map(|_| XRateLimit {
                    limit: &self.texts.texts()[0].limit,
                    remaining: Some((remaining, &texts.remaining)),
                    reset: Some(other_reset.as_ref().unwrap_or(&texts.seconds)),
                }),
                wait: denied.then_some((seconds, &texts.seconds)),
            })
        })
    }

    #[inline(never)]
    fn write(&self, remaining: u64, seconds: u64) -> Texts {
        let told = ToldNumbers {
            remaining: Some(remaining),
            seconds: Some(seconds),
        };
        let mut scratch = FieldText::new();
        let quota = iter::once(told).zip(self.texts.texts());
        let list =
            (self.headers.ietf).and_then(|draft| ietf::status_list(draft, quota, &mut scratch));
        let (remaining, seconds) = (scratch.number(remaining), scratch.number(seconds));
        let finished = scratch.finish();
        Texts {
            remaining: finished.value(remaining),
            seconds: finished.value(seconds),
            list: list.map(|list| finished.into_value(list)),
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

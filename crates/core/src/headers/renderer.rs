//! The renderer: writes the fields of a limiter's decisions.
//!
//! In: the choice of fields ([`Headers`]) and the limiter's policies, when the layer is built; then a decision, or the
//! numbers of one, the status of its response, and the response's fields. Out: the fields that the module page lists.
//!
//! All texts are written into one buffer, whatever limits the decision is about. The texts of the layer's own
//! policies are kept. The numbers of a layer's one quota are three integers: the future of the response
//! carries them in place of the decision, and by them a thread finds the texts that it wrote before
//! (`with_cached_texts`). The texts are put into a copy of a template, a map that has all names already, or appended
//! to the fields that the response has.
//!
//! For `100 per minute` with 42 left the numbers are `remaining` 42, `seconds` 26, `reset` 26. The texts are
//! `"default";r=42;t=26`, `42` and `26`, the template has `RateLimit-Policy: "default";q=100;w=60` and
//! `X-RateLimit-Limit: 100`, and the copy gets the three texts in their places.

use std::{
    cell::RefCell,
    mem,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{self, Entry},
};

use super::{
    ConstantTexts, FieldTexts, Headers, QuotaNumbers, ReportedQuota, SeveralNumbers, named_in,
    number_value, parse_number,
};
use crate::{
    decision::{Decision, Policy, QuotaStatus},
    log::{self, Code},
};

#[derive(Debug)]
#[doc(hidden)]
pub struct Renderer {
    headers: Headers,
    own: Box<[OwnPolicies]>,
    /// `None` for a renderer of one decision.
    templates: Option<Templates>,
    /// Unique among renderers, or 0 for a renderer of one decision.
    id: u64,
    /// How many responses with the policy of another layer were checked for one of the same name.
    checked: AtomicU32,
}

/// Policies of a layer, or of a set of a rule's quotas.
#[derive(Debug)]
struct OwnPolicies {
    /// As decisions have them whose fields have the same texts each time.
    policies: Box<[Policy]>,
    texts: ConstantTexts,
}

/// The most sets of policies whose texts are kept: a decision is looked for among them. A rule may have a tier for each
/// customer.
const MOST_SETS: usize = 8;

/// The number of responses that are checked for policies of one name: nested layers keep theirs.
const CHECKS: u32 = 16;

/// The value of [`Renderer::checked`] after the report.
const REPORTED: u32 = 1 << 31;

#[doc(hidden)]
impl Renderer {
    pub fn new(headers: &Headers, sets: &[&[Policy]]) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);

        let own = sets.iter().filter(|policies| !policies.is_empty());
        let own = own.take(MOST_SETS).map(|policies| {
            let policies: Box<[_]> = policies.iter().map(Policy::constant).collect();
            let texts = ConstantTexts::new(headers, &policies);
            OwnPolicies { policies, texts }
        });
        let mut renderer = Self {
            own: own.collect(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            checked: AtomicU32::new(0),
            ..Self::once(headers)
        };
        if !renderer.own.is_empty() {
            let texts = renderer.texts_of_own(renderer.key(&QuotaNumbers::default()));
            renderer.templates = Templates::new(headers, &texts);
        }
        renderer
    }

    /// A renderer of one decision, which checks no policies for one name.
    pub(crate) fn once(headers: &Headers) -> Self {
        Self {
            headers: headers.clone(),
            own: Box::default(),
            templates: None,
            id: 0,
            checked: AtomicU32::new(CHECKS),
        }
    }

    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    pub fn apply(&self, decision: &Decision, status: StatusCode, headers: &mut HeaderMap) {
        let wait = decision.retry_after_seconds();
        if status.is_redirection() || !(wait.is_some() || self.renders_limits()) {
            return;
        }
        let (waits, fits) = (wait.is_some(), !decision.is_denied());
        if let Some(numbers) = self.numbers(decision) {
            return self.write_own(self.key(&numbers), waits, fits, headers);
        }
        let format = self.headers.x_ratelimit;
        let mut sets = self.own.iter().map(|own| &*own.policies).enumerate();
        let several = sets.find_map(|set| SeveralNumbers::of(decision, set, format));
        if let Some((several, numbers)) = several {
            let key = self.key(&numbers);
            let several = Some(&several);
            return self.write_own(Key { several, ..key }, waits, fits, headers);
        }
        let texts = self.texts_of(decision, wait);
        let fits = fits && texts.are_whole(&self.headers);
        self.write(&texts, false, (waits, fits), Some(decision), headers);
    }

    /// The numbers that all fields of `decision` follow from; `None` if it is not about the limiter's
    /// one quota, or does not report all numbers.
    #[inline]
    pub fn numbers(&self, decision: &Decision) -> Option<QuotaNumbers> {
        let policies = &*self.own.first()?.policies;
        let status = decision.quotas.alone_of(policies)?;
        ReportedQuota::of((&policies[0], status), decision, self.headers.x_ratelimit).numbers()
    }

    /// Adds the fields of an allowed request with these numbers to a response with this status.
    pub fn apply_numbers(
        &self,
        numbers: &QuotaNumbers,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if status.is_redirection() {
            return;
        }
        self.write_own(self.key(numbers), false, true, headers);
    }

    /// All fields of a denial that reports a wait, and whose content has this type and length; `None` if they do not
    /// follow from its numbers.
    pub(crate) fn denial(
        &self,
        decision: &Decision,
        content_type: &HeaderValue,
        length: usize,
    ) -> Option<HeaderMap> {
        let (templates, wait) = (self.templates.as_ref()?, decision.retry_after_seconds()?);
        if let Some(numbers) = self.numbers(decision) {
            let key = self.key(&numbers);
            let write = || self.texts_of_own(key);
            let filled = with_cached_texts(key, write, |texts| {
                templates.denial(texts, true, content_type, length)
            });
            if filled.is_some() {
                return filled;
            }
        }
        let texts = self.texts_of(decision, Some(wait));
        let fits = texts.are_whole(&self.headers);
        fits.then(|| templates.denial(&texts, false, content_type, length))
    }

    /// Adds the wait to the response to a request that the limiter failed to decide: one second, since
    /// a store that failed is probed several times a second.
    pub(crate) fn apply_failure(&self, headers: &mut HeaderMap) {
        put_wait(&self.headers, 1, &number_value(1), headers);
    }

    /// Whether the response to an allowed request gets any field.
    #[inline]
    pub const fn renders_limits(&self) -> bool {
        self.headers.ietf.is_some() || self.headers.x_ratelimit.is_some()
    }

    pub fn draw_jitter(&self) -> Duration {
        self.headers.draw_jitter()
    }

    #[inline]
    const fn key<'a>(&self, numbers: &QuotaNumbers) -> Key<'a> {
        Key {
            renderer: self.id,
            numbers: *numbers,
            several: None,
        }
    }

    /// Adds the fields of the own quotas to a response, by the template if it `fits`.
    #[inline(always)]
    fn write_own(&self, key: Key<'_>, waits: bool, fits: bool, headers: &mut HeaderMap) {
        let one = key.several.is_none();
        let cached = with_cached_texts(
            key,
            || self.texts_of_own(key),
            |texts| self.write(texts, one, (waits, fits), None, headers),
        );
        if cached.is_none() {
            self.write(&self.texts_of_own(key), one, (waits, fits), None, headers);
        }
    }

    /// The texts of the own quotas.
    #[inline(never)]
    fn texts_of_own(&self, key: Key<'_>) -> FieldTexts {
        let QuotaNumbers {
            remaining,
            seconds,
            reset,
        } = key.numbers;
        let own = self.own.get(key.several.map_or(0, |several| several.set));
        let policies = own.map_or(&[][..], |own| &own.policies);
        let (of_each, binding) = match key.several {
            Some(several) => (&several.of_each[..], several.binding),
            None => (&[(remaining, seconds)][..], 0),
        };
        let quotas = policies.iter().zip(of_each);
        let quotas = quotas.map(|(policy, (remaining, seconds))| ReportedQuota {
            policy,
            limit: policy.limit(),
            remaining: Some(*remaining),
            seconds: Some(*seconds),
            reset: Some(reset),
        });
        let (binding, wait) = ((binding, quotas.clone().nth(binding)), Some(seconds));
        FieldTexts::write(
            &self.headers,
            own.map(|own| &own.texts),
            quotas,
            binding,
            wait,
        )
    }

    /// The texts of any decision.
    #[inline(never)]
    fn texts_of<'a>(&self, decision: &'a Decision, wait: Option<u64>) -> FieldTexts {
        let format = self.headers.x_ratelimit;
        // A limit that counted several keys shows the one with the least left.
        let is_least = |(at, quota): &(usize, QuotaStatus<'_>)| {
            let counter = decision.counter_of(*at);
            let mut others = decision.statuses().iter().enumerate();
            counter.is_none()
                || !others.any(|(other, own)| {
                    let is_less = (own.remaining(), other) < (quota.remaining(), *at);
                    is_less && decision.counter_of(other) == counter
                })
        };
        let quotas = decision.quotas().enumerate().filter(is_least);
        let reported = |quota: QuotaStatus<'a>| {
            ReportedQuota::of((quota.policy, &quota.status), decision, format)
        };
        let (quotas, place) = (
            quotas.map(|(_, quota)| reported(quota)),
            decision.quotas.binding_place(),
        );
        let binding = (place, decision.quotas().nth(place).map(reported));
        FieldTexts::write(&self.headers, None, quotas, binding, wait)
    }

    /// Adds the fields to a response, by the template if it `fits`. `decision` may be about other policies than the own
    /// ones.
    #[inline(never)]
    fn write(
        &self,
        texts: &FieldTexts,
        one: bool,
        (waits, fits): (bool, bool),
        decision: Option<&Decision>,
        headers: &mut HeaderMap,
    ) {
        if fits
            && let Some(templates) = &self.templates
            && templates.put(texts, one, headers)
        {
            return;
        }
        if texts.append(&self.headers, waits, headers) {
            self.report_same_name(decision, headers);
        }
    }

    /// Logs that another layer's policy has the name of one of these, if one of the first responses
    /// shows it.
    #[cold]
    fn report_same_name(&self, decision: Option<&Decision>, headers: &HeaderMap) {
        if self.checked.load(Ordering::Relaxed) >= CHECKS
            || self.checked.fetch_add(1, Ordering::Relaxed) >= CHECKS
        {
            return;
        }
        let quotas = decision.into_iter().flat_map(Decision::quotas);
        let own = self.own.iter().flat_map(|own| &own.policies);
        let own = own.filter(|_| decision.is_none());
        let names = quotas
            .map(|quota| quota.name())
            .chain(own.map(Policy::name));
        let lines = headers.get_all(POLICY);
        // The last one is ours.
        let before = lines.iter().count().saturating_sub(1);
        let mut shared = (lines.iter().take(before)).flat_map(|line| named_in(names.clone(), line));
        if let Some(name) = shared.next()
            && self.checked.swap(REPORTED, Ordering::Relaxed) < REPORTED
        {
            let fault = format!(
                "two layers limit by a policy named {name:?}, which clients cannot distinguish: give one \
                 of their quotas a name of its own, `.named(\"...\")`, or remove one if they are the same"
            );
            log::report(Code::SAME_POLICY_NAME, &fault);
        }
    }
}

impl Headers {
    /// Adds the fields of `decision` to those of a response, for handlers that call a limiter
    /// themselves. Fields that exist already are [treated](super#fields-that-exist-already) as by a
    /// layer, and a decision that was not [counted](Decision::is_counted) adds
    /// nothing.
    ///
    /// Denials alone report waits, each time with a [`jitter`](Self::jitter) of its own. A
    /// redirect (3xx) should have none of the fields: the status is for the caller to know. To
    /// respond to a denial, [`Decision::into_result`] does all of it.
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
        let (jitter, mut later) = (self.draw_jitter(), None);
        if decision.is_denied() && !jitter.is_zero() {
            later.insert(decision.clone()).lengthen(jitter);
        }
        let shown = later.as_ref().unwrap_or(decision);
        Renderer::once(self).apply(shown, StatusCode::OK, headers);
    }
}

/// Texts of this many remaining units and more are not cached: hardly two responses report the same.
const UNCACHED_UNITS: u64 = 1_000;

/// The number of texts that each thread caches, of all its layers.
const SLOTS: usize = 256;

thread_local! {
    /// One cache for each thread: processors would contend for a reference count that threads share.
    static CACHE: RefCell<Vec<Option<CachedTexts>>> = const { RefCell::new(Vec::new()) };
}

/// The texts follow from the renderer, the numbers of its binding quota, and if it has several quotas the index of that one and the numbers of each.
#[derive(Clone, Copy)]
struct Key<'a> {
    renderer: u64,
    #[doc(hidden)]
    pub numbers: QuotaNumbers,
    several: Option<&'a SeveralNumbers>,
}

struct CachedTexts {
    /// The parts of the key that all texts have.
    of: (u64, QuotaNumbers),
    several: Option<SeveralNumbers>,
    texts: FieldTexts,
}

/// Calls `then` with the texts in the cache, or with those that `write` makes; `None` if they are not worth a place.
#[inline(always)]
fn with_cached_texts<R>(
    key: Key<'_>,
    write: impl FnOnce() -> FieldTexts,
    then: impl FnOnce(&FieldTexts) -> R,
) -> Option<R> {
    let Key {
        renderer,
        numbers,
        several,
    } = key;
    if numbers.remaining >= UNCACHED_UNITS || several.is_some_and(|all| !all.may_recur()) {
        return None;
    }
    let slot = numbers.slot(several.map_or(renderer, |all| all.hash(renderer)));
    // Fails only while the thread ends.
    let result = CACHE.try_with(|cache| {
        let mut cache = cache.try_borrow_mut().ok()?;
        if cache.is_empty() {
            cache.resize_with(SLOTS, || None);
        }
        let place = cache.get_mut(slot)?;
        let is_of = |cached: &CachedTexts| {
            cached.of == (renderer, numbers) && cached.several.as_ref() == several
        };
        if !place.as_ref().is_some_and(is_of) {
            *place = Some(CachedTexts {
                of: (renderer, numbers),
                several: several.copied(),
                texts: write(),
            });
        }
        Some(then(&place.as_ref()?.texts))
    });
    result.ok().flatten()
}

impl QuotaNumbers {
    /// The place of its texts. Nested layers often have as much left, and should not evict each other. Denials have
    /// nothing left, and differ in the seconds.
    #[inline]
    const fn slot(&self, before: u64) -> usize {
        let numbers = self.seconds.wrapping_mul(7).wrapping_add(self.remaining);
        before.wrapping_mul(37).wrapping_add(numbers) as usize % SLOTS
    }
}

impl SeveralNumbers {
    fn may_recur(&self) -> bool {
        self.of_each.iter().all(|(left, _)| *left < UNCACHED_UNITS)
    }

    fn hash(&self, before: u64) -> u64 {
        // A factor for each place, since quotas often have as much left as each other.
        self.of_each.iter().fold(before, |hash, (left, seconds)| {
            let numbers = seconds.wrapping_mul(7).wrapping_add(*left);
            hash.wrapping_mul(37).wrapping_add(numbers)
        })
    }
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

/// The names of [`FieldTexts::values`].
const NAMES: [HeaderName; 5] = [POLICY, RATELIMIT, LIMIT, REMAINING, RESET];

const PREFIX: &str = "x-ratelimit-";

impl FieldTexts {
    /// Adds the fields to a response. Returns whether it had a `RateLimit-Policy`.
    pub(super) fn append(&self, choice: &Headers, waits: bool, headers: &mut HeaderMap) -> bool {
        // One more for the length that a router adds last, so that the map grows once.
        headers.reserve(NAMES.len() + 2 + 1);
        let mut had_policies = false;
        for (name, value) in NAMES.into_iter().zip(&self.values) {
            let Some(value) = value else {
                continue;
            };
            // Names are compared rather than looked up: a response has few fields, and three lookups
            // hash some sixty bytes.
            if name == LIMIT && headers.keys().any(is_of_a_set) && !self.replace_set(headers) {
                break;
            }
            // The response has none of a set now, and to append takes less time than to insert.
            let is_policy = name == POLICY;
            had_policies |= headers.append(name, value.clone()) && is_policy;
        }
        if let Some(wait) = self.wait().filter(|_| waits) {
            put_wait(choice, self.seconds, wait, headers);
        }
        had_policies
    }

    /// Removes another `X-RateLimit-` set, if this one replaces it.
    #[cold]
    fn replace_set(&self, headers: &mut HeaderMap) -> bool {
        let theirs = headers.get_all(REMAINING);
        let binds_more = self.remaining.is_some_and(|ours| {
            !headers.contains_key(REMAINING)
                || parse_number(theirs).is_some_and(|theirs| ours < theirs)
        });
        if binds_more {
            for name in [LIMIT, REMAINING, RESET] {
                headers.remove(name);
            }
        }
        binds_more
    }

    /// Whether all fields are known that a template has.
    fn are_whole(&self, choice: &Headers) -> bool {
        let [_, list, _, remaining, reset] = self.values.each_ref().map(Option::is_some);
        let has_set = choice.x_ratelimit.is_some();
        list == choice.ietf.is_some() && remaining == has_set && reset == has_set
    }

    /// Sets the fields of a template, in the order in which [`append`](Self::append) adds them. If the numbers are those
    /// of a layer's one quota, the template has its policy and limit.
    #[inline(always)]
    fn fill<'v>(&self, one: bool, places: &mut impl Iterator<Item = &'v mut HeaderValue>) {
        for (value, changes) in self.values.iter().zip([!one, true, !one, true, true]) {
            if let Some(value) = value
                && let Some(place) = places.next()
                && changes
            {
                *place = value.clone();
            }
        }
    }
}

pub(super) fn put_wait(
    choice: &Headers,
    seconds: u64,
    value: &HeaderValue,
    headers: &mut HeaderMap,
) {
    if choice.retry_after {
        put_longer(header::RETRY_AFTER, seconds, value, headers);
    }
    if choice.x_ratelimit_retry_after {
        put_longer(X_RETRY_AFTER, seconds, value, headers);
    }
}

/// Sets the field `name` to `value`, the text of `seconds`. A field that reports a longer wait stays,
/// and so does one that is no number.
fn put_longer(name: HeaderName, seconds: u64, value: &HeaderValue, headers: &mut HeaderMap) {
    match headers.entry(name) {
        Entry::Vacant(free) => {
            free.insert(value.clone());
        }
        Entry::Occupied(mut present) => {
            if parse_number(present.iter()).is_some_and(|theirs| theirs < seconds) {
                present.insert(value.clone());
            }
        }
    }
}

#[inline]
fn is_of_a_set(name: &HeaderName) -> bool {
    // Most names differ in the first comparison already.
    name.as_str().starts_with(PREFIX) && [LIMIT, REMAINING, RESET].contains(name)
}

/// The maps that responses of a layer begin with. A clone hashes no names.
#[derive(Debug)]
pub(super) struct Templates {
    bare: HeaderMap,
    /// `Content-Type`, the only field of many responses, and the fields about the limit.
    typed: HeaderMap,
    /// The fields of a denial's content, and the fields about the limit.
    denial: HeaderMap,
}

/// A response with more fields of its own gets those about the limit appended.
const MOST_OWN: usize = 4;

/// A field that a template has and a response loses: a clone of a map has no room for more fields than
/// the map, so that one more field makes it grow. A router sets this one last.
const ROOM: HeaderName = header::CONTENT_LENGTH;

impl Templates {
    /// Templates of the fields that these texts add. `None` if a map does not keep the order of its fields.
    pub(super) fn new(choice: &Headers, texts: &FieldTexts) -> Option<Self> {
        let template = |own: &[(HeaderName, HeaderValue)], denied| {
            // Room for all fields, so that the index does not grow.
            let mut map = HeaderMap::with_capacity(8);
            map.extend(own.iter().cloned());
            texts.append(choice, denied, &mut map);
            let mut limit = HeaderMap::new();
            texts.append(choice, denied, &mut limit);
            let names = own.iter().map(|(name, _)| name).chain(limit.keys());
            let in_order = map.keys().eq(names);
            map.insert(ROOM, HeaderValue::from_static(""));
            in_order.then_some(map)
        };
        let (to_be_set, no_store) = const {
            let no_store = HeaderValue::from_static("no-store");
            (HeaderValue::from_static(""), no_store)
        };
        let content = [
            (header::CONTENT_TYPE, to_be_set.clone()),
            (header::CONTENT_LENGTH, to_be_set),
            (header::CACHE_CONTROL, no_store),
        ];
        Some(Self {
            bare: template(&[], false)?,
            typed: template(&content[..1], false)?,
            denial: template(&content, true)?,
        })
    }

    /// Adds the fields to those of a response; all are known. `false` if it has fields about a limit or many others, and
    /// gets none. `one`: they are those of a layer's one quota.
    #[inline(never)]
    fn put(&self, texts: &FieldTexts, one: bool, headers: &mut HeaderMap) -> bool {
        if headers.len() == 1 && headers.keys().next() == Some(&header::CONTENT_TYPE) {
            let mut own = mem::replace(headers, self.typed.clone());
            let mut places = headers.values_mut();
            if let (Some(place), Some(value)) = (places.next(), own.values_mut().next()) {
                mem::swap(place, value);
            }
            texts.fill(one, &mut places);
            headers.remove(ROOM);
            return true;
        }
        // Another layer may have added fields about a limit.
        let is_ours =
            |name: &HeaderName| *name == POLICY || *name == RATELIMIT || is_of_a_set(name);
        if headers.len() > MOST_OWN || headers.keys().any(is_ours) {
            return false;
        }
        let own = mem::replace(headers, self.bare.clone());
        texts.fill(one, &mut headers.values_mut());
        headers.remove(ROOM);
        headers.extend(own);
        true
    }

    /// All fields of a denial whose content has this type and length.
    #[inline(never)]
    pub(super) fn denial(
        &self,
        texts: &FieldTexts,
        one: bool,
        content_type: &HeaderValue,
        length: usize,
    ) -> HeaderMap {
        let mut map = self.denial.clone();
        let mut places = map.values_mut();
        if let (Some(type_place), Some(length_place)) = (places.next(), places.next()) {
            *type_place = content_type.clone();
            *length_place = number_value(length as u64);
        }
        places.next();
        texts.fill(one, &mut places);
        if let Some(wait) = texts.wait() {
            places.for_each(|place| *place = wait.clone());
        }
        map
    }
}

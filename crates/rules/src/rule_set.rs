//! The set of rules: immutable after it is read, and shared.

use std::{fmt, path::PathBuf, sync::Arc};

use http::{HeaderMap, HeaderName, request::Parts};
use tower_ratelimit_rulefile::{Format, Problem, RulesError};

use super::{
    compile::Compiled,
    cors_origins::CorsOrigins,
    explain::Explanation,
    reload_changes::RuleChanges,
    request::{RequestReading, RequestView},
    rule::{Rule, RuleNeed},
    rule_selection::{
        ChargeOfRule, RuleIndex, RulesVerdict, needs_call, of_each, select, select_batch,
        select_in_flight,
    },
    store::{LimitOfSet, LimitsOfSets, RuleLimits, RulesStore, SourcesOfRule},
};
pub(crate) use tower_ratelimit_client_ip::client_ip::ClientIp;
use tower_ratelimit_concurrency::PermitSource;
use tower_ratelimit_core::{
    clock::{SharedClock, Timestamp},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind},
    key::Key,
    limiter::{AnyLimiter, Limiter, LocalStore, OnChange, QuotaChange},
    quota::Quota,
};
use tower_ratelimit_layer::mcp::{Mcp, McpBatch};
pub(crate) use tower_ratelimit_layer::rate_limit::OVERFLOW_FIELD;

/// The checked rules of one or several files. Clones share them.
///
/// A set is immutable: a reload creates another one, and a request ends under the set with which it began. Created by
/// [`RulesBuilder`](super::RulesBuilder).
///
/// ```
/// use http::Request;
/// use tower_ratelimit::{
///     clock::Timestamp,
///     rules::{Format, Rules},
/// };
///
/// let rules = Rules::builder().parse(
///     r#"
/// rules:
///   - {name: health, match: {path: /healthz}, action: allow}
///   - {name: api, match: {path: "/api/**"}, key: bearer_token, quota: 100/minute}
/// "#,
///     Format::Yaml,
/// )?;
///
/// let (parts, ()) = Request::get("/api//users/").body(())?.into_parts();
/// let explanation = rules.explain(&parts, Timestamp::from_secs(0));
/// assert_eq!(explanation.applied().collect::<Vec<_>>(), ["api"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rules(Arc<RuleSet>);

#[derive(Debug, Clone)]
struct RuleSet {
    rules: Box<[Rule]>,
    index: RuleIndex,
    reading: RequestReading,
    clock: SharedClock,
    needs_time: bool,
    /// Whether any rule marks requests that it denies.
    marks: bool,
    has_in_flight: bool,
    has_spend: bool,
    has_calls: bool,
    limits: RuleLimits,
    /// The limits of each set of quotas, by the rule's position and the index of the set.
    limits_of_sets: Arc<[LimitsOfSets]>,
    /// The places where the permits of each rule are counted, by position; empty if no rule has any.
    permit_sources: Box<[SourcesOfRule]>,
    store: RulesStore,
    origin: Option<Arc<RulesOrigin>>,
    warnings: Box<[Problem]>,
    /// The limits that are left out: the name of a rule, and a field of it.
    left_out: Box<[(Box<str>, &'static str)]>,
}

pub(super) struct RulesOrigin {
    pub(super) paths: Vec<PathBuf>,
    /// The name of each file, and the SHA-256 of its text.
    pub(super) files: Vec<(String, String)>,
    #[cfg_attr(not(feature = "rules-watch"), allow(dead_code))]
    pub(super) format: Option<Format>,
    /// Reads the files again, with the same registrations and the same store.
    pub(super) read: Box<dyn Fn() -> Result<Rules, RulesError> + Send + Sync>,
}

impl fmt::Debug for RulesOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.paths.fmt(f)
    }
}

impl Rules {
    /// # Errors
    ///
    /// When the store cannot count by these rules.
    pub(super) fn new(
        compiled: Compiled,
        store: &RulesStore,
        clock: SharedClock,
        origin: Option<RulesOrigin>,
    ) -> Result<Self, RulesError> {
        let (limits, limits_of_sets) = store.limits(&compiled.rules, &compiled.store)?;
        let permit_sources = store.permit_sources(&compiled.rules, &compiled.store)?;
        Ok(Self(Arc::new(RuleSet {
            index: RuleIndex::new(&compiled.rules),
            needs_time: compiled.rules.iter().any(Rule::needs_time),
            marks: compiled.rules.iter().any(Rule::overflows),
            has_in_flight: compiled.rules.iter().any(|rule| rule.in_flight.is_some()),
            has_spend: compiled.rules.iter().any(|rule| rule.spend.is_some()),
            has_calls: compiled.rules.iter().any(Rule::needs_call),
            rules: compiled.rules.into(),
            reading: compiled.reading,
            clock: store.clock().cloned().unwrap_or(clock),
            limits,
            limits_of_sets,
            permit_sources,
            store: store.clone(),
            origin: origin.map(Arc::new),
            warnings: compiled.warnings.into(),
            left_out: compiled.left_out.into(),
        })))
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.0.rules.len()
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// The rules' names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.rules.iter().map(|rule| &*rule.name)
    }

    /// The limits that are left out, see [`RulesBuilder::requests_only`](super::RulesBuilder::requests_only): the rule's
    /// name, and `in_flight` or `spend`.
    pub fn left_out(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.0
            .left_out
            .iter()
            .map(|(rule, field)| (&**rule, *field))
    }

    /// The policies of all limits, in the rules' order. A rule with tiers or times has those of the default set.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        let limits = self.0.limits.0.iter();
        limits.flat_map(|limit| limit.limiter.policies())
    }

    /// The limiter of a rule, for instance to peek at a key or to refund it; `None` if the rule does not exist or has no
    /// limit. Of a rule whose quotas count several kinds of units it is that of the requests, or of the first kind.
    pub fn limiter_of(&self, rule: &str) -> Option<AnyLimiter> {
        let first = self.0.limits.of_rule(self.rule(rule)?).next()?;
        Some(self.0.limits.0[first].limiter.clone())
    }

    /// The table of counts in this process, for its numbers of keys and evictions; `None` if the rules count in Redis.
    pub fn local_store(&self) -> Option<&LocalStore> {
        self.0.store.local()
    }

    /// The place of a rule, such as `rules.yaml:9`; `None` if the rule does not exist.
    pub fn place_of(&self, rule: &str) -> Option<String> {
        self.rule(rule).map(|rule| rule.span.short())
    }

    /// The files of the rules, each with the SHA-256 of the text that was read, in hexadecimal digits as `sha256sum` prints
    /// it. Empty if the rules were read from a text.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let origin = self.0.origin.iter();
        let files = origin.flat_map(|origin| &origin.files);
        files.map(|(name, sha256)| (name.as_str(), sha256.as_str()))
    }

    /// Whether a rule exists and is not [switched off](super::RulesHandle::set_enabled).
    pub fn is_enabled(&self, rule: &str) -> bool {
        self.rule(rule).is_some_and(|rule| !rule.off)
    }

    /// The parts of requests that rules read, in addition to method, path, query and client, in the order of the rules. A
    /// log needs them to decide its requests.
    pub fn needs(&self) -> impl Iterator<Item = RuleNeed<'_>> {
        self.0.rules.iter().flat_map(|rule| {
            let needs = rule.request_parts.iter();
            needs.map(|(part, is_key)| RuleNeed {
                rule: &rule.name,
                part,
                is_key: *is_key,
            })
        })
    }

    /// The warnings about the files: valid, and probably mistakes.
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// The extractor of the client's address, by `client_ip` of the files.
    pub fn client_ip(&self) -> &ClientIp {
        &self.0.reading.client_ip
    }

    /// The origins of scripts in browsers, by `cors_origins` of the files.
    pub fn cors_origins(&self) -> &CorsOrigins {
        &self.0.reading.cors_origins
    }

    /// Explains for each rule why it applies to the request at that time, or does not. Counts nothing and
    /// reads no counter. Compares every rule, so it is for tests, tools and admin routes, not for each
    /// request.
    pub fn explain(&self, parts: &Parts, now: Timestamp) -> Explanation {
        let set = &*self.0;
        let verdict = self.select(parts, now);
        Explanation::new(&set.rules, &set.reading, (parts, now), &verdict)
    }

    /// The alternative that a rule with `first_of` chooses as the key of this request, by its name in the file:
    /// `bearer_token`, `header x-api-key`. A key with several `first_of` has one name for each, with ` + ` between.
    ///
    /// `None` if the rule does not exist, its key has no `first_of`, or the request has no alternative.
    pub fn key_alternative(&self, rule: &str, parts: &Parts) -> Option<String> {
        let set = &*self.0;
        let rule = self.rule(rule)?;
        let view = RequestView::new(parts, set.clock.read().wall, &set.reading);
        let mut names = Vec::new();
        rule.key.alternatives(&rule.matcher, &view, &mut names);
        (!names.is_empty()).then(|| names.join(" + "))
    }

    /// The changes of a reload from `old` to this set.
    pub fn changes_since(&self, old: &Self) -> RuleChanges {
        RuleChanges::between(&old.0.rules, &self.0.rules, self.0.store.counter_identity())
    }

    pub(crate) fn select(&self, parts: &Parts, now: Timestamp) -> RulesVerdict<'_> {
        let set = &*self.0;
        let select = |parts: &Parts| select(&set.rules, &set.index, &set.reading, (parts, now));
        match self.batch(parts) {
            Some(batch) => select_batch(batch, select),
            None => select(parts),
        }
    }

    /// Whether a rule depends on the call of MCP in the body of this request.
    pub(super) fn needs_call(&self, parts: &Parts) -> bool {
        let set = &*self.0;
        let request = (parts, self.now());
        set.has_calls && needs_call(&set.rules, &set.index, &set.reading, request)
    }
}

impl Rules {
    pub(super) fn has_in_flight(&self) -> bool {
        self.0.has_in_flight
    }

    /// The places where the permits of a rule are counted, by tier.
    pub(super) fn permit_sources(&self, rule: &Rule) -> &[PermitSource] {
        let own = self.0.permit_sources.get(usize::from(rule.position));
        own.map_or(&[], |own| own)
    }

    pub(super) fn has_spend(&self) -> bool {
        self.0.has_spend
    }

    /// The most bytes of a request's body that its rules read for its reservation.
    pub(super) fn spend_body(&self, parts: &Parts) -> u64 {
        if !self.has_spend() {
            return 0;
        }
        match self.select(parts, self.now()) {
            RulesVerdict::Limited(charges) => {
                let spends = of_each(&charges).filter_map(|charge| charge.rule.spend.as_ref());
                spends.map(|spend| spend.body).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The result of the rules for a request, after `acquire` was called for each rule with `in_flight` that applies.
    pub(super) fn select_in_flight<'r>(
        &'r self,
        parts: &Parts,
        now: Timestamp,
        mut acquire: impl FnMut(&'r Rule, usize, Key),
    ) -> RulesVerdict<'r> {
        let set = &*self.0;
        let select = |parts: &Parts, acquire: &mut dyn FnMut(&'r Rule, usize, Key)| {
            select_in_flight(&set.rules, &set.index, &set.reading, (parts, now), acquire)
        };
        let Some(batch) = self.batch(parts) else {
            return select(parts, &mut acquire);
        };
        // One request has one permit of a key.
        let mut acquired = Vec::new();
        let mut acquire_once = |rule: &'r Rule, set_index, key: Key| {
            let own = (rule.position, key);
            if !acquired.contains(&own) {
                acquire(rule, set_index, own.1.clone());
                acquired.push(own);
            }
        };
        select_batch(batch, |parts| select(parts, &mut acquire_once))
    }

    /// The calls of a batch, if rules count calls.
    #[inline]
    fn batch(&self, parts: &Parts) -> Option<McpBatch> {
        if self.0.has_calls {
            Mcp::batch(parts)
        } else {
            None
        }
    }

    /// The wall's time if any rule depends on it. Reading a clock costs more than a match.
    pub(super) fn now(&self) -> Timestamp {
        if self.0.needs_time {
            self.0.clock.read().wall
        } else {
            Timestamp::from_secs(0)
        }
    }

    /// Begins with a request of this header: removes marks that its client forged, and returns the
    /// [time](Self::now).
    pub(super) fn begin(&self, headers: &mut HeaderMap) -> Timestamp {
        if self.0.marks {
            remove_forged_marks(headers);
        }
        self.now()
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    pub(super) fn rule(&self, name: &str) -> Option<&Rule> {
        self.0.rules.iter().find(|rule| &*rule.name == name)
    }

    /// A copy of the rules, with some of them switched off.
    pub(super) fn without(&self, is_off: impl Fn(&str) -> bool) -> Self {
        let mut set = RuleSet::clone(&self.0);
        for rule in &mut set.rules {
            rule.off = is_off(&rule.name);
        }
        set.index = RuleIndex::new(&set.rules);
        Self(Arc::new(set))
    }

    /// Changes the quota of a policy. `None` restores the quota of the files.
    pub(super) fn set_quota(
        &self,
        policy: &str,
        quota: Option<Quota>,
    ) -> Result<QuotaChange, ConfigError> {
        let unknown = || {
            let message = format!("there is no policy {policy:?} among the rules");
            ConfigError::new(ConfigErrorKind::Name, message)
        };
        let of_rule = |rule: &Rule| {
            let (_, quotas) = *rule.allowance.indexed_sets().first()?;
            let mut quotas = quotas.counted();
            let (own, kind) = quotas.find(|(quota, _)| quota.name() == Some(policy))?;
            let limit = self.0.limits.index_of(rule, kind)?;
            Some((&self.0.limits.0[limit].limiter, own.clone()))
        };
        let found = self.0.rules.iter().find_map(of_rule);
        let (limiter, own) = found.ok_or_else(unknown)?;
        let quota = match quota {
            None => own,
            Some(quota) if quota.algorithm() == own.quota().algorithm() => {
                quota.named_owned(policy)
            }
            Some(_) => {
                let message = format!("the quota of {policy:?} counts by another algorithm");
                return Err(ConfigError::new(ConfigErrorKind::Store, message));
            }
        };
        let (before, after) = (limiter.quota(policy), quota.quota());
        limiter.set_quota(policy, quota)?;
        let before = before.unwrap_or(after);
        Ok(QuotaChange::new(policy, before, after, OnChange::Keep))
    }

    /// All limits of the set.
    pub(super) fn limits(&self) -> &RuleLimits {
        &self.0.limits
    }

    /// The limits that a charge is about.
    pub(super) fn limits_of(&self, charge: &ChargeOfRule<'_>) -> &[LimitOfSet] {
        &self.0.limits_of_sets[usize::from(charge.rule.position)][charge.set_index]
    }

    /// The limits of the limited sets of quotas, the default set's first.
    pub(super) fn limits_of_sets(&self, rule: &Rule) -> impl Iterator<Item = &[LimitOfSet]> {
        let limits = &self.0.limits_of_sets[usize::from(rule.position)];
        let sets = rule.allowance.indexed_sets().into_iter();
        sets.map(|(at, _)| &*limits[at])
    }

    /// Replaces the rules `before`. Refunds of open requests are bounded by what these rules could have charged.
    pub(super) fn replace(&self, before: &Self) {
        for old in &*before.0.limits.0 {
            let next = self.rule(&before.rules()[usize::from(old.rule)].name);
            let next = next.and_then(|rule| self.0.limits.index_of(rule, old.units.as_ref()));
            if let Some(next) = next {
                old.limiter.hand_over_to(&self.0.limits.0[next].limiter);
            }
        }
    }

    /// Reads the files again, with the same registrations.
    pub(super) fn read_again(&self) -> Result<Self, RulesError> {
        let origin = self.0.origin.as_ref().ok_or_else(|| {
            RulesError::unreadable("the rules were read from a text, not from a file".to_owned())
        })?;
        (origin.read)()
    }

    #[cfg(feature = "rules-watch")]
    pub(super) fn origin(&self) -> Option<&RulesOrigin> {
        self.0.origin.as_deref()
    }
}

/// Removes the field that marks requests, also with underscores: many servers read them as hyphens.
#[cold]
fn remove_forged_marks(headers: &mut HeaderMap) {
    let is_forged = |name: &&HeaderName| {
        let bytes = name.as_str().bytes();
        let hyphened = bytes.map(|byte| if byte == b'_' { b'-' } else { byte });
        hyphened.eq(OVERFLOW_FIELD.as_str().bytes())
    };
    let forged: Vec<HeaderName> = headers.keys().filter(is_forged).cloned().collect();
    for name in forged {
        headers.remove(name);
    }
}

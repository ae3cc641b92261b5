//! The set of rules: read once, never changed, shared by all that ask it.

use std::{fmt, path::PathBuf, sync::Arc};

use http::request::Parts;

use super::{
    changes::RuleChanges,
    compile::Compiled,
    explain::Explanation,
    format::Format,
    need::RuleNeed,
    problem::{Problem, RulesError},
    request::RequestView,
    rule::Rule,
    select::{RuleIndex, RulesVerdict, select},
    store::{RuleLimiter, RulesStore},
};
use crate::{
    clock::{SharedClock, Timestamp},
    decision::Policy,
    error::{ConfigError, ConfigErrorKind},
    key::ClientIp,
    limiter::{AnyLimiter, LocalStore, QuotaChange},
    quota::Quota,
};

/// The rules of one or several files, checked and ready to be asked. Clones share them.
///
/// A set never changes: a reload makes another one, so a request that began under a set ends under
/// it. Made by [`RulesBuilder`](super::RulesBuilder).
///
/// ```
/// use http::Request;
/// use tower_ratelimit::{Timestamp, rules::{Format, Rules}};
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

#[derive(Debug)]
struct RuleSet {
    rules: Box<[Rule]>,
    index: RuleIndex,
    client_ip: ClientIp,
    clock: SharedClock,
    /// Whether any rule does.
    asks_the_time: bool,
    /// One for each rule that limits anything.
    limiters: Box<[Option<RuleLimiter>]>,
    store: RulesStore,
    origin: Option<Arc<RulesOrigin>>,
    warnings: Box<[Problem]>,
}

/// The files that rules come from.
pub(super) struct RulesOrigin {
    #[cfg_attr(not(feature = "rules-watch"), allow(dead_code))]
    pub(super) digest: u64,
    pub(super) paths: Vec<PathBuf>,
    /// The name of each file, and the SHA-256 of what was in it.
    pub(super) files: Vec<(String, String)>,
    #[cfg_attr(not(feature = "rules-watch"), allow(dead_code))]
    pub(super) format: Option<Format>,
    /// Reads them again, with all that was registered for them and for the same store.
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
    /// When the store cannot keep what the rules count.
    pub(super) fn new(
        compiled: Compiled,
        store: &RulesStore,
        clock: SharedClock,
        origin: Option<RulesOrigin>,
    ) -> Result<Self, RulesError> {
        let limiters = store.limiters(&compiled.rules, &compiled.store)?;
        Ok(Self(Arc::new(RuleSet {
            index: RuleIndex::new(&compiled.rules),
            asks_the_time: compiled.rules.iter().any(Rule::asks_the_time),
            rules: compiled.rules.into(),
            client_ip: compiled.client_ip,
            clock: store.clock().cloned().unwrap_or(clock),
            limiters,
            store: store.clone(),
            origin: origin.map(Arc::new),
            warnings: compiled.warnings.into(),
        })))
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.rules.len()
    }

    /// Whether there is no rule at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.rules.is_empty()
    }

    /// The rules' names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.rules.iter().map(|rule| &*rule.name)
    }

    /// The policies of the rules that limit anything, in the rules' order; of several tiers or times,
    /// the default ones.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        let limiters = self.0.limiters.iter().flatten();
        limiters.flat_map(RuleLimiter::policies)
    }

    /// The limiter of a rule, to look at a key or to give something back to it; `None` if there is no
    /// such rule, or it limits nothing. It knows the rule's own operations, as all limiters do.
    #[must_use]
    pub fn limiter_of(&self, rule: &str) -> Option<AnyLimiter> {
        let rule = self.rule(rule)?;
        self.limiter(rule).map(RuleLimiter::to_any)
    }

    /// The table in this process that the rules count in, to tell how many keys it has and how many it gave up;
    /// `None` where they count in Redis.
    #[must_use]
    pub fn local_store(&self) -> Option<&LocalStore> {
        self.0.store.local()
    }

    /// The place of a rule, such as `rules.yaml:9`; `None` if there is no such rule.
    #[must_use]
    pub fn place_of(&self, rule: &str) -> Option<String> {
        self.rule(rule).map(|rule| rule.spot.short())
    }

    /// The files that the rules were read from, each with the SHA-256 of what was in it then, in
    /// hexadecimal digits as `sha256sum` prints it. None where they were read from a text.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let origin = self.0.origin.iter();
        let files = origin.flat_map(|origin| &origin.files);
        files.map(|(name, sha256)| (name.as_str(), sha256.as_str()))
    }

    /// Whether a rule is not [switched off](super::RulesHandle::set_enabled).
    #[must_use]
    pub fn is_enabled(&self, rule: &str) -> bool {
        self.rule(rule).is_some_and(|rule| !rule.off)
    }

    /// The parts of requests that rules look at, beyond method, path, query and client, in the order
    /// of the rules: what has to be known of a request to decide it, such as one of a log.
    pub fn needs(&self) -> impl Iterator<Item = RuleNeed<'_>> {
        self.0.rules.iter().flat_map(|rule| {
            let needs = rule.needs.iter();
            needs.map(|(part, is_key)| RuleNeed {
                rule: &rule.name,
                part,
                is_key: *is_key,
            })
        })
    }

    /// What is allowed and probably not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.0.warnings
    }

    /// The way in which the client's address is found: `client_ip` of the files.
    pub fn client_ip(&self) -> &ClientIp {
        &self.0.client_ip
    }

    /// Why each rule applies to the request at that time, or does not. Nothing is counted.
    #[must_use]
    pub fn explain(&self, parts: &Parts, now: Timestamp) -> Explanation {
        let set = &*self.0;
        let verdict = self.select(parts, now);
        Explanation::new(&set.rules, &set.client_ip, (parts, now), &verdict)
    }

    /// The alternative that a rule with `first_of` takes as the key of this request, as the file names
    /// it: `bearer_token`, `header x-api-key`. With several `first_of` in one key it is that of each,
    /// with ` + ` between.
    ///
    /// `None` if there is no such rule, its key has no `first_of`, or the request has no alternative.
    #[must_use]
    pub fn key_alternative(&self, rule: &str, parts: &Parts) -> Option<String> {
        let set = &*self.0;
        let rule = self.rule(rule)?;
        let view = RequestView::new(parts, set.clock.now(), &set.client_ip);
        let mut names = Vec::new();
        rule.key.alternatives(&rule.matcher, &view, &mut names);
        (!names.is_empty()).then(|| names.join(" + "))
    }

    /// The changes that a reload from `old` to this set makes.
    #[must_use]
    pub fn changes_since(&self, old: &Self) -> RuleChanges {
        RuleChanges::between(&old.0.rules, &self.0.rules, self.0.store.count_at())
    }

    /// What the rules say of a request.
    #[inline]
    pub(crate) fn select(&self, parts: &Parts, now: Timestamp) -> RulesVerdict<'_> {
        let set = &*self.0;
        select(&set.rules, &set.index, &set.client_ip, (parts, now))
    }
}

/// What a layer needs of the set.
impl Rules {
    /// The time, if any rule says something of it; to look at a clock costs more than a match.
    pub(super) fn now(&self) -> Timestamp {
        match self.0.asks_the_time {
            true => self.0.clock.now(),
            false => Timestamp::from_secs(0),
        }
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    fn rule(&self, name: &str) -> Option<&Rule> {
        self.0.rules.iter().find(|rule| &*rule.name == name)
    }

    /// The same rules, of which these are left out.
    pub(super) fn without(&self, is_off: impl Fn(&str) -> bool) -> Self {
        let set = &*self.0;
        let mut rules = set.rules.clone();
        for rule in &mut rules {
            rule.off = is_off(&rule.name);
        }
        Self(Arc::new(RuleSet {
            index: RuleIndex::new(&rules),
            rules,
            client_ip: set.client_ip.clone(),
            clock: set.clock.clone(),
            asks_the_time: set.asks_the_time,
            store: set.store.clone(),
            limiters: set.limiters.clone(),
            origin: set.origin.clone(),
            warnings: set.warnings.clone(),
        }))
    }

    /// Changes the quota of a policy; none is that of the files.
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
            let (_, quotas) = *rule.allowance.places().first()?;
            let mut quotas = quotas.quotas();
            let own = quotas.find(|quota| quota.name() == Some(policy))?;
            Some((self.limiter(rule)?.clone(), own.clone(), rule.on_change))
        };
        let found = self.0.rules.iter().find_map(of_rule);
        let (limiter, own, on_change) = found.ok_or_else(unknown)?;
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
        Ok(QuotaChange::new(policy, before, after, on_change))
    }

    /// The limiter of a rule that limits anything.
    pub(super) fn limiter(&self, rule: &Rule) -> Option<&RuleLimiter> {
        self.0.limiters[usize::from(rule.place)].as_ref()
    }

    /// These rules take the place of others: open requests give nothing back that these could not
    /// have charged.
    #[cfg(feature = "redis")]
    pub(super) fn replace(&self, before: &Self) {
        for old in before.rules() {
            let rule = self.rules().iter().find(|rule| rule.name == old.name);
            let next = rule.and_then(|rule| self.limiter(rule));
            if let (Some(own), Some(next)) = (before.limiter(old), next) {
                own.make_way_for(next);
            }
        }
    }

    /// The files, as they are now, and all that was registered for them.
    pub(super) fn read_again(&self) -> Result<Self, RulesError> {
        let origin = self.0.origin.as_ref().ok_or_else(|| {
            RulesError::unreadable("the rules were read from a text, not from a file".to_owned())
        })?;
        (origin.read)()
    }

    /// The files that the rules come from.
    #[cfg(feature = "rules-watch")]
    pub(super) fn origin(&self) -> Option<&RulesOrigin> {
        self.0.origin.as_deref()
    }
}

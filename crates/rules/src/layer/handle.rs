//! The handle to a layer's rules: reload, switches, changed quotas.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex},
};

use arc_swap::ArcSwap;
use http::request::Parts;

use super::limiter_of_each_rule::Admissions;
use crate::{in_flight::RulePermits, reload_changes::RuleChanges, rule_set::Rules};
use tower_ratelimit_core::{
    decision::Policy,
    error::ConfigError,
    key::Key,
    limiter::QuotaChange,
    lock::unpoisoned,
    log::{self, Code},
    quota::Quota,
};
use tower_ratelimit_layer::observe::{Event, Observer};
use tower_ratelimit_rulefile::RulesError;

/// The rules in force, for all services of a layer.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub(super) struct Shared<R> {
    pub(super) admissions: ArcSwap<Admissions<R>>,
    /// Held during a change, so that changes are serial.
    changes: Mutex<Changes>,
}

/// The state that survives reloads.
#[derive(Default)]
struct Changes {
    /// The last fault, which is logged once.
    refused: Option<String>,
    off: HashSet<String>,
    all_off: bool,
}

impl Changes {
    fn is_off(&self, rule: &str) -> bool {
        self.all_off || self.off.contains(rule)
    }
}

/// A handle to the rules of a [`RulesLayer`](super::RulesLayer) and of all its services.
#[derive(Clone)]
pub struct RulesHandle(pub(super) Arc<dyn Reload>);

pub(super) trait Reload: Send + Sync {
    /// The rules in force, and the permits of their requests in flight.
    fn in_force(&self) -> (Rules, RulePermits);

    fn reload(&self) -> Result<RuleChanges, RulesError>;

    fn observer(&self) -> Option<Arc<dyn Observer>>;

    fn set_enabled(&self, rule: Option<&str>, enabled: bool);
}

impl RulesHandle {
    pub(super) fn new<R: Send + Sync + 'static>(shared: Arc<Shared<R>>) -> Self {
        Self(shared)
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.0.in_force().0
    }

    pub(super) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.0.observer()
    }

    /// The most bytes of the body of this request that its reservation needs, for a
    /// [`DeclaredLayer::by`](tower_ratelimit_budgets::llm::declared_cost_layer::DeclaredLayer::by): the largest `spend.body` of the rules that apply, 0 if
    /// none has `spend`.
    pub fn spend_body(&self, parts: &Parts) -> u64 {
        self.rules().spend_body(parts)
    }

    /// Whether the rules depend on the call of MCP in the body of this request, for a
    /// [`McpBodyLayer::read`](tower_ratelimit_layer::mcp::McpBodyLayer::read): a rule with `mcp` or `mcp_tool` may apply to
    /// it, by all fields of its match but that. Rules without a path concern requests in JSON, or with the field
    /// `Mcp-Method` or `Mcp-Name`. False for GET, HEAD, DELETE and OPTIONS.
    pub fn needs_call(&self, parts: &Parts) -> bool {
        self.rules().needs_call(parts)
    }

    /// Reads the files again, and returns the changes.
    ///
    /// A rule keeps its counters when a limit, burst, queue or soft share changes, unless it has `on_change: fresh`: a
    /// bucket that was used up gets its next unit by the new rate, a window or log has the new limit less its count.
    /// [`RuleChanges::quotas`] has for each changed quota the time at which such a key gets its next unit. A changed
    /// algorithm, period, number of slices or refill step starts afresh. The store stays the same, even if `store` in the
    /// file changes. Open requests end by the rules with which they began.
    ///
    /// Reads on the calling thread, which takes some milliseconds; in a task use `spawn_blocking` if that is too long.
    ///
    /// # Errors
    ///
    /// All faults of the files, up to twenty; and rules that were not read from files. The rules in force stay, and the
    /// first such reload is logged.
    pub fn reload(&self) -> Result<RuleChanges, RulesError> {
        self.0.reload()
    }

    /// Switches a rule off or on again; `None` switches all rules. A rule that is off applies to no request and keeps its
    /// counts. The switch survives reloads. The name of a rule that does not exist yet is accepted.
    ///
    /// A rule is on if neither it nor all rules are off.
    pub fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        self.0.set_enabled(rule, enabled);
    }

    /// The policy of each `in_flight`, and the requests that it counts now, of all keys together. Counts those of this
    /// process, also if the rules count in Redis. A rule with tiers has the policy of the first.
    pub fn in_flight(&self) -> Vec<(Policy, u64)> {
        let (rules, permits) = self.0.in_force();
        let rules = rules.rules().iter();
        let limits = rules.filter_map(|rule| permits.of(rule.position, 0));
        let counted = limits.map(|limit| (limit.policy().clone(), limit.in_flight().total()));
        counted.collect()
    }

    /// The policy of a rule's `in_flight`, and the requests of this key that it counts now in this process; `None` if the
    /// rule does not exist or has no `in_flight`.
    pub fn in_flight_of(&self, rule: &str, key: &Key) -> Option<(Policy, u64)> {
        let (rules, permits) = self.0.in_force();
        let limit = permits.of(rules.rule(rule)?.position, 0)?;
        Some((limit.policy().clone(), limit.in_flight().of(key)))
    }

    /// Changes the quota of the policy of this name (`rule`, or `rule.quota` if a rule has several) in this process, until
    /// the rules are read again. `None` restores the quota of the files. A rule with tiers or times changes its default
    /// set. Returns what a key gets that had used up the quota before. See
    /// [`LocalLimiter::set_quota`](tower_ratelimit_core::LocalLimiter::set_quota).
    ///
    /// # Errors
    ///
    /// When the policy does not exist, the quota is invalid, or its algorithm is another one.
    pub fn set_quota(
        &self,
        policy: &str,
        quota: Option<Quota>,
    ) -> Result<QuotaChange, ConfigError> {
        self.rules().set_quota(policy, quota)
    }
}

impl<R> Shared<R> {
    /// Replaces the rules in force by those of the files, and logs a fault once.
    fn read_again(&self) -> Result<RuleChanges, RulesError> {
        let mut state = unpoisoned(self.changes.lock());
        let current = self.admissions.load_full();
        let settings = &current.settings;
        let read = current
            .rules
            .read_again()
            .and_then(|rules| match settings.fault_of(&rules) {
                Some(fault) => Err(RulesError::unreadable(fault.to_owned())),
                None => Ok(rules),
            });
        let rules = read.inspect_err(|error| {
            let line = error.to_line();
            let error = error.to_string();
            if state.refused.as_ref() != Some(&error) {
                let fault =
                    format!("the rules stay as they were, since the new ones are refused: {line}");
                log::report(Code::RULES_REFUSED, &fault);
                state.refused = Some(error);
            }
        })?;
        let changes = rules.changes_since(&current.rules);
        rules.replace(&current.rules);
        self.replace(&current, &rules, &state);
        if state.refused.take().is_some() {
            log::report(Code::RULES_ACCEPTED, "the rules are accepted again");
        }
        if let Some(removal) = changes.removal() {
            log::report(Code::RULES_REMOVED, &removal);
        }
        Ok(changes)
    }

    /// Puts these rules in force but for those that are off.
    fn replace(&self, current: &Admissions<R>, rules: &Rules, changes: &Changes) {
        let rules = rules.without(|rule| changes.is_off(rule));
        let (settings, rejection) = (current.settings.clone(), Arc::clone(&current.rejection));
        let admissions = Admissions::new(rules, settings, rejection);
        self.admissions.store(Arc::new(admissions));
    }

    pub(super) fn new(admissions: Admissions<R>) -> Self {
        Self {
            admissions: ArcSwap::from_pointee(admissions),
            changes: Mutex::default(),
        }
    }
}

impl<R: Send + Sync + 'static> Reload for Shared<R> {
    fn in_force(&self) -> (Rules, RulePermits) {
        let admissions = self.admissions.load();
        (admissions.rules.clone(), admissions.permits.clone())
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.admissions.load().settings.observer.clone()
    }

    fn reload(&self) -> Result<RuleChanges, RulesError> {
        let read = self.read_again();
        if let Some(observer) = self.observer() {
            let rules = self.admissions.load().rules.len();
            let error = read.as_ref().err().map(|error| error as _);
            observer.observe(&Event::RulesReloaded { rules, error });
        }
        read
    }

    fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        let mut changes = unpoisoned(self.changes.lock());
        match rule {
            None => changes.all_off = !enabled,
            Some(rule) if enabled => drop(changes.off.remove(rule)),
            Some(rule) => drop(changes.off.insert(rule.to_owned())),
        }
        let current = self.admissions.load_full();
        self.replace(&current, &current.rules, &changes);
    }
}

impl fmt::Debug for RulesHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RulesHandle")
            .field(&self.rules().len())
            .finish()
    }
}

//! `MetricsObserver`: counts through the `metrics` facade.

use std::sync::Arc;

use metrics::{SharedString, counter, gauge, histogram};

use super::event::{Corrected, Decided, Event, Observer, SpendSource};
use tower_ratelimit_core::{
    decision::{Name, Policy},
    error::{LimiterError, LimiterErrorKind},
};
#[cfg(feature = "shared")]
use tower_ratelimit_store::stats::ModeStats;

const REQUESTS: &str = "ratelimit_requests_total";
const DEGRADED: &str = "ratelimit_degraded_total";
const NEAR_LIMIT: &str = "ratelimit_near_limit_total";
const COST: &str = "ratelimit_cost_total";
const SPENT: &str = "ratelimit_spent_units_total";
const FORGOTTEN: &str = "ratelimit_spend_forgotten_units_total";
const DENIALS: &str = "ratelimit_denials_total";
const DURATION: &str = "ratelimit_check_duration_seconds";
const WAIT: &str = "ratelimit_wait_seconds";
const ERRORS: &str = "ratelimit_backend_errors_total";
const TRACKED_KEYS: &str = "ratelimit_tracked_keys";
const RULES_ACCEPTED: &str = "ratelimit_rules_accepted";
const EVICTIONS: &str = "ratelimit_evictions_total";

/// The `result` of a denied request that passed to the inner service.
const OVERFLOWED: &str = "overflowed";

/// Counts through the [`metrics`] facade.
///
/// | metric | labels |
/// |---|---|
/// | `ratelimit_requests_total` | `policy`, `result`: `allowed`, `limited`, `shed`, `shadow_limited`, `shadow_shed`, `overflowed`, `bypassed`, `banned`, `no_key`, `error` |
/// | `ratelimit_degraded_total` | `policy`, `reason`: decisions without the store, see [`Decision::degraded_by`](tower_ratelimit_core::Decision::degraded_by) |
/// | `ratelimit_denials_total` | `policy`, `result`: the quotas that denied, with the `result` of the request; `limited` and `shed` were rejected, all others passed anyway |
/// | `ratelimit_near_limit_total` | `policy`: decisions that left a fifth of the limit or less |
/// | `ratelimit_cost_total` | `policy`: units taken, counted once the response cannot change them any more |
/// | `ratelimit_spent_units_total` | `policy`, `source`: `reported`, `handler`, `estimated`, `missing`: units charged by responses' bodies, see [`SpendSource`](super::SpendSource) |
/// | `ratelimit_spend_forgotten_units_total` | `policy`: units used beyond the debt, which were not charged |
/// | `ratelimit_check_duration_seconds` | `policy`, `backend`: a histogram of the limiter's own time |
/// | `ratelimit_wait_seconds` | `policy`: a histogram of the time that waiting requests waited |
/// | `ratelimit_backend_errors_total` | `backend`, `kind` |
/// | `ratelimit_rules_accepted` | 1, or 0 while a `RulesLayer` keeps its old rules because the files have an error; set by each reload |
/// | `ratelimit_tracked_keys`, `ratelimit_evictions_total` | `backend`, see [`record_table`](Self::record_table) |
///
/// `shed` is a denial for the [priority](tower_ratelimit_core::Priority) of the request alone. `overflowed` is a denied request that
/// passed to the inner service, see [`overflow`](crate::rate_limit::layer::RateLimitLayer::overflow).
///
/// `result` is the outcome of the request. In a layer with several quotas each policy counts all
/// requests, so the share of `limited` is the share of denied requests for every policy;
/// `ratelimit_denials_total` counts the policies that denied.
///
/// Labels come from the configuration alone, never from a request: a client that could vary a label
/// could grow the registry without bound.
///
/// A layer uses it after `.observer(MetricsObserver::new())`; the policy's name is the quota's, see
/// [`Quota::named`](tower_ratelimit_core::Quota::named).
#[derive(Debug, Clone, Copy)]
pub struct MetricsObserver {
    backend: &'static str,
}

impl MetricsObserver {
    /// An observer that counts with the current recorder, for the backend `local`.
    pub const fn new() -> Self {
        Self { backend: "local" }
    }

    /// Sets the `backend` label. Defaults to `local`.
    #[must_use]
    pub const fn backend(mut self, backend: &'static str) -> Self {
        self.backend = backend;
        self
    }

    /// Records the use of a [`LocalLimiter`](tower_ratelimit_core::LocalLimiter)'s table: its
    /// [`tracked_keys`](tower_ratelimit_core::LocalLimiter::tracked_keys) and
    /// [`evictions`](tower_ratelimit_core::LocalLimiter::evictions). Call it once for each scrape: counting the keys
    /// walks the table.
    pub fn record_table(&self, tracked_keys: usize, evictions: u64) {
        gauge!(TRACKED_KEYS, "backend" => self.backend).set(tracked_keys as f64);
        counter!(EVICTIONS, "backend" => self.backend).absolute(evictions);
    }

    /// Records a limiter's [`mode_stats`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/type.RedisLimiter.html#method.mode_stats), as counters that have
    /// the label `backend`: `ratelimit_lease_decisions_total` by `decided` (`local`, `asked`),
    /// `ratelimit_lease_units_total` by `fate` (`granted`, `settled`, `returned`, `ended`) and
    /// `ratelimit_lease_messages_total` by `fate` (`repeated`, `stale`). Call it from where metrics
    /// are scraped.
    #[cfg(feature = "shared")]
    pub fn record_mode(&self, stats: &ModeStats) {
        let backend = self.backend;
        for (decided, count) in [("local", stats.local), ("asked", stats.asked)] {
            counter!("ratelimit_lease_decisions_total", "backend" => backend, "decided" => decided)
                .absolute(count);
        }
        for (fate, count) in [
            ("granted", stats.granted),
            ("settled", stats.settled),
            ("returned", stats.returned),
            ("ended", stats.ended),
        ] {
            counter!("ratelimit_lease_units_total", "backend" => backend, "fate" => fate)
                .absolute(count);
        }
        for (fate, count) in [("repeated", stats.repeated), ("stale", stats.stale)] {
            counter!("ratelimit_lease_messages_total", "backend" => backend, "fate" => fate)
                .absolute(count);
        }
    }

    fn decided(&self, decided: &Decided<'_>, result: &'static str) {
        let decision = decided.decision();
        let has_denials = decision.is_denied() || result == OVERFLOWED;
        let seconds = decided.latency().as_secs_f64();
        for quota in decision.quotas() {
            let policy = label(quota.label());
            count(policy.clone(), result);
            if has_denials && quota.is_denied() {
                counter!(DENIALS, "policy" => policy.clone(), "result" => result).increment(1);
            }
            if let Some(reason) = decision.degraded_by() {
                let reason = reason.as_str();
                counter!(DEGRADED, "policy" => policy.clone(), "reason" => reason).increment(1);
            }
            if quota.is_near_limit() {
                counter!(NEAR_LIMIT, "policy" => policy.clone()).increment(1);
            }
            histogram!(DURATION, "policy" => policy.clone(), "backend" => self.backend)
                .record(seconds);
            if !decided.waited().is_zero() {
                let waited = decided.waited().as_secs_f64();
                histogram!(WAIT, "policy" => policy).record(waited);
            }
        }
        if !decided.is_provisional() {
            for quota in decision.quotas() {
                // A quota that denies took nothing, also from a request that passed by the others.
                let units = if quota.is_denied() {
                    0
                } else {
                    decision.charged()
                };
                counter!(COST, "policy" => label(quota.label())).increment(units);
            }
        }
    }

    fn corrected(&self, corrected: &Corrected<'_>) {
        for (quota, units) in corrected.kept() {
            counter!(COST, "policy" => label(quota.label())).increment(units);
        }
        if let Some(source) = corrected.source() {
            spent(corrected, source);
        }
        if let Some(error) = corrected.error() {
            self.failed(error);
        }
    }

    fn failed(&self, error: &LimiterError) {
        let kind = match error.kind() {
            LimiterErrorKind::Unsupported => "unsupported",
            _ => "unavailable",
        };
        counter!(ERRORS, "backend" => self.backend, "kind" => kind).increment(1);
    }
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for MetricsObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Decided(decided) => self.decided(decided, result(decided)),
            Event::Overflowed(decided) => self.decided(decided, OVERFLOWED),
            Event::Bypassed { policies } => count_all(policies, "bypassed"),
            Event::Banned { policies } => count_all(policies, "banned"),
            Event::KeyMissing { policies, .. } => count_all(policies, "no_key"),
            Event::Corrected(corrected) => self.corrected(corrected),
            Event::Failed { policies, error } => {
                count_all(policies, "error");
                self.failed(error);
            }
            Event::RulesReloaded { error, .. } => {
                gauge!(RULES_ACCEPTED).set(if error.is_none() { 1.0 } else { 0.0 });
            }
        }
    }
}

/// The `result` of a decision that no overflow passes.
fn result(decided: &Decided<'_>) -> &'static str {
    let decision = decided.decision();
    match (decision.is_denied(), decided.is_shadow()) {
        (false, _) => "allowed",
        (true, false) if decision.is_shed() => "shed",
        (true, true) if decision.is_shed() => "shadow_shed",
        (true, false) => "limited",
        (true, true) => "shadow_limited",
    }
}

/// Counts the units of a response whose body determined the charge.
fn spent(corrected: &Corrected<'_>, source: SpendSource) {
    for (at, quota) in corrected.decision().quotas().enumerate() {
        let limit = corrected.decision.quotas.limit_of(at);
        let forgotten = match corrected.forgotten_by_each {
            [] | [_] => Some(corrected.forgotten()),
            each => each.get(limit).copied().flatten(),
        };
        let Some(forgotten) = forgotten else {
            continue;
        };
        let kept = corrected.kept_by_each.get(limit).copied();
        let policy = label(quota.label());
        counter!(SPENT, "policy" => policy.clone(), "source" => source.as_str())
            .increment(kept.unwrap_or(corrected.after()));
        if forgotten > 0 {
            counter!(FORGOTTEN, "policy" => policy).increment(forgotten);
        }
    }
}

/// A label without an allocation: a static name, or a shared reference to an owned one.
fn label(policy: Name) -> SharedString {
    match policy {
        Name::Static(name) => name.into(),
        Name::Owned(name) => Arc::unwrap_or_clone(name).into(),
    }
}

fn count(policy: SharedString, result: &'static str) {
    counter!(REQUESTS, "policy" => policy, "result" => result).increment(1);
}

fn count_all(policies: &[Policy], result: &'static str) {
    for policy in policies {
        count(label(policy.label()), result);
    }
}

//! The crate's log: every line has a [`Code`].

use std::{
    io::Write as _,
    sync::atomic::{AtomicU32, Ordering},
};

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// Requests fail, or are not counted as they should be.
    Error,
    /// Something works, but not as intended.
    Warn,
    /// Something works again.
    Info,
}

/// The subject of a line. `docs/troubleshooting.md` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(&'static str, Severity);

impl Code {
    pub const KEY_UNAVAILABLE: Self = Self("key-unavailable", Severity::Error);
    pub const ADDRESS_UNAVAILABLE: Self = Self("address-unavailable", Severity::Error);
    pub const BEHIND_PROXY: Self = Self("behind-proxy", Severity::Warn);
    pub const PROXY_HEADER_MISSING: Self = Self("proxy-header-missing", Severity::Warn);
    pub const NO_ROUTE_MATCHED: Self = Self("no-route-matched", Severity::Warn);
    pub const CHARGED_TWICE: Self = Self("charged-twice", Severity::Warn);
    pub const SAME_POLICY_NAME: Self = Self("same-policy-name", Severity::Warn);
    pub const TIERS_CROSSED: Self = Self("tiers-crossed", Severity::Warn);
    pub const STORE_CROWDED: Self = Self("store-crowded", Severity::Warn);
    pub const STATE_REFUSED: Self = Self("state-refused", Severity::Warn);
    pub const STATE_CHANGED: Self = Self("state-changed", Severity::Warn);
    pub const REQUEST_QUOTA_CUT: Self = Self("request-quota-cut", Severity::Warn);
    pub const REQUEST_QUOTA_MISPLACED: Self = Self("request-quota-misplaced", Severity::Warn);
    pub const UNSUPPORTED: Self = Self("unsupported", Severity::Error);
    pub const CORRECTION_UNSUPPORTED: Self = Self("correction-unsupported", Severity::Warn);
    pub const CORRECTION_FAILING: Self = Self("correction-failing", Severity::Error);
    pub const SPEND_RESERVATION: Self = Self("spend-reservation", Severity::Warn);
    pub const SPEND_UNREADABLE: Self = Self("spend-unreadable", Severity::Warn);
    pub const SPEND_UNRECOGNISED: Self = Self("spend-unrecognised", Severity::Warn);
    pub const EXCESS_UNCHARGED: Self = Self("excess-uncharged", Severity::Warn);
    pub const BODY_UNREAD: Self = Self("body-unread", Severity::Error);
    pub const LIMITER_FAILING: Self = Self("limiter-failing", Severity::Error);
    pub const LIMITER_BACK: Self = Self("limiter-back", Severity::Info);
    pub const REDIS_DOWN: Self = Self("redis-down", Severity::Warn);
    pub const REDIS_BACK: Self = Self("redis-back", Severity::Info);
    pub const REDIS_SLOW: Self = Self("redis-slow", Severity::Warn);
    pub const REDIS_FOREIGN_VALUE: Self = Self("redis-foreign-value", Severity::Warn);
    pub const REDIS_SPLIT: Self = Self("redis-split", Severity::Warn);
    pub const STORE_DOWN: Self = Self("store-down", Severity::Warn);
    pub const STORE_BACK: Self = Self("store-back", Severity::Info);
    pub const STORE_SLOW: Self = Self("store-slow", Severity::Warn);
    pub const STORE_FOREIGN_VALUE: Self = Self("store-foreign-value", Severity::Warn);
    pub const LISTENER_PANICKED: Self = Self("listener-panicked", Severity::Error);
    pub const RULES_REFUSED: Self = Self("rules-refused", Severity::Error);
    pub const RULES_ACCEPTED: Self = Self("rules-accepted", Severity::Info);
    pub const RULES_REMOVED: Self = Self("rules-removed", Severity::Warn);
}

/// Logs a line: as a `tracing` event if there is a subscriber, else on the standard error stream. It is
/// never silent, since an operator may search for the reason. The caller logs once for each change of
/// state.
#[cold]
pub fn report(Code(name, level): Code, message: &str) {
    if !emit(level, name, message) {
        // One write, so that lines of several threads do not mix. A stream that is closed must not
        // make a request fail.
        let line = format!("tower-ratelimit[{name}]: {message}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// The target in the filters of operators (docs/troubleshooting.md).
#[cfg(feature = "tracing")]
const TARGET: &str = "tower_ratelimit::log";

/// Emits an event. Returns whether there has ever been a subscriber.
#[cfg(feature = "tracing")]
fn emit(level: Severity, name: &str, message: &str) -> bool {
    // Also without a subscriber: it is a record of `log` where that feature of `tracing` is on.
    match level {
        Severity::Error => tracing::error!(target: TARGET, "tower-ratelimit[{name}]: {message}"),
        Severity::Warn => tracing::warn!(target: TARGET, "tower-ratelimit[{name}]: {message}"),
        Severity::Info => tracing::info!(target: TARGET, "tower-ratelimit[{name}]: {message}"),
    }
    tracing::dispatcher::has_been_set()
}

#[cfg(not(feature = "tracing"))]
const fn emit(_: Severity, _: &str, _: &str) -> bool {
    false
}

/// The number of first requests without the thing that proves its absence: a few may be health checks of a
/// load balancer.
const ENOUGH: u32 = 16;

/// The thing was seen, or its absence was logged.
const SETTLED: u32 = u32::MAX;

/// Detects that all requests lack a thing that some must have.
#[derive(Debug)]
pub struct Watch {
    code: Code,
    missed: AtomicU32,
}

impl Watch {
    /// A watch whose fault has this code.
    pub const fn new(code: Code) -> Self {
        Self {
            code,
            missed: AtomicU32::new(0),
        }
    }

    /// Counts a request with or without the thing. Logs `fault` if enough first requests lack it.
    pub fn note(&self, has_it: impl FnOnce() -> bool, fault: impl FnOnce() -> String) {
        if self.missed.load(Ordering::Relaxed) != SETTLED {
            self.count(has_it(), fault);
        }
    }

    #[cold]
    fn count(&self, has_it: bool, fault: impl FnOnce() -> String) {
        if has_it {
            return self.missed.store(SETTLED, Ordering::Relaxed);
        }
        let counted = self
            .missed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |missed| {
                (missed != SETTLED).then(|| {
                    if missed + 1 < ENOUGH {
                        missed + 1
                    } else {
                        SETTLED
                    }
                })
            });
        if counted == Ok(ENOUGH - 1) {
            report(self.code, &fault());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_troubleshooting_page_lists_every_code() {
        // The codes as this file has them, so that none can be forgotten here.
        let page = include_str!("../../../docs/troubleshooting.md");
        let (_, table) = page.split_once("\n## Lines in the log").expect("a table");
        let (table, _) = table.split_once("\n## ").expect("its end");
        let rows = table.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            Some((name, rest.split_once(" | ")?.0))
        });
        let codes = include_str!("log.rs").lines().filter_map(|line| {
            let (_, row) = line.split_once(": Self = Self(\"")?;
            let (name, severity) = row.split_once("\", Severity::")?;
            Some((name, severity.strip_suffix(");")?.to_lowercase()))
        });
        let rows = rows.map(|(name, severity)| (name, severity.to_owned()));
        let codes: Vec<_> = codes.collect();
        assert_eq!(rows.collect::<Vec<_>>(), codes);
        let is_code = |line: &&str| line.starts_with("    pub const ") && line.contains(": Self");
        let all = include_str!("log.rs").lines().filter(is_code).count();
        assert_eq!(codes.len(), all, "a code that rustfmt wraps");
    }
}

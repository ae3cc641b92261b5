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

/// The subject of a line. `docs/troubleshooting.md` has a row for each, under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "some are only logged with a feature")]
pub enum Code {
    KeyUnavailable,
    AddressUnavailable,
    BehindProxy,
    ProxyHeaderMissing,
    NoRouteMatched,
    ChargedTwice,
    SamePolicyName,
    TiersCrossed,
    StoreCrowded,
    StateRefused,
    StateChanged,
    RequestQuotaCut,
    RequestQuotaMisplaced,
    Unsupported,
    CorrectionUnsupported,
    CorrectionFailing,
    SpendReservation,
    SpendUnreadable,
    SpendUnrecognised,
    ExcessUncharged,
    BodyUnread,
    LimiterFailing,
    LimiterBack,
    RedisDown,
    RedisBack,
    RedisSlow,
    RedisForeignValue,
    RedisSplit,
    StoreDown,
    StoreBack,
    StoreSlow,
    StoreForeignValue,
    ListenerPanicked,
    RulesRefused,
    RulesAccepted,
    RulesRemoved,
}

impl Code {
    const fn row(self) -> (&'static str, Severity) {
        match self {
            Self::KeyUnavailable => ("key-unavailable", Severity::Error),
            Self::AddressUnavailable => ("address-unavailable", Severity::Error),
            Self::BehindProxy => ("behind-proxy", Severity::Warn),
            Self::ProxyHeaderMissing => ("proxy-header-missing", Severity::Warn),
            Self::NoRouteMatched => ("no-route-matched", Severity::Warn),
            Self::ChargedTwice => ("charged-twice", Severity::Warn),
            Self::SamePolicyName => ("same-policy-name", Severity::Warn),
            Self::TiersCrossed => ("tiers-crossed", Severity::Warn),
            Self::StoreCrowded => ("store-crowded", Severity::Warn),
            Self::StateRefused => ("state-refused", Severity::Warn),
            Self::StateChanged => ("state-changed", Severity::Warn),
            Self::RequestQuotaCut => ("request-quota-cut", Severity::Warn),
            Self::RequestQuotaMisplaced => ("request-quota-misplaced", Severity::Warn),
            Self::Unsupported => ("unsupported", Severity::Error),
            Self::CorrectionUnsupported => ("correction-unsupported", Severity::Warn),
            Self::CorrectionFailing => ("correction-failing", Severity::Error),
            Self::SpendReservation => ("spend-reservation", Severity::Warn),
            Self::SpendUnreadable => ("spend-unreadable", Severity::Warn),
            Self::SpendUnrecognised => ("spend-unrecognised", Severity::Warn),
            Self::ExcessUncharged => ("excess-uncharged", Severity::Warn),
            Self::BodyUnread => ("body-unread", Severity::Error),
            Self::LimiterFailing => ("limiter-failing", Severity::Error),
            Self::LimiterBack => ("limiter-back", Severity::Info),
            Self::RedisDown => ("redis-down", Severity::Warn),
            Self::RedisBack => ("redis-back", Severity::Info),
            Self::RedisSlow => ("redis-slow", Severity::Warn),
            Self::RedisForeignValue => ("redis-foreign-value", Severity::Warn),
            Self::RedisSplit => ("redis-split", Severity::Warn),
            Self::StoreDown => ("store-down", Severity::Warn),
            Self::StoreBack => ("store-back", Severity::Info),
            Self::StoreSlow => ("store-slow", Severity::Warn),
            Self::StoreForeignValue => ("store-foreign-value", Severity::Warn),
            Self::ListenerPanicked => ("listener-panicked", Severity::Error),
            Self::RulesRefused => ("rules-refused", Severity::Error),
            Self::RulesAccepted => ("rules-accepted", Severity::Info),
            Self::RulesRemoved => ("rules-removed", Severity::Warn),
        }
    }
}

/// Logs a line: as a `tracing` event if there is a subscriber, else on the standard error stream. It is
/// never silent, since an operator may search for the reason. The caller logs once for each change of
/// state.
#[cold]
pub fn report(code: Code, message: &str) {
    let (name, level) = code.row();
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
    use super::{Code, Severity};

    const ALL: [Code; 36] = [
        Code::KeyUnavailable,
        Code::AddressUnavailable,
        Code::BehindProxy,
        Code::ProxyHeaderMissing,
        Code::NoRouteMatched,
        Code::ChargedTwice,
        Code::SamePolicyName,
        Code::TiersCrossed,
        Code::StoreCrowded,
        Code::StateRefused,
        Code::StateChanged,
        Code::RequestQuotaCut,
        Code::RequestQuotaMisplaced,
        Code::Unsupported,
        Code::CorrectionUnsupported,
        Code::CorrectionFailing,
        Code::SpendReservation,
        Code::SpendUnreadable,
        Code::SpendUnrecognised,
        Code::ExcessUncharged,
        Code::BodyUnread,
        Code::LimiterFailing,
        Code::LimiterBack,
        Code::RedisDown,
        Code::RedisBack,
        Code::RedisSlow,
        Code::RedisForeignValue,
        Code::RedisSplit,
        Code::StoreDown,
        Code::StoreBack,
        Code::StoreSlow,
        Code::StoreForeignValue,
        Code::ListenerPanicked,
        Code::RulesRefused,
        Code::RulesAccepted,
        Code::RulesRemoved,
    ];

    /// The page has a row for each code, in this order, and no other.
    #[test]
    fn the_troubleshooting_page_lists_every_code() {
        // The last one, so that a code that is added above cannot be forgotten here.
        assert_eq!(Code::RulesRemoved as usize + 1, ALL.len());
        let page = include_str!("../../../docs/troubleshooting.md");
        let (_, table) = page.split_once("\n## Lines in the log").expect("a table");
        let (table, _) = table.split_once("\n## ").expect("its end");
        let rows = table.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            Some((name, rest.split_once(" | ")?.0))
        });
        let level = |code: Code| match code.row().1 {
            Severity::Error => "error",
            Severity::Warn => "warn",
            Severity::Info => "info",
        };
        let codes: Vec<_> = ALL.map(|code| (code.row().0, level(code))).into();
        assert_eq!(rows.collect::<Vec<_>>(), codes);
    }
}

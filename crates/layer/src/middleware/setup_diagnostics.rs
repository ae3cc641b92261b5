//! Diagnostics: signs of a wrong set-up in a layer's first requests, and a limiter that fails.

use std::{
    error::Error,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use http::{Extensions, HeaderMap};

use tower_ratelimit_core::{
    decision::{Op, Receipt},
    error::{LimiterError, LimiterErrorKind},
    key::Key,
    limiter::{call::Charge, limiter::Limiter},
    lock::unpoisoned,
    log::{self, Code},
};

/// How many requests of a layer are checked: the set-up does not change, and a check takes time.
const CHECKS: u32 = 1_000;

/// The bit of [`Diagnostics::left`] that is set while the limiter fails.
const FAILING: u32 = 1 << 31;

/// This many decisions in a row end the first outage of a limiter. Each next one needs twice as many,
/// so that a limiter that fails now and then does not fill the log.
const RECOVERY: u32 = 16;

/// The most decisions that end an outage, so that no outage is silent for long.
const LONGEST_RECOVERY: u32 = 1 << 14;

/// Checks a layer's first requests, and detects the end of its limiter's failure.
#[derive(Debug, Default)]
pub struct Diagnostics {
    /// How many requests are still checked, and [`FAILING`]. A request reads nothing else once it is 0.
    left: AtomicU32,
    /// Decisions since the limiter last failed, and how many end its outage.
    decided: AtomicU32,
    recovery: AtomicU32,
    proxies: Mutex<Proxies>,
    reported_proxy: AtomicBool,
    reported_twice: AtomicBool,
    /// The limiter does not support the charge of requests.
    unsupported: AtomicBool,
    /// The limiter does not support corrections.
    uncorrectable: AtomicBool,
    /// Corrections fail, since the limiter's store does not respond.
    uncorrected: AtomicBool,
    /// Responses are encoded, so that their units cannot be read.
    encoded: AtomicBool,
    /// Responses have nothing that their reader knows.
    unrecognised: AtomicBool,
}

/// The cause why the units of a response are not known.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unreadable {
    /// It has a `Content-Encoding`.
    Encoded,
    /// It has nothing that its reader knows.
    Unrecognised,
}

impl Diagnostics {
    pub(crate) fn new() -> Self {
        Self {
            left: AtomicU32::new(CHECKS),
            recovery: AtomicU32::new(RECOVERY),
            ..Self::default()
        }
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        self.left.load(Ordering::Relaxed) != 0
    }

    /// Counts a request. Returns whether it is one of the first.
    pub fn checks_next(&self) -> bool {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self
            .left
            .fetch_update(set, fetch, |left| (left & !FAILING != 0).then(|| left - 1));
        taken.is_ok()
    }

    /// Logs that the limiter fails, once for each outage.
    fn report_failing(&self, fault: impl FnOnce() -> String) {
        self.decided.store(0, Ordering::Relaxed);
        if self.left.fetch_or(FAILING, Ordering::Relaxed) & FAILING == 0 {
            log::report(Code::LIMITER_FAILING, &fault());
        }
    }

    /// Counts a decision. Enough of them end an outage of the limiter.
    pub(crate) fn note_decided(&self) {
        if self.left.load(Ordering::Relaxed) & FAILING == 0 {
            return;
        }
        let recovery = self.recovery.load(Ordering::Relaxed);
        if self.decided.fetch_add(1, Ordering::Relaxed) + 1 >= recovery
            && self.left.fetch_and(!FAILING, Ordering::Relaxed) & FAILING != 0
        {
            let next = (recovery * 2).min(LONGEST_RECOVERY);
            self.recovery.store(next, Ordering::Relaxed);
            log::report(Code::LIMITER_BACK, "the limiter decides again");
        }
    }

    /// Checks a request of `peer`, whose address is the key, for signs of a proxy.
    pub(crate) fn check_for_proxy(&self, peer: IpAddr, headers: &HeaderMap) {
        let Some((header, value)) = forwarded_for(headers) else {
            return;
        };
        let mut proxies = unpoisoned(self.proxies.lock());
        if proxies.note(peer, value) && !self.reported_proxy.swap(true, Ordering::Relaxed) {
            drop(proxies);
            log::report(
                Code::BEHIND_PROXY,
                &format!(
                    "one address sends requests with many values of {header:?}, as a proxy does, and \
                     they share one limit: key on `ClientIp::behind([..])` with the network of your \
                     proxies and the header that they write; if no proxy is in front of this service, \
                     a client makes the header up, and nothing is wrong"
                ),
            );
        }
    }

    /// Logs a second charge of a request for `key` by the limiter of this `identity`.
    pub(crate) fn check_for_second_charge(
        &self,
        identity: usize,
        charges: &[Charge<'_>],
        extensions: &mut Extensions,
    ) {
        let charge = SeenCharge {
            identity,
            keys: charges
                .iter()
                .map(|charge| hash_of(charge.key))
                .fold(0, |all, own| all.rotate_left(1) ^ own),
        };
        let Some(SeenCharges(charges)) = extensions.get_mut() else {
            extensions.insert(SeenCharges(vec![charge]));
            return;
        };
        if !charges.contains(&charge) {
            charges.push(charge);
        } else if !self.reported_twice.swap(true, Ordering::Relaxed) {
            log::report(
                Code::CHARGED_TWICE,
                "one limiter charged a request twice for the same key: the layer, or another one with \
                 a clone of its limiter, stands around it twice, so remove one; where an inner layer \
                 sends requests again, each attempt is charged, and a retry belongs outside",
            );
        }
    }

    /// Logs settings of the layer that its limiter does not support.
    pub(crate) fn report_unsupported(
        &self,
        limiter: &impl Limiter,
        receipt: Option<Receipt>,
        exceeds: bool,
        has_quota: bool,
    ) {
        if has_quota && limiter.policies().len() > 1 {
            self.unsupported.store(true, Ordering::Relaxed);
            log::report(
                Code::UNSUPPORTED,
                "requests that bring a quota cannot be decided about: the layer's limiter has several, of which \
                 none can be replaced; give each a layer of its own",
            );
        }
        let facts = limiter.facts();
        let corrects = receipt.is_some_and(|receipt| !facts.supports(&Op::Settle(1, receipt)));
        let exceeds = exceeds && !facts.supports(&Op::Hit(1));
        self.uncorrectable
            .store(corrects || exceeds, Ordering::Relaxed);
        if corrects {
            log::report(
                Code::CORRECTION_UNSUPPORTED,
                "count_if and final_cost change nothing: the layer's limiter cannot settle what a \
                 request was charged; use a LocalLimiter or a RedisLimiter",
            );
        }
        if exceeds {
            log::report(
                Code::EXCESS_UNCHARGED,
                "elastic lets requests pass without charging them: the layer's limiter cannot charge \
                 more than there is; use a LocalLimiter or a RedisLimiter",
            );
        }
    }

    /// Logs that no response charges the limits that have units for responses.
    pub(crate) fn report_unspent() {
        log::report(
            Code::CORRECTION_UNSUPPORTED,
            "limits with `spends` are charged the layer's cost, whatever responses use: call `.spending(readers)` on \
             the layer, last",
        );
    }

    /// Logs why the limiter failed to decide about a request.
    pub(crate) fn report_undecided(&self, error: &LimiterError) {
        match error.kind() {
            LimiterErrorKind::Unsupported => {
                if !self.unsupported.swap(true, Ordering::Relaxed) {
                    let fault = format!("requests cannot be decided about: {error}");
                    log::report(Code::UNSUPPORTED, &fault);
                }
            }
            _ if error.is_logged() => {}
            _ => self.report_failing(|| {
                let source = error.source().map(|source| format!(": {source}"));
                let source = source.unwrap_or_default();
                format!("the limiter cannot decide: {error}{source}")
            }),
        }
    }

    /// Logs that a correction failed.
    pub(crate) fn report_uncorrected(&self, error: &LimiterError) {
        let (reported, code) = match error.kind() {
            LimiterErrorKind::Unsupported => (&self.uncorrectable, Code::CORRECTION_UNSUPPORTED),
            _ => (&self.uncorrected, Code::CORRECTION_FAILING),
        };
        if !reported.swap(true, Ordering::Relaxed) {
            let fault = format!("what a request is charged could not be corrected: {error}");
            log::report(code, &fault);
        }
    }

    /// Logs why the units of a response are not known.
    pub(crate) fn report_unreadable(&self, cause: Unreadable) {
        let (reported, code, fault) = match cause {
            Unreadable::Encoded => (
                &self.encoded,
                Code::SPEND_UNREADABLE,
                "the units of a response cannot be read, because it has a Content-Encoding: it is charged by the layer's \
                 `missing`; let the server behind answer without one, by the request's `Accept-Encoding: identity`",
            ),
            Unreadable::Unrecognised => (
                &self.unrecognised,
                Code::SPEND_UNRECOGNISED,
                "a response has neither a usage nor a text that its reader knows: it is charged by the layer's \
                 `missing`, which keeps the reservation unless it is set; compare the response with the formats of the \
                 reader",
            ),
        };
        if !reported.swap(true, Ordering::Relaxed) {
            log::report(code, fault);
        }
    }

    /// Notes a correction: the next failure is logged again.
    pub(crate) fn note_corrected(&self) {
        if self.uncorrected.load(Ordering::Relaxed) {
            self.uncorrected.store(false, Ordering::Relaxed);
        }
    }
}

/// The charges of a request so far, in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct SeenCharges(Vec<SeenCharge>);

/// A charge: the limiter, and a hash of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenCharge {
    identity: usize,
    keys: u64,
}

/// How many peers with a header are stored: a proxy is among the first.
const PEERS: usize = 8;

/// The number of values that marks a peer as a proxy: more than a client's own proxies usually send.
const PROXY_VALUES: usize = 4;

/// The values that the first peers sent, as hashes.
#[derive(Debug, Default)]
struct Proxies([Option<Peer>; PEERS]);

#[derive(Debug, Clone, Copy)]
struct Peer {
    address: IpAddr,
    values: [Option<u64>; PROXY_VALUES],
}

impl Proxies {
    /// Stores a value of a peer. Returns whether the peer has sent several.
    fn note(&mut self, address: IpAddr, value: u64) -> bool {
        let is_its = |peer: &&mut Option<Peer>| peer.is_none_or(|peer| peer.address == address);
        let Some(place) = self.0.iter_mut().find(is_its) else {
            return false;
        };
        let peer = place.get_or_insert(Peer {
            address,
            values: [None; PROXY_VALUES],
        });
        let is_its = |known: &&mut Option<u64>| known.is_none_or(|known| known == value);
        if let Some(place) = peer.values.iter_mut().find(is_its) {
            *place = Some(value);
        }
        peer.values.iter().all(Option::is_some)
    }
}

const FORWARDING: [&str; 8] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fly-client-ip",
    "cloudfront-viewer-address",
    "x-envoy-external-address",
];

/// The first such header of a request, and a hash of its lines.
fn forwarded_for(headers: &HeaderMap) -> Option<(&'static str, u64)> {
    let name = FORWARDING
        .into_iter()
        .find(|name| headers.contains_key(*name))?;
    let mut hasher = DefaultHasher::new();
    for line in headers.get_all(name) {
        line.as_bytes().hash(&mut hasher);
    }
    Some((name, hasher.finish()))
}

fn hash_of(key: &Key) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_peer_with_several_values() {
        let mut proxies = Proxies::default();
        let [one, other] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        for value in [1, 2, 3, 1, 2, 3] {
            assert!(!proxies.note(one, value));
            assert!(!proxies.note(other, 7));
        }
        assert!(proxies.note(one, 4));
        // Only the first peers are stored.
        let mut proxies = Proxies::default();
        for number in 0..100_u8 {
            for value in 0..3 {
                assert!(!proxies.note(IpAddr::from([10, 0, 0, number]), value));
            }
        }
        assert!(!proxies.note(IpAddr::from([10, 0, 0, 99]), 3));
        assert!(proxies.note(IpAddr::from([10, 0, 0, 0]), 3));
    }

    #[test]
    fn only_the_first_requests_are_checked() {
        let diagnostics = Diagnostics::new();
        diagnostics.left.fetch_or(FAILING, Ordering::Relaxed);
        for _ in 0..CHECKS {
            assert!(diagnostics.is_active() && diagnostics.checks_next());
        }
        assert!(diagnostics.is_active() && !diagnostics.checks_next());
        for _ in 0..RECOVERY {
            assert!(diagnostics.is_active());
            diagnostics.note_decided();
        }
        assert!(!diagnostics.is_active());
        // The next outage lasts longer.
        diagnostics.report_failing(String::new);
        for _ in 0..2 * RECOVERY {
            assert!(diagnostics.is_active());
            diagnostics.note_decided();
        }
        assert!(!diagnostics.is_active());
    }
}

//! The counts of a replay.

use std::{
    hash::{BuildHasher as _, RandomState},
    mem,
};

use serde_json::{Value, json};
use tower_ratelimit::{
    Key, Quota,
    clock::{ManualClock, Timestamp},
};

use super::{
    candidate_quota::{Candidate, Delayed, Limited},
    entry::Attempt,
    log::Seen,
    peaks::{Peaks, WINDOWS},
    reordering::Spread,
    required_request_parts::{KeySource, Need},
    series::Series,
    settings::{Settings, StatusSet},
    suggestion::{PERCENTILES, Suggestion},
    top::{KeyCount, KeyCounts},
    tried_rules::{Policy, TriedRules},
};
use crate::timestamp_formats;

/// The factors of `--what-if`.
const FACTORS: [f64; 12] = [0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0];

/// Quotas and rules, and their effects.
pub(super) struct Tally {
    clock: ManualClock,
    pub(super) seen: Seen,
    /// The options that filter lines.
    options: Vec<String>,
    pub(super) late: u64,
    /// The first and the last time, in microseconds.
    pub(super) span: Option<(u64, u64)>,
    /// Lines with 429: the server has a limit already.
    pub(super) refused: u64,
    /// Attempts without a key, which share one.
    pub(super) anonymous: u64,
    pub(super) whole_seconds: bool,
    pub(super) spread: Spread,
    pub(super) key: String,
    pub(super) quotas: Vec<Candidate>,
    pub(super) what_if: Vec<Candidate>,
    pub(super) rules: Option<TriedRules>,
    pub(super) peaks: Peaks,
    pub(super) series: Series,
    top: KeyCounts,
    many: usize,
    hash_keys: bool,
    /// Seeded in each run, so that hashes cannot be reversed by trial.
    names: RandomState,
    suggests: bool,
    count_if: Option<StatusSet>,
}

/// A caveat: the numbers of limited requests are no forecast.
pub(super) const UPPER_BOUND: &str = "clients that are refused would have behaved differently";

/// A key that was limited.
pub(super) struct LimitedKey {
    pub(super) name: String,
    pub(super) requests: u64,
    /// How much of it may be another key's.
    pub(super) of_others: u64,
    /// The alternative of a `first_of`, or `--key` if it stands in.
    pub(super) counted_by: Option<String>,
    /// The key of the rule that the log lacks.
    pub(super) instead_of: Option<String>,
}

impl Tally {
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let clock = ManualClock::new();
        let candidate = |quota| Candidate::new(quota, settings.max_keys, &clock);
        let quotas = settings.quotas.iter().copied().map(candidate);
        let what_if = what_if(settings).into_iter().map(candidate);
        let rules = (!settings.rules.is_empty()).then(|| TriedRules::new(settings, &clock));
        Ok(Self {
            seen: Seen::default(),
            options: settings.left_out.names().to_vec(),
            late: 0,
            span: None,
            refused: 0,
            anonymous: 0,
            whole_seconds: false,
            spread: settings.spread,
            key: settings.key.text().to_owned(),
            quotas: quotas.collect::<Result<_, _>>()?,
            what_if: what_if.collect::<Result<_, _>>()?,
            rules: rules.transpose()?,
            peaks: Peaks::new(settings.max_keys),
            series: Series::default(),
            top: KeyCounts::default(),
            many: settings.top,
            hash_keys: settings.hash_keys,
            names: RandomState::new(),
            suggests: settings.suggest,
            count_if: settings.count_if.clone(),
            clock,
        })
    }

    /// Decides an attempt; attempts arrive in the order of their times.
    pub(super) fn decide(&mut self, mut attempt: Attempt) {
        let at = attempt.at;
        self.clock.set(Timestamp::from_micros(at));
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        self.refused += u64::from(attempt.status == 429);
        self.anonymous += u64::from(attempt.key == Key::anonymous());
        self.whole_seconds |= attempt.is_whole;
        let count_if = self.count_if.as_ref();
        let mut limited = 0;
        for (place, candidate) in self.quotas.iter_mut().chain(&mut self.what_if).enumerate() {
            let is_limited = candidate.limits(&attempt, count_if);
            limited |= u32::from(is_limited) << place.min(31);
        }
        let by_rules = self
            .rules
            .as_mut()
            .is_some_and(|rules| rules.limits(&mut attempt));
        let is_limited = if self.quotas.is_empty() {
            by_rules
        } else {
            limited & 1 == 1
        };
        self.series.count(at, is_limited);
        if limited & 1 == 1 && !self.quotas.is_empty() {
            self.top.count(&attempt.key, || ());
        }
        let counts = self
            .count_if
            .as_ref()
            .is_none_or(|statuses| statuses.has(attempt.status));
        self.peaks.count(&attempt.key, at, limited, counts);
    }

    /// Completes the waiting requests.
    pub(super) fn finish(&mut self) {
        if let Some(rules) = &mut self.rules {
            rules.finish();
        }
    }

    /// Each option that filters lines, and their number.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (&str, u64)> {
        let options = self.options.iter().map(String::as_str);
        options.zip(self.seen.left_out.iter().copied())
    }

    /// The largest share of attempts that a quota or the rules limit. Those without an address count as limited, since
    /// their keys are not clients.
    pub(super) fn worst_share(&self) -> f64 {
        let quotas = self
            .quotas
            .iter()
            .map(|candidate| candidate.limited.requests);
        let rules = self
            .rules
            .iter()
            .map(|rules| rules.outcomes().limited.requests);
        let most = quotas.chain(rules).max().unwrap_or(0);
        self.share(most + self.seen.without_address)
    }

    /// Whether there is a limit, not only a suggestion.
    pub(super) fn tries_any(&self) -> bool {
        !self.quotas.is_empty() || self.rules.is_some()
    }

    pub(super) fn share(&self, requests: u64) -> f64 {
        requests as f64 / (self.seen.attempts.max(1)) as f64
    }

    pub(super) fn suggestion(&self) -> Option<Suggestion> {
        self.suggests.then(|| Suggestion::of(&self.peaks)).flatten()
    }

    /// The keys that the first quota limits most.
    pub(super) fn top(&self) -> Vec<LimitedKey> {
        let top = self.top.first(self.many).into_iter();
        top.map(|top| self.limited_key(&top, &KeySource::default()))
            .collect()
    }

    /// Each quota of each rule that decided something.
    pub(super) fn policies(&self) -> Vec<(Policy, Vec<LimitedKey>)> {
        let tried = self.rules.iter();
        let policies = tried.flat_map(|rules| rules.policies(self.many));
        let named = policies.map(|mut policy| {
            let keys = mem::take(&mut policy.top)
                .iter()
                .map(|top| self.limited_key(top, &top.label))
                .collect();
            (policy, keys)
        });
        named.collect()
    }

    /// The key with its name. If the line's key stands in, that one's name.
    fn limited_key<L>(&self, top: &KeyCount<L>, source: &KeySource) -> LimitedKey {
        let KeyCount {
            key, count, error, ..
        } = top;
        let stand_in = source.stand_in.as_ref();
        LimitedKey {
            name: self.name(stand_in.map_or(key, |stand_in| &stand_in.key)),
            requests: *count,
            of_others: *error,
            counted_by: match stand_in {
                Some(_) => Some(self.key.clone()),
                None => source.alternative.clone(),
            },
            instead_of: stand_in.map(|stand_in| stand_in.missing.clone()),
        }
    }

    fn name(&self, key: &Key) -> String {
        if self.hash_keys {
            format!("{:016x}", self.names.hash_one(key.as_bytes()))
        } else {
            key.reveal().to_string()
        }
    }

    /// The number of keys that the candidate at this index limits.
    pub(super) fn keys_limited_by(&self, place: usize) -> u64 {
        self.peaks.limited_by(place)
    }

    /// Keys that full tables evicted.
    pub(super) fn evictions(&self) -> u64 {
        let quotas = self.quotas.iter().chain(&self.what_if);
        let rules = self.rules.iter().map(TriedRules::evictions);
        quotas
            .map(Candidate::evictions)
            .chain(rules)
            .max()
            .unwrap_or(0)
    }

    /// The first attempt without an address.
    pub(super) fn first_without_address(&self) -> Option<String> {
        self.seen.first_without_address(self.hash_keys)
    }

    /// All of it as JSON.
    pub(super) fn json(&self) -> Value {
        let rules = self.rules.as_ref().map(|rules| self.rules_json(rules));
        let candidates = |list: &[Candidate], first: usize| -> Vec<Value> {
            let all = list.iter().zip(first..);
            all.map(|(candidate, place)| self.candidate_json(candidate, place))
                .collect()
        };
        json!({
            "files": self.seen.files,
            "lines": self.seen.lines,
            "attempts": self.seen.attempts,
            "other_requests": self.seen.others,
            "left_out": self.left_out().map(|(option, lines)| json!({"by": option, "lines": lines})).collect::<Vec<_>>(),
            "skipped": self.seen.skipped,
            "skipped_first": self.seen.reasons,
            "cut": self.seen.cut,
            "without_address": self.seen.without_address,
            "without_address_first": self.first_without_address(),
            "late": self.late,
            "first": self.span.map(|(first, _)| time_of(first)),
            "last": self.span.map(|(_, last)| time_of(last)),
            "answered_429": self.refused,
            "key": self.key,
            "keys": self.peaks.number(),
            "keys_are_estimated": self.peaks.is_sample(),
            "without_key": self.anonymous,
            "evictions": self.evictions(),
            "quotas": candidates(&self.quotas, 0),
            "rules": rules,
            "upper_bound": self.tries_any().then_some(UPPER_BOUND),
            "top": top_json(&self.top()),
            "suggestion": self.suggestion().map(|suggestion| suggestion_json(&suggestion)),
            "what_if": candidates(&self.what_if, self.quotas.len()),
        })
    }

    fn rules_json(&self, rules: &TriedRules) -> Value {
        let policies = self.policies().into_iter().map(|(policy, top)| {
            json!({
                "name": policy.name,
                "shadow": policy.is_shadow,
                "overflows": policy.overflows,
                "decided": policy.decided,
                "limited": limited(&policy.limited),
                "keys_limited": policy.keys,
                "keys_are_estimated": policy.keys_are_estimated,
                "top": top_json(&top),
            })
        });
        let missing = self.missing().map(|(need, attempts)| {
            json!({
                "part": need.to_string(),
                "rules": need.rules,
                "attempts": attempts,
                "instead": if need.has_stand_in { &self.key } else { "not sent" },
            })
        });
        let outcomes = rules.outcomes();
        json!({
            "limited": limited(&outcomes.limited),
            "share": self.share(outcomes.limited.requests),
            "delayed": delayed(outcomes.delayed),
            "forbidden": outcomes.forbidden,
            "without_key": outcomes.without_key,
            "unseen": rules.unseen,
            "not_tried": rules.not_tried().iter().map(|(rule, limit)| json!({"rule": rule, "limit": limit})).collect::<Vec<_>>(),
            "not_in_log": missing.collect::<Vec<_>>(),
            "policies": policies.collect::<Vec<_>>(),
        })
    }

    /// The parts of requests that rules read and lines lack, with the number of those lines.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&Need, u64)> {
        let needs = self.rules.iter().flat_map(|rules| rules.needs.iter());
        let missing = needs.zip(self.seen.missing.iter().copied());
        missing.filter(|(_, attempts)| *attempts > 0)
    }

    fn candidate_json(&self, candidate: &Candidate, place: usize) -> Value {
        json!({
            "quota": candidate.quota.to_string(),
            "limited": limited(&candidate.limited),
            "share": self.share(candidate.limited.requests),
            "keys_limited": self.keys_limited_by(place),
            "delayed": delayed(candidate.delayed),
        })
    }
}

/// The quotas of `--what-if`, around the first one.
fn what_if(settings: &Settings) -> Vec<Quota> {
    let first = settings.quotas.first().filter(|_| settings.what_if);
    let Some(first) = first else {
        return Vec::new();
    };
    let scaled = FACTORS
        .iter()
        .map(|factor| Candidate::scaled(first, *factor));
    let mut quotas: Vec<_> = scaled.flatten().collect();
    quotas.dedup();
    quotas
}

fn top_json(top: &[LimitedKey]) -> Value {
    let top = top.iter().map(|key| {
        json!({
            "key": key.name,
            "limited": key.requests,
            "of_others_at_most": key.of_others,
            "counted_by": key.counted_by,
            "instead_of": key.instead_of,
        })
    });
    top.collect()
}

fn limited(limited: &Limited) -> Value {
    json!({
        "requests": limited.requests,
        "first": limited.first.map(time_of),
        "worst_minute": (limited.requests > 0).then(|| minute_of(limited)),
        "worst_minute_requests": limited.worst.1,
    })
}

fn delayed(delayed: Delayed) -> Value {
    let longest = delayed.longest.as_secs_f64();
    json!({"requests": delayed.requests, "longest_seconds": longest})
}

fn suggestion_json(suggestion: &Suggestion) -> Value {
    let windows = WINDOWS
        .iter()
        .zip(&suggestion.peaks)
        .map(|((_, name), peaks)| {
            let at = PERCENTILES.iter().zip(peaks);
            let peaks = at.map(|((_, name), peak)| ((*name).to_owned(), json!(peak)));
            json!({"window": name, "peaks": Value::Object(peaks.collect())})
        });
    json!({"quota": suggestion.quota.to_string(), "windows": windows.collect::<Vec<_>>()})
}

pub(super) fn time_of(micros: u64) -> String {
    timestamp_formats::display(Timestamp::from_micros(micros))
}

/// The minute with the most limited requests.
pub(super) fn minute_of(limited: &Limited) -> String {
    time_of(limited.worst.0 * 60_000_000)
}

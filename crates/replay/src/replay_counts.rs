//! The counts of a replay, also over time.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
};

use serde_json::{Value, json};
use tower_ratelimit::{
    Key, Quota,
    clock::{ManualClock, Timestamp},
};

use crate::{
    candidate_quota::{Candidate, Delayed, Limited},
    key_counts::{KeyCount, KeyCounts, KeySource},
    log_entry::Attempt,
    log_files::Seen,
    missing_request_parts::Need,
    peaks::{PERCENTILES, Peaks, Suggestion, WINDOWS},
    settings::Settings,
    timestamps,
    tried_rules::{LimitedKey, Policy, TriedRules},
};

/// The factors of `--what-if`.
const FACTORS: [f64; 12] = [0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0];

/// Quotas and rules, and their effects on the lines of a log.
pub struct Tally<'s> {
    pub(crate) settings: &'s Settings,
    clock: ManualClock,
    pub(crate) seen: Seen,
    pub(crate) late: u64,
    /// The first and the last time, in microseconds.
    pub(crate) span: Option<(u64, u64)>,
    /// Lines with 429: the server has a limit already.
    pub(crate) refused: u64,
    /// Attempts without a key, which share one.
    pub(crate) anonymous: u64,
    pub(crate) whole_seconds: bool,
    pub(crate) quotas: Vec<Candidate>,
    pub(crate) what_if: Vec<Candidate>,
    pub(crate) rules: Option<TriedRules>,
    pub(crate) peaks: Peaks,
    pub(crate) series: Series,
    top: KeyCounts,
    /// Seeded in each run, so that hashes cannot be reversed by trial.
    names: RandomState,
}

/// A caveat: the numbers of limited requests are no forecast.
pub(crate) const UPPER_BOUND: &str = "clients that are refused would have behaved differently";

impl<'s> Tally<'s> {
    pub(crate) fn new(settings: &'s Settings) -> Result<Self, String> {
        let clock = ManualClock::new();
        let candidate = |quota| Candidate::new(quota, settings.max_keys, &clock);
        let quotas = settings.quotas.iter().copied().map(candidate);
        let what_if = what_if(settings).into_iter().map(candidate);
        let rules = (!settings.rules.is_empty()).then(|| TriedRules::new(settings, &clock));
        Ok(Self {
            seen: Seen::default(),
            late: 0,
            span: None,
            refused: 0,
            anonymous: 0,
            whole_seconds: false,
            quotas: quotas.collect::<Result<_, _>>()?,
            what_if: what_if.collect::<Result<_, _>>()?,
            rules: rules.transpose()?,
            peaks: Peaks::new(settings.max_keys),
            series: Series::default(),
            top: KeyCounts::default(),
            names: RandomState::new(),
            clock,
            settings,
        })
    }

    /// Decides an attempt; attempts arrive in the order of their times.
    pub(crate) fn decide(&mut self, mut attempt: Attempt) {
        let at = attempt.at;
        self.clock.set(Timestamp::from_micros(at));
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        self.refused += u64::from(attempt.status == 429);
        self.anonymous += u64::from(attempt.key == Key::anonymous());
        self.whole_seconds |= attempt.is_whole;
        let count_if = self.settings.count_if.as_ref();
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
            self.top.count(&attempt.key, KeySource::default);
        }
        let counts = count_if.is_none_or(|statuses| statuses.has(attempt.status));
        self.peaks.count(&attempt.key, at, limited, counts);
    }

    /// Completes the waiting requests. `late` attempts could not be put in order.
    pub(crate) fn finish(&mut self, late: u64) {
        self.late = late;
        if let Some(rules) = &mut self.rules {
            rules.finish();
        }
    }

    /// Each option that filters lines, and their number.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = (&str, u64)> {
        let options = self.settings.left_out.names().iter().map(String::as_str);
        options.zip(self.seen.left_out.iter().copied())
    }

    /// The largest share of attempts that a quota or the rules limit. Those without an address count as limited, since
    /// their keys are not clients.
    pub fn worst_share(&self) -> f64 {
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

    /// The key that quotas count by, as given.
    pub(crate) fn key(&self) -> &str {
        self.settings.key.text()
    }

    /// Whether there is a limit, not only a suggestion.
    pub(crate) fn tries_any(&self) -> bool {
        !self.quotas.is_empty() || self.rules.is_some()
    }

    pub(crate) fn share(&self, requests: u64) -> f64 {
        requests as f64 / (self.seen.attempts.max(1)) as f64
    }

    pub(crate) fn suggestion(&self) -> Option<Suggestion> {
        let suggests = self.settings.suggest;
        suggests.then(|| Suggestion::of(&self.peaks)).flatten()
    }

    /// The keys that the first quota limits most.
    pub(crate) fn top(&self) -> Vec<LimitedKey> {
        let top = self.top.first(self.settings.top);
        top.iter().map(|top| self.limited_key(top)).collect()
    }

    /// Each quota of each rule that decided something.
    pub(crate) fn policies(&self) -> Vec<Policy> {
        let rules = self.rules.as_ref();
        rules.map_or_else(Vec::new, |rules| {
            rules.policies(self.settings.top, |top| self.limited_key(top))
        })
    }

    /// The key with its name. If the line's key stands in, that one's name.
    fn limited_key(&self, top: &KeyCount) -> LimitedKey {
        let KeyCount {
            key,
            count,
            error,
            source,
            ..
        } = top;
        let stand_in = source.stand_in.as_ref();
        LimitedKey {
            name: self.name(stand_in.map_or(key, |stand_in| &stand_in.key)),
            requests: *count,
            of_others: *error,
            counted_by: match stand_in {
                Some(_) => Some(self.key().to_owned()),
                None => source.alternative.clone(),
            },
            instead_of: stand_in.map(|stand_in| stand_in.missing.clone()),
        }
    }

    fn name(&self, key: &Key) -> String {
        if self.settings.hash_keys {
            format!("{:016x}", self.names.hash_one(key.as_bytes()))
        } else {
            key.reveal().to_string()
        }
    }

    /// The number of keys that the candidate at this index limits.
    pub(crate) fn keys_limited_by(&self, place: usize) -> u64 {
        self.peaks.limited_by(place)
    }

    /// Keys that full tables evicted.
    pub(crate) fn evictions(&self) -> u64 {
        let quotas = self.quotas.iter().chain(&self.what_if);
        let rules = self.rules.iter().map(TriedRules::evictions);
        quotas
            .map(Candidate::evictions)
            .chain(rules)
            .max()
            .unwrap_or(0)
    }

    /// The place of the first attempt without an address, and its client unless keys are hidden.
    pub(crate) fn first_without_address(&self) -> Option<String> {
        let (place, client) = self.seen.first_without_address.as_ref()?;
        Some(match client {
            _ if self.settings.hash_keys => place.clone(),
            Some(client) => format!("{place}: {client:?}"),
            None => format!("{place}: no client"),
        })
    }

    /// The number of readable lines.
    pub fn readable(&self) -> u64 {
        let Seen {
            attempts,
            others,
            left_out,
            ..
        } = &self.seen;
        attempts + others + left_out.iter().sum::<u64>()
    }

    /// All of it as JSON.
    pub fn json(&self) -> Value {
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
            "key": self.key(),
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
        let policies = self.policies().into_iter().map(|policy| {
            json!({
                "name": policy.name,
                "shadow": policy.is_shadow,
                "overflows": policy.overflows,
                "decided": policy.decided,
                "limited": limited(&policy.limited),
                "keys_limited": policy.keys,
                "keys_are_estimated": policy.keys_are_estimated,
                "top": top_json(&policy.top),
            })
        });
        let missing = self.missing().map(|(need, attempts)| {
            json!({
                "part": need.to_string(),
                "rules": need.rules,
                "attempts": attempts,
                "instead": if need.has_stand_in { self.key() } else { "not sent" },
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
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&Need, u64)> {
        let needs = self.settings.needs.iter();
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

impl fmt::Debug for Tally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
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

pub(crate) fn time_of(micros: u64) -> String {
    timestamps::display(Timestamp::from_micros(micros))
}

/// The minute with the most limited requests.
pub(crate) fn minute_of(limited: &Limited) -> String {
    time_of(limited.worst.0 * 60_000_000)
}

/// The most steps of a chart.
const STEPS: usize = 600;

/// In microseconds.
pub(crate) const MINUTE: u64 = 60_000_000;

/// Offered and limited attempts of each step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    /// The minute since 1970 when the first step begins.
    first: u64,
    /// The length of a step in minutes, 0 before the first attempt.
    pub(crate) minutes: u64,
    pub(crate) steps: Vec<(u64, u64)>,
}

impl Series {
    /// Counts an attempt; attempts arrive in the order of their times.
    pub(crate) fn count(&mut self, at: u64, is_limited: bool) {
        let minute = at / MINUTE;
        if self.minutes == 0 {
            (self.first, self.minutes) = (minute, 1);
        }
        while (minute.saturating_sub(self.first) / self.minutes) as usize >= STEPS {
            self.minutes *= 2;
            let pairs = self.steps.chunks(2);
            let sum = |pair: &[(u64, u64)]| pair.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            self.steps = pairs.map(sum).collect();
        }
        let step = (minute.saturating_sub(self.first) / self.minutes) as usize;
        if self.steps.len() <= step {
            self.steps.resize(step + 1, (0, 0));
        }
        self.steps[step].0 += 1;
        self.steps[step].1 += u64::from(is_limited);
    }

    /// The start of the first step and the end of the last one, in microseconds since 1970.
    pub(crate) fn span(&self) -> (u64, u64) {
        let end = self.first + self.minutes * self.steps.len() as u64;
        (self.first * MINUTE, end * MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_steps_get_longer() {
        let mut series = Series::default();
        for minute in 0..100_000_u64 {
            series.count(
                1_795_230_000_000_000 + minute * 60_000_000,
                minute % 10 == 0,
            );
        }
        assert!(series.steps.len() <= STEPS, "{}", series.steps.len());
        let sums = series
            .steps
            .iter()
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert_eq!((sums, series.minutes), ((100_000, 10_000), 256));
    }
}

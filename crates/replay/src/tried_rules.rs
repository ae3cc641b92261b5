//! Rule files under trial, by the library's own layer.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future as _, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Parts};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_ratelimit::{
    Key, LocalStore,
    clock::{Clock, ManualClock},
    observe::Event,
    reject::RejectionKind,
    rules::{Rules, RulesLayer},
};

use crate::{
    candidate_quota::{Delayed, Limited},
    key_counts::{KeyCount, KeyCounts, Sample},
    log_entry::Attempt,
    missing_request_parts::{KeyOfLog, Needs},
    settings::Settings,
    simulated_queue::{Completed, RequestQueue},
};

/// The rules, and their effects.
pub(crate) struct TriedRules {
    service: BoxCloneSyncService<Request<()>, Response<()>, Infallible>,
    waiting: RequestQueue<Response<()>>,
    store: LocalStore,
    decisions: Arc<Mutex<DecisionCounts>>,
    outcomes: Outcomes,
    not_tried: Vec<(String, &'static str)>,
    /// Attempts that are no valid requests: rules never see them.
    pub(crate) unseen: u64,
}

/// The outcomes of requests.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) limited: Limited,
    pub(crate) delayed: Delayed,
    /// Requests that a `deny` rejects with 403.
    pub(crate) forbidden: u64,
    /// Requests without the key of a rule, rejected with 400 or 500.
    pub(crate) without_key: u64,
}

/// Counts of the decisions that the layer reports.
struct DecisionCounts {
    clock: ManualClock,
    set: Rules,
    rules: Vec<String>,
    needs: Needs,
    /// The request that the layer is deciding.
    request: Option<Arc<Parts>>,
    policies: BTreeMap<String, PolicyCounts>,
    /// The most keys to track for each policy.
    max_keys: usize,
}

/// The most limited keys of a policy to count exactly; beyond, their number is an estimate.
const MOST_LIMITED: usize = 100_000;

/// Decisions of a rule's quota.
struct PolicyCounts {
    /// The index of its rule.
    rule: Option<usize>,
    decided: u64,
    is_shadow: bool,
    overflows: bool,
    limited: Limited,
    keys: Sample<()>,
    top: KeyCounts,
}

/// Decisions of a rule's quota, and the keys that it limited.
#[derive(Debug)]
pub(crate) struct Policy {
    /// `rule`, or `rule.quota` among several.
    pub(crate) name: String,
    pub(crate) decided: u64,
    /// Whether it is in shadow mode.
    pub(crate) is_shadow: bool,
    /// Whether requests that it limits pass with a mark.
    pub(crate) overflows: bool,
    pub(crate) limited: Limited,
    pub(crate) keys: u64,
    pub(crate) keys_are_estimated: bool,
    /// The keys that were limited most.
    pub(crate) top: Vec<LimitedKey>,
}

/// A key that was limited.
#[derive(Debug)]
pub(crate) struct LimitedKey {
    pub(crate) name: String,
    pub(crate) requests: u64,
    /// How much of it may be another key's.
    pub(crate) of_others: u64,
    /// The alternative of a `first_of`, or `--key` if it stands in.
    pub(crate) counted_by: Option<String>,
    /// The key of the rule that the log lacks.
    pub(crate) instead_of: Option<String>,
}

/// The status in the line, which the handler responds with.
#[derive(Clone, Copy)]
struct Logged(StatusCode);

impl TriedRules {
    pub(crate) fn new(settings: &Settings, clock: &ManualClock) -> Result<Self, String> {
        let store = LocalStore::builder()
            .max_keys(settings.max_keys)
            .clock(clock.clone())
            .build()
            .map_err(|error| error.to_string())?;
        let rules = rules(settings, &store, clock)?;
        let left_out = rules.left_out();
        let not_tried = left_out.map(|(rule, field)| (rule.to_owned(), field));
        let not_tried = not_tried.collect();
        let decisions = Arc::new(Mutex::new(DecisionCounts {
            clock: clock.clone(),
            rules: rules.names().map(str::to_owned).collect(),
            set: rules.clone(),
            needs: settings.needs.clone(),
            request: None,
            policies: BTreeMap::new(),
            max_keys: settings.max_keys.min(MOST_LIMITED),
        }));
        let layer = RulesLayer::new(rules)
            .rejection_fn(|rejection| {
                let mut response = Response::new(());
                response.extensions_mut().insert(rejection.kind());
                response
            })
            .observer({
                let decisions = Arc::clone(&decisions);
                move |event: &Event<'_>| unpoisoned(&decisions).note(event)
            });
        Ok(Self {
            service: BoxCloneSyncService::new(layer.layer(service_fn(answer))),
            waiting: RequestQueue::new(clock).map_err(|error| error.to_string())?,
            store,
            decisions,
            outcomes: Outcomes::default(),
            not_tried,
            unseen: 0,
        })
    }

    /// Whether the rules limit the attempt immediately. Counts requests that completed in the
    /// meantime first.
    pub(crate) fn limits(&mut self, attempt: &mut Attempt) -> bool {
        let Self {
            waiting,
            outcomes,
            decisions,
            ..
        } = self;
        waiting.advance(Some(attempt.at), |waited| {
            outcomes.note(&waited);
        });
        let Some(parts) = attempt.request.take() else {
            self.unseen += 1;
            return false;
        };
        let decisions = Arc::clone(decisions);
        let decided = Arc::new((*parts).clone());
        let mut request = Request::from_parts(*parts, ());
        let status = StatusCode::from_u16(attempt.status).unwrap_or(StatusCode::OK);
        request.extensions_mut().insert(Logged(status));
        let mut answer = Box::pin(self.service.clone().oneshot(request));
        // A waiting request is decided between others.
        let answer = poll_fn(move |cx| {
            unpoisoned(&decisions).request = Some(Arc::clone(&decided));
            answer.as_mut().poll(cx).map(|answer| match answer {
                Ok(response) => response,
                Err(never) => match never {},
            })
        });
        let answered = waiting.start(attempt.at, answer);
        answered.is_some_and(|waited| outcomes.note(&waited))
    }

    /// Waits for the last requests.
    pub(crate) fn finish(&mut self) {
        let outcomes = &mut self.outcomes;
        self.waiting.advance(None, |waited| {
            outcomes.note(&waited);
        });
    }

    /// The limits that a log cannot decide: each rule's name, and the field of the limit.
    pub(crate) fn not_tried(&self) -> &[(String, &'static str)] {
        &self.not_tried
    }

    pub(crate) const fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Each quota of each rule that decided something, with this many of the keys that it limits.
    pub(crate) fn policies(
        &self,
        many: usize,
        limited: impl Fn(&KeyCount) -> LimitedKey,
    ) -> Vec<Policy> {
        let decisions = unpoisoned(&self.decisions);
        let policies = decisions.policies.iter().map(|(name, counts)| Policy {
            name: name.clone(),
            decided: counts.decided,
            is_shadow: counts.is_shadow,
            overflows: counts.overflows,
            limited: counts.limited.clone(),
            keys: counts.keys.number(),
            keys_are_estimated: counts.keys.is_part(),
            top: counts.top.first(many).iter().map(&limited).collect(),
        });
        policies.collect()
    }

    /// Keys that the full table evicted.
    pub(crate) fn evictions(&self) -> u64 {
        self.store.evictions()
    }
}

impl Outcomes {
    /// Whether the request was limited.
    fn note(&mut self, waited: &Completed<Response<()>>) -> bool {
        let Completed {
            result: response,
            arrived,
            ended,
        } = waited;
        match response.extensions().get() {
            None => {
                let delay = Duration::from_micros(ended.saturating_sub(*arrived));
                self.delayed.note(delay);
                return false;
            }
            Some(RejectionKind::Denied | RejectionKind::Shed) => self.limited.note(*ended),
            Some(RejectionKind::Banned) => self.forbidden += 1,
            Some(_) => self.without_key += 1,
        }
        true
    }
}

impl DecisionCounts {
    fn note(&mut self, event: &Event<'_>) {
        let (Event::Decided(decided) | Event::Overflowed(decided)) = event else {
            return;
        };
        let now = self.clock.now().as_micros();
        let mut keys = KeysOfRules::new(decided.keys());
        for quota in decided.decision().quotas() {
            let Self {
                set,
                needs,
                request,
                rules,
                policies,
                max_keys,
                ..
            } = self;
            let counts = policies
                .entry(quota.name().to_owned())
                .or_insert_with_key(|name| PolicyCounts {
                    rule: rule_of(name, rules),
                    decided: 0,
                    is_shadow: false,
                    overflows: false,
                    limited: Limited::default(),
                    keys: Sample::new(*max_keys),
                    top: KeyCounts::default(),
                });
            counts.decided += 1;
            counts.is_shadow = decided.is_shadow();
            let key = keys.of(counts.rule);
            if quota.is_denied() {
                counts.overflows |= matches!(event, Event::Overflowed(_));
                counts.limited.note(now);
                counts.keys.note(key, |()| {});
                let rule = counts.rule.map(|place| rules[place].as_str());
                let source = || Some(needs.source(set, rule?, request.as_deref()?));
                counts.top.count(key, || source().unwrap_or_default());
            }
        }
    }
}

/// The index of the rule of a policy. A policy is named after its rule, or `rule.quota`.
fn rule_of(policy: &str, rules: &[String]) -> Option<usize> {
    let is_of = |rule: &String| {
        let rest = policy.strip_prefix(rule.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let of = (0..).zip(rules).filter(|(_, rule)| is_of(rule));
    of.max_by_key(|(_, rule)| rule.len())
        .map(|(place, _)| place)
}

/// The keys of a decision: rules that decide together have one each, in the order of their quotas.
struct KeysOfRules {
    keys: Vec<Key>,
    place: usize,
    rule: Option<usize>,
}

impl KeysOfRules {
    fn new<'k>(keys: impl Iterator<Item = &'k Key>) -> Self {
        Self {
            keys: keys.cloned().collect(),
            place: 0,
            rule: None,
        }
    }

    /// The key of the next quota, which is one of this rule.
    fn of(&mut self, rule: Option<usize>) -> &Key {
        if self.rule.is_some() && self.rule != rule {
            self.place = (self.place + 1).min(self.keys.len() - 1);
        }
        self.rule = rule;
        &self.keys[self.place]
    }
}

/// The handler behind the rules, which responds with the line's status.
async fn answer(request: Request<()>) -> Result<Response<()>, Infallible> {
    let mut response = Response::new(());
    if let Some(Logged(status)) = request.extensions().get() {
        *response.status_mut() = *status;
    }
    Ok(response)
}

/// The rules, with the clock of the log.
fn rules(settings: &Settings, store: &LocalStore, clock: &ManualClock) -> Result<Rules, String> {
    let builder = Rules::builder().store(store.clone()).clock(clock.clone());
    let names = settings.needs.custom_keys();
    let builder = names.fold(builder, |builder, name| builder.key(name, KeyOfLog));
    let rules = builder
        .outside_of_application(true)
        .requests_only(true)
        .read_all(&settings.rules);
    rules.map_err(|error| error.to_string())
}

fn unpoisoned(decisions: &Mutex<DecisionCounts>) -> MutexGuard<'_, DecisionCounts> {
    decisions.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_of_the_rule_with_the_longest_name() {
        let rules = ["a", "a.b", "abc"].map(str::to_owned);
        for (policy, place) in [
            ("a", Some(0)),
            ("a.few", Some(0)),
            ("a.b", Some(1)),
            ("a.b.c", Some(1)),
            ("ab", None),
            ("abc", Some(2)),
        ] {
            assert_eq!(rule_of(policy, &rules), place, "{policy}");
        }
    }
}

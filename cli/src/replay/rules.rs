//! Rule files that are tried out, by the layer itself.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_ratelimit::{
    Clock, Key, LocalStore, ManualClock,
    observe::Event,
    reject::RejectionKind,
    rules::{Rules, RulesLayer},
};

use super::{
    candidate::{Delayed, Limited},
    entry::Attempt,
    needs::{KeyOfLog, Needs},
    settings::Settings,
    top::TopKeys,
    waiting::{Waited, WaitingRequests},
};

/// The rules, and what they would have done.
pub(super) struct TriedRules {
    service: BoxCloneSyncService<Request<()>, Response<()>, Infallible>,
    waiting: WaitingRequests<Response<()>>,
    told: Arc<Mutex<Heard>>,
    outcomes: Outcomes,
    pub(super) needs: Needs,
    /// Attempts that are no requests, which rules never see.
    pub(super) unseen: u64,
}

/// The fates of requests by the rules.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) limited: Limited,
    pub(super) delayed: Delayed,
    /// Those that a `deny` answers 403.
    pub(super) forbidden: u64,
    /// Those without a key for a rule that wants one, which are answered 400 or 500.
    pub(super) without_key: u64,
}

/// Counts of the decisions that the layer told.
struct Heard {
    clock: ManualClock,
    policies: BTreeMap<String, PolicyCounts>,
    top: TopKeys,
}

/// Decisions by a quota of a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyCounts {
    pub(super) decided: u64,
    /// Whether it only watches.
    pub(super) is_shadow: bool,
    pub(super) limited: Limited,
}

/// The status of a line, which the handler answers with.
#[derive(Clone, Copy)]
struct Logged(StatusCode);

impl TriedRules {
    pub(super) fn new(settings: &Settings, clock: &ManualClock) -> Result<Self, String> {
        let rules = rules(settings, clock)?;
        let told = Arc::new(Mutex::new(Heard {
            clock: clock.clone(),
            policies: BTreeMap::new(),
            top: TopKeys::default(),
        }));
        let layer = RulesLayer::new(rules);
        let layer = layer.rejection_fn(|rejection| {
            let mut response = Response::new(());
            response.extensions_mut().insert(rejection.kind());
            response
        });
        let layer = layer.observer({
            let told = Arc::clone(&told);
            move |event: &Event<'_>| unpoisoned(&told).note(event)
        });
        let handler = service_fn(async |request: Request<()>| {
            let mut response = Response::new(());
            if let Some(Logged(status)) = request.extensions().get() {
                *response.status_mut() = *status;
            }
            Ok(response)
        });
        Ok(Self {
            service: BoxCloneSyncService::new(layer.layer(handler)),
            waiting: WaitingRequests::new(clock).map_err(|error| error.to_string())?,
            told,
            outcomes: Outcomes::default(),
            needs: settings.needs.clone(),
            unseen: 0,
        })
    }

    /// Whether the rules limit the attempt at once. Those that have waited meanwhile are told first.
    pub(super) fn limits(&mut self, attempt: &mut Attempt) -> bool {
        let Self {
            waiting, outcomes, ..
        } = self;
        waiting.go_on(Some(attempt.at), |waited| {
            outcomes.note(&waited);
        });
        let Some(parts) = attempt.request.take() else {
            self.unseen += 1;
            return false;
        };
        let mut request = Request::from_parts(*parts, ());
        let status = StatusCode::from_u16(attempt.status).unwrap_or(StatusCode::OK);
        request.extensions_mut().insert(Logged(status));
        let answer = self.service.clone().oneshot(request);
        let answer = async {
            match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        };
        let answered = waiting.ask(attempt.at, answer);
        answered.is_some_and(|waited| outcomes.note(&waited))
    }

    /// Waits for the last ones.
    pub(super) fn finish(&mut self) {
        let outcomes = &mut self.outcomes;
        self.waiting.go_on(None, |waited| {
            outcomes.note(&waited);
        });
    }

    pub(super) const fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Each quota of each rule that decided something.
    pub(super) fn policies(&self) -> BTreeMap<String, PolicyCounts> {
        unpoisoned(&self.told).policies.clone()
    }

    /// The keys that were limited most.
    pub(super) fn top(&self, many: usize) -> Vec<(Key, u64, u64)> {
        let told = unpoisoned(&self.told);
        let first = told.top.first(many).into_iter();
        first
            .map(|(key, count, error)| (key.clone(), count, error))
            .collect()
    }
}

impl Outcomes {
    /// Whether the request was limited.
    fn note(&mut self, waited: &Waited<Response<()>>) -> bool {
        let Waited {
            answer: response,
            came,
            ended,
        } = waited;
        match response.extensions().get() {
            None => {
                let delay = Duration::from_micros(ended.saturating_sub(*came));
                self.delayed.note(delay);
                return false;
            }
            Some(RejectionKind::Denied) => self.limited.note(*ended),
            Some(RejectionKind::Banned) => self.forbidden += 1,
            Some(_) => self.without_key += 1,
        }
        true
    }
}

impl Heard {
    fn note(&mut self, event: &Event<'_>) {
        let Event::Decided(decided) = event else {
            return;
        };
        let now = self.clock.now().as_micros();
        let mut is_limited = false;
        for quota in decided.decision().quotas() {
            let counts = self.policies.entry(quota.name().to_owned()).or_default();
            counts.decided += 1;
            counts.is_shadow = decided.is_shadow();
            if quota.is_denied() {
                counts.limited.note(now);
                is_limited = true;
            }
        }
        if is_limited && !decided.is_shadow() {
            self.top.count(&one_of(decided.key()));
        }
    }
}

/// The key, or that which all limits have of which it is made.
fn one_of(key: &Key) -> Key {
    let mut parts = key.parts().flatten();
    let first = parts
        .next()
        .filter(|first| parts.all(|part| part == *first));
    first.unwrap_or_else(|| key.clone())
}

/// The rules, whose limits go by the clock of the log.
fn rules(settings: &Settings, clock: &ManualClock) -> Result<Rules, String> {
    let store = LocalStore::builder()
        .max_keys(settings.max_keys)
        .clock(clock.clone())
        .build();
    let store = store.map_err(|error| error.to_string())?;
    let builder = Rules::builder().store(store).clock(clock.clone());
    let names = settings.needs.custom_keys();
    let builder = names.fold(builder, |builder, name| builder.key(name, KeyOfLog));
    let rules = builder
        .outside_of_application(true)
        .read_all(&settings.rules);
    rules.map_err(|error| error.to_string())
}

fn unpoisoned(told: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

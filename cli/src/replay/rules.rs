//! Rule files that are tried out, by the layer itself.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use http::{Request, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_ratelimit::{
    Key, LocalStore, ManualClock,
    observe::Event,
    rules::{Rules, RulesLayer},
};

use super::{candidate::Limited, log::Attempt, top::TopKeys};

/// The rules, and what they would have done.
pub(super) struct TriedRules {
    service: BoxCloneSyncService<Request<()>, Response<()>, Infallible>,
    /// Requests that wait use its timer, which nobody drives: they are limited, for a log.
    runtime: Runtime,
    told: Arc<Mutex<Told>>,
    /// Requests that the rules would have refused, or made wait.
    pub(super) limited: Limited,
    /// Attempts that are no requests, which rules never see.
    pub(super) unseen: u64,
}

/// Counts of the decisions that the layer told.
#[derive(Default)]
struct Told {
    now: u64,
    policies: BTreeMap<String, PolicyCounts>,
    top: TopKeys,
}

/// Decisions by a quota of a rule.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyCounts {
    pub(super) decided: u64,
    pub(super) limited: Limited,
}

/// The status of a line, which the handler answers with.
#[derive(Clone, Copy)]
struct Logged(StatusCode);

impl TriedRules {
    pub(super) fn new(
        paths: &[PathBuf],
        max_keys: usize,
        clock: &ManualClock,
    ) -> Result<Self, String> {
        let store = LocalStore::builder()
            .max_keys(max_keys)
            .clock(clock.clone())
            .build();
        let store = store.map_err(|error| error.to_string())?;
        let rules = Rules::builder()
            .store(store)
            .clock(clock.clone())
            .read_all(paths);
        let told = Arc::new(Mutex::new(Told::default()));
        let layer = RulesLayer::new(rules.map_err(|error| error.to_string())?);
        let layer = layer.rejection_fn(|_| Response::new(()));
        let layer = layer.observer({
            let told = Arc::clone(&told);
            move |event: &Event<'_>| unpoisoned(&told).note(event)
        });
        let handler = service_fn(async |request: Request<()>| {
            let mut response = Response::new(());
            if let Some(Logged(status)) = request.extensions().get() {
                *response.status_mut() = *status;
            }
            response.extensions_mut().insert(Passed);
            Ok(response)
        });
        let runtime = Builder::new_current_thread().enable_time().build();
        Ok(Self {
            service: BoxCloneSyncService::new(layer.layer(handler)),
            runtime: runtime.map_err(|error| error.to_string())?,
            told,
            limited: Limited::default(),
            unseen: 0,
        })
    }

    /// Whether the rules limit the attempt.
    pub(super) fn limits(&mut self, attempt: &mut Attempt) -> bool {
        let Some(parts) = attempt.request.take() else {
            self.unseen += 1;
            return false;
        };
        let mut request = Request::from_parts(*parts, ());
        let status = StatusCode::from_u16(attempt.status).unwrap_or(StatusCode::OK);
        request.extensions_mut().insert(Logged(status));
        unpoisoned(&self.told).now = attempt.at;
        let _entered = self.runtime.enter();
        let answer = pin!(self.service.clone().oneshot(request));
        let passes = match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => response.extensions().get::<Passed>().is_some(),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => false,
        };
        if !passes {
            self.limited.note(attempt.at);
        }
        !passes
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

/// In a response of the handler, which a refusal is not.
#[derive(Clone, Copy)]
struct Passed;

impl Told {
    fn note(&mut self, event: &Event<'_>) {
        let Event::Decided(decided) = event else {
            return;
        };
        let mut is_limited = false;
        for quota in decided.decision().quotas() {
            let counts = self.policies.entry(quota.name().to_owned()).or_default();
            counts.decided += 1;
            if quota.is_denied() {
                counts.limited.note(self.now);
                is_limited = true;
            }
        }
        if is_limited {
            self.top.count(decided.key());
        }
    }
}

fn unpoisoned(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

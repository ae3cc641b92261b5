//! The rules in force and their source: files that are read at the start and at each reload, or limits that are sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tower_ratelimit::{
    Decision, Limiter as _, LocalLimiter, Quota,
    decision::Op,
    limiter::QuotaChange,
    observe::TopKeys,
    rules::{Format, Problem, RulesError, RulesHandle},
};
use tracing::{error, info, warn};

use crate::{decision_counts::Totals, metrics_text::MetricsText, store::Store};

/// The rules in force. Clones share them.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    parts: Parts,
    loads: Mutex<Loads>,
    switches: Mutex<Switches>,
    quotas: Mutex<QuotaOverrides>,
}

/// The parts of a [`Source`]: rules that are in force already.
pub struct Parts {
    /// Where all of them count.
    pub store: Store,
    /// The rules of requests, if there are any.
    pub requests: Option<RulesHandle>,
    /// Their name in the log.
    pub requests_name: &'static str,
    /// Whether the rules of requests may follow responses, as in a gateway.
    pub follows_responses: bool,
    /// The limits of descriptors, if there are any.
    pub descriptors: Option<Arc<dyn Descriptors>>,
    /// The keys that are denied most often.
    pub top: Arc<TopKeys>,
    /// Reads further files, together with the rules.
    pub reload_others: Option<Box<dyn Fn() + Send + Sync>>,
}

/// A future of a trait's method.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The limits of descriptors, such as Envoy sends: the part of them that operators see and change.
pub trait Descriptors: Send + Sync {
    /// The number of limits in force; `None` before the first.
    fn number(&self) -> Option<usize>;

    /// The limits in force, by their names.
    fn limits(&self) -> Vec<(String, DescriptorLimit)>;

    /// The files of the limits in force, each with a hash of its contents.
    fn files(&self) -> Vec<(String, String)>;

    /// The counts of each limit that has been used.
    fn totals(&self) -> Vec<(String, Totals)>;

    /// Writes its own series.
    fn write_metrics(&self, text: &mut MetricsText);

    /// Switches a limit off or on, or all of them.
    fn set_enabled(&self, name: Option<&str>, enabled: bool);

    /// Overrides the units of a limit until the next reload, or ends the override.
    fn set_units(&self, name: &str, units: Option<u32>);

    /// Reads the files again, if limits come from files.
    fn reload(&self) -> Option<Reloaded>;

    /// Checks a text as one of the files: its warnings, or its faults.
    fn check(&self, text: String) -> Result<Vec<String>, String>;

    /// Applies a peek, a hit, a refund or a reset to the count of a descriptor, such as `user=eve`, under the limit or the domain of this
    /// name; `None` if no limit matches. The error is that of the store.
    fn operate<'a>(
        &'a self,
        name: &'a str,
        descriptor: &'a str,
        operation: Op,
    ) -> BoxFuture<'a, Result<Option<Count>, String>>;

    /// The control plane that sends the limits, if one does.
    fn control_plane(&self) -> Option<ControlPlaneState>;
}

/// A limit of descriptors.
#[derive(Debug)]
pub struct DescriptorLimit {
    /// Its position in the files.
    pub place: String,
    pub requests: u32,
    /// The units that it allows at once; `None` if it is unlimited.
    pub capacity: Option<u64>,
    /// The seconds of its window; `None` if it is unlimited.
    pub window: Option<u64>,
    /// Its own quota, if it counts by an algorithm of its own.
    pub algorithm: Option<String>,
    pub shadow: bool,
}

/// The control plane that sends limits.
#[derive(Debug)]
pub struct ControlPlaneState {
    pub address: String,
    pub is_connected: bool,
    /// The version of the limits in force; empty before the first.
    pub version: String,
}

/// The count of a descriptor after an operation.
#[derive(Debug)]
pub struct Count {
    /// The name of the limit.
    pub name: String,
    pub limit: u32,
    pub decision: Decision,
}

/// The rules that are switched off.
#[derive(Debug, Default)]
struct Switches {
    all_off: bool,
    off: BTreeSet<String>,
}

/// The number of reloads, and the fault of the last one.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// When the rules in force were read; the Unix epoch before the first ones.
    pub(crate) loaded_at: SystemTime,
    /// The fault of the files when they were last read, if any.
    pub(crate) fault: Option<String>,
}

/// A line for the log, or the faults; after a fault the old rules stay.
pub type Reloaded = Result<String, RulesError>;

/// Logs the warnings about files.
pub fn warn_of(warnings: &[Problem]) {
    warnings.iter().for_each(|warning| warn!("{warning}"));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source {
    pub fn new(parts: Parts) -> Self {
        let sends = |limits: &Arc<dyn Descriptors>| limits.control_plane().is_some();
        let is_loaded = !parts.descriptors.as_ref().is_some_and(sends);
        let loads = Loads {
            accepted: is_loaded.into(),
            refused: 0,
            loaded_at: if is_loaded {
                SystemTime::now()
            } else {
                SystemTime::UNIX_EPOCH
            },
            fault: None,
        };
        Self(Arc::new(Inner {
            parts,
            loads: Mutex::new(loads),
            switches: Mutex::default(),
            quotas: Mutex::default(),
        }))
    }

    pub(crate) fn loads(&self) -> Loads {
        lock(&self.0.loads).clone()
    }

    /// The number of rules in force.
    pub(crate) fn rules(&self) -> usize {
        let of_requests = self.requests().map(|requests| requests.rules().len());
        let of_descriptors = self.descriptors().and_then(Descriptors::number);
        of_requests.unwrap_or(0) + of_descriptors.unwrap_or(0)
    }

    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// The limits of descriptors, if there are any.
    pub(crate) fn descriptors(&self) -> Option<&dyn Descriptors> {
        self.0.parts.descriptors.as_deref()
    }

    /// The rules of requests, if there are any.
    pub(crate) fn requests(&self) -> Option<&RulesHandle> {
        self.0.parts.requests.as_ref()
    }

    /// The keys that are denied most often.
    pub(crate) fn top(&self) -> &TopKeys {
        &self.0.parts.top
    }

    /// Whether limits are on, and the rules that are off individually.
    pub(crate) fn switches(&self) -> (bool, Vec<String>) {
        let switches = lock(&self.0.switches);
        (!switches.all_off, switches.off.iter().cloned().collect())
    }

    /// Switches a rule off or on, or all of them.
    pub fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        let mut switches = lock(&self.0.switches);
        match rule {
            None => switches.all_off = !enabled,
            Some(rule) if enabled => _ = switches.off.remove(rule),
            Some(rule) => _ = switches.off.insert(rule.to_owned()),
        }
        if let Some(descriptors) = self.descriptors() {
            descriptors.set_enabled(rule, enabled);
        }
        if let Some(requests) = self.requests() {
            requests.set_enabled(rule, enabled);
        }
    }

    /// Checks a text as one of the files of rules of requests: its warnings, or its faults.
    pub(crate) fn check_requests(
        &self,
        text: String,
        format: Format,
    ) -> Result<Vec<String>, String> {
        let rules = self
            .store()
            .request_rules()
            .accept_in_flight(self.0.parts.follows_responses)
            .accept_spend(self.0.parts.follows_responses)
            .parse(text, format)
            .map_err(|error| error.to_string())?;
        Ok(rules.warnings().iter().map(ToString::to_string).collect())
    }

    /// The limits in force, by the names of their policies; the least of several with one name.
    pub(crate) fn policies(&self) -> BTreeMap<String, u64> {
        let mut limits = BTreeMap::new();
        let mut add = |policy: String, limit: u64| {
            let least = limits.entry(policy).or_insert(limit);
            *least = limit.min(*least);
        };
        if let Some(descriptors) = self.descriptors() {
            for (name, limit) in descriptors.limits() {
                limit
                    .capacity
                    .into_iter()
                    .for_each(|capacity| add(name.clone(), capacity));
            }
        }
        if let Some(requests) = self.requests() {
            for policy in requests.rules().policies() {
                add(policy.name().to_owned(), policy.limit());
            }
            for (policy, _) in requests.in_flight() {
                add(policy.name().to_owned(), policy.limit());
            }
        }
        for (policy, limit) in &mut limits {
            if let Some(quota) = self.overridden(policy) {
                *limit = quota.limit;
            }
        }
        limits
    }

    /// Reads all files again, and logs the results, which it returns. After a fault the old rules of that kind stay.
    pub fn reload(&self) -> Vec<String> {
        // Reloads are serialized.
        let mut loads = lock(&self.0.loads);
        let mut quotas = lock(&self.0.quotas);
        let limits = self.descriptors().and_then(Descriptors::reload);
        match &limits {
            // Overrides end.
            Some(Ok(_)) => quotas.forget(false),
            Some(Err(fault)) => error!("the rules stay as they were: {}", fault.to_line()),
            None => {}
        }
        // The library logs faults of rules of requests.
        let requests = self.reload_requests(&mut quotas);
        let outcomes = [
            ("the rules", limits),
            (self.0.parts.requests_name, requests),
        ];
        let (mut lines, mut faults) = (Vec::new(), Vec::new());
        for (which, outcome) in outcomes {
            match outcome {
                None => {}
                Some(Ok(line)) => {
                    info!("{line}");
                    lines.push(line);
                    loads.loaded_at = SystemTime::now();
                }
                Some(Err(fault)) => {
                    lines.push(format!("{which} stay as they were: {fault}"));
                    faults.push(fault.to_string());
                }
            }
        }
        if faults.is_empty() {
            loads.accepted += 1;
        } else {
            loads.refused += 1;
        }
        loads.fault = (!faults.is_empty()).then(|| faults.join("\n"));
        if let Some(reload_others) = &self.0.parts.reload_others {
            reload_others();
        }
        lines
    }

    /// Reads the rules of requests, if there are any.
    fn reload_requests(&self, quotas: &mut QuotaOverrides) -> Option<Reloaded> {
        let which = self.0.parts.requests_name;
        let requests = self.requests()?;
        let changes = match requests.reload() {
            Ok(changes) => changes,
            Err(error) => return Some(Err(error)),
        };
        warn_of(requests.rules().warnings());
        quotas.forget(true);
        Some(Ok(format!("read {which} again:\n{changes}")))
    }

    /// Notes limits that were sent, which `put` puts into force, unless they are already: then it returns false.
    pub fn accept(&self, put: impl FnOnce() -> bool) {
        let mut loads = lock(&self.0.loads);
        loads.accepted += 1;
        loads.fault = None;
        if put() {
            let mut quotas = lock(&self.0.quotas);
            quotas.forget(false);
            loads.loaded_at = SystemTime::now();
        }
    }

    /// Notes limits that were sent and have a fault. Returns whether the last ones had another, or none.
    pub fn refuse(&self, fault: String) -> bool {
        let mut loads = lock(&self.0.loads);
        loads.refused += 1;
        let fault = Some(fault);
        let is_new = loads.fault != fault;
        loads.fault = fault;
        is_new
    }
}

impl Source {
    pub(crate) fn overridden(&self, policy: &str) -> Option<QuotaOverride> {
        let quotas = lock(&self.0.quotas);
        quotas.by_policy.get(policy).cloned()
    }

    /// Overrides a quota of the files. Returns the effect on a key that had used up the old quota, for a rule of
    /// requests.
    ///
    /// # Errors
    ///
    /// When the policy does not exist, or cannot have the quota.
    pub(crate) fn set_quota(
        &self,
        policy: &str,
        new_quota: NewQuota,
        ttl: Option<Duration>,
    ) -> Result<Option<QuotaChange>, String> {
        let mut quotas = lock(&self.0.quotas);
        quotas.count += 1;
        let number = quotas.count;
        let (change, text, limit, window) = match new_quota {
            NewQuota::Quota(quota) => {
                let requests = self.requests().ok_or("there are no rules of requests")?;
                let change = requests.set_quota(policy, Some(quota));
                let change = change.map_err(|error| error.to_string())?;
                let (text, window) = (quota.to_string(), window(quota));
                (Some(change), text, quota.capacity(), window)
            }
            NewQuota::Units(units) => {
                if let Some(descriptors) = self.descriptors() {
                    descriptors.set_units(policy, Some(units));
                }
                (None, units.to_string(), units.into(), None)
            }
        };
        let quota = QuotaOverride {
            text,
            limit,
            window,
            until: ttl.and_then(|ttl| SystemTime::now().checked_add(ttl)),
            of_requests: change.is_some(),
            number,
        };
        quotas.by_policy.insert(policy.to_owned(), quota);
        if let Some(ttl) = ttl {
            let (source, policy) = (self.clone(), policy.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(ttl).await;
                source.end_quota(&policy, Some(number));
            });
        }
        Ok(change)
    }

    /// Restores the quota of the files. Returns whether there was an override. With a number, ends only that override.
    pub(crate) fn end_quota(&self, policy: &str, number: Option<u64>) -> bool {
        let mut quotas = lock(&self.0.quotas);
        let known = quotas.by_policy.get(policy);
        let Some(known) = known.filter(|known| number.is_none_or(|number| number == known.number))
        else {
            return false;
        };
        if known.of_requests {
            // Fails if a reload removed the rule.
            let restored = self
                .requests()
                .map(|requests| requests.set_quota(policy, None));
            drop(restored);
        } else if let Some(descriptors) = self.descriptors() {
            descriptors.set_units(policy, None);
        }
        quotas.by_policy.remove(policy);
        true
    }
}

/// The seconds of a quota's window in header fields.
fn window(quota: Quota) -> Option<u64> {
    let limiter = LocalLimiter::builder(quota).max_keys(1).build().ok()?;
    let window = limiter.policies().first()?.window()?;
    Some(window.as_secs())
}

/// A quota that replaces one of the files.
#[derive(Debug, Clone)]
pub(crate) struct QuotaOverride {
    pub(crate) text: String,
    pub(crate) limit: u64,
    /// The seconds of its window; `None` if the replaced limit has the same.
    pub(crate) window: Option<u64>,
    /// The end of the override; `None`: the next reload.
    pub(crate) until: Option<SystemTime>,
    of_requests: bool,
    /// Distinguishes the overrides of one policy.
    number: u64,
}

/// The overrides by the names of policies, and the number of all so far.
#[derive(Debug, Default)]
struct QuotaOverrides {
    by_policy: BTreeMap<String, QuotaOverride>,
    count: u64,
}

impl QuotaOverrides {
    /// Removes the overrides of rules of requests, or of descriptors.
    fn forget(&mut self, of_requests: bool) {
        self.by_policy
            .retain(|_, quota| quota.of_requests != of_requests);
    }
}

/// The new quota of an override.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NewQuota {
    /// The quota of a rule of requests.
    Quota(Quota),
    /// The units of a descriptor's limit.
    Units(u32),
}

//! The source of the rules: reads their files at the start, and at each reload, or follows a control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;
use tower_ratelimit::{
    Limiter as _, LocalLimiter, Quota,
    limiter::QuotaChange,
    rules::{Problem, RulesError, RulesHandle},
};
use tracing::{error, info, warn};

use crate::{
    decide::RateLimits,
    errors::{ServeError, counted},
    lyft::Rules,
    protobuf_messages::DiscoveryResponse,
    settings::Settings,
    xds::{self, Connected},
};

/// The files, and the rules in force. Clones share them.
#[derive(Clone)]
pub(crate) struct Source(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// The files of descriptors' limits that were named at the start; other paths are directories.
    files_once: Vec<PathBuf>,
    limits: RateLimits,
    auth: Option<RulesHandle>,
    /// The name of the rules of requests in the log.
    of_requests: &'static str,
    /// Reads further files, together with the rules.
    reload_others: Option<Box<dyn Fn() + Send + Sync>>,
    loads: Mutex<Loads>,
    quotas: Mutex<QuotaOverrides>,
    /// The connection to the control plane, if the settings have one.
    connected: Connected,
    /// The number of accepted sets of the control plane.
    sets: watch::Sender<u64>,
}

/// The number of reloads, and the fault of the last one.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// When the rules in force were read; the Unix epoch before the first ones.
    pub(crate) loaded_at: SystemTime,
    /// The version of the control plane's limits in force; empty before the first, and of files.
    pub(crate) version: String,
    /// The fault of the files when they were last read, if any.
    pub(crate) fault: Option<String>,
}

/// A line for the log, or the faults; after a fault the old rules stay.
type Reloaded = Result<String, RulesError>;

/// Logs the warnings about files.
pub(crate) fn warn_of(warnings: &[Problem]) {
    warnings.iter().for_each(|warning| warn!("{warning}"));
}

/// The most names of removed limits in a line of the log.
const MAX_NAMES: usize = 20;

/// The line for the log about limits of descriptors that are removed, if there are any.
fn removal(before: &Rules, after: &Rules) -> Option<String> {
    let names = |rules: &Rules| rules.limits().map(|(name, _)| name).collect();
    let (before, after): (BTreeSet<String>, BTreeSet<String>) = (names(before), names(after));
    let removed: Vec<&str> = before.difference(&after).map(String::as_str).collect();
    let listed = removed[..removed.len().min(MAX_NAMES)].join(", ");
    let more = removed.len().saturating_sub(MAX_NAMES);
    let count = counted(removed.len(), "limit");
    match (removed.len(), more) {
        (0, _) => None,
        (_, 0) => Some(format!("{count} removed: {listed}")),
        _ => Some(format!("{count} removed: {listed} and {more} more")),
    }
}

impl Source {
    /// A source with rules that are in force already, which calls `reload_others` with each reload.
    pub(crate) fn new(
        settings: Settings,
        limits: RateLimits,
        auth: Option<RulesHandle>,
        of_requests: &'static str,
        reload_others: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        let is_loaded = settings.xds.is_none();
        let loads = Loads {
            accepted: is_loaded.into(),
            refused: 0,
            loaded_at: if is_loaded {
                SystemTime::now()
            } else {
                SystemTime::UNIX_EPOCH
            },
            version: String::new(),
            fault: None,
        };
        let files = settings.rules.iter().filter(|path| path.is_file());
        Self(Arc::new(Inner {
            files_once: files.cloned().collect(),
            settings,
            limits,
            auth,
            of_requests,
            reload_others,
            loads: Mutex::new(loads),
            quotas: Mutex::default(),
            connected: Connected::default(),
            sets: watch::Sender::new(0),
        }))
    }

    pub(crate) fn loads(&self) -> Loads {
        self.0
            .loads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The number of rules in force.
    pub(crate) fn rules(&self) -> usize {
        let of_requests = self.0.auth.as_ref().map(|auth| auth.rules().len());
        let limits = self.0.limits.rules();
        limits.map_or(0, |rules| rules.len()) + of_requests.unwrap_or(0)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The limits of descriptors.
    pub(crate) fn limits(&self) -> &RateLimits {
        &self.0.limits
    }

    /// The rules of requests, if there are any.
    pub(crate) fn auth(&self) -> Option<&RulesHandle> {
        self.0.auth.as_ref()
    }

    /// Whether limits are on, and the rules that are off individually.
    pub(crate) fn switches(&self) -> (bool, Vec<String>) {
        let overrides = self.0.limits.overrides();
        let mut off: Vec<String> = overrides.off.iter().cloned().collect();
        off.sort();
        (!overrides.all_off, off)
    }

    /// Switches a rule off or on, or all of them.
    pub(crate) fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        self.0.limits.override_by(|overrides| match rule {
            None => overrides.all_off = !enabled,
            Some(rule) if enabled => drop(overrides.off.remove(rule)),
            Some(rule) => drop(overrides.off.insert(rule.to_owned())),
        });
        if let Some(auth) = &self.0.auth {
            auth.set_enabled(rule, enabled);
        }
    }

    /// The limits in force, by the names of their policies; the least of several with one name.
    pub(crate) fn policies(&self) -> BTreeMap<String, u64> {
        let mut limits = BTreeMap::new();
        let mut add = |policy: String, limit: u64| {
            let least = limits.entry(policy).or_insert(limit);
            *least = limit.min(*least);
        };
        if let Some(rules) = self.0.limits.rules() {
            for (name, limit) in rules.limits() {
                if let Some(capacity) = limit.capacity() {
                    add(name, capacity);
                }
            }
        }
        if let Some(auth) = &self.0.auth {
            for policy in auth.rules().policies() {
                add(policy.name().to_owned(), policy.limit());
            }
            for (policy, _) in auth.in_flight() {
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
    pub(crate) fn reload(&self) -> Vec<String> {
        // Reloads are serialized.
        let mut loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = self.reload_limits(&mut quotas);
        if let Some(Err(fault)) = &limits {
            error!("the rules stay as they were: {}", fault.to_line());
        }
        // The library logs faults of rules of requests.
        let auth = self.reload_auth(&mut quotas);
        let outcomes = [("the rules", limits), (self.0.of_requests, auth)];
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
        if let Some(reload_others) = &self.0.reload_others {
            reload_others();
        }
        lines
    }

    /// Reads the limits of descriptors, if there are files of them.
    fn reload_limits(&self, quotas: &mut QuotaOverrides) -> Option<Reloaded> {
        if let Some(path) = self.0.files_once.iter().find(|path| path.is_dir()) {
            let path = path.display();
            let fault = format!("{path}: a directory, where a file was at the start");
            return Some(Err(RulesError::unreadable(fault)));
        }
        let rules = match self.0.settings.read_rules() {
            Ok(rules) => rules?,
            Err(error) => return Some(Err(error)),
        };
        warn_of(rules.warnings());
        let line = format!("read the rules again: {}", counted(rules.len(), "limit"));
        self.replace_limits(rules, quotas);
        Some(Ok(line))
    }

    /// Puts limits of descriptors into force. Overrides end.
    fn replace_limits(&self, rules: Rules, quotas: &mut QuotaOverrides) {
        let limits = &self.0.limits;
        if let Some(removed) = limits.rules().and_then(|before| removal(&before, &rules)) {
            warn!("{removed}");
        }
        limits.set_rules(rules);
        limits.override_by(|overrides| overrides.requests.clear());
        quotas.forget(false);
    }

    /// Reads the rules of requests, if there are any.
    fn reload_auth(&self, quotas: &mut QuotaOverrides) -> Option<Reloaded> {
        let which = self.0.of_requests;
        let changes = match self.0.auth.as_ref()?.reload() {
            Ok(changes) => changes,
            Err(error) => return Some(Err(error)),
        };
        if let Some(auth) = &self.0.auth {
            warn_of(auth.rules().warnings());
        }
        quotas.forget(true);
        Some(Ok(format!("read {which} again:\n{changes}")))
    }
}

impl Source {
    /// The client of the control plane, if there is one.
    ///
    /// # Errors
    ///
    /// When its settings are wrong.
    pub(crate) fn client(&self) -> Result<Option<xds::Client>, ServeError> {
        let plane = self.0.settings.xds.clone();
        let client = plane.map(|plane| xds::Client::new(plane, self.0.connected.clone()));
        client.transpose()
    }

    /// Whether the control plane is connected; `None` without one.
    pub(crate) fn is_connected(&self) -> Option<bool> {
        let has_plane = self.0.settings.xds.is_some();
        has_plane.then(|| self.0.connected.get())
    }

    /// Waits until more than `sets` sets of the control plane have been accepted, and returns their number.
    pub(crate) async fn more_sets(&self, sets: u64) -> u64 {
        let mut accepted = self.0.sets.subscribe();
        match accepted.wait_for(|accepted| *accepted > sets).await {
            Ok(accepted) => *accepted,
            Err(_) => unreachable!("this source sends"),
        }
    }

    /// Puts a set into force. After a fault the old limits stay. The log has each fault once, however often its set comes.
    ///
    /// # Errors
    ///
    /// The faults of the set, on one line.
    pub(crate) fn accept_set(&self, set: DiscoveryResponse) -> Result<(), String> {
        let version = set.version_info.clone();
        let read = xds::rules(set, &self.0.settings.rules_builder());
        let mut loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = match read {
            Ok(rules) => rules,
            Err(fault) => {
                let line = xds::fault_line(&fault);
                let fault = Some(fault.to_string());
                if loads.fault != fault {
                    error!("version {version:?} of the control plane's limits is rejected: {line}");
                }
                loads.refused += 1;
                loads.fault = fault;
                return Err(line);
            }
        };
        loads.accepted += 1;
        loads.fault = None;
        // A control plane sends its set again after each connection.
        if !self.is_in_force(&rules) {
            warn_of(rules.warnings());
            let limits = counted(rules.len(), "limit");
            info!("version {version:?} of the control plane's limits is in force: {limits}");
            let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
            self.replace_limits(rules, &mut quotas);
            loads.loaded_at = SystemTime::now();
        }
        loads.version = version;
        drop(loads);
        self.0.sets.send_modify(|sets| *sets += 1);
        Ok(())
    }

    /// Whether the limits in force are of the same resources, in any order: control planes in Go have none.
    fn is_in_force(&self, rules: &Rules) -> bool {
        let current = self.0.limits.rules();
        current.is_some_and(|current| {
            let of_current: BTreeSet<_> = current.files().collect();
            of_current == rules.files().collect()
        })
    }
}

impl Source {
    pub(crate) fn overridden(&self, policy: &str) -> Option<QuotaOverride> {
        let quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.count += 1;
        let number = quotas.count;
        let change = self.apply(policy, new_quota)?;
        let (text, limit, window) = match new_quota {
            NewQuota::Quota(quota) => (quota.to_string(), quota.capacity(), window(quota)),
            NewQuota::Units(units) => (units.to_string(), units.into(), None),
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

    /// Applies an override. Returns its effect on keys, for a rule of requests.
    fn apply(&self, policy: &str, new_quota: NewQuota) -> Result<Option<QuotaChange>, String> {
        match new_quota {
            NewQuota::Quota(quota) => {
                let auth = self
                    .0
                    .auth
                    .as_ref()
                    .ok_or("there are no rules of requests")?;
                let set = auth.set_quota(policy, Some(quota));
                set.map(Some).map_err(|error| error.to_string())
            }
            NewQuota::Units(units) => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.insert(policy.into(), units));
                Ok(None)
            }
        }
    }

    /// Restores the quota of the files. Returns whether there was an override. With a number, ends only that override.
    pub(crate) fn end_quota(&self, policy: &str, number: Option<u64>) -> bool {
        let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let known = quotas.by_policy.get(policy);
        let Some(known) = known.filter(|known| number.is_none_or(|number| number == known.number))
        else {
            return false;
        };
        match (&self.0.auth, known.of_requests) {
            // Fails if a reload removed the rule.
            (Some(auth), true) => drop(auth.set_quota(policy, None)),
            _ => {
                let limits = &self.0.limits;
                limits.override_by(|overrides| _ = overrides.requests.remove(policy));
            }
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

#[cfg(test)]
mod tests {
    use super::{Rules, removal};

    #[test]
    fn removed_limits_are_named_in_the_log() {
        let rules = |keys: &[&str]| {
            let limits = keys.iter().map(|key| {
                format!("{{key: {key}, rate_limit: {{unit: hour, requests_per_unit: 2}}}}")
            });
            let limits = limits.collect::<Vec<_>>().join(", ");
            let text = format!("domain: shop\ndescriptors: [{limits}]");
            Rules::builder().parse([("rules", text)]).unwrap()
        };
        let before = rules(&["a", "b", "c"]);
        assert_eq!(removal(&before, &rules(&["c", "d", "b", "a"])), None);
        let removed = removal(&before, &rules(&["b"])).unwrap();
        assert_eq!(removed, "2 limits removed: shop.a, shop.c");
    }
}

//! The source of the rules: reads their files at the start, and at each reload, or follows a control plane.

mod control_plane;
mod quota_overrides;
mod set_quota;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::sync::watch;
use tower_ratelimit::rules::{Problem, RulesError, RulesHandle};
use tracing::{error, info, warn};

use self::quota_overrides::QuotaOverrides;
pub(crate) use self::quota_overrides::{NewQuota, QuotaOverride};
use crate::{decide::RateLimits, lyft::Rules, plural::counted, settings::Settings, xds::Connected};

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
    /// A source with rules that are in force already.
    pub(crate) fn new(
        settings: Settings,
        limits: RateLimits,
        auth: Option<RulesHandle>,
        of_requests: &'static str,
    ) -> Self {
        Self::reloading(settings, limits, auth, of_requests, None)
    }

    /// A source that calls `reload_others` with each reload.
    pub(crate) fn reloading(
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

//! The files that the rules come from: read at the start, and again when somebody says so.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tower_ratelimit::rules::RulesHandle;

use crate::{decide::RateLimits, serve::Settings};

/// The files, and what is in force by them. A clone is a handle to the same.
#[derive(Clone)]
pub(crate) struct Source(Arc<Inner>);

struct Inner {
    settings: Settings,
    limits: RateLimits,
    auth: Option<RulesHandle>,
    loads: Mutex<Loads>,
}

/// What came of reading the files.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// When rules were last put into force.
    pub(crate) loaded_at: SystemTime,
    /// What was wrong with the files when they were last read.
    pub(crate) fault: Option<String>,
}

impl Source {
    /// The source of rules that are in force already.
    pub(crate) fn new(settings: Settings, limits: RateLimits, auth: Option<RulesHandle>) -> Self {
        let loads = Loads {
            accepted: 1,
            refused: 0,
            loaded_at: SystemTime::now(),
            fault: None,
        };
        Self(Arc::new(Inner {
            settings,
            limits,
            auth,
            loads: Mutex::new(loads),
        }))
    }

    pub(crate) fn loads(&self) -> Loads {
        self.0
            .loads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many rules are in force.
    pub(crate) fn rules(&self) -> usize {
        let of_requests = self.0.auth.as_ref().map(|auth| auth.rules().len());
        let limits = self.0.limits.rules();
        limits.map_or(0, |rules| rules.len()) + of_requests.unwrap_or(0)
    }

    /// The limits in force, by the names of their policies.
    pub(crate) fn limits(&self) -> Vec<(String, u64)> {
        let mut limits = Vec::new();
        if let Some(rules) = self.0.limits.rules() {
            let named = rules.limits();
            limits.extend(named.map(|(name, limit)| (name, u64::from(limit.requests))));
        }
        if let Some(auth) = &self.0.auth {
            let rules = auth.rules();
            let policies = rules.policies();
            limits.extend(policies.map(|policy| (policy.name().to_owned(), policy.limit())));
        }
        limits
    }

    /// Reads all files again, and tells what came of it in lines. One that has a fault leaves the rules of its kind
    /// as they were.
    pub(crate) fn reload(&self) -> Vec<String> {
        // Reloads come one after another.
        let mut loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, mut faults, mut any) = (Vec::new(), Vec::new(), false);
        let mut told = |result: Result<String, (&str, &dyn Error)>| match result {
            Ok(line) => {
                lines.push(line);
                any = true;
            }
            Err((which, error)) => {
                lines.push(format!("{which} stay as they were: {error}"));
                faults.push(error.to_string());
            }
        };
        match self.0.settings.rules() {
            Ok(rules) => {
                told(Ok(format!("read the rules again: {} limits", rules.len())));
                self.0.limits.set_rules(rules);
            }
            Err(error) => told(Err(("the rules", &error))),
        }
        match self.0.auth.as_ref().map(RulesHandle::reload) {
            Some(Ok(changes)) => told(Ok(format!("read the rules of /v1/auth again:\n{changes}"))),
            Some(Err(error)) => told(Err(("the rules of /v1/auth", &error))),
            None => {}
        }
        if any {
            loads.loaded_at = SystemTime::now();
        }
        match faults.is_empty() {
            true => loads.accepted += 1,
            false => loads.refused += 1,
        }
        loads.fault = (!faults.is_empty()).then(|| faults.join("\n"));
        lines
    }
}

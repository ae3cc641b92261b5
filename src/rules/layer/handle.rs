//! The handle to a layer's rules, by which they are read again.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex},
};

use arc_swap::ArcSwap;

use super::desks::Desks;
use crate::{
    error::ConfigError,
    limiter::QuotaChange,
    lock::unpoisoned,
    log::{self, Code},
    observe::{Event, Observer},
    quota::Quota,
    rules::{changes::RuleChanges, problem::RulesError, set::Rules},
};

/// The rules in force, for all services of a layer.
pub(super) struct Shared<R> {
    pub(super) desks: ArcSwap<Desks<R>>,
    /// Changes come one after another.
    changes: Mutex<Changes>,
}

/// What outlasts a change of the rules.
#[derive(Default)]
struct Changes {
    /// The last fault, which was told.
    refused: Option<String>,
    /// The rules that are left out.
    off: HashSet<String>,
    all_off: bool,
}

impl Changes {
    fn is_off(&self, rule: &str) -> bool {
        self.all_off || self.off.contains(rule)
    }
}

/// A handle to the rules of a [`RulesLayer`](super::RulesLayer), and of all services that it made.
#[derive(Clone)]
pub struct RulesHandle(Arc<dyn Reload>);

trait Reload: Send + Sync {
    fn rules(&self) -> Rules;

    fn reload(&self) -> Result<RuleChanges, RulesError>;

    fn observer(&self) -> Option<Arc<dyn Observer>>;

    fn set_enabled(&self, rule: Option<&str>, enabled: bool);
}

impl RulesHandle {
    pub(super) fn new<R: Send + Sync + 'static>(shared: Arc<Shared<R>>) -> Self {
        Self(shared)
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.0.rules()
    }

    /// The observer of the layer.
    pub(super) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.0.observer()
    }

    /// Reads the files again, and says what is different now.
    ///
    /// Counters stay where a limit, burst, queue or soft share changes, unless the rule says
    /// `on_change: fresh`: a bucket that was used up gets its next unit by the new rate, a window or
    /// log has the new limit less what was counted. [`RuleChanges::quotas`] says for each changed
    /// quota when a key that is out gets its next unit. Another algorithm, period, number of slices
    /// or refill step starts afresh. The same store is used, also if `store` in the file says
    /// something else. Requests that are under way end by the rules that they began with.
    ///
    /// The files are read on the calling thread, which takes some milliseconds; in a task use
    /// `spawn_blocking` if that is too long.
    ///
    /// # Errors
    ///
    /// All faults of the files, up to twenty; and when the rules did not come from files. The rules
    /// in force stay, and the first such reload is logged.
    pub fn reload(&self) -> Result<RuleChanges, RulesError> {
        self.0.reload()
    }

    /// Switches a rule, or all of them, off or on again: a rule that is off is as if it were not in
    /// the files, and what it counted stays. Lasts across reloads. A rule that there is not is
    /// switched all the same, in case it comes.
    ///
    /// A rule is on when neither it nor all of them are off.
    pub fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        self.0.set_enabled(rule, enabled);
    }

    /// Changes the quota of the policy of this name (`rule`, or `rule.quota` where a rule has several)
    /// until the rules are read again; `None` is the quota of the files. It is changed in this
    /// process only. See [`LocalLimiter::set_quota`](crate::LocalLimiter::set_quota); of several
    /// tiers or times the default one is changed. The answer says what a key gets that had used up
    /// the quota of before.
    ///
    /// # Errors
    ///
    /// When there is no such policy, the quota makes no sense, or it counts by another algorithm.
    pub fn set_quota(
        &self,
        policy: &str,
        quota: Option<Quota>,
    ) -> Result<QuotaChange, ConfigError> {
        self.rules().set_quota(policy, quota)
    }
}

impl<R> Shared<R> {
    /// Puts the rules in force that the files have now, or says what is wrong with them.
    fn read_again(&self) -> Result<RuleChanges, RulesError> {
        let mut told = unpoisoned(self.changes.lock());
        let current = self.desks.load_full();
        let rules = current.rules.read_again().inspect_err(|error| {
            let line = error.to_line();
            let error = error.to_string();
            if told.refused.as_ref() != Some(&error) {
                let fault =
                    format!("the rules stay as they were, since the new ones are refused: {line}");
                log::say(Code::RulesRefused, &fault);
                told.refused = Some(error);
            }
        })?;
        let changes = rules.changes_since(&current.rules);
        #[cfg(feature = "redis")]
        rules.replace(&current.rules);
        let rules = rules.without(|rule| told.is_off(rule));
        let settings = Arc::clone(current.settings());
        self.desks.store(Arc::new(Desks::new(rules, settings)));
        if told.refused.take().is_some() {
            log::say(Code::RulesAccepted, "the rules are accepted again");
        }
        Ok(changes)
    }

    pub(super) fn new(desks: Desks<R>) -> Self {
        Self {
            desks: ArcSwap::from_pointee(desks),
            changes: Mutex::default(),
        }
    }
}

impl<R: Send + Sync + 'static> Reload for Shared<R> {
    fn rules(&self) -> Rules {
        self.desks.load().rules.clone()
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.desks.load().settings().observer.clone()
    }

    fn reload(&self) -> Result<RuleChanges, RulesError> {
        let settings = Arc::clone(self.desks.load().settings());
        let read = self.read_again();
        if let Some(observer) = &settings.observer {
            let rules = self.rules().len();
            let error = read.as_ref().err().map(|error| error as _);
            observer.observe(&Event::RulesReloaded { rules, error });
        }
        read
    }

    fn set_enabled(&self, rule: Option<&str>, enabled: bool) {
        let mut changes = unpoisoned(self.changes.lock());
        match rule {
            None => changes.all_off = !enabled,
            Some(rule) if enabled => drop(changes.off.remove(rule)),
            Some(rule) => drop(changes.off.insert(rule.to_owned())),
        }
        let current = self.desks.load_full();
        let rules = current.rules.without(|rule| changes.is_off(rule));
        let desks = Desks::new(rules, Arc::clone(current.settings()));
        self.desks.store(Arc::new(desks));
    }
}

impl fmt::Debug for RulesHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RulesHandle")
            .field(&self.rules().len())
            .finish()
    }
}

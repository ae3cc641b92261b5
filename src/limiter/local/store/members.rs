//! The limits of a store: their number, and the largest values of counters that several limiters share.

use std::{collections::HashMap, sync::Arc};

use super::stored_limit::{StoredCounters, StoredLimit};
use crate::{
    algorithm::Most,
    limiter::{
        local::{
            hash::{KeyHash, KeyHasher},
            state_file::{Layout, SaveError, SaveErrorKind, SavedLimit, StoreHeader},
            swappable_limits::ChangingLimits,
        },
        tier_set::{NamedQuota, TierSet},
    },
    log::{self, Code},
};

/// The limits of a store. Limiters of one name are one limit.
#[derive(Debug, Default)]
pub(super) struct Members {
    limits: HashMap<KeyHash, MemberLimit>,
    /// The numbers of limits that left, to be used again.
    free: Vec<u32>,
    /// The limits of a restored state whose limiters are not added yet.
    awaited: HashMap<KeyHash, SavedLimit>,
    /// The number of limiters ever added.
    limiters: u64,
}

/// A limit and its limiters.
#[derive(Debug)]
struct MemberLimit {
    number: u32,
    name: Option<String>,
    limiters: Vec<LimiterInStore>,
}

/// A limiter of a limit.
#[derive(Debug)]
struct LimiterInStore {
    live: Arc<ChangingLimits<Arc<StoredCounters>>>,
    /// The limiter's quotas without regard to others of its name.
    own: Arc<TierSet>,
    /// The largest values of the limiter's counters in force.
    most: Vec<Most>,
    /// These values when the limiter was added, unless its quotas have changed since.
    first: Option<Vec<Most>>,
}

impl Members {
    /// The number of limits.
    pub(super) fn count(&self) -> usize {
        self.limits.len()
    }

    /// Adds a limiter.
    pub(super) fn join(
        &mut self,
        hasher: &KeyHasher,
        name: Option<&str>,
        limits: Arc<TierSet>,
    ) -> StoredLimit {
        let id = StoredLimit::id_of(hasher, name, self.limiters);
        self.limiters += 1;
        // Numbers in use and free ones are contiguous from 1; 0 belongs to no limit.
        let next = self.limits.len() + self.free.len() + self.awaited.len() + 1;
        let awaited = self.awaited.remove(&id);
        if let Some(saved) = &awaited {
            warn_of_changes(saved, &limits);
        }
        let limit = self.limits.entry(id).or_insert_with(|| {
            let number = awaited.map(|saved| saved.number);
            let number = number.or_else(|| self.free.pop());
            MemberLimit {
                number: number.unwrap_or(next as u32),
                name: name.map(str::to_owned),
                limiters: Vec::new(),
            }
        });
        let counters = StoredCounters::new(hasher, id, Arc::clone(&limits));
        let live = Arc::new(ChangingLimits::new(Arc::new(counters)));
        let most = limits.mosts();
        limit.limiters.push(LimiterInStore {
            live: Arc::clone(&live),
            own: limits,
            first: Some(most.clone()),
            most,
        });
        limit.measure(hasher, id);
        StoredLimit::new(id, limit.number, live)
    }

    /// The limits for a state file: those that are in the store, and those that are awaited.
    ///
    /// # Errors
    ///
    /// If a limit has no name: the next process could not find its counts.
    pub(super) fn saved(&self) -> Result<StoreHeader, SaveError> {
        let mut limits: Vec<SavedLimit> = self.awaited.values().cloned().collect();
        for limit in self.limits.values() {
            let layouts = limit.limiters.iter().map(|member| Layout::of(&member.own));
            let name = limit.name.clone().ok_or_else(|| unnamed(limit))?;
            limits.push(SavedLimit {
                number: limit.number,
                name,
                layouts: layouts.collect(),
            });
        }
        let limiters = self.limiters;
        Ok(StoreHeader { limiters, limits })
    }

    /// The limits of a state file, whose limiters will be added. Returns the new numbers of the limits by
    /// those in the file.
    pub(super) fn restore(&mut self, hasher: &KeyHasher, header: StoreHeader) -> HashMap<u32, u32> {
        // Limiters without a name must not get the identity of a former one.
        self.limiters = header.limiters;
        let mut numbers = HashMap::new();
        for (limit, number) in header.limits.into_iter().zip(1..) {
            numbers.insert(limit.number, number);
            let id = StoredLimit::id_of(hasher, Some(&limit.name), 0);
            self.awaited.insert(id, SavedLimit { number, ..limit });
        }
        numbers
    }

    /// Puts other quotas of a limiter in force. A counter that counts as before keeps its name; the states
    /// of other counters stay until they are fresh.
    pub(super) fn replace(&mut self, hasher: &KeyHasher, of: &StoredLimit, limits: Arc<TierSet>) {
        let Some(limit) = self.limits.get_mut(&of.id) else {
            return;
        };
        if let Some(member) = limit.limiters.iter_mut().find(|member| member.is_of(of)) {
            member.own = limits;
            (member.most, member.first) = (Vec::new(), None);
        }
        limit.measure(hasher, of.id);
    }

    /// Removes a limiter, and returns whether its limit is gone. The caller must hold the lock of the
    /// members until the limit's entries are cleared, since the number is free from now on.
    pub(super) fn leave(&mut self, hasher: &KeyHasher, of: &StoredLimit) -> bool {
        let Some(limit) = self.limits.get_mut(&of.id) else {
            return false;
        };
        limit.limiters.retain(|member| !member.is_of(of));
        if limit.limiters.is_empty() {
            self.limits.remove(&of.id);
            self.free.push(of.number);
            return true;
        }
        limit.measure(hasher, of.id);
        false
    }
}

/// The error of a limit without a name.
fn unnamed(limit: &MemberLimit) -> SaveError {
    let limits = limit.limiters.iter().map(|member| &member.own);
    let mut quotas = limits.flat_map(|limits| &limits.default_tier().quotas);
    let quota = quotas.next().map(ToString::to_string).unwrap_or_default();
    SaveError::new(
        SaveErrorKind::Unnamed,
        format!(
            "a limiter of the store (\"{quota}\") has no name, and the next process could not find \
             its counts: give it one with LocalLimiter::builder(..).name(..)"
        ),
    )
}

/// Logs the first counter of a limit that counts otherwise than the saved one of its name: it starts
/// afresh.
fn warn_of_changes(saved: &SavedLimit, limits: &TierSet) {
    let own = Layout::of(limits);
    let labels = saved.layouts.iter().flat_map(|layout| &layout.labels);
    let changed = labels
        .flatten()
        .find_map(|label| Some((label, own.changed(label)?)));
    if let Some((label, own)) = changed {
        let fault = format!(
            "{:?} counts its quota {} as \"{}\", and the restored state as \"{}\": algorithm, period, \
             slices or refill step differ, so this quota starts afresh",
            saved.name,
            label.shown_name(),
            own.text,
            label.text
        );
        log::report(Code::StateChanged, &fault);
    }
}

impl MemberLimit {
    /// Sets the largest values of all limiters to the maximum among them.
    fn measure(&mut self, hasher: &KeyHasher, id: KeyHash) {
        let mut all: Vec<NamedQuota> = Vec::new();
        for quota in self.limiters.iter().flat_map(|one| one.own.named_quotas()) {
            if !all.contains(&quota) {
                all.push(quota);
            }
        }
        for member in &mut self.limiters {
            member.measure_with(&all, hasher, id);
        }
    }
}

impl LimiterInStore {
    fn is_of(&self, limit: &StoredLimit) -> bool {
        Arc::ptr_eq(&self.live, &limit.live)
    }

    fn measure_with(&mut self, all: &[NamedQuota], hasher: &KeyHasher, id: KeyHash) {
        let mut limits = TierSet::clone(&self.own);
        limits.include_others(all);
        let most = limits.mosts();
        if most == self.most {
            return;
        }
        self.most = most;
        if self.first.as_ref() == Some(&self.most) {
            // Readers take no lock.
            self.live.return_to_first();
        } else {
            let counters = StoredCounters::new(hasher, id, Arc::new(limits));
            self.live.replace(Arc::new(counters));
        }
    }
}

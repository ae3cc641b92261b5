//! The limits of a store: how many there are, and what may count where several have one name.

use std::{collections::HashMap, sync::Arc};

use super::limit::{StoredCounters, StoredLimit};
use crate::{
    algorithm::Most,
    limiter::{
        limits::{Limits, NamedQuota},
        local::{
            hash::{KeyHash, KeyHasher},
            live::LiveLimits,
        },
    },
};

/// The limits that count in a store. Limiters of one name are one limit.
#[derive(Debug, Default)]
pub(super) struct Members {
    limits: HashMap<KeyHash, MemberLimit>,
    /// The numbers of limits that left; those above them are free from the count of all.
    free: Vec<u32>,
    /// The limiters that there ever were.
    limiters: u64,
}

/// A limit, and the limiters that count by it.
#[derive(Debug)]
struct MemberLimit {
    number: u32,
    limiters: Vec<LimiterInStore>,
}

/// A limiter of a limit.
#[derive(Debug)]
struct LimiterInStore {
    live: Arc<LiveLimits<Arc<StoredCounters>>>,
    /// Its quotas, as if it were alone.
    own: Arc<Limits>,
    /// The most that may count at its counters, as is in force.
    most: Vec<Most>,
    /// The same as it was at first, unless its quotas were changed since.
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
        limits: Arc<Limits>,
    ) -> StoredLimit {
        let id = StoredLimit::id_of(hasher, name, self.limiters);
        self.limiters += 1;
        // Those in use and those that are free are all there ever were at a time; 0 is nobody's.
        let next = self.limits.len() + self.free.len() + 1;
        let limit = self.limits.entry(id).or_insert_with(|| MemberLimit {
            number: self.free.pop().unwrap_or(next as u32),
            limiters: Vec::new(),
        });
        let counters = StoredCounters::new(hasher, id, Arc::clone(&limits));
        let live = Arc::new(LiveLimits::new(Arc::new(counters)));
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

    /// Puts other quotas of a limiter in force. A counter that counts like before keeps its name, and
    /// the states of one that does not are free as soon as they are fresh.
    pub(super) fn replace(&mut self, hasher: &KeyHasher, of: &StoredLimit, limits: Arc<Limits>) {
        let Some(limit) = self.limits.get_mut(&of.id) else {
            return;
        };
        if let Some(member) = limit.limiters.iter_mut().find(|member| member.is_of(of)) {
            member.own = limits;
            (member.most, member.first) = (Vec::new(), None);
        }
        limit.measure(hasher, of.id);
    }

    /// Removes a limiter, and says whether its limit has gone with it. The limit's number is then
    /// another's, unless these stay locked until its entries are nobody's.
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

impl MemberLimit {
    /// Lets all limiters clamp to the largest maximum among them.
    fn measure(&mut self, hasher: &KeyHasher, id: KeyHash) {
        let mut all: Vec<NamedQuota> = Vec::new();
        for quota in self.limiters.iter().flat_map(|one| one.own.named_quotas()) {
            if !all.contains(&quota) {
                all.push(quota);
            }
        }
        for member in &mut self.limiters {
            member.measure_beside(&all, hasher, id);
        }
    }
}

impl LimiterInStore {
    fn is_of(&self, limit: &StoredLimit) -> bool {
        Arc::ptr_eq(&self.live, &limit.live)
    }

    fn measure_beside(&mut self, all: &[NamedQuota], hasher: &KeyHasher, id: KeyHash) {
        let mut limits = Limits::clone(&self.own);
        limits.count_beside(all);
        let most = limits.mosts();
        if most == self.most {
            return;
        }
        self.most = most;
        if self.first.as_ref() == Some(&self.most) {
            // Those are read without a lock.
            self.live.return_to_first();
        } else {
            let counters = StoredCounters::new(hasher, id, Arc::new(limits));
            self.live.replace(Arc::new(counters));
        }
    }
}

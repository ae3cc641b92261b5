//! The sequential table: results of the calls in a sequential order.

use std::collections::BTreeMap;

use super::{KeyHash, all_schedules::Outcome};

#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) key: KeyHash,
    pub(super) op: Op,
    #[doc(hidden)]
    pub limit: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Acquire(u64),
    Peek,
    Refund(u64),
    Reset,
    /// Lowers every key to at most this, whatever the call's key.
    LimitAll(u64),
}

impl Call {
    /// The usage after the call; `None` if it stays.
    pub(super) fn next(&self, used: u64) -> Option<u64> {
        let used = used.min(self.limit);
        let next = match self.op {
            Op::Acquire(cost) if used + cost <= self.limit => used + cost,
            Op::Acquire(_) | Op::Peek => used,
            Op::Refund(cost) => used.saturating_sub(cost),
            Op::Reset => 0,
            Op::LimitAll(most) => used.min(most),
        };
        (next != used).then_some(next)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Spec {
    entries: usize,
    /// The usage of each key, by tag.
    used: BTreeMap<u64, u64>,
    evictions: u64,
}

impl Spec {
    pub fn new(entries: usize) -> Self {
        Self {
            entries,
            used: BTreeMap::new(),
            evictions: 0,
        }
    }

    pub(super) fn make(&mut self, call: Call) -> u64 {
        if let Op::LimitAll(most) = call.op {
            self.used
                .values_mut()
                .for_each(|used| *used = most.min(*used));
            return 0;
        }
        let tag = call.key.tag;
        let used = self.used.remove(&tag);
        if let Some(next) = call.next(used.unwrap_or(0)) {
            if next > 0 {
                self.make_room();
                self.used.insert(tag, next);
            }
        } else if let Some(used) = used {
            self.used.insert(tag, used);
        }
        used.unwrap_or(0)
    }

    fn make_room(&mut self) {
        if self.used.len() < self.entries {
            return;
        }
        let least = self.used.iter().min_by_key(|(_, used)| **used);
        let tag = *least.expect("some entry").0;
        self.used.remove(&tag);
        self.evictions += 1;
    }

    /// Whether a sequential order of the threads' calls has equal results and an equal end.
    pub(super) fn explains(&self, calls: &[Vec<Call>], outcome: &Outcome) -> bool {
        let calls: Vec<_> = calls.iter().map(Vec::as_slice).collect();
        let results: Vec<_> = outcome.results.iter().map(Vec::as_slice).collect();
        self.explains_rest(&calls, &results, outcome)
    }

    fn explains_rest(&self, calls: &[&[Call]], results: &[&[u64]], outcome: &Outcome) -> bool {
        if calls.iter().all(|calls| calls.is_empty()) {
            let content = self.used.iter().map(|(tag, used)| (*tag, *used));
            return self.evictions == outcome.evictions && content.eq(outcome.content.clone());
        }
        (0..calls.len()).any(|thread| {
            let Some((call, rest)) = calls[thread].split_first() else {
                return false;
            };
            let mut then = self.clone();
            if then.make(*call) != results[thread][0] {
                return false;
            }
            let (mut calls, mut results) = (calls.to_vec(), results.to_vec());
            calls[thread] = rest;
            results[thread] = &results[thread][1..];
            then.explains_rest(&calls, &results, outcome)
        })
    }
}

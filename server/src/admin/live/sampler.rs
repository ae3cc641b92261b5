//! The sampler: reads the counts of all limits each second, and makes the event that viewers get.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use axum::body::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    admin::Admin,
    decision_counts::{DecisionCounts, Totals},
    reference_statistics::COUNTS,
    rules_source::Source,
    store::Store,
};

/// The interval of the samples.
const SECOND: Duration = Duration::from_secs(1);

impl Admin {
    /// Samples each second; never completes.
    pub(in crate::admin) async fn sample(&self) -> Infallible {
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.sample_once();
        }
    }

    fn sample_once(&self) {
        let live = self.live();
        let totals = totals(self.source(), &live.sources.counts);
        let mut sampled = live.sampled();
        sampled.histories.sample(totals);
        if let Store::Redis(store) = self.store() {
            sampled.sample_store(store.stats());
        }
        drop(sampled);
        if (live.sources.is_draining)() {
            live.events.send_replace(Bytes::new());
        } else if live.has_viewers() {
            live.events.send_replace(self.event(false));
        }
    }

    pub(super) fn event(&self, has_history: bool) -> Bytes {
        format!("data: {}\n\n", self.snapshot(has_history)).into()
    }
}

/// The totals of all limits in force: those of requests, and those of descriptors from their statistics.
fn totals(source: &Source, counts: &DecisionCounts) -> HashMap<String, Totals> {
    let policies = source.policies();
    counts.retain(|name| policies.contains_key(name));
    let mut totals: HashMap<_, _> = counts.read().into_iter().collect();
    for (name, numbers) in source.limits().statistics().all() {
        let [requests, denied, near, _, passed_anyway, _]: [u64; COUNTS.len()] = numbers;
        let of_descriptors = Totals {
            requests,
            denied,
            passed_anyway,
            near,
            least_left: None,
        };
        totals.insert(name.to_string(), of_descriptors);
    }
    totals
}

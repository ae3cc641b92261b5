//! Labels of counters in state files.

use super::TierSet;

/// The description that finds a counter again in the next process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterLabel {
    /// The name of the counter; its place if it has none.
    pub(crate) name: Vec<u8>,
    pub(crate) is_named: bool,
    /// The letter of the algorithm, the period in nanoseconds, the slices, and the refill step in
    /// nanoseconds: counters that differ in these count differently.
    pub(crate) shape: [u64; 4],
    /// The smallest quota of the counter, for messages.
    pub(crate) text: String,
}

impl CounterLabel {
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        let identity = |label: &Self| (label.is_named, label.shape);
        self.name == other.name && identity(self) == identity(other)
    }

    /// The name for messages.
    pub(crate) fn shown_name(&self) -> String {
        if self.is_named {
            return format!("{:?}", String::from_utf8_lossy(&self.name));
        }
        let place = self.name.first().copied().unwrap_or(0);
        format!("at place {}", u32::from(place) + 1)
    }
}

impl TierSet {
    /// The label of each counter; `None` for free ones.
    pub(crate) fn labels(&self) -> Vec<Option<CounterLabel>> {
        let counters = self.counters.iter().map(|counter| {
            let counter = counter.as_ref()?;
            Some(CounterLabel {
                name: self.shared_name(counter.at).into_owned(),
                is_named: self.counter_name(counter.at).is_some(),
                shape: counter.quota.shape_numbers(),
                text: counter.quota.to_string(),
            })
        });
        counters.collect()
    }
}

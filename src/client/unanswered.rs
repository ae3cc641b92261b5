//! Requests in flight: those whose response has not come, in the order in which they were sent.

use std::collections::VecDeque;

/// The units of requests in flight. As large as the most that were on their way at a time.
#[derive(Debug, Default)]
pub(super) struct UnansweredRequests(VecDeque<Unanswered>);

#[derive(Debug)]
struct Unanswered {
    number: u64,
    cost: u64,
}

impl UnansweredRequests {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A request is sent, whose number is higher than all before.
    pub(super) fn start(&mut self, number: u64, cost: u64) {
        self.0.push_back(Unanswered { number, cost });
    }

    /// A request was answered, or given up.
    pub(super) fn end(&mut self, number: u64) {
        // Answers come in about the order of their requests, and near an end little has to move.
        if let Ok(at) = self.at(number) {
            self.0.remove(at);
        }
    }

    /// The units of requests with lower numbers.
    pub(super) fn units_before(&self, number: u64) -> u64 {
        let (Ok(at) | Err(at)) = self.at(number);
        let before = self.0.range(..at).map(|request| request.cost);
        before.fold(0, u64::saturating_add)
    }

    fn at(&self, number: u64) -> Result<usize, usize> {
        self.0
            .binary_search_by_key(&number, |request| request.number)
    }
}

//! Requests in flight, in the order in which they were sent.

use std::collections::VecDeque;

/// Number and cost of each request without a response. The memory is that of the most requests in
/// flight so far.
#[derive(Debug, Default)]
pub(crate) struct RequestsInFlight(VecDeque<RequestInFlight>);

#[derive(Debug)]
struct RequestInFlight {
    number: u64,
    cost: u64,
}

impl RequestsInFlight {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a request, whose number is higher than all before.
    pub(crate) fn start(&mut self, number: u64, cost: u64) {
        self.0.push_back(RequestInFlight { number, cost });
    }

    /// Removes a request that ended.
    pub(crate) fn end(&mut self, number: u64) {
        // Responses arrive roughly in the order of requests, so little has to move.
        if let Ok(at) = self.at(number) {
            self.0.remove(at);
        }
    }

    /// The sum of the costs of requests with lower numbers.
    pub(crate) fn units_before(&self, number: u64) -> u64 {
        let (Ok(at) | Err(at)) = self.at(number);
        let before = self.0.range(..at).map(|request| request.cost);
        before.fold(0, u64::saturating_add)
    }

    fn at(&self, number: u64) -> Result<usize, usize> {
        self.0
            .binary_search_by_key(&number, |request| request.number)
    }
}

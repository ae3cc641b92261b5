//! The demand of one client, from its reports.

use std::time::Duration;

use super::rate::DivisibleRate;

/// The shortest time of a measurement.
const SHORTEST: Duration = Duration::from_secs(1);

/// The demand of one client. Times are of the service's clock: reports contain whole seconds, and may be false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// When the measured time began.
    pub(super) since: Duration,
    /// The requests reported since then.
    pub(super) requests: u64,
    /// Requests in an interval, an average that each measurement halves. `None` before the first.
    pub(super) measured: Option<u64>,
    pub(super) reported_at: Duration,
}

impl Demand {
    /// The demand of a client that sends its first report.
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            since: now,
            requests: 0,
            measured: None,
            reported_at: now,
        }
    }

    /// Counts the requests of a further report.
    pub(super) fn report(&mut self, now: Duration, requests: u64, rate: DivisibleRate) {
        self.reported_at = now;
        self.requests = self.requests.saturating_add(requests);
        let time = now.saturating_sub(self.since);
        if time < SHORTEST {
            return;
        }
        let latest = rate.in_interval(self.requests, time);
        let average = |before: u64| before / 2 + latest / 2 + (before % 2 + latest % 2) / 2;
        self.measured = Some(self.measured.map_or(latest, average));
        (self.since, self.requests) = (now, 0);
    }

    /// Requests in an interval. The largest number before the first measurement, so that a new client gets an equal
    /// part.
    pub(super) fn in_interval(&self) -> u64 {
        self.measured.unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_the_average_of_measurements_of_a_second_or_more() {
        let rate = DivisibleRate::of_second(100).expect("a rate of a minute");
        let at = Duration::from_millis;
        let mut demand = Demand::new(at(0));
        assert_eq!(demand.in_interval(), u64::MAX);
        demand.report(at(400), 3, rate);
        assert_eq!(demand.in_interval(), u64::MAX, "too short");
        demand.report(at(5_000), 7, rate);
        assert_eq!(demand.in_interval(), 120, "10 in 5 seconds");
        demand.report(at(10_000), 0, rate);
        assert_eq!(demand.in_interval(), 60);
        demand.report(at(20_000), u64::MAX, rate);
        assert_eq!(demand.in_interval(), u64::MAX / 2 + 30);
    }
}

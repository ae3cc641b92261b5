//! The retry budget: a share of the sent requests, as a function of state and time.

use tower_ratelimit::clock::Timestamp;

/// The seconds that count.
const SPAN: usize = 10;

/// Retries that are always allowed.
const RESERVE: u64 = 10;

/// Requests per further retry.
const SHARE: u64 = 5;

/// Requests and retries in each of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    seconds: [SecondCount; SPAN],
}

#[derive(Debug, Default, Clone, Copy)]
struct SecondCount {
    since_epoch: u64,
    sent: u64,
    retried: u64,
}

impl RetryBudget {
    /// Counts a request.
    pub(crate) fn deposit(&mut self, now: Timestamp) {
        self.second(now).sent += 1;
    }

    /// Counts a retry if the budget allows it, and returns whether it does.
    pub(crate) fn withdraw(&mut self, now: Timestamp) -> bool {
        let newest = seconds(now);
        // Later seconds exist after a clock stepped back; they do not count.
        let since = newest.saturating_sub(SPAN as u64 - 1);
        let counts = |second: &&SecondCount| (since..=newest).contains(&second.since_epoch);
        let in_span = || self.seconds.iter().filter(counts);
        let sent: u64 = in_span().map(|second| second.sent).sum();
        let retried: u64 = in_span().map(|second| second.retried).sum();
        let is_left = retried < sent / SHARE + RESERVE;
        if is_left {
            self.second(now).retried += 1;
        }
        is_left
    }

    fn second(&mut self, now: Timestamp) -> &mut SecondCount {
        let since_epoch = seconds(now);
        // The remainder is below the array's length.
        let second = &mut self.seconds[(since_epoch % SPAN as u64) as usize];
        if second.since_epoch != since_epoch {
            *second = SecondCount {
                since_epoch,
                ..SecondCount::default()
            };
        }
        second
    }
}

fn seconds(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000
}

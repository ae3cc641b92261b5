//! The budget of retries: a share of what was sent, as a function of its state and the time.

use crate::clock::Timestamp;

/// Seconds that count.
const SPAN: usize = 10;

/// Retries that are always there.
const RESERVE: u64 = 10;

/// One retry for as many requests.
const SHARE: u64 = 5;

/// How many requests were sent in each of the last ten seconds, and how many were sent again.
#[derive(Debug, Default)]
pub(super) struct Budget {
    seconds: [Second; SPAN],
}

#[derive(Debug, Default, Clone, Copy)]
struct Second {
    since_epoch: u64,
    sent: u64,
    again: u64,
}

impl Budget {
    /// A request is sent.
    pub(super) fn deposit(&mut self, now: Timestamp) {
        self.second(now).sent += 1;
    }

    /// Whether a request may be sent again, which then counts.
    pub(super) fn withdraw(&mut self, now: Timestamp) -> bool {
        let newest = seconds(now);
        // Seconds that are yet to come are those of a clock that has stepped back.
        let since = newest.saturating_sub(SPAN as u64 - 1);
        let counts = |second: &&Second| (since..=newest).contains(&second.since_epoch);
        let in_span = || self.seconds.iter().filter(counts);
        let sent: u64 = in_span().map(|second| second.sent).sum();
        let again: u64 = in_span().map(|second| second.again).sum();
        let is_left = again < sent / SHARE + RESERVE;
        if is_left {
            self.second(now).again += 1;
        }
        is_left
    }

    fn second(&mut self, now: Timestamp) -> &mut Second {
        let since_epoch = seconds(now);
        // The remainder is less than the length.
        let second = &mut self.seconds[(since_epoch % SPAN as u64) as usize];
        if second.since_epoch != since_epoch {
            *second = Second {
                since_epoch,
                ..Second::default()
            };
        }
        second
    }
}

fn seconds(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000
}

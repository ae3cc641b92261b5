//! The share of one client, and what it may still use of earlier ones.

use std::time::Duration;

use super::{client::ClientId, demand::Demand};

/// Until this delay a cut does not count: a message arrives earlier, unless its connection is disturbed.
pub(super) const CUT_DELAY: Duration = Duration::from_secs(2);

/// The time between two changes of a share: requests that Envoy's threads admit by the old bucket are missing in the new one.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// A client reports every 5 seconds. Its stream has ended if one report is missing: the instance that had the stream may
/// be gone, so its word is not needed.
const MISSED: Duration = Duration::from_secs(7);

/// A token bucket of one client, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// Tokens in each interval.
    pub(super) tokens: u64,
    /// The most tokens that the bucket holds.
    pub(super) size: u64,
}

impl Share {
    /// The larger one of each number.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.max(other.tokens),
            size: self.size.max(other.size),
        }
    }

    /// Whether a number differs from another share's by a twentieth or more.
    pub(super) fn differs_from(self, other: Self) -> bool {
        differs(self.tokens, other.tokens) || differs(self.size, other.size)
    }

    /// Whether another share has a larger rate, by a twentieth or more.
    pub(super) fn is_short_of(self, other: Self) -> bool {
        self.tokens < other.tokens && differs(self.tokens, other.tokens)
    }
}

fn differs(a: u64, b: u64) -> bool {
    a != b && a.abs_diff(b).saturating_mul(20) >= a
}

/// A client of a pool.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) client: Option<ClientId>,
    pub(super) demand: Demand,
    /// The share that was sent last, until the end of the row.
    pub(super) share: Option<Share>,
    /// Shares that the client may still use, each until an instant.
    pub(super) older: Vec<(Duration, Share)>,
    pub(super) sent_at: Duration,
    pub(super) changed_at: Duration,
    /// The number of messages so far.
    pub(super) messages: u32,
    /// Whether the client has sent a report that no message has answered.
    pub(super) awaits_answer: bool,
    /// Whether the client's stream is open, as far as is known.
    pub(super) is_live: bool,
    /// Whether the client may have no bucket, so that the next message makes a full one: the share is that of an earlier
    /// stream, maybe of another process.
    pub(super) may_lack_bucket: bool,
}

impl Row {
    pub(super) const fn new(now: Duration, client: Option<ClientId>) -> Self {
        Self {
            client,
            demand: Demand::new(now),
            share: None,
            older: Vec::new(),
            sent_at: now,
            changed_at: now,
            messages: 0,
            awaits_answer: true,
            is_live: true,
            may_lack_bucket: false,
        }
    }

    /// Whether the row of this client's new stream may replace it: its own stream has ended, and its share has not.
    pub(super) fn may_pass_to(&self, client: ClientId, now: Duration) -> bool {
        self.client == Some(client) && self.share.is_some() && self.has_ended(now)
    }

    /// The row of the client's next stream.
    pub(super) fn inherited(self) -> Self {
        Self {
            is_live: true,
            may_lack_bucket: true,
            ..self
        }
    }

    pub(super) fn has_ended(&self, now: Duration) -> bool {
        !self.is_live || now > self.demand.reported_at + MISSED
    }

    /// The share that the client may have at most.
    pub(super) fn held(&self) -> Share {
        let older = self.older.iter().map(|(_, share)| *share);
        older.fold(self.share.unwrap_or_default(), Share::max)
    }

    /// Whether the client may have no bucket when a message arrives, so that it makes a full one.
    pub(super) fn makes_full_bucket(&self, now: Duration, ttl: Duration) -> bool {
        self.share.is_none() || now.saturating_sub(self.sent_at) > ttl.saturating_sub(CUT_DELAY)
    }

    /// Whether the share may change.
    pub(super) fn may_change(&self, now: Duration) -> bool {
        now.saturating_sub(self.changed_at) >= CHANGE_INTERVAL
    }

    /// Records a share that is sent now.
    pub(super) fn send(&mut self, now: Duration, share: Share) {
        if let Some(before) = self.share.filter(|before| *before != share) {
            self.older.push((now + CUT_DELAY, before));
            self.changed_at = now;
        }
        self.share = Some(share);
        self.sent_at = now;
        self.messages = self.messages.wrapping_add(1);
        self.awaits_answer = false;
        self.may_lack_bucket = false;
    }

    /// When the next one of the shares ends that the client may use.
    pub(super) fn next_end(&self, ttl: Duration) -> Option<Duration> {
        let last = self.share.map(|_| self.sent_at + ttl + CUT_DELAY);
        let older = self.older.iter().map(|(until, _)| *until);
        older.chain(last).min()
    }

    /// Ends the shares that the client can no longer use. Whether there were any.
    pub(super) fn end_shares(&mut self, now: Duration, ttl: Duration) -> bool {
        let before = (self.older.len(), self.share.is_some());
        self.older.retain(|(until, _)| *until > now);
        if self.sent_at + ttl + CUT_DELAY <= now {
            self.share = None;
        }
        before != (self.older.len(), self.share.is_some())
    }

    /// Whether the client is gone, with all that it could use.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.has_ended(now) && self.has_nothing()
    }

    /// Whether the client can use nothing.
    pub(super) fn has_nothing(&self) -> bool {
        self.share.is_none() && self.older.is_empty()
    }
}

//! Shares while Redis does not respond: those that were sent are renewed, and none becomes larger.

use std::time::Duration;

use super::{
    super::{
        pool::RowId,
        row::{CUT_DELAY, Share},
    },
    Applied, LONGEST_EXCHANGE, OwnRow, PoolOfInstance, SentShare, ShareMessage,
};

/// The pause after a failure.
const FAILED_PAUSE: Duration = Duration::from_millis(250);

impl PoolOfInstance {
    /// Notes that a pool may have been written or not. Smaller shares in it count after the delay of a cut if it was, and
    /// are safe if it was not: they are returned as messages.
    pub(in crate::rlqs) fn unanswered(
        &mut self,
        applied: &Applied,
        now: Duration,
    ) -> Vec<ShareMessage> {
        let (ttl, pool) = (self.ttl, &applied.stored.pool);
        let cuts = self.rows.iter_mut().filter_map(|(id, row)| {
            let share = pool.row(*id)?.share?;
            let (share, age) = row.cut(share, now, ttl)?;
            Some(ShareMessage {
                row: *id,
                share,
                age,
            })
        });
        cuts.collect()
    }

    /// Notes that Redis does not respond. Rows that have left end by themselves.
    pub(in crate::rlqs) fn failed(&mut self, now: Duration) {
        if self.rows.is_empty() {
            self.left.clear();
        }
        self.due_at = Some(now + FAILED_PAUSE);
    }

    /// Renews the shares of clients that have waited for half of their time: the same shares, without Redis.
    pub(in crate::rlqs) fn renew_without_redis(&mut self, now: Duration) -> Vec<ShareMessage> {
        let ttl = self.ttl;
        let mut messages = Vec::new();
        for (id, row) in &mut self.rows {
            if !row.is_overdue(now, ttl) {
                continue;
            }
            if let Some(sent) = row.share_of_bucket(now, ttl) {
                (sent.at, sent.is_unwritten) = (now, true);
                messages.push(ShareMessage {
                    row: *id,
                    share: sent.share,
                    age: Duration::ZERO,
                });
                (row.awaits_answer, row.served_at) = (false, now);
            }
        }
        messages
    }

    /// The rows whose clients have waited for half of the time of a share, and get all requests allowed instead.
    pub(in crate::rlqs) fn allow_without_redis(&mut self, now: Duration) -> Vec<RowId> {
        let ttl = self.ttl;
        let overdue = self.rows.iter_mut();
        let overdue = overdue.filter(|(_, row)| row.is_overdue(now, ttl));
        let allowed = overdue.map(|(id, row)| {
            row.lacks_bucket = true;
            (row.awaits_answer, row.served_at) = (false, now);
            *id
        });
        allowed.collect()
    }
}

impl OwnRow {
    /// The share of the bucket that the client certainly has: without it, a message makes a full one.
    fn share_of_bucket(&mut self, now: Duration, ttl: Duration) -> Option<&mut SentShare> {
        let sent = self.sent.as_mut().filter(|_| !self.lacks_bucket);
        sent.filter(|sent| now.saturating_sub(sent.at) <= ttl.saturating_sub(CUT_DELAY))
    }

    /// Cuts the share that Redis counts to this one, as far as it is smaller. The share, and the time since Redis counts
    /// the one before: the smaller one ends no later.
    fn cut(&mut self, share: Share, now: Duration, ttl: Duration) -> Option<(Share, Duration)> {
        let sent = self.share_of_bucket(now, ttl)?;
        let before = sent.share;
        let size = before.size.min(share.size);
        // Takes no less time to fill the bucket than before. So a message with the share of before, if nothing was written,
        // makes no tokens.
        let part = before.tokens * size / before.size.max(1);
        let cut = Share {
            tokens: part.min(share.tokens).max(1),
            size,
        };
        if cut == before || sent.is_unwritten {
            return None;
        }
        sent.share = cut;
        Some((cut, now.saturating_sub(sent.at) + LONGEST_EXCHANGE))
    }

    fn is_overdue(&self, now: Duration, ttl: Duration) -> bool {
        self.awaits_answer && now.saturating_sub(self.served_at) >= ttl / 2
    }
}

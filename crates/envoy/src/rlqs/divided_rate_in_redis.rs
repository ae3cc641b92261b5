//! The part of a pool in Redis that this instance has: its rows, what it has not written yet, and what it sent.
//! Arithmetic without a clock or a connection.
//!
//! An instance loads the pool, applies its reports, computes the shares of its own rows, and writes the pool back,
//! unless another instance has written it. Only then it sends messages, and it sends what the pool contains: if a write
//! has no answer, the next load shows whether it happened.

use std::time::Duration;

use super::{
    client_share::{CUT_DELAY, ClientId, DivisibleRate, Row, Share},
    divided_rate::{Pool, RowId, Rows, StoredPool},
};

/// The most rows of a pool.
pub(super) const MAX_ROWS: usize = 1_024;

/// How long reports of rows with a share wait for others, to be written together.
const COLLECTED: Duration = Duration::from_millis(500);

/// The first pause of a row that waits for its share; it doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest time of an attempt to exchange a pool. Cuts count from its start, so that messages about them have the
/// other half of the delay.
pub(super) const LONGEST_EXCHANGE: Duration = Duration::from_secs(1);

/// A pool, as far as this instance has it. Times are of the instance's clock, unless they are of Redis's by name.
#[derive(Debug)]
pub(super) struct PoolOfInstance {
    rate: DivisibleRate,
    /// Seconds, as in the pool.
    pub(super) interval: u64,
    ttl: Duration,
    rows: Rows<OwnRow>,
    /// Rows whose end is not written.
    left: Vec<RowId>,
    /// The birth and the writes of the pool that was written last.
    seen: Option<(u64, u64)>,
    due_at: Option<Duration>,
    /// The number of pauses since the last report.
    pauses: u32,
}

#[derive(Debug)]
struct OwnRow {
    client: Option<ClientId>,
    /// Reports, and their requests, that are not written.
    reports: u32,
    requests: u64,
    awaits_answer: bool,
    sent: Option<SentShare>,
    /// Whether the client has no bucket that the next message could change: all requests passed for a time without Redis,
    /// or the interval is another one.
    lacks_bucket: bool,
    /// The last message, or the first report.
    served_at: Duration,
}

/// The last message with a share.
#[derive(Debug, Clone, Copy)]
struct SentShare {
    share: Share,
    at: Duration,
    /// The number of the row's messages then.
    number: u32,
    /// Whether it was sent without Redis.
    is_unwritten: bool,
}

/// A loaded pool after the reports of this instance.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) stored: StoredPool,
    /// Whether the pool has changed, and is to be written.
    pub(super) is_changed: bool,
    /// The finding in place of the pool that this instance knows, if it is another one.
    pub(super) loss: Option<Loss>,
    /// Rows beyond the maximum.
    pub(super) refused: Vec<RowId>,
    reports: Vec<WrittenReports>,
    /// The number of rows that have left.
    left: usize,
    /// When the pool was loaded, by this instance's clock and by Redis's.
    loaded_at: Duration,
    redis_time: Duration,
}

/// The number of reports of a row, and their requests.
type WrittenReports = (RowId, u32, u64);

/// A finding in place of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing, or a pool that was made anew or is an earlier state.
    Lost,
    /// Bytes that are no pool, or one of another version.
    Unreadable,
}

/// A message to the client of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareMessage {
    pub(super) row: RowId,
    pub(super) share: Share,
    /// The time since Redis has counted it.
    pub(super) age: Duration,
}

impl PoolOfInstance {
    pub(super) const fn new(rate: DivisibleRate, ttl: Duration) -> Self {
        Self {
            rate,
            interval: rate.interval,
            ttl,
            rows: Rows(Vec::new()),
            left: Vec::new(),
            seen: None,
            due_at: None,
            pauses: 0,
        }
    }

    /// Whether nothing is left to do.
    pub(super) const fn is_over(&self) -> bool {
        self.rows.0.is_empty() && self.left.is_empty()
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }

    fn be_due(&mut self, at: Duration) {
        self.due_at = Some(self.due_at.map_or(at, |before| before.min(at)));
    }

    /// Counts the report of a client. One without a share is written at once.
    pub(super) fn report(
        &mut self,
        now: Duration,
        (id, client): (RowId, Option<ClientId>),
        rate: DivisibleRate,
        requests: u64,
    ) {
        self.rate = rate;
        let row = self.rows.get_or_insert(id, || OwnRow::new(client, now));
        row.reports += 1;
        row.requests = row.requests.saturating_add(requests);
        row.awaits_answer = true;
        let pause = row.sent.map_or(Duration::ZERO, |_| COLLECTED);
        self.pauses = 0;
        self.be_due(now + pause);
    }

    /// Ends the messages to a client.
    pub(super) fn leave(&mut self, now: Duration, id: RowId) {
        if self.rows.remove(id).is_some() {
            self.left.push(id);
            self.be_due(now + COLLECTED);
        }
    }

    /// Whether a client of this instance may use a share.
    fn has_shares(&self, now: Duration) -> bool {
        let mut rows = self.rows.0.iter();
        rows.any(|(_, row)| row.live_share(now, self.ttl).is_some())
    }

    /// Applies this instance's reports to the loaded value, and computes the shares of its rows. `birth` is a random
    /// number for a new pool. `has_lost` means that Redis has lost values a short time ago: a missing one is then no
    /// sign of a new pool.
    pub(super) fn apply(
        &mut self,
        value: Option<&[u8]>,
        (redis_time, now): (Duration, Duration),
        (birth, has_lost): (u64, bool),
    ) -> Applied {
        let (mut stored, loss) = self.read(value, (redis_time, now), (birth, has_lost));
        let pool = &mut stored.pool;
        self.take_interval(pool.rate().interval);
        pool.set_rate(self.rate, redis_time);
        let mut is_changed = loss.is_some() | self.restore(pool, (redis_time, now));
        for id in &self.left {
            pool.leave(redis_time, *id);
        }
        is_changed |= !self.left.is_empty();
        let (reports, refused) = self.write_reports(pool, redis_time);
        is_changed |= reports.len() > refused.len();
        let sent = pool.messages_to(redis_time, |id| self.rows.get(id).is_some());
        is_changed |= !sent.is_empty();
        stored.writes += u64::from(is_changed);
        Applied {
            stored,
            is_changed,
            loss,
            refused,
            reports,
            left: self.left.len(),
            loaded_at: now,
            redis_time,
        }
    }

    /// Writes all reports. Returns their numbers and their requests, and the rows without room.
    fn write_reports(&self, pool: &mut Pool, now: Duration) -> (Vec<WrittenReports>, Vec<RowId>) {
        let (mut reports, mut refused) = (Vec::new(), Vec::new());
        for (id, row) in self.rows.0.iter().filter(|(_, row)| row.reports > 0) {
            if pool.row(*id).is_none() && pool.number_of_rows() >= MAX_ROWS {
                refused.push(*id);
            } else {
                pool.report(now, (*id, row.client), row.requests);
            }
            reports.push((*id, row.reports, row.requests));
        }
        (reports, refused)
    }

    /// The pool of a value, or a new one in place of nothing, of other bytes and of an earlier state, whose rows are those
    /// of other shares than were sent. It is closed if shares may exist that it does not count.
    fn read(
        &self,
        value: Option<&[u8]>,
        (redis_time, now): (Duration, Duration),
        (birth, has_lost): (u64, bool),
    ) -> (StoredPool, Option<Loss>) {
        let known = self.seen.filter(|_| self.has_shares(now));
        let is_lost = |is_lost: bool| is_lost.then_some(Loss::Lost);
        let (kept, loss) = match value.map(|value| StoredPool::read(value, self.ttl, redis_time)) {
            None => (None, is_lost(known.is_some() || has_lost)),
            Some(None) => (None, Some(Loss::Unreadable)),
            Some(Some(stored)) if self.is_earlier(&stored, now) => (None, is_lost(true)),
            Some(Some(stored)) => {
                let is_other = known.is_some_and(|(birth, _)| stored.birth != birth);
                (Some(stored), is_lost(is_other))
            }
        };
        let mut stored = kept.unwrap_or_else(|| StoredPool {
            birth,
            writes: 0,
            // The clients have buckets of this interval.
            pool: Pool::new(self.rate.with_interval(self.interval), self.ttl, redis_time),
        });
        if loss.is_some() {
            stored.pool.close(redis_time);
        }
        (stored, loss)
    }

    /// Whether Redis has lost writes of this instance, as by a failover. Others may have written as many since, but only
    /// this instance counts the messages of its rows. A row without a share may be new: the one before has passed to another
    /// stream.
    fn is_earlier(&self, stored: &StoredPool, now: Duration) -> bool {
        let mut sent = self.rows.0.iter().filter_map(|(id, row)| {
            let sent = row.live_share(now, self.ttl)?;
            Some((stored.pool.row(*id), sent.number))
        });
        let known = self.seen.filter(|_| self.has_shares(now));
        known.is_some_and(|(birth, writes)| stored.birth == birth && stored.writes < writes)
            || sent.any(|(row, number)| {
                row.is_some_and(|row| row.share.is_some() && row.messages < number)
            })
    }

    /// Converts all shares to the interval of a pool that an instance without shares has made after a loss. Envoy makes a
    /// full bucket for another interval.
    fn take_interval(&mut self, interval: u64) {
        if interval == self.interval {
            return;
        }
        for (_, row) in &mut self.rows.0 {
            if let Some(SentShare { share, .. }) = &mut row.sent {
                share.tokens = (share.tokens * interval).div_ceil(self.interval);
                row.lacks_bucket = true;
            }
        }
        self.interval = interval;
    }

    /// Puts shares that were sent without Redis, or that a closed pool does not count, back into it. Whether there
    /// were any. A row that is missing otherwise has passed to another stream.
    fn restore(&mut self, pool: &mut Pool, (redis_time, now): (Duration, Duration)) -> bool {
        let mut is_changed = false;
        let is_closed = pool.is_closed(redis_time);
        for (id, row) in &mut self.rows.0 {
            let in_pool = pool.row(*id).and_then(|row| row.share);
            let live = row.live_share(now, self.ttl);
            match live {
                Some(sent) if sent.is_unwritten || (is_closed && in_pool.is_none()) => {
                    let sent_at = redis_time.saturating_sub(now.saturating_sub(sent.at));
                    pool.restore((*id, row.client), (sent.share, sent_at, sent.number));
                    is_changed = true;
                }
                _ => row.sent = row.sent.filter(|_| in_pool.is_some()),
            }
            if row.lacks_bucket {
                pool.doubt_bucket(*id);
            }
        }
        is_changed
    }

    /// Notes that an applied pool is in Redis. Returns the messages to send.
    pub(super) fn written(&mut self, applied: &Applied, now: Duration) -> Vec<ShareMessage> {
        for (id, reports, requests) in &applied.reports {
            if let Some(row) = self.rows.get_mut(*id) {
                row.reports -= reports;
                row.requests = row.requests.saturating_sub(*requests);
            }
        }
        for id in &applied.refused {
            if let Some(row) = self.rows.get_mut(*id) {
                row.served_at = now;
            }
        }
        self.left.drain(..applied.left);
        let StoredPool {
            birth,
            writes,
            pool,
        } = &applied.stored;
        self.seen = Some((*birth, *writes));
        let redis_time = applied.redis_time + now.saturating_sub(applied.loaded_at);
        let mut messages = Vec::new();
        for (id, row) in &mut self.rows.0 {
            let in_pool = pool.row(*id);
            row.awaits_answer = row.reports > 0 || in_pool.is_some_and(|row| row.awaits_answer);
            if let Some((share, sent_at)) = row.deliver(in_pool, now) {
                messages.push(ShareMessage {
                    row: *id,
                    share,
                    age: redis_time.saturating_sub(sent_at),
                });
            }
        }
        self.schedule(now, applied.stored.pool.is_short);
        messages
    }

    /// Sets when the pool is due again: soon if a client waits for a share, or for its part that others still have.
    fn schedule(&mut self, now: Duration, is_short: bool) {
        let mut rows = self.rows.0.iter();
        let has_reports = rows.any(|(_, row)| row.reports > 0) || !self.left.is_empty();
        let awaits = is_short || self.rows.0.iter().any(|(_, row)| row.awaits_answer);
        self.due_at = if has_reports {
            Some(now)
        } else if awaits {
            let pause = FIRST_PAUSE * 2_u32.pow(self.pauses.min(8));
            self.pauses += 1;
            Some(now + pause.min(LONGEST_PAUSE))
        } else {
            None
        };
    }
}

impl OwnRow {
    const fn new(client: Option<ClientId>, now: Duration) -> Self {
        Self {
            client,
            reports: 0,
            requests: 0,
            awaits_answer: false,
            sent: None,
            lacks_bucket: false,
            served_at: now,
        }
    }

    /// The share that the client may use.
    fn live_share(&self, now: Duration, ttl: Duration) -> Option<SentShare> {
        self.sent.filter(|sent| now < sent.at + ttl + CUT_DELAY)
    }

    /// The message that the pool has for the client and that was not sent, and when the pool counted it.
    fn deliver(&mut self, in_pool: Option<&Row>, now: Duration) -> Option<(Share, Duration)> {
        let row = in_pool?;
        let share = row.share.filter(|_| !row.may_lack_bucket)?;
        if let Some(sent) = &mut self.sent
            && (sent.number, sent.share) == (row.messages, share)
        {
            sent.is_unwritten = false;
            return None;
        }
        self.sent = Some(SentShare {
            share,
            at: now,
            number: row.messages,
            is_unwritten: false,
        });
        (self.lacks_bucket, self.served_at) = (false, now);
        Some((share, row.sent_at))
    }
}

/// The pause after a failure.
const FAILED_PAUSE: Duration = Duration::from_millis(250);

impl PoolOfInstance {
    /// Notes that a pool may have been written or not. Smaller shares in it count after the delay of a cut if it was, and
    /// are safe if it was not: they are returned as messages.
    pub(super) fn unanswered(&mut self, applied: &Applied, now: Duration) -> Vec<ShareMessage> {
        let (ttl, pool) = (self.ttl, &applied.stored.pool);
        let cuts = self.rows.0.iter_mut().filter_map(|(id, row)| {
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
    pub(super) fn failed(&mut self, now: Duration) {
        if self.rows.0.is_empty() {
            self.left.clear();
        }
        self.due_at = Some(now + FAILED_PAUSE);
    }

    /// Renews the shares of clients that have waited for half of their time: the same shares, without Redis.
    pub(super) fn renew_without_redis(&mut self, now: Duration) -> Vec<ShareMessage> {
        let ttl = self.ttl;
        let mut messages = Vec::new();
        for (id, row) in &mut self.rows.0 {
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
    pub(super) fn allow_without_redis(&mut self, now: Duration) -> Vec<RowId> {
        let ttl = self.ttl;
        let overdue = self.rows.0.iter_mut();
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

#[cfg(test)]
mod tests {
    //! Exchanges that fail.

    use std::time::Duration;

    use super::{Loss, PoolOfInstance, ShareMessage};
    use crate::rlqs::{
        client_share::DivisibleRate,
        divided_rate::{RowId, StoredPool},
    };

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(15);

    /// Redis's clock minus that of the instance.
    const AHEAD: Duration = Duration::from_secs(1_000);

    const FIRST: RowId = RowId(1);
    const NEXT: RowId = RowId(2);

    fn rate() -> DivisibleRate {
        DivisibleRate::of_second(100).expect("a rate")
    }

    /// An exchange, whose answer arrives or not.
    fn exchange(
        pool: &mut PoolOfInstance,
        value: &mut Option<Vec<u8>>,
        now: Duration,
        is_answered: bool,
    ) -> Vec<ShareMessage> {
        let applied = pool.apply(value.as_deref(), (now + AHEAD, now), (1, false));
        assert_eq!(applied.loss, None);
        if applied.is_changed {
            *value = Some(applied.stored.to_bytes());
        }
        if is_answered {
            return pool.written(&applied, now);
        }
        let messages = pool.unanswered(&applied, now);
        pool.failed(now);
        messages
    }

    /// A pool whose first row has a share of 5,400 a minute.
    fn used_up() -> (PoolOfInstance, Option<Vec<u8>>) {
        let (mut pool, mut value) = (PoolOfInstance::new(rate(), TTL), None);
        pool.report(SECOND, (FIRST, None), rate(), 1_000);
        assert!(pool.is_due(SECOND), "a first report is written at once");
        let messages = exchange(&mut pool, &mut value, SECOND, true);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].share.tokens, 5_400);
        assert!(!pool.is_due(SECOND * 100), "nothing happens");
        (pool, value)
    }

    #[test]
    fn a_message_whose_write_had_no_answer_is_sent_after_the_next_load() {
        let (mut pool, mut value) = used_up();
        pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
        let messages = exchange(&mut pool, &mut value, 3 * SECOND, false);
        assert_eq!(messages.len(), 1);
        let ShareMessage { row, share, age } = messages[0];
        // A smaller one is sent at once, and ends with the one before.
        assert_eq!((row, share.tokens, age), (FIRST, 2_700, 3 * SECOND));
        let messages = exchange(&mut pool, &mut value, 4 * SECOND, true);
        assert_eq!(messages.len(), 1);
        let ShareMessage { row, share, age } = messages[0];
        assert_eq!((row, share.tokens, age), (FIRST, 2_700, SECOND));
        // The second one waits, and gets its share when the cut counts.
        assert!(!pool.is_due(4 * SECOND) && pool.is_due(5 * SECOND));
        assert_eq!(exchange(&mut pool, &mut value, 4 * SECOND, true), []);
        let messages = exchange(&mut pool, &mut value, 5 * SECOND, true);
        let of_next = messages.iter().find(|message| message.row == NEXT);
        // Half of the rate, without the part that is kept for the bucket of the pool.
        assert_eq!(of_next.map(|message| message.share.tokens), Some(2_658));
    }

    #[test]
    fn a_share_is_renewed_without_redis_from_half_of_its_time_until_its_bucket_may_be_gone() {
        let (mut pool, _) = used_up();
        assert_eq!(pool.renew_without_redis(10 * SECOND), [], "no report");
        pool.report(6 * SECOND, (FIRST, None), rate(), 1_000);
        assert_eq!(pool.renew_without_redis(8 * SECOND), []);
        let messages = pool.renew_without_redis(9 * SECOND);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].share.tokens, 5_400);
        assert_eq!(pool.renew_without_redis(20 * SECOND), [], "no report");
        pool.report(20 * SECOND, (FIRST, None), rate(), 1_000);
        assert_eq!(pool.renew_without_redis(23 * SECOND), []);
    }

    /// It counts from the write, if that has happened.
    #[test]
    fn a_cut_whose_write_had_no_answer_is_what_is_renewed_without_redis() {
        let (mut pool, mut value) = used_up();
        let before = value.clone();
        pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
        pool.report(3 * SECOND, (FIRST, None), rate(), 1_000);
        let cut = exchange(&mut pool, &mut value, 3 * SECOND, false);
        assert_eq!(cut[0].share.tokens, 2_700);
        let renewed = pool.renew_without_redis(9 * SECOND);
        assert_eq!(renewed.len(), 1);
        assert_eq!((renewed[0].row, renewed[0].share), (FIRST, cut[0].share));
        // If it has not happened, the client gets what Redis has.
        let (mut pool, mut value) = used_up();
        pool.report(3 * SECOND, (NEXT, None), rate(), 1_000);
        exchange(&mut pool, &mut value, 3 * SECOND, false);
        pool.leave(4 * SECOND, NEXT);
        let messages = exchange(&mut pool, &mut before.clone(), 4 * SECOND, true);
        assert_eq!(messages[0].share.tokens, 5_400);
    }

    /// The pool has freed the share meanwhile.
    #[test]
    fn a_share_that_was_renewed_without_redis_counts_again() {
        let (mut pool, mut value) = used_up();
        for now in [9, 17, 25].map(|seconds| SECOND * seconds) {
            pool.report(now - SECOND, (FIRST, None), rate(), 1_000);
            assert_eq!(pool.renew_without_redis(now).len(), 1);
        }
        let mut other = PoolOfInstance::new(rate(), TTL);
        other.report(26 * SECOND, (NEXT, None), rate(), 1_000);
        let before = &mut value.clone();
        let messages = exchange(&mut other, before, 26 * SECOND, true);
        assert_eq!(messages[0].share.tokens, 5_400, "it cannot be known");
        exchange(&mut pool, &mut value, 26 * SECOND, true);
        other.report(26 * SECOND, (NEXT, None), rate(), 1_000);
        let messages = exchange(&mut other, &mut value, 26 * SECOND, true);
        assert_eq!(messages, [], "nothing is free");
    }

    /// The finding of an instance in a value.
    fn found(
        pool: &mut PoolOfInstance,
        value: &mut Option<Vec<u8>>,
        now: Duration,
    ) -> Option<Loss> {
        let applied = pool.apply(value.as_deref(), (now + AHEAD, now), (2, false));
        *value = Some(applied.stored.to_bytes());
        pool.written(&applied, now);
        applied.loss
    }

    /// The lost writes have cut the first row and raised the next one.
    #[test]
    fn shares_of_a_lost_write_count_again_after_redis_has_an_earlier_pool() {
        let (mut pool, mut value) = used_up();
        let mut other = PoolOfInstance::new(rate(), TTL);
        other.report(3 * SECOND, (NEXT, None), rate(), 1_000);
        exchange(&mut other, &mut value, 3 * SECOND, true);
        let before = value.clone();
        pool.report(4 * SECOND, (FIRST, None), rate(), 1_000);
        let cut = exchange(&mut pool, &mut value, 4 * SECOND, true);
        assert_eq!(cut[0].share.tokens, 2_700);
        let raised = exchange(&mut other, &mut value, 7 * SECOND, true);
        let raised = raised[0].share.tokens;
        assert!(raised > 2_600);
        let mut value = before;
        pool.report(8 * SECOND, (FIRST, None), rate(), 1_000);
        let loss = found(&mut pool, &mut value, 8 * SECOND);
        assert_eq!(loss, Some(Loss::Lost));
        let sent = |pool: &PoolOfInstance| pool.rows.0[0].1.sent.map(|sent| sent.share.tokens);
        assert!(sent(&pool) <= Some(2_700), "not that of before");
        other.report(9 * SECOND, (NEXT, None), rate(), 1_000);
        assert_eq!(
            found(&mut other, &mut value, 9 * SECOND),
            Some(Loss::Lost),
            "a pool that was made anew"
        );
        assert!(sent(&other) <= Some(raised));
        let value = value.expect("a pool");
        let stored = StoredPool::read(&value, TTL, 9 * SECOND + AHEAD).expect("a pool");
        assert_eq!(stored.pool.held().tokens, 2_700 + raised);
    }

    /// Others have written as often as this instance since.
    #[test]
    fn an_earlier_pool_is_known_by_the_messages_of_own_rows() {
        let (mut pool, mut value) = used_up();
        let mut other = PoolOfInstance::new(rate(), TTL);
        other.report(3 * SECOND, (NEXT, None), rate(), 1_000);
        exchange(&mut other, &mut value, 3 * SECOND, true);
        let mut before = value.clone();
        pool.report(4 * SECOND, (FIRST, None), rate(), 1_000);
        exchange(&mut pool, &mut value, 4 * SECOND, true);
        for now in 5..9 {
            other.report(now * SECOND, (NEXT, None), rate(), 1_000);
            exchange(&mut other, &mut before, now * SECOND, true);
        }
        pool.report(9 * SECOND, (FIRST, None), rate(), 1_000);
        let loss = found(&mut pool, &mut before, 9 * SECOND);
        assert_eq!(loss, Some(Loss::Lost));
    }

    /// The limit is raised from 900 to 1,100 a second, so that buckets of new pools have another interval.
    #[test]
    fn a_lost_pool_keeps_the_interval_of_its_shares() {
        let quota = |quota: &str| {
            DivisibleRate::of_quota(&quota.parse().expect("a quota")).expect("a rate")
        };
        let (slow, fast) = (quota("900/second"), quota("1100/second"));
        assert_eq!((slow.interval, fast.interval), (60, 1));
        let (mut pool, mut value) = (PoolOfInstance::new(slow, TTL), None);
        pool.report(SECOND, (FIRST, None), slow, 100);
        let messages = exchange(&mut pool, &mut value, SECOND, true);
        let (share, mut value) = (messages[0].share, None);
        pool.report(6 * SECOND, (FIRST, None), fast, 100);
        found(&mut pool, &mut value, 6 * SECOND);
        let value = value.expect("a pool");
        let stored = StoredPool::read(&value, TTL, 6 * SECOND + AHEAD).expect("a pool");
        assert_eq!(stored.pool.rate(), fast.with_interval(60));
        assert_eq!((pool.interval, stored.pool.held()), (60, share));
        let sent = pool.rows.0[0].1.sent.expect("a share").share;

        // An instance without a share has made the pool meanwhile, with its own interval.
        let mut other = PoolOfInstance::new(fast, TTL);
        let mut value = None;
        other.report(7 * SECOND, (NEXT, None), fast, 1);
        exchange(&mut other, &mut value, 7 * SECOND, true);
        pool.report(8 * SECOND, (FIRST, None), fast, 100);
        found(&mut pool, &mut value, 8 * SECOND);
        let value = value.expect("a pool");
        let stored = StoredPool::read(&value, TTL, 8 * SECOND + AHEAD).expect("a pool");
        let tokens = stored.pool.row(FIRST).map(|row| row.held().tokens);
        assert_eq!((pool.interval, tokens), (1, Some(sent.tokens.div_ceil(60))));
    }
}

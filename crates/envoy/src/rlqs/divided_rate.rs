//! One limit, divided into shares: arithmetic without clock or memory of its own.
//!
//! Each client has a token bucket, its share. The pool has a bucket of its own. It refills with the part of the rate
//! that no client may use, up to the part of the burst that no client may use. All tokens of full buckets come out of
//! it. So the tokens of all buckets together are at most the burst, and grow by at most the rate:
//!
//! 1. A share grows only by what no client may use. The tokens that its growth makes come out of the pool's bucket: all
//!    of a full bucket, else the growth of its size.
//! 2. A smaller share counts only [`CUT_DELAY`] after it is sent.
//! 3. A share counts until its time to live and that delay after the last message. A message so late that the client may
//!    have no bucket any more counts as a full bucket.
//!
//! A client's new stream takes over the row of an earlier one, so that its share survives. The client may be another
//! process, whose bucket is then full: the first message takes these tokens out of the pool's bucket, as far as it has
//! them.

use std::{num::NonZeroU64, time::Duration};

use prost::Message as _;

use super::client_share::{CUT_DELAY, ClientId, Demand, DivisibleRate, Row, Share};

/// The part of the rate, as a divisor, that stays free until the pool's bucket is full.
const KEPT: u64 = 64;

/// Parts of a token. The pool's bucket counts in them.
const NANO: u64 = 1_000_000_000;

/// The name of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowId(pub(super) u64);

/// Values by the names of rows, in their order. Most pools have one row, so there is no room for others.
#[derive(Debug)]
pub(super) struct Rows<T>(pub(super) Vec<(RowId, T)>);

impl<T> Rows<T> {
    fn place(&self, id: RowId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id)
    }

    pub(super) fn get(&self, id: RowId) -> Option<&T> {
        let at = self.place(id).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: RowId) -> Option<&mut T> {
        let at = self.place(id).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    pub(super) fn get_or_insert(&mut self, id: RowId, new: impl FnOnce() -> T) -> &mut T {
        let at = self.place(id).unwrap_or_else(|at| {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(self.0.len().max(1));
            }
            self.0.insert(at, (id, new()));
            at
        });
        &mut self.0[at].1
    }

    pub(super) fn remove(&mut self, id: RowId) -> Option<T> {
        let at = self.place(id).ok()?;
        Some(self.0.remove(at).1)
    }
}

/// The three rules. Tests break each, to see that the bound depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Design {
    pub(super) counts_cuts_later: bool,
    pub(super) charges_full_buckets: bool,
    pub(super) keeps_rows_without_stream: bool,
}

impl Design {
    pub(super) const BOUNDED: Self = Self {
        counts_cuts_later: true,
        charges_full_buckets: true,
        keeps_rows_without_stream: true,
    };
}

/// One limit of one subject.
#[derive(Debug)]
pub(super) struct Pool {
    rate: DivisibleRate,
    /// The time to live of shares.
    ttl: Duration,
    /// Billionths of tokens in the pool's bucket.
    level: u64,
    /// The instant of the level.
    at: Duration,
    /// Until then there may be shares that no row counts: nothing is free.
    closed_until: Duration,
    rows: Rows<Row>,
    /// Whether a client waits for a message, or for another share.
    is_due: bool,
    /// Whether one of these has less than its part of the rate.
    pub(super) is_short: bool,
    /// Whether the pool was divided since the last tick.
    pub(super) is_divided: bool,
    design: Design,
    /// The tokens of full buckets that first messages to new streams may have made, and that the pool's bucket lacked.
    #[cfg(test)]
    pub(super) lacked: u64,
    /// The rows that new streams took over: from, and to.
    #[cfg(test)]
    pub(super) passed: Vec<(RowId, RowId)>,
}

impl Pool {
    /// A pool with a full bucket.
    pub(super) const fn new(rate: DivisibleRate, ttl: Duration, now: Duration) -> Self {
        Self {
            rate,
            ttl,
            level: rate.burst * NANO,
            at: now,
            closed_until: Duration::ZERO,
            rows: Rows(Vec::new()),
            is_due: false,
            is_short: false,
            is_divided: false,
            design: Design::BOUNDED,
            #[cfg(test)]
            lacked: 0,
            #[cfg(test)]
            passed: Vec::new(),
        }
    }

    /// Empties the bucket, and frees nothing until all shares of now have ended: some may have no row.
    pub(super) fn close(&mut self, now: Duration) {
        self.advance(now);
        self.level = 0;
        self.closed_until = now + self.ttl + CUT_DELAY;
    }

    pub(super) fn is_closed(&self, now: Duration) -> bool {
        now < self.closed_until
    }

    #[cfg(test)]
    pub(super) const fn with_design(mut self, design: Design) -> Self {
        self.design = design;
        self
    }

    pub(super) const fn rate(&self) -> DivisibleRate {
        self.rate
    }

    /// Replaces the rate. The interval stays: Envoy makes a full bucket for another one.
    pub(super) fn set_rate(&mut self, rate: DivisibleRate, now: Duration) {
        let rate = rate.with_interval(self.rate.interval);
        if rate != self.rate {
            self.advance(now);
            self.rate = rate;
            self.advance(now);
            self.is_due = true;
        }
    }

    /// Counts the report of a client, whose first one makes its row. Returns the row of an ended stream of this client,
    /// if the new one took it over.
    pub(super) fn report(
        &mut self,
        now: Duration,
        (id, client): (RowId, Option<ClientId>),
        requests: u64,
    ) -> Option<RowId> {
        if self.at < now {
            self.advance(now);
        }
        let rate = self.rate;
        self.rows.get_or_insert(id, || Row::new(now, client));
        let taken = client.and_then(|client| self.take_over(now, id, client));
        if let Some(row) = self.rows.get_mut(id) {
            row.demand.report(now, requests, rate);
            row.awaits_answer = true;
            self.is_due = true;
        }
        taken
    }

    /// Puts the last share of an ended stream of the client into its row, if that one has none.
    fn take_over(&mut self, now: Duration, id: RowId, client: ClientId) -> Option<RowId> {
        if self.row(id).is_some_and(|row| !row.has_nothing()) {
            return None;
        }
        let ended = self.rows.0.iter();
        let ended = ended.filter(|(other, row)| *other != id && row.may_pass_to(client, now));
        let (taken, _) = *ended.max_by_key(|(_, row)| row.sent_at)?;
        let row = self.rows.remove(taken)?;
        *self.rows.get_mut(id)? = row.inherited();
        #[cfg(test)]
        self.passed.push((taken, id));
        Some(taken)
    }

    /// Ends the messages to a client. It may use its share up to the end.
    pub(super) fn leave(&mut self, now: Duration, id: RowId) {
        self.advance(now);
        if let Some(row) = self.rows.get_mut(id) {
            row.is_live = false;
            self.is_due = true;
        }
        if !self.design.keeps_rows_without_stream {
            self.rows.0.retain(|(other, _)| *other != id);
        }
        self.advance(now);
    }

    /// Whether a new pool would be the same.
    pub(super) fn is_fresh(&self) -> bool {
        self.rows.0.is_empty() && self.level == self.rate.burst * NANO
    }

    /// The messages to send now: answers to reports, and changed shares.
    pub(super) fn messages(&mut self, now: Duration) -> Vec<(RowId, Share)> {
        self.messages_to(now, |_| true)
    }

    /// [`messages`](Self::messages) to some of the rows. The others are those of other instances.
    pub(super) fn messages_to(
        &mut self,
        now: Duration,
        is_own: impl Fn(RowId) -> bool,
    ) -> Vec<(RowId, Share)> {
        self.advance(now);
        let mut messages = Vec::new();
        if !self.is_due {
            return messages;
        }
        let mut held = self.held();
        (self.is_short, self.is_due) = (false, false);
        for (id, target) in self.targets(now) {
            let Some(row) = self.row(id).filter(|_| is_own(id)) else {
                continue;
            };
            let before = self.counted(row);
            if let Some((share, made)) = self.next_share(now, row, target, held) {
                #[cfg(test)]
                if row.may_lack_bucket {
                    self.lacked += share.size - made;
                }
                self.level -= made * NANO;
                messages.push((id, share));
                if let Some(row) = self.rows.get_mut(id) {
                    row.send(now, share);
                }
            }
            if let Some(row) = self.row(id) {
                let after = self.counted(row);
                held.tokens = held.tokens - before.tokens + after.tokens;
                held.size = held.size - before.size + after.size;
                let differs = row.share.is_some_and(|share| share.differs_from(target));
                let is_short = row.share.is_some_and(|share| share.is_short_of(target));
                let is_due = row.awaits_answer || differs;
                (self.is_due, self.is_short) = (self.is_due | is_due, self.is_short | is_short);
            }
        }
        messages
    }

    /// All rows, those of ended streams included.
    pub(super) fn rows(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.rows.0.iter().map(|(id, row)| (*id, row))
    }

    pub(super) fn number_of_rows(&self) -> usize {
        self.rows.0.len()
    }

    /// Counts a share that this row's client has, whatever the pool knows: it was sent at this instant, as the message
    /// of this number.
    pub(super) fn restore(
        &mut self,
        (id, client): (RowId, Option<ClientId>),
        (share, sent_at, messages): (Share, Duration, u32),
    ) {
        let ends_at = sent_at + self.ttl + CUT_DELAY;
        let row = self.rows.get_or_insert(id, || Row {
            awaits_answer: false,
            ..Row::new(sent_at, client)
        });
        match row.share {
            Some(kept) if kept == share => row.sent_at = row.sent_at.max(sent_at),
            Some(_) => row.older.push((ends_at, share)),
            None => {
                row.share = Some(share);
                (row.sent_at, row.messages) = (sent_at, messages);
            }
        }
    }

    /// Notes that the client may have no bucket: the next message may make a full one.
    pub(super) fn doubt_bucket(&mut self, id: RowId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.may_lack_bucket = true;
        }
    }

    pub(super) fn row(&self, id: RowId) -> Option<&Row> {
        self.rows.get(id)
    }

    /// The fair share of each client that reports. A part of the rate stays free until the pool's bucket is full: without
    /// it the bucket would stay empty, and buckets become smaller with each change.
    fn targets(&self, now: Duration) -> Vec<(RowId, Share)> {
        let reports = |row: &Row| row.is_live && now <= row.demand.reported_at + self.ttl;
        let rows: Vec<_> = self.rows.0.iter().filter(|(_, row)| reports(row)).collect();
        let demands: Vec<u64> = rows
            .iter()
            .map(|(_, row)| row.demand.in_interval())
            .collect();
        let free_size = self.rate.burst.saturating_sub(self.held().size);
        let is_full = self.level / NANO >= free_size;
        let kept = if is_full { 0 } else { self.rate.tokens / KEPT };
        let shares = fair_shares(&demands, self.rate.tokens - kept);
        let ids = rows.into_iter().map(|(id, _)| *id);
        ids.zip(shares.into_iter().map(|tokens| self.share(tokens)))
            .collect()
    }

    /// The share with this rate: its bucket has that part of four fifths of the burst.
    fn share(&self, tokens: u64) -> Share {
        let rate = u128::from(self.rate.tokens) * 5;
        let part = u128::from(self.rate.burst) * 4 * u128::from(tokens);
        let size = part.checked_div(rate).unwrap_or_default() as u64;
        Share {
            tokens,
            size: size.max(1),
        }
    }

    /// The share to send to a client now, and the tokens that it makes.
    fn next_share(
        &self,
        now: Duration,
        row: &Row,
        target: Share,
        held: Share,
    ) -> Option<(Share, u64)> {
        let own = self.counted(row);
        let is_full = row.makes_full_bucket(now, self.ttl);
        if is_full && !row.awaits_answer {
            return None;
        }
        let (level, free) = (self.level / NANO, self.free(now, held));
        let charges = self.design.charges_full_buckets;
        let most_made = match row.share.filter(|_| !is_full) {
            Some(before) => before.size.saturating_add(level),
            None if charges => level,
            None => u64::MAX,
        };
        let tokens = target.tokens.min(own.tokens.saturating_add(free.tokens));
        let size = self.share(tokens).size;
        let share = Share {
            tokens,
            size: size.min(own.size.saturating_add(free.size)).min(most_made),
        };
        if is_full {
            let made = if charges { share.size } else { 0 };
            return (share.tokens > 0 && share.size > 0).then_some((share, made));
        }
        let kept = row.share?;
        if row.may_lack_bucket {
            return row.awaits_answer.then_some((kept, kept.size.min(level)));
        }
        let changes = kept.differs_from(share) && row.may_change(now);
        if changes && share.tokens > 0 && share.size > 0 {
            return Some((share, share.size.saturating_sub(kept.size)));
        }
        row.awaits_answer.then_some((kept, 0))
    }

    /// The part of the pool that a client may use.
    fn counted(&self, row: &Row) -> Share {
        if self.design.counts_cuts_later {
            row.held()
        } else {
            row.share.unwrap_or_default()
        }
    }

    /// The part of the pool that all clients may use.
    pub(super) fn held(&self) -> Share {
        let mut held = Share::default();
        for (_, row) in &self.rows.0 {
            let counted = self.counted(row);
            held.tokens += counted.tokens;
            held.size += counted.size;
        }
        held
    }

    /// The part of the pool that no client may use.
    fn free(&self, now: Duration, held: Share) -> Share {
        if self.is_closed(now) {
            return Share::default();
        }
        Share {
            tokens: self.rate.tokens.saturating_sub(held.tokens),
            size: self.rate.burst.saturating_sub(held.size),
        }
    }

    /// Refills the bucket, and ends shares.
    fn advance(&mut self, now: Duration) {
        let next_end = |pool: &Self| {
            let rows = pool.rows.0.iter();
            rows.filter_map(|(_, row)| row.next_end(pool.ttl)).min()
        };
        while let Some(end) = next_end(self).filter(|end| *end < now) {
            self.advance_to(end);
        }
        self.advance_to(now);
    }

    /// Refills the bucket up to an instant until that no share ends.
    fn advance_to(&mut self, now: Duration) {
        let held = self.held();
        let time = now.saturating_sub(self.at.max(self.closed_until));
        self.at = self.at.max(now);
        let free = self.rate.tokens.saturating_sub(held.tokens);
        let refill = u128::from(free) * time.as_nanos() / u128::from(self.rate.interval);
        let most = self.rate.burst.saturating_sub(held.size) * NANO;
        let refilled = u128::from(self.level).saturating_add(refill);
        self.level = u64::try_from(refilled).map_or(most, |level| level.min(most));
        for (_, row) in &mut self.rows.0 {
            self.is_due |= row.end_shares(now, self.ttl);
        }
        self.rows.0.retain(|(_, row)| !row.is_over(now));
    }
}

/// The share of each demand, in the same unit as the rate. A demand below an equal part gets a quarter more than it is;
/// the others share the rest. Half of the part that no demand claims stays free, for clients to come.
///
/// The sum is at most `rate`, and each share is at least 1 if the rate suffices.
fn fair_shares(demands: &[u64], rate: u64) -> Vec<u64> {
    let mut shares = vec![0; demands.len()];
    let mut order: Vec<(u64, usize)> = demands
        .iter()
        .enumerate()
        .map(|(at, demand)| (demand.saturating_add(demand / 4).max(1), at))
        .collect();
    order.sort_unstable();
    let mut left = rate;
    let mut others = demands.len() as u64;
    for (wanted, at) in order {
        let share = wanted.min(left / others);
        shares[at] = share;
        left -= share;
        others -= 1;
    }
    let extra = (left / 2)
        .checked_div(demands.len() as u64)
        .unwrap_or_default();
    for share in &mut shares {
        *share += extra;
    }
    shares
}

/// The first bytes of a value. Another version of it has others.
const MARK: &[u8; 6] = b"rlqs1:";

/// A pool of all instances.
#[derive(Debug)]
pub(super) struct StoredPool {
    /// A random number. Another one is a pool that was made anew.
    pub(super) birth: u64,
    /// The number of writes so far. A smaller one is an earlier state of the pool.
    pub(super) writes: u64,
    pub(super) pool: Pool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PoolValue {
    #[prost(fixed64, tag = "1")]
    birth: u64,
    #[prost(uint64, tag = "2")]
    writes: u64,
    #[prost(uint64, tag = "3")]
    tokens: u64,
    #[prost(uint64, tag = "4")]
    interval: u64,
    #[prost(uint64, tag = "5")]
    burst: u64,
    #[prost(uint64, tag = "6")]
    level: u64,
    /// Times are microseconds.
    #[prost(uint64, tag = "7")]
    at: u64,
    #[prost(uint64, tag = "8")]
    closed_until: u64,
    #[prost(message, repeated, tag = "9")]
    rows: Vec<RowValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RowValue {
    #[prost(fixed64, tag = "1")]
    id: u64,
    /// 0 for an unknown one.
    #[prost(fixed64, tag = "2")]
    client: u64,
    #[prost(uint64, tag = "3")]
    since: u64,
    #[prost(uint64, tag = "4")]
    requests: u64,
    #[prost(uint64, optional, tag = "5")]
    measured: Option<u64>,
    #[prost(uint64, tag = "6")]
    reported_at: u64,
    #[prost(message, optional, tag = "7")]
    share: Option<ShareValue>,
    #[prost(message, repeated, tag = "8")]
    older: Vec<ShareValue>,
    #[prost(uint64, tag = "9")]
    sent_at: u64,
    #[prost(uint64, tag = "10")]
    changed_at: u64,
    #[prost(uint32, tag = "11")]
    messages: u32,
    #[prost(bool, tag = "12")]
    awaits_answer: bool,
    #[prost(bool, tag = "13")]
    has_left: bool,
    #[prost(bool, tag = "14")]
    may_lack_bucket: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct ShareValue {
    #[prost(uint64, tag = "1")]
    tokens: u64,
    #[prost(uint64, tag = "2")]
    size: u64,
    /// The end of an older share.
    #[prost(uint64, tag = "3")]
    until: u64,
}

impl StoredPool {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self {
            birth,
            writes,
            pool,
        } = self;
        let value = PoolValue {
            birth: *birth,
            writes: *writes,
            tokens: pool.rate.tokens,
            interval: pool.rate.interval,
            burst: pool.rate.burst,
            level: pool.level,
            at: micros(pool.at),
            closed_until: micros(pool.closed_until),
            rows: pool
                .rows
                .0
                .iter()
                .map(|(id, row)| of_row(*id, row))
                .collect(),
        };
        [MARK, value.encode_to_vec().as_slice()].concat()
    }

    /// Reads a pool whose shares have this time to live. `None` for bytes that are no pool, or one of another version.
    /// No instant is later than it could be now: the clock may have stepped back.
    pub(super) fn read(bytes: &[u8], ttl: Duration, now: Duration) -> Option<Self> {
        let value = PoolValue::decode(bytes.strip_prefix(MARK)?).ok()?;
        let most = u64::from(u32::MAX);
        let rate = DivisibleRate {
            tokens: value.tokens,
            interval: value.interval,
            burst: value.burst,
        };
        let is_rate = (1..=most).contains(&rate.tokens)
            && [1, 60].contains(&rate.interval)
            && (1..=most).contains(&rate.burst);
        let latest = now + ttl + CUT_DELAY;
        let row = |value: RowValue| (RowId(value.id), row(value, now, latest));
        let mut rows: Vec<_> = value.rows.into_iter().map(row).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        rows.dedup_by_key(|(id, _)| *id);
        let mut pool = Pool {
            rate,
            ttl,
            level: value.level.min(u64::from(u32::MAX) * NANO),
            at: time(value.at).min(now),
            closed_until: time(value.closed_until).min(latest),
            rows: Rows(rows),
            is_due: true,
            ..Pool::new(rate, ttl, now)
        };
        is_rate.then(|| {
            pool.advance(now);
            Self {
                birth: value.birth,
                writes: value.writes,
                pool,
            }
        })
    }

    /// How long the pool differs from a new one if nothing happens.
    pub(super) fn lasts(&self, now: Duration) -> Duration {
        let Pool { rate, ttl, .. } = &self.pool;
        let refill = Duration::from_secs(rate.burst * rate.interval / rate.tokens);
        // No row is older than the latest message or report.
        let rows = *ttl + CUT_DELAY + Duration::from_secs(60);
        self.pool.closed_until.saturating_sub(now) + rows + refill
    }
}

fn of_row(id: RowId, row: &Row) -> RowValue {
    let share = |share: Share, until| ShareValue {
        tokens: share.tokens,
        size: share.size,
        until: micros(until),
    };
    let older = row.older.iter();
    RowValue {
        id: id.0,
        client: row.client.map_or(0, |client| client.0.get()),
        since: micros(row.demand.since),
        requests: row.demand.requests,
        measured: row.demand.measured,
        reported_at: micros(row.demand.reported_at),
        share: row.share.map(|sent| share(sent, Duration::ZERO)),
        older: older.map(|(until, sent)| share(*sent, *until)).collect(),
        sent_at: micros(row.sent_at),
        changed_at: micros(row.changed_at),
        messages: row.messages,
        awaits_answer: row.awaits_answer,
        has_left: !row.is_live,
        may_lack_bucket: row.may_lack_bucket,
    }
}

fn row(value: RowValue, now: Duration, latest: Duration) -> Row {
    // A part of a rate and of a burst, whose sums fit.
    let number = |number: u64| number.min(u64::from(u32::MAX));
    let share = |value: ShareValue| Share {
        tokens: number(value.tokens),
        size: number(value.size),
    };
    let past = |micros| time(micros).min(now);
    let older = value.older.into_iter();
    Row {
        client: NonZeroU64::new(value.client).map(ClientId),
        demand: Demand {
            since: past(value.since),
            requests: value.requests,
            measured: value.measured,
            reported_at: past(value.reported_at),
        },
        share: value.share.map(share),
        older: older
            .map(|value| (time(value.until).min(latest), share(value)))
            .collect(),
        sent_at: past(value.sent_at),
        changed_at: past(value.changed_at),
        messages: value.messages,
        awaits_answer: value.awaits_answer,
        is_live: !value.has_left,
        may_lack_bucket: value.may_lack_bucket,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

const fn time(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[cfg(test)]
mod fair_shares_tests {
    use super::fair_shares;

    #[test]
    fn small_demands_are_met_and_the_others_share_the_rest() {
        assert_eq!(fair_shares(&[900, 300, 0], 600), [300, 299, 1]);
        assert_eq!(fair_shares(&[900, 300, 600], 600), [200, 200, 200]);
        assert_eq!(fair_shares(&[80, 10_000], 1_000), [100, 900]);
        assert_eq!(fair_shares(&[u64::MAX, u64::MAX], 1_001), [500, 501]);
    }

    #[test]
    fn half_of_the_unclaimed_part_stays_free() {
        // 500 and 100 are claimed; of 400 others 200 stay free.
        assert_eq!(fair_shares(&[400, 80], 1_000), [600, 200]);
        assert_eq!(fair_shares(&[0], 1_000), [500]);
        assert_eq!(fair_shares(&[], 1_000), Vec::<u64>::new());
    }

    #[test]
    fn shares_are_at_least_one_and_at_most_the_rate() {
        assert_eq!(fair_shares(&[0, 0, u64::MAX], 3), [1, 1, 1]);
        assert_eq!(fair_shares(&[5, 5, 5], 2).iter().sum::<u64>(), 2);
        assert_eq!(fair_shares(&[1, 2], 0), [0, 0]);
    }
}

#[cfg(test)]
mod tests {
    //! Rows that pass from an ended stream to the next one of the client, and pools as bytes.

    use std::{num::NonZeroU64, time::Duration};

    use super::{Pool, RowId, StoredPool};
    use crate::rlqs::client_share::{CUT_DELAY, ClientId, DivisibleRate, Row, Share};

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(15);

    const FIRST: RowId = RowId(1);
    const NEXT: RowId = RowId(2);

    fn client(name: u64) -> Option<ClientId> {
        NonZeroU64::new(name).map(ClientId)
    }

    /// A pool whose rate is all the first row's, and that share.
    fn used_up() -> (Pool, Share) {
        let rate = DivisibleRate::of_second(100).expect("a rate");
        let mut pool = Pool::new(rate, TTL, Duration::ZERO);
        assert_eq!(pool.report(SECOND, (FIRST, client(1)), 1), None);
        let [(FIRST, share)] = pool.messages(SECOND)[..] else {
            panic!("no share");
        };
        assert_eq!((share.tokens, share.size), (5_400, 8));
        (pool, share)
    }

    #[test]
    fn a_row_passes_to_the_next_stream_of_its_client() {
        let (mut pool, share) = used_up();
        pool.leave(2 * SECOND, FIRST);
        let taken = pool.report(3 * SECOND, (NEXT, client(1)), 1);
        assert_eq!(taken, Some(FIRST));
        assert_eq!(pool.messages(3 * SECOND), [(NEXT, share)]);
    }

    #[test]
    fn a_row_does_not_pass_to_others() {
        for other in [client(2), None] {
            let (mut pool, _) = used_up();
            pool.leave(2 * SECOND, FIRST);
            assert_eq!(pool.report(3 * SECOND, (NEXT, other), 1), None);
            assert_eq!(pool.messages(3 * SECOND), [], "nothing is free");
        }
    }

    #[test]
    fn a_row_passes_when_its_reports_are_missing() {
        let (mut pool, share) = used_up();
        // A client may have several streams.
        assert_eq!(pool.report(6 * SECOND, (NEXT, client(1)), 1), None);
        let cut = Share {
            tokens: share.tokens / 2,
            size: share.size / 2,
        };
        assert_eq!(
            pool.messages(6 * SECOND),
            [(FIRST, cut)],
            "its stream is open"
        );
        let taken = pool.report(11 * SECOND, (NEXT, client(1)), 1);
        assert_eq!(taken, Some(FIRST));
        assert_eq!(pool.messages(11 * SECOND), [(NEXT, cut)]);
    }

    #[test]
    fn a_row_does_not_pass_after_its_end() {
        let (mut pool, _) = used_up();
        pool.leave(2 * SECOND, FIRST);
        assert_eq!(pool.report(19 * SECOND, (NEXT, client(1)), 1), None);
    }

    /// The client may be another process.
    #[test]
    fn the_first_message_to_a_new_stream_takes_a_full_bucket_from_the_pool() {
        let (mut pool, share) = used_up();
        assert_eq!(pool.level, 2 * super::NANO);
        for (number, stream) in (2..5).map(RowId).enumerate() {
            let now = SECOND * (2 + number as u32);
            pool.leave(now, RowId(stream.0 - 1));
            assert!(pool.report(now, (stream, client(1)), 1).is_some());
            assert_eq!(pool.messages(now), [(stream, share)]);
            assert_eq!(pool.level, 0);
        }
        assert_eq!(pool.lacked, 6 + 8 + 8);
    }

    fn stored() -> StoredPool {
        let (mut pool, _) = used_up();
        pool.report(2 * SECOND, (NEXT, client(2)), 3);
        assert_eq!(pool.messages(2 * SECOND).len(), 1, "a cut");
        StoredPool {
            birth: 5,
            writes: 6,
            pool,
        }
    }

    #[test]
    fn a_pool_survives_its_bytes() {
        let before = stored();
        let now = 2 * SECOND;
        let read = StoredPool::read(&before.to_bytes(), TTL, now).expect("a pool");
        assert_eq!(read.to_bytes(), before.to_bytes());
        assert_eq!((read.birth, read.writes), (5, 6));
        let mut pools = [before.pool, read.pool];
        for now in (3..30).map(|seconds| SECOND * seconds) {
            let [before, read] = pools.each_mut().map(|pool| {
                pool.report(now, (NEXT, client(2)), 1_000);
                pool.messages(now)
            });
            assert_eq!(before, read);
        }
    }

    #[test]
    fn a_pool_of_the_future_is_of_now() {
        let mut before = stored();
        before.pool.close(2 * SECOND);
        let read = StoredPool::read(&before.to_bytes(), TTL, SECOND).expect("a pool");
        assert_eq!(read.pool.at, SECOND);
        assert_eq!(read.pool.closed_until, SECOND + TTL + CUT_DELAY);
        let with_shares = |(_, row): &(_, &Row)| row.share.is_some();
        let mut rows = read.pool.rows().filter(with_shares);
        assert!(rows.all(|(_, row)| row.sent_at == SECOND));
    }

    #[test]
    fn damaged_bytes_are_refused_or_harmless() {
        let bytes = stored().to_bytes();
        let now = 2 * SECOND;
        let mut refused = 0;
        for at in 0..bytes.len() {
            for byte in [0, 0x7f, 0xff, bytes[at] ^ 1] {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                for damaged in [&damaged, &bytes[..at]] {
                    let Some(mut read) = StoredPool::read(damaged, TTL, now) else {
                        refused += 1;
                        continue;
                    };
                    read.pool.set_rate(read.pool.rate(), now);
                    read.pool.report(now, (FIRST, client(1)), u64::MAX);
                    read.pool.messages(now);
                    read.pool.messages(now + TTL);
                    read.to_bytes();
                    read.lasts(now);
                }
            }
        }
        assert!(refused > bytes.len());
    }

    /// However long no call is about the pool.
    #[test]
    fn an_ended_share_is_free_from_its_end_on() {
        let (mut pool, share) = used_up();
        pool.leave(2 * SECOND, FIRST);
        pool.report(100 * SECOND, (NEXT, None), 1);
        assert_eq!(pool.messages(100 * SECOND), [(NEXT, share)]);
        assert_eq!(pool.level, 2 * super::NANO);
    }
}

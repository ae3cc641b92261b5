//! A pool as bytes, which all instances read and write.

use std::{num::NonZeroU64, time::Duration};

use prost::Message as _;

use super::{NANO, Pool, RowId};
use crate::rlqs::{
    client::ClientId,
    demand::Demand,
    rate::DivisibleRate,
    row::{CUT_DELAY, Row, Share},
};

/// The first bytes of a value. Another version of it has others.
const MARK: &[u8; 6] = b"rlqs1:";

/// A pool of all instances.
#[derive(Debug)]
pub(in crate::rlqs) struct StoredPool {
    /// A random number. Another one is a pool that was made anew.
    pub(in crate::rlqs) birth: u64,
    /// The number of writes so far. A smaller one is an earlier state of the pool.
    pub(in crate::rlqs) writes: u64,
    pub(in crate::rlqs) pool: Pool,
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
    pub(in crate::rlqs) fn to_bytes(&self) -> Vec<u8> {
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
            rows: pool.rows.iter().map(|(id, row)| of_row(*id, row)).collect(),
        };
        [MARK, value.encode_to_vec().as_slice()].concat()
    }

    /// Reads a pool whose shares have this time to live. `None` for bytes that are no pool, or one of another version.
    /// No instant is later than it could be now: the clock may have stepped back.
    pub(in crate::rlqs) fn read(bytes: &[u8], ttl: Duration, now: Duration) -> Option<Self> {
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
            rows,
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
    pub(in crate::rlqs) fn lasts(&self, now: Duration) -> Duration {
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

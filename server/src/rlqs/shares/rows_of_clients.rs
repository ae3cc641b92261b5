//! The clients of a pool, for operators.

use std::time::Duration;

use tower_ratelimit::{Key, store::StoreError};

use super::{Shares, State};
use crate::rlqs::{
    pool::{Pool, StoredPool},
    row::Share,
};

/// A client of a pool, for operators.
#[derive(Debug)]
pub(in crate::rlqs) struct RowOfClient {
    /// `None` if it is of another instance.
    pub(in crate::rlqs) stream: Option<u64>,
    /// Requests in an interval of this many seconds; `None` before a measurement.
    pub(in crate::rlqs) demand: Option<u64>,
    pub(in crate::rlqs) interval: u64,
    pub(in crate::rlqs) share: Option<Share>,
    /// The time since its last report.
    pub(in crate::rlqs) silence: Duration,
}

impl Shares {
    /// The clients of a pool whose streams are open; with Redis, those of all instances.
    pub(in crate::rlqs) async fn rows(
        &self,
        subject: &Key,
    ) -> Result<Vec<RowOfClient>, StoreError> {
        let Some(redis) = &self.0.redis else {
            let state = self.state();
            let pool = state.pools.get(subject);
            return Ok(pool.map_or_else(Vec::new, |pool| state.rows(pool, self.now())));
        };
        let (found, time) = redis.load(subject).await?;
        let stored =
            found.and_then(|(bytes, _)| StoredPool::read(&bytes, self.0.settings.ttl, time));
        let state = self.state();
        Ok(stored.map_or_else(Vec::new, |stored| state.rows(&stored.pool, time)))
    }

    /// When a stream was opened, and its client, unless it has ended.
    pub(in crate::rlqs) fn stream(&self, stream: u64) -> Option<(Duration, String)> {
        let state = self.state();
        let outbox = state.streams.get(&stream)?;
        let name = outbox.client.as_deref().map(str::to_owned);
        Some((
            outbox.opened_at,
            name.unwrap_or_else(|| format!("stream {stream}")),
        ))
    }
}

impl State {
    /// The clients of a pool.
    fn rows(&self, pool: &Pool, now: Duration) -> Vec<RowOfClient> {
        let rows = pool.rows().filter(|(_, row)| !row.has_ended(now));
        let rows = rows.map(|(id, row)| {
            let demand = row.demand.in_interval();
            RowOfClient {
                stream: self.buckets.get(&id).map(|(stream, _)| *stream),
                demand: (demand < u64::MAX).then_some(demand),
                interval: pool.rate().interval,
                share: row.share,
                silence: now.saturating_sub(row.demand.reported_at),
            }
        });
        rows.collect()
    }
}

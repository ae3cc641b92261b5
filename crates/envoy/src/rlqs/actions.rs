//! How a limit is treated, and the actions that the service sends.

use std::{collections::HashMap, sync::Arc, time::Duration};

use metrics::{counter, gauge};
use prost::Message as _;
use tower_ratelimit::Key;
use tower_ratelimit_service::metrics::{RLQS_ASSIGNMENTS, RLQS_BUCKETS, RLQS_REFUSED};

use super::{
    client_share::{DivisibleRate, Share},
    divided_rate::RowId,
};
use crate::{
    decide::{BucketLimit, CountedLimit},
    limiters_by_period::Measure,
    protobuf_messages::{
        self, AbandonAction, Action, BlanketRule, BucketAction, BucketId, QuotaAssignment,
        RateLimitStrategy, Strategy, TokenBucket,
    },
};

/// Seconds.
const YEAR: u64 = 365 * 24 * 60 * 60;

/// The time to live of answers to buckets beyond a maximum.
pub(super) const EXCESS: Duration = Duration::from_secs(60);

/// A share, as a token bucket of Envoy.
pub(super) fn share(id: &BucketId, share: Share, interval: u64, ttl: Duration) -> BucketAction {
    let bucket = TokenBucket {
        max_tokens: number(share.size),
        tokens_per_fill: Some(number(share.tokens)),
        fill_interval: Some(seconds(interval)),
    };
    assign(id, Strategy::TokenBucket(bucket), ttl)
}

/// Units without a refill, as a token bucket of Envoy: a token a year.
pub(super) fn units(id: &BucketId, units: u64, ttl: Duration) -> BucketAction {
    let bucket = Share {
        tokens: 1,
        size: units,
    };
    share(id, bucket, YEAR, ttl)
}

/// Actions by the streams that they go to.
pub(super) type Actions = HashMap<u64, Vec<BucketAction>>;

/// The stream of each row, and the encoded id of its bucket: a map takes ten times the memory.
#[derive(Debug, Default)]
pub(super) struct Buckets(HashMap<RowId, (u64, Arc<[u8]>)>);

impl Buckets {
    pub(super) fn insert(&mut self, row: RowId, stream: u64, id: &Arc<[u8]>) {
        self.0.insert(row, (stream, Arc::clone(id)));
        gauge!(RLQS_BUCKETS).increment(1.0);
    }

    pub(super) fn remove(&mut self, row: RowId) {
        if self.0.remove(&row).is_some() {
            gauge!(RLQS_BUCKETS).decrement(1.0);
        }
    }

    pub(super) fn stream(&self, row: RowId) -> Option<u64> {
        self.0.get(&row).map(|(stream, _)| *stream)
    }

    /// Adds an action on the bucket of a row, in one part or several, if its stream is open.
    pub(super) fn add<const PARTS: usize>(
        &self,
        actions: &mut Actions,
        row: RowId,
        kind: &'static str,
        action: impl FnOnce(&BucketId) -> [BucketAction; PARTS],
    ) {
        if let Some((stream, id)) = self.0.get(&row) {
            count_assigned(kind);
            let id = BucketId::decode(id.as_ref()).unwrap_or_default();
            actions.entry(*stream).or_default().extend(action(&id));
        }
    }

    pub(super) fn add_blanket(
        &self,
        actions: &mut Actions,
        row: RowId,
        (rule, ttl): (BlanketRule, Duration),
    ) {
        self.add(actions, row, kind(rule), |id| [blanket(id, rule, ttl)]);
    }
}

/// Counts an action: `share`, `units`, `allow`, `deny` or `abandon`.
pub(super) fn count_assigned(kind: &'static str) {
    counter!(RLQS_ASSIGNMENTS, "kind" => kind).increment(1);
}

/// Counts a bucket that gets no share, or a stream that ends.
pub(super) fn count_refused(reason: &'static str) {
    counter!(RLQS_REFUSED, "reason" => reason).increment(1);
}

/// The kind of a blanket in metrics.
pub(super) const fn kind(rule: BlanketRule) -> &'static str {
    match rule {
        BlanketRule::AllowAll => "allow",
        BlanketRule::DenyAll => "deny",
    }
}

/// All requests, or none, for this time.
pub(super) fn blanket(id: &BucketId, rule: BlanketRule, ttl: Duration) -> BucketAction {
    assign(id, Strategy::Blanket(rule.into()), ttl)
}

/// The end of a bucket.
pub(super) fn abandon(id: &BucketId) -> BucketAction {
    BucketAction {
        bucket_id: Some(id.clone()),
        action: Some(Action::Abandon(AbandonAction {})),
    }
}

fn assign(id: &BucketId, strategy: Strategy, ttl: Duration) -> BucketAction {
    let assignment = QuotaAssignment {
        assignment_time_to_live: Some(seconds(ttl.as_secs())),
        rate_limit_strategy: Some(RateLimitStrategy {
            strategy: Some(strategy),
        }),
    };
    BucketAction {
        bucket_id: Some(id.clone()),
        action: Some(Action::Assign(assignment)),
    }
}

/// Shares are parts of numbers that fit.
fn number(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn seconds(seconds: u64) -> protobuf_messages::Duration {
    protobuf_messages::Duration {
        seconds: seconds.cast_signed(),
        nanos: 0,
    }
}

/// The time to live of answers without a share: no limit, and a limit of 0.
const UNLIMITED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(15);

/// The treatment of a limit.
pub(super) enum Treatment {
    Blanket(BlanketRule, Duration),
    Share(Key, DivisibleRate),
    Units(CountedLimit),
    /// None of these, for this reason.
    Excess(&'static str),
}

impl Treatment {
    pub(super) fn of(limit: BucketLimit) -> Self {
        match limit {
            BucketLimit::Nothing | BucketLimit::Shadow(_) => {
                Self::Blanket(BlanketRule::AllowAll, UNLIMITED)
            }
            BucketLimit::Limited(limit) => {
                let CountedLimit { counter, requests } = &limit.counted;
                match rate(counter.measure, *requests) {
                    _ if *requests == 0 => Self::Blanket(BlanketRule::DenyAll, DENIED),
                    Some(rate) => Self::Share(counter.key.clone(), rate),
                    None => Self::Units(limit.counted),
                }
            }
            BucketLimit::Ambiguous => Self::Excess("orders"),
        }
    }
}

fn rate(measure: Measure, requests: u32) -> Option<DivisibleRate> {
    match measure {
        Measure::Window(seconds) => {
            DivisibleRate::of_window(requests.into(), Duration::from_secs(seconds))
        }
        Measure::Quota(quota) => DivisibleRate::of_quota(&quota),
    }
}

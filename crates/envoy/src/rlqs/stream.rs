//! One stream: the reports of a client about its buckets, and the answers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use metrics::counter;
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tonic::{Status, Streaming};
use tower_ratelimit::Key;
use tower_ratelimit_service::metrics::{RLQS_REPORTS, RLQS_REQUESTS};

use super::{
    actions::{self, EXCESS, Treatment},
    assignments::{BucketSlot, Outbox, Place, Shares, StreamMessage},
    client_share::{ClientId, DivisibleRate},
    unit_leases,
};
use crate::{
    decide::{BucketLimit, CountedLimit},
    protobuf_messages::{
        BlanketRule, BucketAction, BucketId, BucketQuotaUsage, RateLimitQuotaUsageReports,
    },
    rls::known_domain,
};

/// The most buckets of a stream.
const MAX_BUCKETS: usize = 10_000;

/// The most pairs of a bucket id, and the most bytes of all of them.
const MAX_PAIRS: usize = 16;
const MAX_ID_BYTES: usize = 1_024;

/// The most requests of a report that count: a client that reports more could make the counters of a limit wrap around.
const MAX_REQUESTS: u64 = u32::MAX as u64;

/// How long reports wait for others, to be answered by one message.
const COLLECTED: Duration = Duration::from_millis(10);

/// A stream of reports.
struct Reports {
    shares: Shares,
    name: u64,
    client: Option<ClientId>,
    outbox: Outbox,
    /// Empty before the first report.
    domain: String,
    /// By encoded ids.
    buckets: HashMap<Arc<[u8]>, Bucket>,
    /// Answers that wait to be sent.
    actions: Vec<BucketAction>,
    /// The pools with reports that wait for an answer.
    subjects: HashSet<Key>,
}

struct Bucket {
    strategy: Assigned,
    /// When a strategy without a share was sent.
    sent_at: Duration,
    /// The last report with requests.
    requested_at: Duration,
    _slot: BucketSlot,
}

/// The strategy of a bucket.
#[derive(Clone, PartialEq, Eq)]
enum Assigned {
    Nothing,
    Blanket(BlanketRule, Duration),
    Share(Place),
    Units(unit_leases::AccountPlace),
}

/// The requests of a report.
#[derive(Clone, Copy)]
struct Requests {
    allowed: u64,
    denied: u64,
}

impl Requests {
    const fn sum(self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }
}

/// Serves a stream in a task of its own. Returns its messages.
pub(super) fn serve(
    shares: Shares,
    client: Option<(ClientId, String)>,
    incoming: Streaming<RateLimitQuotaUsageReports>,
) -> mpsc::Receiver<StreamMessage> {
    let (client, name_of_client) = client.unzip();
    let (name, outbox, receiver) = shares.open(name_of_client);
    let reports = Reports {
        shares,
        name,
        client,
        outbox,
        domain: String::new(),
        buckets: HashMap::new(),
        actions: Vec::new(),
        subjects: HashSet::new(),
    };
    tokio::spawn(reports.run(incoming));
    receiver
}

impl Reports {
    async fn run(mut self, mut incoming: Streaming<RateLimitQuotaUsageReports>) {
        let answers = self.outbox.answers.clone();
        let mut flush_at = None;
        loop {
            tokio::select! {
                message = incoming.message() => {
                    let read = match message {
                        Ok(Some(message)) => self.read(message),
                        Ok(None) => break,
                        Err(status) => Err(status),
                    };
                    if let Err(status) = read {
                        drop(answers.try_send(Err(status)));
                        break;
                    }
                    flush_at.get_or_insert_with(|| Instant::now() + COLLECTED);
                }
                () = at(flush_at) => {
                    flush_at = None;
                    self.flush();
                }
                () = self.outbox.end.notified() => break,
                () = answers.closed() => break,
            }
        }
        // The last reports count, too.
        self.flush();
    }

    fn flush(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        let subjects = std::mem::take(&mut self.subjects);
        self.shares.flush(self.name, actions, &subjects);
    }

    fn read(&mut self, message: RateLimitQuotaUsageReports) -> Result<(), Status> {
        let RateLimitQuotaUsageReports {
            domain,
            bucket_quota_usages,
        } = message;
        if self.domain.is_empty() {
            self.domain.clone_from(&domain);
        }
        let is_other = !domain.is_empty() && domain != self.domain;
        if self.domain.is_empty() || is_other {
            actions::count_refused("domain");
            let text = "the first message of a stream has a domain, and the others no other one";
            return Err(Status::invalid_argument(text));
        }
        counter!(RLQS_REPORTS).increment(bucket_quota_usages.len() as u64);
        let mut all = Requests {
            allowed: 0,
            denied: 0,
        };
        for usage in bucket_quota_usages {
            let BucketQuotaUsage {
                num_requests_allowed: allowed,
                num_requests_denied: denied,
                ..
            } = usage;
            let [allowed, denied] = [allowed, denied].map(|number| number.min(MAX_REQUESTS));
            all.allowed = all.allowed.saturating_add(allowed);
            all.denied = all.denied.saturating_add(denied);
            if let Some(id) = usage.bucket_id {
                self.report(&id, Requests { allowed, denied });
            }
        }
        let domain = known_domain(self.shares.limits(), &self.domain);
        for (result, requests) in [("allowed", all.allowed), ("denied", all.denied)] {
            if requests > 0 {
                let domain = domain.clone();
                counter!(RLQS_REQUESTS, "domain" => domain, "result" => result).increment(requests);
            }
        }
        Ok(())
    }

    fn report(&mut self, id: &BucketId, reported: Requests) {
        let requests = reported.sum();
        if !fits(id) {
            return self.refuse("size", id, requests);
        }
        let now = self.shares.now();
        let name: Arc<[u8]> = id.encode_to_vec().into();
        if let Err(reason) = self.keep(&name, now) {
            return self.refuse(reason, id, requests);
        }
        let Some(bucket) = self.buckets.get_mut(&name) else {
            return;
        };
        if requests > 0 {
            bucket.requested_at = now;
        }
        if now.saturating_sub(bucket.requested_at) >= self.shares.settings().idle {
            self.forget(&name);
            return self.abandon(id);
        }
        let limit = self.shares.limits().bucket_limit(&self.domain, &id.bucket);
        if let Some(limit) = &limit {
            self.count(limit, reported);
        }
        match limit.map(Treatment::of) {
            Some(Treatment::Blanket(rule, ttl)) => self.blanket(id, &name, rule, ttl),
            Some(Treatment::Share(subject, rate)) => {
                self.share(id, &name, (subject, rate), requests);
            }
            Some(Treatment::Units(limit)) => self.units(id, &name, &limit, reported),
            Some(Treatment::Excess(reason)) => {
                self.forget(&name);
                self.refuse(reason, id, requests);
            }
            None => self.forget(&name),
        }
    }

    /// Counts a report in the statistics, and that of a limit in shadow mode by its counter.
    fn count(&self, limit: &BucketLimit, reported: Requests) {
        let requests = reported.sum();
        if requests == 0 {
            return;
        }
        let Requests { allowed, denied } = reported;
        match limit {
            BucketLimit::Limited(limit) => {
                self.shares.limits().record_report(limit, allowed, denied);
            }
            BucketLimit::Shadow(limit) => {
                if !self.shares.units().count_shadow(limit.clone(), requests) {
                    actions::count_refused("all");
                }
            }
            BucketLimit::Nothing | BucketLimit::Ambiguous => {}
        }
    }

    /// Keeps a bucket, unless there are too many: then the error is the reason.
    fn keep(&mut self, name: &Arc<[u8]>, now: Duration) -> Result<(), &'static str> {
        if self.buckets.contains_key(name) {
            return Ok(());
        }
        if self.buckets.len() >= MAX_BUCKETS {
            return Err("stream");
        }
        let bucket = Bucket {
            strategy: Assigned::Nothing,
            sent_at: now,
            requested_at: now,
            _slot: self.shares.slot().ok_or("all")?,
        };
        self.buckets.insert(Arc::clone(name), bucket);
        Ok(())
    }

    /// Assigns all requests or none, if the client does not know it or half of its time is over.
    fn blanket(&mut self, id: &BucketId, name: &Arc<[u8]>, rule: BlanketRule, ttl: Duration) {
        let now = self.shares.now();
        let Some(bucket) = self.buckets.get_mut(name) else {
            return;
        };
        let strategy = Assigned::Blanket(rule, ttl);
        if bucket.strategy == strategy && now.saturating_sub(bucket.sent_at) < ttl / 2 {
            return;
        }
        leave(&self.shares, &bucket.strategy);
        (bucket.strategy, bucket.sent_at) = (strategy, now);
        self.assign(id, rule, ttl);
    }

    /// Counts the report of a bucket with a share.
    fn share(
        &mut self,
        id: &BucketId,
        name: &Arc<[u8]>,
        (subject, rate): (Key, DivisibleRate),
        requests: u64,
    ) {
        let Some(bucket) = self.buckets.get_mut(name) else {
            return;
        };
        let place = match &bucket.strategy {
            Assigned::Share(place) if place.subject == subject => Some(place.clone()),
            other => {
                leave(&self.shares, other);
                self.shares.enter(self.name, name, subject)
            }
        };
        let Some(place) = place else {
            self.buckets.remove(name);
            return self.refuse("all", id, requests);
        };
        if !self.shares.report((&place, self.client), rate, requests) {
            self.shares.leave(&place);
            self.buckets.remove(name);
            return self.refuse("rows", id, requests);
        }
        self.subjects.insert(place.subject.clone());
        bucket.strategy = Assigned::Share(place);
    }

    /// Counts the report of a bucket with units.
    fn units(&mut self, id: &BucketId, name: &Arc<[u8]>, limit: &CountedLimit, reported: Requests) {
        let Some(bucket) = self.buckets.get_mut(name) else {
            return;
        };
        let place = match &bucket.strategy {
            Assigned::Units(place) if place.is_of(limit) => Some(place.clone()),
            other => {
                leave(&self.shares, other);
                self.shares.enter_units(self.name, name, limit)
            }
        };
        let Some(place) = place else {
            self.buckets.remove(name);
            return self.refuse("all", id, reported.sum());
        };
        let now = self.shares.now();
        let requests = (reported.allowed, reported.denied);
        self.shares.units().report(&place, now, limit, requests);
        bucket.strategy = Assigned::Units(place);
    }

    /// Answers a bucket without keeping it.
    fn refuse(&mut self, reason: &'static str, id: &BucketId, requests: u64) {
        actions::count_refused(reason);
        if requests == 0 {
            return self.abandon(id);
        }
        self.assign(id, self.shares.settings().excess(), EXCESS);
    }

    fn assign(&mut self, id: &BucketId, rule: BlanketRule, ttl: Duration) {
        actions::count_assigned(actions::kind(rule));
        self.actions.push(actions::blanket(id, rule, ttl));
    }

    fn abandon(&mut self, id: &BucketId) {
        actions::count_assigned("abandon");
        self.actions.push(actions::abandon(id));
    }

    fn forget(&mut self, name: &Arc<[u8]>) {
        if let Some(bucket) = self.buckets.remove(name) {
            leave(&self.shares, &bucket.strategy);
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        for bucket in self.buckets.values() {
            leave(&self.shares, &bucket.strategy);
        }
        self.shares.close(self.name);
    }
}

/// Ends the messages about what a bucket had.
fn leave(shares: &Shares, assigned: &Assigned) {
    match assigned {
        Assigned::Share(place) => shares.leave(place),
        Assigned::Units(place) => shares.units().leave(place),
        Assigned::Nothing | Assigned::Blanket(..) => {}
    }
}

/// Whether an id is within the maxima.
fn fits(id: &BucketId) -> bool {
    let bytes = id.bucket.iter().map(|(key, value)| key.len() + value.len());
    id.bucket.len() <= MAX_PAIRS && bytes.sum::<usize>() <= MAX_ID_BYTES
}

/// Waits until an instant, or for ever.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

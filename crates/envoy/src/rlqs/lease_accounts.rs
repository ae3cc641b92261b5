//! One limit whose units are lent to clients, each with an account: arithmetic without a clock, given the results of
//! charges.

use std::time::Duration;

use super::{
    client_share::{CUT_DELAY, Demand, DivisibleRate},
    divided_rate::{RowId, Rows},
};
use crate::{
    decide::{Charged, CountedLimit},
    protobuf_messages::BlanketRule,
};

/// A first lease is this part of the limit: the demand is not known, and what the client does not spend is lost.
const FIRST_PART: u64 = 20;

/// One limit of one subject, and its clients.
#[derive(Debug)]
pub(super) struct Lending {
    limit: CountedLimit,
    refills: bool,
    /// The time to live of leases.
    ttl: Duration,
    /// The units that were left after the last charge.
    left: u64,
    /// The number of busy clients, and the units that all may spend, when charges were last compared with the demand.
    busy: u64,
    lent: u64,
    accounts: Rows<Account>,
}

impl Lending {
    pub(super) fn new(limit: CountedLimit, ttl: Duration) -> Self {
        Self {
            refills: limit.refills(),
            limit,
            ttl,
            left: 0,
            busy: 0,
            lent: 0,
            accounts: Rows(Vec::new()),
        }
    }

    pub(super) const fn limit(&self) -> &CountedLimit {
        &self.limit
    }

    /// Replaces the number of requests.
    pub(super) const fn set_requests(&mut self, requests: u32) {
        self.limit.requests = requests;
    }

    pub(super) fn accounts(&self) -> &[(RowId, Account)] {
        &self.accounts.0
    }

    /// Counts the report of a client, whose first one opens its account.
    pub(super) fn report(&mut self, now: Duration, id: RowId, allowed: u64, denied: u64) {
        let account = self.accounts.get_or_insert(id, || Account::new(now));
        account.report(now, self.ttl, allowed, denied);
    }

    /// Ends the messages to a client. It may spend its leases up to their ends.
    pub(super) fn leave(&mut self, id: RowId) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.leave();
        }
    }

    /// Drops what has ended, and returns the number of accounts among it.
    pub(super) fn advance(&mut self, now: Duration) -> usize {
        for (_, account) in &mut self.accounts.0 {
            account.advance(now, self.ttl);
        }
        let before = self.accounts.0.len();
        self.accounts.0.retain(|(_, account)| !account.is_over());
        before - self.accounts.0.len()
    }

    /// Whether a charge is due.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        self.next_at().is_some_and(|at| at <= now) || !self.in_need(now).is_empty()
    }

    /// The units to charge again now.
    pub(super) fn uncounted(&mut self, now: Duration) -> Vec<(RowId, u64)> {
        let accounts = self.accounts.0.iter_mut();
        let units = accounts.map(|(id, account)| (*id, account.uncounted(now)));
        units.filter(|(_, units)| *units > 0).collect()
    }

    /// Records a further charge, which `charged_at` began; `None` if it failed. A limit that has no room for it ends
    /// the lease.
    pub(super) fn counted(
        &mut self,
        (charged_at, now): (Duration, Duration),
        id: RowId,
        charged: Option<Charged>,
    ) -> Option<Message> {
        let ttl = self.ttl;
        let account = self.accounts.get_mut(id)?;
        let counts = charged.map(|charged| CountedFor::since(charged_at, charged.counts_for));
        account.counted(now, counts);
        let charged = charged?;
        if charged.is_denied && account.is_live() && account.share().is_some() {
            return Some(account.deny(now, ttl, charged.retry_after));
        }
        None
    }

    /// The clients that need units.
    pub(super) fn in_need(&mut self, now: Duration) -> Vec<RowId> {
        let accounts = self.accounts.0.iter().map(|(_, account)| account);
        self.busy = accounts.clone().filter(|account| account.is_busy()).count() as u64;
        self.lent = accounts.map(Account::lent).sum();
        let accounts = self.accounts.0.iter().filter(|(_, account)| {
            let part = self.fair_part(account.is_busy());
            let is_plenty = account.wanted().is_some_and(|wanted| wanted <= part);
            account.needs_units(now, is_plenty)
        });
        accounts.map(|(id, _)| *id).collect()
    }

    /// The units to charge for a client, of those that were found left.
    pub(super) fn amount(&mut self, id: RowId, found: Charged) -> u64 {
        self.left = found.left;
        let first = self.limit.capacity().div_ceil(FIRST_PART);
        let account = self.accounts.get_mut(id).filter(|_| !found.is_uncounted);
        let Some((is_busy, wanted)) = account.map(|one| (one.is_busy(), one.wanted())) else {
            return 0;
        };
        let most = self.fair_part(is_busy).max(1).min(self.free());
        let amount = wanted.unwrap_or(first).min(most).min(u64::from(u32::MAX));
        self.lent += amount;
        amount
    }

    /// Denies a client after [`amount`](Self::amount) has found nothing; `None` if the counter did not respond.
    pub(super) fn refuse(
        &mut self,
        now: Duration,
        id: RowId,
        found: Option<Charged>,
    ) -> Option<Message> {
        let found = found.map(|found| Charged {
            units: 0,
            // Units that others have are free when their leases have ended.
            retry_after: found.retry_after.or((found.left > 0).then_some(CUT_DELAY)),
            ..found
        });
        self.lend((now, now), id, found)
    }

    /// Lends what was charged, which `charged_at` began; `None` if it failed.
    pub(super) fn lend(
        &mut self,
        (charged_at, now): (Duration, Duration),
        id: RowId,
        charged: Option<Charged>,
    ) -> Option<Message> {
        let ttl = self.ttl;
        let Some(charged) = charged else {
            self.accounts.get_mut(id)?.fail();
            return None;
        };
        self.left = charged.left;
        let account = self
            .accounts
            .get_mut(id)
            .filter(|account| account.is_live())?;
        Some(if charged.is_uncounted {
            account.allow(now, ttl)
        } else if charged.is_denied || charged.units == 0 {
            account.deny(now, ttl, charged.retry_after)
        } else {
            let counts = CountedFor::since(charged_at, charged.counts_for);
            account.lend(now, ttl, charged.units, counts)
        })
    }

    /// The answers to reports that need no charge.
    pub(super) fn answers(&mut self, now: Duration) -> Vec<(RowId, Message)> {
        let ttl = self.ttl;
        let accounts = self.accounts.0.iter_mut();
        let answers = accounts.filter_map(|(id, account)| Some((*id, account.answer(now, ttl)?)));
        answers.collect()
    }

    /// The instant of the next step without a report.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let accounts = self.accounts.0.iter();
        accounts.filter_map(|(_, account)| account.next_at()).min()
    }

    /// The part of one client among those that are busy. One more may come.
    fn fair_part(&self, is_busy: bool) -> u64 {
        self.free() / (self.busy + 1 + u64::from(!is_busy))
    }

    /// The units that can be lent. A bucket counts a lease only until it has refilled, so all leases together are no
    /// more than it holds.
    const fn free(&self) -> u64 {
        if self.refills {
            self.left.saturating_sub(self.lent)
        } else {
            self.left
        }
    }
}

/// Seconds of demand in a lease: two more than Envoy takes to report again.
pub(super) const LEASE: u64 = 7;

/// The unit of demands: requests in [`LEASE`] seconds.
const IN_LEASE: DivisibleRate = DivisibleRate {
    tokens: 1,
    interval: LEASE,
    burst: 1,
};

/// How long before its estimated end a lease is replaced.
const MARGIN: Duration = Duration::from_secs(1);

/// The time to the next try of a charge that failed, and the least time to that of a denied one.
const RETRY: Duration = Duration::from_secs(1);

/// How long a lease counts after a message that ends it. If the stream ends before the message arrives, the service
/// notices that within the second half.
const ENDING: Duration = Duration::from_secs(2 * CUT_DELAY.as_secs());

/// The least units of a lease, and all that an idle client keeps in a further window.
const IDLE: u64 = 1;

/// The most leases that a client may still have when it gets another one. Clients choose when they report.
const MAX_OLDER: usize = 4;

/// Units that a client may spend.
#[derive(Debug)]
struct Lease {
    units: u64,
    /// The client cannot spend them from this instant on, unless a message is late.
    until: Duration,
    /// This instant without a message that ends the lease.
    expires_at: Duration,
    counts: CountedFor,
    /// Whether it was charged in a further window.
    is_carried: bool,
}

impl Lease {
    fn extend(&mut self, until: Duration) {
        (self.until, self.expires_at) = (until, until);
    }
}

/// How long the limit's counter counts the units of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedFor {
    /// As long as they are in a bucket.
    Bucket,
    Until(Duration),
    /// They are being charged again.
    Pending,
}

impl CountedFor {
    /// A charge at `now` that counts for this time.
    pub(super) fn since(now: Duration, counts_for: Option<Duration>) -> Self {
        counts_for.map_or(Self::Bucket, |time| Self::Until(now.saturating_add(time)))
    }
}

/// A message to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// A bucket with exactly these units, whatever the client had.
    Lease(u64),
    /// A further time to live for the bucket.
    Extension(u64),
    Blanket(BlanketRule, Duration),
}

/// The leases and the demand of one client.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) demand: Demand,
    current: Option<Lease>,
    /// Leases that the client may still have.
    older: Vec<Lease>,
    /// The first and the last message about the current lease.
    lent_at: Duration,
    sent_at: Duration,
    /// Requests that passed by the reports since the lease, and the estimate of those that it allowed.
    reported: u64,
    used: u64,
    needs_units: bool,
    retry_at: Option<Duration>,
    awaits_answer: bool,
    /// Whether a lease has replaced one that no report has shown to be used up, since the last report.
    has_anticipated: bool,
    is_live: bool,
}

impl Account {
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            demand: Demand::new(now),
            current: None,
            older: Vec::new(),
            lent_at: now,
            sent_at: now,
            reported: 0,
            used: 0,
            needs_units: false,
            retry_at: None,
            awaits_answer: false,
            has_anticipated: false,
            is_live: true,
        }
    }

    pub(super) fn report(&mut self, now: Duration, ttl: Duration, allowed: u64, denied: u64) {
        let before = self.demand.reported_at;
        let requests = allowed.saturating_add(denied);
        self.demand.report(now, requests, IN_LEASE);
        (self.awaits_answer, self.has_anticipated) = (true, false);
        if !self.surely_has_bucket(now, ttl) {
            self.needs_units = true;
        }
        let Some(lease) = &self.current else {
            return;
        };
        self.reported = self.reported.saturating_add(allowed);
        let own = part(
            allowed,
            now.saturating_sub(self.lent_at),
            now.saturating_sub(before),
        );
        self.used = self.used.saturating_add(own);
        // A bucket that does not refill stays empty.
        let has_denied = denied > 0 && before >= self.lent_at + CUT_DELAY;
        // Otherwise the leases of idle clients would take a part of each window.
        let is_idle = requests == 0 && !self.is_busy();
        let is_too_large = is_idle && lease.is_carried && lease.units > IDLE;
        self.needs_units |= self.reported >= lease.units || has_denied || is_too_large;
    }

    /// Whether a message arrives before the bucket of the one before ends. Otherwise it would fill a new one.
    fn surely_has_bucket(&self, now: Duration, ttl: Duration) -> bool {
        self.current.is_some() && now + CUT_DELAY < self.sent_at + ttl
    }

    /// Units for the next lease; `None` before a measurement.
    pub(super) fn wanted(&self) -> Option<u64> {
        let measured = self.demand.in_interval();
        (measured < u64::MAX).then_some(measured.max(IDLE))
    }

    /// Whether the client has use for more than a request.
    fn is_busy(&self) -> bool {
        self.is_live && self.wanted() != Some(IDLE)
    }

    /// Whether a further lease is due. If units are scarce, only once this one is used up: the rest would be lost.
    fn needs_units(&self, now: Duration, is_plenty: bool) -> bool {
        let has_room = self.is_live && self.older.len() < MAX_OLDER;
        has_room && (self.needs_units || is_plenty && self.anticipates(now))
    }

    /// Whether the lease ends soon, by the demand.
    fn anticipates(&self, now: Duration) -> bool {
        let demand = self.demand.in_interval();
        let Some(lease) = self.current.as_ref().filter(|_| demand > 0) else {
            return false;
        };
        let since = self.lent_at.max(self.demand.reported_at);
        let time = now.saturating_sub(since);
        if self.has_anticipated || time > Duration::from_secs(LEASE) {
            return false;
        }
        let soon = u128::from(demand) * (time + MARGIN).as_millis();
        let left = lease.units.saturating_sub(self.used);
        soon >= u128::from(left) * u128::from(LEASE) * 1_000
    }

    /// Lends units that have been charged.
    pub(super) fn lend(
        &mut self,
        now: Duration,
        ttl: Duration,
        units: u64,
        counts: CountedFor,
    ) -> Message {
        self.has_anticipated = self.current.is_some() && !self.needs_units;
        self.end(now + ENDING);
        let until = now + ttl + CUT_DELAY;
        self.current = Some(Lease {
            units,
            until,
            expires_at: until,
            counts,
            is_carried: false,
        });
        (self.lent_at, self.sent_at) = (now, now);
        (self.reported, self.used) = (0, 0);
        self.settled();
        Message::Lease(units)
    }

    /// Denies all requests. Another try follows after `retry`, or with the next report.
    pub(super) fn deny(
        &mut self,
        now: Duration,
        ttl: Duration,
        retry: Option<Duration>,
    ) -> Message {
        self.end(now + ENDING);
        self.settled();
        let retry = retry.unwrap_or(ttl).max(RETRY);
        self.retry_at = Some(now.saturating_add(retry));
        // The next lease arrives before the end.
        let seconds = retry.as_secs() + u64::from(retry.subsec_nanos() > 0);
        let time = Duration::from_secs(seconds).saturating_add(CUT_DELAY);
        Message::Blanket(BlanketRule::DenyAll, ttl.min(time))
    }

    /// Lets all requests pass up to the next report, uncounted.
    pub(super) fn allow(&mut self, now: Duration, ttl: Duration) -> Message {
        self.end(now + ENDING);
        self.settled();
        Message::Blanket(BlanketRule::AllowAll, ttl)
    }

    /// Ends the wait for a charge that failed. The client keeps what it has; its next report is another try.
    pub(super) const fn fail(&mut self) {
        (self.needs_units, self.retry_at) = (false, None);
        (self.awaits_answer, self.has_anticipated) = (false, true);
    }

    const fn settled(&mut self) {
        (self.needs_units, self.retry_at, self.awaits_answer) = (false, None, false);
    }

    /// The answer to a report that needs no charge.
    pub(super) fn answer(&mut self, now: Duration, ttl: Duration) -> Option<Message> {
        if !self.awaits_answer || self.needs_units || !self.is_live {
            return None;
        }
        if !self.surely_has_bucket(now, ttl) {
            self.needs_units = true;
            return None;
        }
        let lease = self.current.as_mut()?;
        self.awaits_answer = false;
        self.sent_at = now;
        lease.extend(now + ttl + CUT_DELAY);
        Some(Message::Extension(lease.units))
    }

    /// Ends the current lease: the client may have it up to this instant.
    fn end(&mut self, until: Duration) {
        if let Some(mut lease) = self.current.take() {
            lease.until = lease.until.min(until);
            self.older.push(lease);
        }
    }

    /// Ends the messages. One that is on its way may be lost, so the leases that it ends last to their time to live.
    pub(super) fn leave(&mut self) {
        self.is_live = false;
        for lease in &mut self.older {
            lease.until = lease.expires_at;
        }
    }

    /// Drops leases that the client cannot spend any more, and begins another try of a denied charge.
    pub(super) fn advance(&mut self, now: Duration, ttl: Duration) {
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            self.needs_units |= now <= self.demand.reported_at + ttl;
        }
        self.older.retain(|lease| lease.until > now);
        self.current.take_if(|lease| lease.until <= now);
    }

    /// The units to charge again: the counter counts them no longer, and the client may spend them.
    pub(super) fn uncounted(&mut self, now: Duration) -> u64 {
        let mut units = 0;
        for lease in self.older.iter_mut().chain(&mut self.current) {
            if matches!(lease.counts, CountedFor::Until(at) if at <= now) {
                lease.counts = CountedFor::Pending;
                units += lease.units;
            }
        }
        units
    }

    /// Records a further charge of the units, or its failure.
    pub(super) fn counted(&mut self, now: Duration, counts: Option<CountedFor>) {
        for lease in self.older.iter_mut().chain(&mut self.current) {
            if lease.counts == CountedFor::Pending {
                lease.counts = counts.unwrap_or(CountedFor::Until(now + RETRY));
                lease.is_carried = true;
            }
        }
    }

    /// The instant of the next step without a report.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let ends = self.older.iter().chain(&self.current).filter_map(|lease| {
            let CountedFor::Until(at) = lease.counts else {
                return None;
            };
            (at < lease.until).then_some(at)
        });
        ends.chain(self.retry_at).min()
    }

    /// The units that the client may spend.
    pub(super) fn lent(&self) -> u64 {
        let leases = self.older.iter().chain(&self.current);
        leases.map(|lease| lease.units).sum()
    }

    pub(super) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// The units of the current lease.
    pub(super) fn share(&self) -> Option<u64> {
        self.current.as_ref().map(|lease| lease.units)
    }

    /// Whether the client is gone, with all that it could spend.
    pub(super) const fn is_over(&self) -> bool {
        !self.is_live && self.current.is_none() && self.older.is_empty()
    }
}

/// The part of `requests` in `all` of the time that falls into its last `time`.
fn part(requests: u64, time: Duration, all: Duration) -> u64 {
    if time >= all {
        return requests;
    }
    let part = u128::from(requests) * time.as_millis() / all.as_millis().max(1);
    u64::try_from(part).unwrap_or(requests)
}

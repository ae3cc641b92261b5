//! One limit whose units are lent to clients: arithmetic without a clock, given the results of charges.

use std::time::Duration;

use super::{
    super::{pool::RowId, row::CUT_DELAY},
    account::{Account, CountedFor, Message},
};
use crate::decide::{Charged, CountedLimit};

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
    /// In the order of their names. Most limits have one client.
    accounts: Vec<(RowId, Account)>,
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
            accounts: Vec::new(),
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
        &self.accounts
    }

    /// CountedFor the report of a client, whose first one opens its account.
    pub(super) fn report(&mut self, now: Duration, id: RowId, allowed: u64, denied: u64) {
        let at = match self.place(id) {
            Ok(at) => at,
            Err(at) => {
                if self.accounts.len() == self.accounts.capacity() {
                    self.accounts.reserve_exact(self.accounts.len().max(1));
                }
                self.accounts.insert(at, (id, Account::new(now)));
                at
            }
        };
        if let Some((_, account)) = self.accounts.get_mut(at) {
            account.report(now, self.ttl, allowed, denied);
        }
    }

    /// Ends the messages to a client. It may spend its leases up to their ends.
    pub(super) fn leave(&mut self, id: RowId) {
        if let Some(account) = self.account(id) {
            account.leave();
        }
    }

    /// Drops what has ended, and returns the number of accounts among it.
    pub(super) fn advance(&mut self, now: Duration) -> usize {
        for (_, account) in &mut self.accounts {
            account.advance(now, self.ttl);
        }
        let before = self.accounts.len();
        self.accounts.retain(|(_, account)| !account.is_over());
        before - self.accounts.len()
    }

    /// Whether a charge is due.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        self.next_at().is_some_and(|at| at <= now) || !self.in_need(now).is_empty()
    }

    /// The units to charge again now.
    pub(super) fn uncounted(&mut self, now: Duration) -> Vec<(RowId, u64)> {
        let accounts = self.accounts.iter_mut();
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
        let account = self.account(id)?;
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
        let accounts = self.accounts.iter().map(|(_, account)| account);
        self.busy = accounts.clone().filter(|account| account.is_busy()).count() as u64;
        self.lent = accounts.map(Account::lent).sum();
        let accounts = self.accounts.iter().filter(|(_, account)| {
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
        let account = self.account(id).filter(|_| !found.is_uncounted);
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
            self.account(id)?.fail();
            return None;
        };
        self.left = charged.left;
        let account = self.account(id).filter(|account| account.is_live())?;
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
        let accounts = self.accounts.iter_mut();
        let answers = accounts.filter_map(|(id, account)| Some((*id, account.answer(now, ttl)?)));
        answers.collect()
    }

    /// The instant of the next step without a report.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let accounts = self.accounts.iter();
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

    fn place(&self, id: RowId) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&id, |(id, _)| *id)
    }

    fn account(&mut self, id: RowId) -> Option<&mut Account> {
        let at = self.place(id).ok()?;
        self.accounts.get_mut(at).map(|(_, account)| account)
    }
}

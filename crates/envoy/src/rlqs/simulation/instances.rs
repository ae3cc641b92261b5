//! Several instances with one pool in Redis, which fails, and from which instances are cut off.

use std::time::Duration;

use super::{
    STEP, TTL,
    clients::{Clients, Service},
    random::Random,
};
use crate::rlqs::{
    client_share::{CUT_DELAY, ClientId, DivisibleRate, Share},
    divided_rate::RowId,
    divided_rate_in_redis::{Applied, PoolOfInstance, ShareMessage},
};

/// Redis's clock minus that of the instances.
const AHEAD: Duration = Duration::from_secs(1_000_000);

const MOST_TRIES: u32 = 8;

/// The bytes of the pool, their version and their end.
type Value = Option<(Vec<u8>, u64, Duration)>;

#[derive(Debug)]
pub(super) struct Instances {
    rate: DivisibleRate,
    value: Value,
    versions: u64,
    instances: Vec<Instance>,
    /// A step of an exchange takes less than this number of steps of time.
    distance: u64,
    /// Instances are killed, or cut off from Redis, once in this number of steps.
    kills: u64,
    cuts: u64,
    /// Redis loses the pool, or falls back to an earlier one, once in this number of steps.
    flushes: u64,
    fallbacks: u64,
    /// An earlier pool.
    earlier: Value,
    /// The part of the rate and of the burst that may be divided anew after such a loss, until the shares of before have
    /// ended.
    pub(super) anew: Share,
    anew_until: Duration,
    /// Whether an instance that never fails has all shares, so that nothing is divided anew.
    notices_all: bool,
    /// Whether a pool is written whoever has written it meanwhile. Such a design is wrong.
    pub(super) overwrites: bool,
    /// Tokens of buckets that the pool lacked.
    pub(super) lacked: u64,
    pub(super) conflicts: u64,
    pub(super) renewals: u64,
    /// Cuts that were sent without an answer to their write.
    pub(super) unanswered: u64,
    pub(super) losses: u64,
    pub(super) flushed: u64,
    pub(super) fallen_back: u64,
    /// The part of the rate that is counted twice: what was renewed without Redis may have been divided again.
    pub(super) twice: u64,
}

#[derive(Debug)]
struct Instance {
    pool: PoolOfInstance,
    is_cut_until: Duration,
    step: Step,
    tries: u32,
    /// When the step is done.
    at: Duration,
}

/// A step of an exchange.
#[derive(Debug)]
enum Step {
    Idle,
    Load,
    /// With the value, its version, and the time of each clock.
    Apply(Value, Duration, Duration),
    Swap(Option<u64>, Box<Applied>),
    /// With whether the pool was written; `None` if no answer arrives.
    End(Option<bool>, Box<Applied>),
}

impl Instances {
    pub(super) fn new(rate: DivisibleRate, number: u64, random: &mut Random) -> Self {
        let instance = |_| Instance {
            pool: PoolOfInstance::new(rate, TTL),
            is_cut_until: Duration::ZERO,
            step: Step::Idle,
            tries: 0,
            at: Duration::ZERO,
        };
        Self {
            rate,
            value: None,
            versions: 0,
            instances: (0..number).map(instance).collect(),
            distance: [1, 3, 10][random.up_to(3) as usize],
            kills: [400, 4_000, u64::MAX][random.up_to(3) as usize],
            cuts: [300, 3_000, u64::MAX][random.up_to(3) as usize],
            flushes: [800, u64::MAX, u64::MAX][random.up_to(3) as usize],
            fallbacks: [400, u64::MAX, u64::MAX][random.up_to(3) as usize],
            earlier: None,
            anew: Share::default(),
            anew_until: Duration::ZERO,
            notices_all: false,
            overwrites: false,
            lacked: 0,
            conflicts: 0,
            renewals: 0,
            unanswered: 0,
            losses: 0,
            flushed: 0,
            fallen_back: 0,
            twice: 0,
        }
    }

    /// Instances that never fail.
    pub(super) fn healthy(mut self) -> Self {
        (self.kills, self.cuts) = (u64::MAX, u64::MAX);
        (self.flushes, self.fallbacks) = (u64::MAX, u64::MAX);
        self
    }

    /// Instances that never fail, with a Redis that often falls back to an earlier pool.
    pub(super) fn falling_back(self) -> Self {
        Self {
            fallbacks: 400,
            notices_all: true,
            ..self.healthy()
        }
    }

    /// Fails, and does the steps that are due.
    pub(super) fn step(&mut self, now: Duration, clients: &mut Clients, random: &mut Random) {
        self.lose(now, random);
        for at in 0..self.instances.len() {
            if random.one_in(self.kills) {
                self.kill(at, now, clients, random);
            }
            if random.one_in(self.cuts) {
                self.instances[at].is_cut_until = now + STEP * random.up_to(600) as u32;
            }
            while self.instances[at].at <= now {
                self.exchange(at, now, clients, random);
            }
        }
    }

    /// Loses the pool, or its last writes.
    fn lose(&mut self, now: Duration, random: &mut Random) {
        self.anew.size = 0;
        let version = |value: &Value| value.as_ref().map(|(_, version, _)| *version);
        let is_flushed = random.one_in(self.flushes) && self.value.take().is_some();
        let falls_back = random.one_in(self.fallbacks)
            && self.earlier.is_some()
            && version(&self.earlier) != version(&self.value);
        if falls_back {
            self.value = self.earlier.clone();
        } else if random.one_in(40) {
            self.earlier = self.value.clone();
        }
        self.flushed += u64::from(is_flushed);
        self.fallen_back += u64::from(falls_back);
        if (is_flushed || falls_back) && !self.notices_all {
            self.anew_until = now + TTL + CUT_DELAY;
            self.anew = Share {
                tokens: self.rate.tokens,
                size: self.rate.burst,
            };
        } else if now >= self.anew_until {
            self.anew.tokens = 0;
        }
    }

    /// Replaces an instance by a new one. A write under way may still arrive.
    fn kill(&mut self, at: usize, now: Duration, clients: &mut Clients, random: &mut Random) {
        let pool = PoolOfInstance::new(self.rate, TTL);
        self.instances[at].pool = pool;
        let step = std::mem::replace(&mut self.instances[at].step, Step::Idle);
        if let Step::Swap(version, applied) = step
            && random.one_in(2)
        {
            self.swap(at, version, &applied, now, clients);
        }
        clients.lose_instance(at as u64, now, random);
    }

    fn exchange(&mut self, at: usize, now: Duration, clients: &mut Clients, random: &mut Random) {
        let instance = &mut self.instances[at];
        let is_cut = now < instance.is_cut_until;
        instance.at = now + STEP * random.up_to(self.distance) as u32;
        let step = std::mem::replace(&mut instance.step, Step::Idle);
        let next = match step {
            Step::Idle => {
                instance.at = now + STEP * 5;
                instance.tries = 0;
                if !instance.pool.is_due(now) {
                    return;
                }
                instance.at = now;
                Step::Load
            }
            Step::Load if is_cut => return self.fail(at, now, clients, random),
            Step::Load => {
                let value = self.value.clone();
                let value = value.filter(|(_, _, ends_at)| now < *ends_at);
                Step::Apply(value, now + AHEAD, now)
            }
            Step::Apply(value, time, asked_at) => {
                let bytes = value.as_ref().map(|(bytes, ..)| bytes.as_slice());
                let birth = (random.up_to(u64::MAX), false);
                let applied = instance.pool.apply(bytes, (time, asked_at), birth);
                self.losses += u64::from(applied.loss.is_some());
                let version = value.as_ref().map(|(_, version, _)| *version);
                Step::Swap(version, Box::new(applied))
            }
            Step::Swap(version, applied) => {
                let is_lost = is_cut && random.one_in(2);
                let written = !is_lost && self.swap(at, version, &applied, now, clients);
                Step::End((!is_cut).then_some(written), applied)
            }
            Step::End(Some(true), applied) => {
                let messages = instance.pool.written(&applied, now);
                return deliver(messages, now, clients, random);
            }
            Step::End(Some(false), _) if instance.tries < MOST_TRIES => {
                instance.tries += 1;
                self.conflicts += 1;
                Step::Load
            }
            Step::End(None, applied) => {
                let cuts = instance.pool.unanswered(&applied, now);
                self.unanswered += cuts.len() as u64;
                send_without_redis(cuts, now, clients, random);
                return self.fail(at, now, clients, random);
            }
            Step::End(Some(false), _) => return self.fail(at, now, clients, random),
        };
        self.instances[at].step = next;
    }

    /// Writes a pool, and counts what it counts. False if it was written meanwhile.
    fn swap(
        &mut self,
        at: usize,
        version: Option<u64>,
        applied: &Applied,
        now: Duration,
        clients: &mut Clients,
    ) -> bool {
        if !applied.is_changed {
            return true;
        }
        let current = self.value.as_ref();
        let current = current.filter(|(_, _, ends_at)| now < *ends_at);
        if current.map(|(_, version, _)| *version) != version && !self.overwrites {
            return false;
        }
        self.versions += 1;
        let ends_at = now + applied.stored.lasts(now + AHEAD);
        self.value = Some((applied.stored.to_bytes(), self.versions, ends_at));
        let pool = &applied.stored.pool;
        self.lacked += pool.lacked;
        self.twice = pool.held().tokens.saturating_sub(self.rate.tokens);
        assert!(
            self.twice == 0
                || self.renewals + self.flushed + self.fallen_back > 0
                || self.overwrites
        );
        for (from, to) in &pool.passed {
            clients.pass_row(*from, *to);
        }
        let shares = pool.rows();
        for (row, share, sent_at) in
            shares.filter_map(|(id, row)| Some((id, row.share?, row.sent_at)))
        {
            let counted = (sent_at.saturating_sub(AHEAD), share, true);
            let is_own = row.0 % self.instances.len() as u64 == at as u64;
            let sent = clients.stream(row).sent.iter();
            let last = sent.rev().find(|sent| sent.is_counted);
            let is_known = last.is_some_and(|sent| (sent.at, sent.share) == (counted.0, share));
            if is_own && !is_known {
                clients.count(row, counted);
            }
        }
        true
    }

    /// Renews shares without Redis.
    fn fail(&mut self, at: usize, now: Duration, clients: &mut Clients, random: &mut Random) {
        let pool = &mut self.instances[at].pool;
        pool.failed(now);
        let messages = pool.renew_without_redis(now);
        self.renewals += messages.len() as u64;
        send_without_redis(messages, now, clients, random);
    }
}

/// Sends shares that Redis does not count.
fn send_without_redis(
    messages: Vec<ShareMessage>,
    now: Duration,
    clients: &mut Clients,
    random: &mut Random,
) {
    for message in &messages {
        clients.count(message.row, (now, message.share, false));
    }
    deliver(messages, now, clients, random);
}

fn deliver(messages: Vec<ShareMessage>, now: Duration, clients: &mut Clients, random: &mut Random) {
    for message in messages {
        let ttl = TTL.saturating_sub(Duration::from_secs(message.age.as_secs()));
        if !ttl.is_zero() {
            clients.put_on_its_way(now, (message.row, message.share), ttl, random);
        }
    }
}

impl Service for Instances {
    /// Rows are taken over when the pool is written.
    fn report(
        &mut self,
        now: Duration,
        (row, client): (RowId, Option<ClientId>),
        requests: u64,
    ) -> Option<RowId> {
        let at = (row.0 % self.instances.len() as u64) as usize;
        let pool = &mut self.instances[at].pool;
        pool.report(now, (row, client), self.rate, requests);
        None
    }

    fn leave(&mut self, now: Duration, row: RowId) {
        let at = (row.0 % self.instances.len() as u64) as usize;
        self.instances[at].pool.leave(now, row);
    }
}

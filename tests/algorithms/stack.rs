//! Several quotas of one key, and a block: what an operation on all of them must answer.

use std::time::Duration;

use tower_ratelimit::{Decision, Key, LocalLimiter, Outcome, QuotaStatus, Receipt};

use super::{
    oracle::{Naive, Nanos},
    quotas::{Spec, is_one_instant},
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    Acquire(u64),
    AcquireUpTo(u64),
    Peek(u64),
    Hit(u64),
    Refund(u64, Option<Receipt>),
    Reset,
}

pub(crate) fn ask_limiter(limiter: &LocalLimiter, key: &Key, ask: Ask) -> Decision {
    match ask {
        Ask::Acquire(cost) => limiter.acquire(key, cost),
        Ask::AcquireUpTo(most) => limiter.acquire_up_to(key, most),
        Ask::Peek(cost) => limiter.peek(key, cost),
        Ask::Hit(cost) => limiter.hit(key, cost),
        Ask::Refund(units, receipt) => limiter.refund(key, units, receipt),
        Ask::Reset => limiter.reset(key),
    }
}

/// All that a decision tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    outcome: Outcome,
    charged: u64,
    retry_after: Option<Duration>,
    excess: bool,
    blocked: bool,
    quotas: Vec<Line>,
    /// Which of them.
    binding: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    denied: bool,
    limit: u64,
    remaining: u64,
    reset_after: Duration,
    retry_after: Option<Duration>,
    effective_window: Duration,
    excess: bool,
}

impl From<&Decision> for Answer {
    fn from(decision: &Decision) -> Self {
        let same = |status: &QuotaStatus| std::ptr::eq(status, decision.binding());
        Self {
            outcome: decision.outcome(),
            charged: decision.charged(),
            retry_after: decision.retry_after(),
            excess: decision.is_excess(),
            blocked: decision.is_blocked(),
            quotas: decision.quotas().iter().map(Line::from).collect(),
            binding: decision.quotas().iter().position(same).expect("one binds"),
        }
    }
}

impl From<&QuotaStatus> for Line {
    fn from(status: &QuotaStatus) -> Self {
        Self {
            denied: status.is_denied(),
            limit: status.limit(),
            remaining: status.remaining().expect("known"),
            reset_after: status.reset_after().expect("known"),
            retry_after: status.retry_after(),
            effective_window: status.effective_window().expect("known"),
            excess: status.is_excess(),
        }
    }
}

impl Line {
    /// How the quota stands at `now`, after `cost` was admitted or denied `before`.
    fn new(before: &Naive, after: &Naive, now: Nanos, cost: u64) -> Self {
        let denied = !before.admits(now, cost);
        let retry_after = before.retry_after(now, cost).filter(|_| denied);
        Self {
            denied,
            limit: after.quota.capacity(),
            remaining: count(after.remaining(now)),
            reset_after: micros_up(after.reset_after(now)),
            retry_after: retry_after.map(micros_up),
            effective_window: micros_up(retry_after.unwrap_or_else(|| after.effective_window(now))),
            excess: after.available(now) < after.extra,
        }
    }

    /// A block of the key denies whatever the quota says, unless that says never.
    fn block(&mut self, block: Duration) {
        self.remaining = 0;
        if !self.denied || self.retry_after.is_some() {
            let wait = self.retry_after.unwrap_or_default().max(block);
            self.retry_after = Some(wait);
            self.effective_window = wait;
        }
        self.denied = true;
    }
}

/// The quotas of one key.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    quotas: Vec<Naive>,
    block_for: Option<Nanos>,
    blocked_until: Nanos,
}

/// What an operation does, and what its outcome is judged by.
struct Plan {
    /// The cost that has to fit.
    judged: u64,
    /// What is charged if it does, and if it does not.
    takes: [u64; 2],
    /// Whether a denial starts a block, and whether a block denies it.
    arms: bool,
    heeds_block: bool,
}

impl Stack {
    pub(crate) fn new(specs: &[Spec], block_for: Option<Duration>) -> Self {
        let lone = specs.len() == 1 && block_for.is_none();
        let naive =
            |spec: &Spec| Naive::new(spec.quota, spec.extras, lone && is_one_instant(&spec.quota));
        Self {
            quotas: specs.iter().map(naive).collect(),
            block_for: block_for.map(|block| i128::try_from(block.as_nanos()).expect("short")),
            blocked_until: Nanos::MIN / 2,
        }
    }

    /// What fits every quota.
    fn available(&self, now: Nanos) -> u64 {
        let available = self.quotas.iter().map(|quota| quota.available(now));
        count(available.min().expect("one quota"))
    }

    pub(crate) fn ask(&mut self, now: Nanos, ask: Ask) -> Answer {
        for quota in &mut self.quotas {
            quota.heal(now);
        }
        let block = self.block_for.unwrap_or(0);
        self.blocked_until = self.blocked_until.min(now + block);
        let blocked = (self.blocked_until > now).then_some(self.blocked_until - now);

        let before = self.clone();
        let mut plan = self.plan(now, ask);
        if blocked.is_some() && plan.arms {
            plan.takes = [0; 2];
        }
        let denied = !before.quotas.iter().all(|q| q.admits(now, plan.judged));
        let charged = self.change(now, ask, plan.takes[usize::from(denied)]);

        let lines = before.quotas.iter().zip(&self.quotas);
        let lines = lines.map(|(before, after)| Line::new(before, after, now, plan.judged));
        let mut lines: Vec<_> = lines.collect();
        let can_fit = lines
            .iter()
            .all(|line| !line.denied || line.retry_after.is_some());
        let mut block = blocked.filter(|_| plan.heeds_block);
        if plan.arms && blocked.is_none() && denied && can_fit && self.block_for.is_some() {
            block = self.block_for;
            self.blocked_until = now + block.expect("just looked");
        }
        for line in &mut lines {
            if let Some(block) = block {
                line.block(micros_up(block));
            }
        }
        let waits = before.quotas.iter().map(|q| q.wait(now, plan.judged));
        let wait = waits
            .max()
            .filter(|wait| plan.arms_or_looks(ask) && *wait > 0);
        let outcome = match wait {
            _ if denied || block.is_some() => Outcome::Denied,
            Some(wait) => Outcome::Delayed(micros_up(wait)),
            None => Outcome::Allowed,
        };
        answer(outcome, charged, block.is_some(), lines)
    }

    /// What cost 0 asks for is always admitted, blocked or not.
    fn plan(&self, now: Nanos, ask: Ask) -> Plan {
        let (judged, takes, arms) = match ask {
            Ask::Acquire(cost) => (cost, [cost, 0], true),
            Ask::AcquireUpTo(most) => {
                let cost = most.min(self.available(now).max(1));
                (cost, [cost, 0], true)
            }
            Ask::Peek(cost) => (cost, [0; 2], false),
            Ask::Hit(cost) => (cost, [cost; 2], false),
            Ask::Refund(..) | Ask::Reset => (0, [0; 2], false),
        };
        Plan {
            judged,
            takes,
            arms: arms && judged > 0,
            heeds_block: judged > 0,
        }
    }

    /// Does it, and says how much of it was taken.
    fn change(&mut self, now: Nanos, ask: Ask, takes: u64) -> u64 {
        let charged = takes.min(self.available(now));
        for quota in &mut self.quotas {
            match ask {
                Ask::Refund(units, receipt) => {
                    let at = receipt.map_or(now, |receipt| nanos(receipt.charged_at().as_micros()));
                    quota.refund(now, units, at);
                }
                Ask::Reset => quota.reset(),
                _ if takes > 0 => quota.take(now, takes),
                _ => {}
            }
        }
        if matches!(ask, Ask::Reset) {
            self.blocked_until = Nanos::MIN / 2;
        }
        charged
    }
}

impl Plan {
    /// A hit passes whatever the limit says, so it waits in no queue.
    fn arms_or_looks(&self, ask: Ask) -> bool {
        self.arms || matches!(ask, Ask::Peek(_))
    }
}

fn answer(outcome: Outcome, charged: u64, blocked: bool, quotas: Vec<Line>) -> Answer {
    let denied = outcome == Outcome::Denied;
    // Never is longer than any wait.
    let wait = |line: &Line| line.retry_after.unwrap_or(Duration::MAX);
    let mut binding = 0;
    for (i, line) in quotas.iter().enumerate() {
        let bound: &Line = &quotas[binding];
        let binds_more = if line.denied || bound.denied {
            (line.denied, wait(line)) > (bound.denied, wait(bound)) && line.denied
        } else {
            let left =
                |line: &Line, other: &Line| u128::from(line.remaining) * u128::from(other.limit);
            left(line, bound) < left(bound, line)
        };
        if binds_more {
            binding = i;
        }
    }
    Answer {
        outcome,
        charged,
        retry_after: if denied {
            quotas[binding].retry_after
        } else {
            Some(Duration::ZERO)
        },
        excess: !denied && quotas.iter().any(|line| line.excess),
        blocked,
        quotas,
        binding,
    }
}

/// A timestamp in nanoseconds; the crate's last one is in the year 2554.
pub(crate) fn nanos(micros: u64) -> Nanos {
    (Nanos::from(micros) * 1_000).min(Nanos::from(u64::MAX))
}

fn micros_up(nanos: Nanos) -> Duration {
    let micros = (nanos + 999).div_euclid(1_000);
    Duration::from_micros(u64::try_from(micros).expect("a time of this crate"))
}

fn count(units: i128) -> u64 {
    u64::try_from(units).expect("not negative")
}

//! One key: the counters that its tiers share, its block, and the units that responses counted. Each
//! operation is done as documented, and answered in every field.

use std::{collections::BTreeMap, time::Duration};

use tower_ratelimit::{decision::Outcome, limiter::OnChange, quota::Algorithm};

use super::{
    expected_decision::{Answer, Line, count, micros_up},
    operations_of_a_trace::Request,
    oracle::{Charge, Counter, Kind, NEVER, Nanos, Rule},
    per_request_quota_model::{Fitted, Row},
    random_quotas::Spec,
};

/// A place in the tiers' lists, and how it is counted there.
type CounterId = (usize, Kind);
type Counters = BTreeMap<CounterId, Counter>;

/// The charges of a decision.
#[derive(Debug, Clone)]
struct Paid {
    units: u64,
    quotas: Quotas,
    /// To each place of the tier: the kind of counter, and the charge.
    charges: Vec<(Kind, Charge)>,
}

/// The quotas that an operation is measured by: a tier's, or what is left of a row.
#[derive(Debug, Clone, Copy)]
enum Quotas {
    Tier(usize),
    Own(Fitted),
}

#[derive(Debug, Clone, Copy)]
struct Block {
    until: Nanos,
    by_hand: bool,
}

const UNBLOCKED: Block = Block {
    until: NEVER,
    by_hand: false,
};

/// One key of a limiter.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    specs: Vec<Vec<Spec>>,
    rules: Vec<Vec<Rule>>,
    /// Also those of former quotas, since a quota that is changed back goes on with its count. A lone bucket has none.
    counters: Counters,
    /// The units that responses counted, by the same quotas.
    counted: Counters,
    block_for: Option<Nanos>,
    block: Block,
    /// Whether the limiter is one bucket and nothing else. There a thread may have read the clock
    /// long before it gets to the key: an overdraft of up to a second, or of one more full bucket,
    /// is left alone.
    lock_free: bool,
    on_change: OnChange,
    /// The quotas that the limiter was built with.
    built: Vec<Vec<Spec>>,
    paid: Vec<Paid>,
}

impl Subject {
    /// A key that was never seen by a limiter of these tiers.
    pub(crate) fn new(
        tiers: &[Vec<Spec>],
        block_for: Option<Duration>,
        on_change: OnChange,
    ) -> Self {
        let nanos = |block: Duration| i128::try_from(block.as_nanos()).expect("short");
        let mut subject = Self {
            specs: tiers.to_vec(),
            rules: Vec::new(),
            counters: Counters::new(),
            counted: Counters::new(),
            block_for: block_for.map(nanos),
            block: UNBLOCKED,
            lock_free: true,
            on_change,
            built: tiers.to_vec(),
            paid: Vec::new(),
        };
        subject.make_rules();
        subject
    }

    /// Works out what is shared with whom.
    fn make_rules(&mut self) {
        let rule = |spec: &Spec| Rule::new(spec.quota, spec.extras);
        let lists = self.specs.iter();
        let rules: Vec<Vec<Rule>> = lists.map(|list| list.iter().map(rule).collect()).collect();
        let alike = |place: usize, kind: Kind| {
            let here = rules.iter().filter_map(move |list| list.get(place));
            here.filter(move |rule| rule.kind == kind)
        };
        self.rules = rules.clone();
        for (place, rule) in self.rules.iter_mut().flat_map(|l| l.iter_mut().enumerate()) {
            let most = |of: fn(&Rule) -> i128| {
                let alike = alike(place, rule.kind).map(of);
                alike.max().expect("itself")
            };
            (rule.room_time, rule.room_units) = (most(Rule::full), most(|rule| rule.capacity));
            rule.most_time = most(|rule| (rule.capacity + rule.debt) * rule.interval);
            rule.most_units = most(|rule| rule.capacity + rule.debt);
        }
        let lone = matches!(&rules[..], [list] if list.len() == 1 && list[0].kind.is_bucket());
        self.lock_free &= lone && self.block_for.is_none();
        if self.lock_free {
            let rule = &mut self.rules[0][0];
            rule.tolerance = rule.most_time.max(1_000_000_000);
        }
        if self.lock_free {
            let needed = |(place, kind): &CounterId| alike(*place, *kind).next().is_some();
            self.counters.retain(|id, _| needed(id));
        }
    }

    /// Another process restores what this one saved, with the quotas in force. It has no receipts.
    pub(crate) fn restart(&mut self) {
        let numbers = |of: &[Vec<Spec>]| -> Vec<Vec<_>> {
            let tiers = of.iter();
            tiers
                .map(|list| list.iter().map(numbers).collect())
                .collect()
        };
        if self.on_change == OnChange::Fresh && numbers(&self.built) != numbers(&self.specs) {
            self.counters.clear();
            self.counted.clear();
            self.block = UNBLOCKED;
        }
        self.built.clone_from(&self.specs);
        self.paid.clear();
        self.lock_free = true;
        self.make_rules();
    }

    /// Changes a quota of the default tier.
    pub(crate) fn set_quota(&mut self, now: Nanos, place: usize, spec: Spec) {
        let was_lock_free = self.lock_free;
        self.specs[0][place] = spec;
        self.make_rules();
        if was_lock_free && !self.lock_free {
            // The one quota is no bucket any more; a block remains.
            self.counters.clear();
        }
        if self.lock_free {
            // Nothing distinguishes a larger quota's debt from what is tolerated.
            let rule = Rule {
                tolerance: 0,
                ..self.rules[0][0]
            };
            for counter in self.counters.values_mut() {
                rule.clamp(counter, now);
            }
        }
    }

    /// Whether units that were used already can be charged.
    pub(crate) fn can_spend(&self) -> bool {
        let mut specs = self.specs.iter().flatten();
        let is_queue =
            |spec: &Spec| matches!(spec.quota.algorithm(), Algorithm::LeakyBucket { .. });
        self.block_for.is_none() && !specs.any(is_queue)
    }

    /// The tiers' quotas as they are.
    pub(crate) fn specs(&self) -> &[Vec<Spec>] {
        &self.specs
    }

    /// The operation for a class with this share in percent.
    pub(crate) fn request(&mut self, now: Nanos, tier: usize, request: (u8, Request)) -> Answer {
        self.request_by(now, Quotas::Tier(tier), request)
    }

    /// The question with the quota of a row; none where the limiter has several.
    pub(crate) fn request_with(
        &mut self,
        now: Nanos,
        row: Row,
        request: (u8, Request),
    ) -> Option<Answer> {
        let [own] = self.rules[0].as_slice() else {
            return None;
        };
        let quotas = Quotas::Own(row.fitted(own));
        Some(self.request_by(now, quotas, request))
    }

    fn request_by(
        &mut self,
        now: Nanos,
        requested: Quotas,
        (share, request): (u8, Request),
    ) -> Answer {
        let paid = self.paid_by(request);
        let quotas = paid.as_ref().map_or(requested, |paid| paid.quotas);
        let own = self.rules[0][0];
        let (quotas, whole) = match quotas {
            Quotas::Tier(tier) => (quotas, self.rules[tier].clone()),
            Quotas::Own(fitted) => {
                let rule = fitted.cut(&own).rule(&own);
                (Quotas::Own(Fitted::of(&rule)), vec![rule])
            }
        };
        let of_class = whole.iter().map(|rule| rule.for_class(share));
        let rules: Vec<_> = of_class.collect();
        let mut counters = take_counters(&mut self.counters, &rules, now);
        let blocked = self.blocked(now);

        let before = counters.clone();
        let available = available(&rules, &counters, now);
        let judged = request.judged(available);
        let pairs = || rules.iter().zip(&before);
        let denied = !pairs().all(|(rule, counter)| rule.admits(counter, now, judged));
        let mut of_critical = whole.iter().zip(&before);
        let fits_critical = of_critical.all(|(rule, counter)| rule.admits(counter, now, judged));
        let shed = denied && fits_critical;
        let charged = match request {
            Request::Hit(cost) => hit(&rules, &mut counters, now, cost),
            Request::Spend(cost) => spend(&whole, &mut counters, now, cost),
            Request::Settle(cost, _) => {
                let paid = paid.as_ref().expect("the operation has a receipt");
                if let Some(more) = cost.checked_sub(paid.units) {
                    spend(&whole, &mut counters, now, more)
                } else {
                    let less = paid.units - cost;
                    refund(&whole, &mut counters, now, less, Some(paid))
                }
            }
            Request::Refund(cost, _) => refund(&whole, &mut counters, now, cost, paid.as_ref()),
            _ if request.takes() && !denied && blocked == 0 => {
                hit(&rules, &mut counters, now, judged)
            }
            _ => 0,
        };
        let lines = pairs().zip(&counters);
        let lines =
            lines.map(|((rule, before), after)| Line::new(rule, before, after, now, judged));
        let mut lines: Vec<_> = lines.collect();
        let waits = pairs().map(|(rule, counter)| rule.wait(counter, now, judged));
        let wait = waits.max().filter(|wait| *wait > 0);
        self.note_paid(now, quotas, charged, &rules, &counters);
        for (id, counter) in ids(&rules).zip(counters) {
            self.counters.insert(id, counter);
        }

        let could_fit = !lines.iter().any(Line::is_never);
        if denied && could_fit && !shed && request.starts_block() && blocked == 0 {
            self.start_block(now);
        }
        match request {
            Request::Settle(cost, _) if cost > 0 => self.count(now, &whole, cost, blocked),
            Request::Block(length) => self.block_by_hand(now, length),
            Request::Reset => return self.reset(now, &rules),
            _ => {}
        }
        let block = Some(self.blocked(now)).filter(|left| *left > 0 && request.heeds_block());
        for line in &mut lines {
            if let Some(block) = block {
                line.block(micros_up(block));
            }
        }
        let outcome = match wait {
            _ if denied || block.is_some() => Outcome::Denied,
            // A hit passes whatever the limit is, so it waits in no queue.
            Some(wait) if !matches!(request, Request::Hit(_)) => Outcome::Delayed(micros_up(wait)),
            _ => Outcome::Allowed,
        };
        Answer::new(outcome, charged, block.is_some(), lines).shed(shed && block.is_none())
    }

    fn paid_by(&self, request: Request) -> Option<Paid> {
        match request {
            Request::Settle(_, number) | Request::Refund(_, Some(number)) => {
                Some(self.paid[number].clone())
            }
            _ => None,
        }
    }

    fn note_paid(
        &mut self,
        now: Nanos,
        quotas: Quotas,
        units: u64,
        rules: &[Rule],
        counters: &[Counter],
    ) {
        let charge = |(rule, counter): (&Rule, &Counter)| {
            let charge = Charge {
                at: now,
                end: rule.end(counter, now),
                interval: rule.interval,
            };
            (rule.kind, charge)
        };
        self.paid.push(Paid {
            units,
            quotas,
            charges: rules.iter().zip(counters).map(charge).collect(),
        });
    }

    /// How much longer the key is blocked. A block is never longer than one that starts now.
    fn blocked(&mut self, now: Nanos) -> Nanos {
        let length = self.block_for.filter(|_| !self.block.by_hand);
        self.block.until = self.block.until.min(now + length.unwrap_or(1 << 59));
        (self.block.until - now).max(0)
    }

    fn start_block(&mut self, now: Nanos) {
        if let Some(length) = self.block_for {
            self.block = Block {
                until: now + length,
                by_hand: false,
            };
        }
    }

    fn block_by_hand(&mut self, now: Nanos, length: Duration) {
        let nanos = i128::try_from(length.as_nanos()).expect("in range");
        self.block = match nanos.min(1 << 59) {
            0 => UNBLOCKED,
            nanos => Block {
                until: now + nanos,
                by_hand: true,
            },
        };
    }

    /// A response counted: one that leaves less than a unit blocks the key.
    fn count(&mut self, now: Nanos, rules: &[Rule], cost: u64, blocked: Nanos) {
        let mut counted = take_counters(&mut self.counted, rules, now);
        hit(rules, &mut counted, now, cost);
        if available(rules, &counted, now) == 0 && blocked == 0 {
            self.start_block(now);
        }
        for (id, counter) in ids(rules).zip(counted) {
            self.counted.insert(id, counter);
        }
    }

    /// Forgets all, of all tiers. The counts of former quotas stay until they have returned.
    fn reset(&mut self, now: Nanos, rules: &[Rule]) -> Answer {
        for id in self.rules.iter().flat_map(|rules| ids(rules)) {
            self.counters.remove(&id);
            self.counted.remove(&id);
        }
        self.block = UNBLOCKED;
        let fresh = rules.iter().map(|rule| (rule, rule.kind.fresh()));
        let lines = fresh.map(|(rule, fresh)| Line::new(rule, &fresh, &fresh, now, 0));
        Answer::new(Outcome::Allowed, 0, false, lines.collect())
    }
}

fn ids(rules: &[Rule]) -> impl Iterator<Item = CounterId> {
    rules
        .iter()
        .enumerate()
        .map(|(place, rule)| (place, rule.kind))
}

/// The counters of a tier, clamped.
fn take_counters(of: &mut Counters, rules: &[Rule], now: Nanos) -> Vec<Counter> {
    let take = |(id, rule): (CounterId, &Rule)| {
        let mut counter = of.remove(&id).unwrap_or_else(|| id.1.fresh());
        rule.clamp(&mut counter, now);
        counter
    };
    ids(rules).zip(rules).map(take).collect()
}

/// The units that fit every quota.
fn available(rules: &[Rule], counters: &[Counter], now: Nanos) -> u64 {
    let pairs = rules.iter().zip(counters);
    let available = pairs.map(|(rule, counter)| rule.available(counter, now));
    count(available.min().expect("one quota"))
}

/// Takes `cost` from each, as far as it goes, and returns how many units all of them took.
fn hit(rules: &[Rule], counters: &mut [Counter], now: Nanos, cost: u64) -> u64 {
    let taken = cost.min(available(rules, counters, now));
    if cost > 0 {
        for (rule, counter) in rules.iter().zip(counters) {
            rule.take(counter, now, cost);
        }
    }
    taken
}

/// Takes what was used already, as far as debts go, and returns how many units all of them took.
fn spend(rules: &[Rule], counters: &mut [Counter], now: Nanos, cost: u64) -> u64 {
    let pairs = rules.iter().zip(&*counters);
    let spendable = pairs.map(|(rule, counter)| rule.spendable(counter, now));
    let taken = cost.min(count(spendable.min().expect("one quota")));
    if cost > 0 {
        for (rule, counter) in rules.iter().zip(counters) {
            rule.spend(counter, now, cost);
        }
    }
    taken
}

/// Gives back, and takes nothing.
fn refund(
    rules: &[Rule],
    counters: &mut [Counter],
    now: Nanos,
    cost: u64,
    paid: Option<&Paid>,
) -> u64 {
    let units = i128::from(paid.map_or(cost, |paid| cost.min(paid.units)));
    for (place, (rule, counter)) in rules.iter().zip(counters).enumerate() {
        let charge = paid.map(|paid| paid.charges[place]);
        match charge {
            _ if units == 0 => {}
            Some((kind, _)) if kind != rule.kind => {}
            _ => rule.refund(counter, now, units, charge.map(|(_, charge)| charge)),
        }
    }
    0
}

/// The numbers of a quota with which a key starts afresh.
fn numbers(spec: &Spec) -> impl PartialEq + use<> {
    let quota = spec.quota;
    let limits = quota.varying_limits();
    (
        quota.limit(),
        quota.capacity(),
        spec.extras.soft_percent,
        limits,
        spec.extras.zone,
    )
}

/// A timestamp in nanoseconds; the crate's last one is in the year 2554.
pub(crate) fn nanos(micros: u64) -> Nanos {
    (Nanos::from(micros) * 1_000).min(Nanos::from(u64::MAX))
}

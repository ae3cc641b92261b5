//! `action: overflow` against a model: random lists of limits in any store; some overflow.
//!
//! A limit refuses what does not fit, and each charge of a blocked key. The call is denied if a limit refuses that is
//! blocked or does not overflow, or if all refuse. If it is not denied, all limits that do not refuse are charged, in one
//! step. If another limit denied the call, refusals that overflow are no denials.

use std::{collections::HashMap, fmt::Write as _, net::SocketAddr, time::Duration};

use http::{Request, request::Parts};
use tower_ratelimit::{
    AnyLimiter, Decision, Key, Limiter,
    decision::Receipt,
    rules::{Format, Rules, RulesHandle, RulesLayer, RulesOutcome, RulesStore},
};

const KEYS: [&str; 2] = ["ann", "bob"];

/// Numbers that are the same for the same seed: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A rule with a limit.
struct Limit {
    name: String,
    /// The limit of each quota; and the part of it for requests.
    quotas: Vec<(u64, u64)>,
    cost: u64,
    overflows: bool,
    /// Whether a refusal starts a block.
    blocks: bool,
    /// The units used, and whether the key is blocked.
    states: HashMap<&'static str, (u64, bool)>,
}

impl Limit {
    fn random(name: String, may_block: bool, random: &mut Random) -> Self {
        let shared = random.one_in(4);
        let quotas = (0..1 + random.below(2)).map(|_| {
            let limit = 2 + random.below(8);
            (limit, if shared { limit / 2 } else { limit })
        });
        let quotas = quotas.collect();
        let overflows = !random.one_in(3);
        Self {
            name,
            quotas,
            cost: 1 + random.below(3),
            overflows,
            blocks: may_block && !overflows && random.one_in(3),
            states: KEYS.map(|key| (key, (0, false))).into(),
        }
    }

    fn yaml(&self, text: &mut String) -> std::fmt::Result {
        let Self { name, cost, .. } = self;
        write!(
            text,
            "  - {{name: {name}, key: {{header: x-{name}}}, cost: {cost}, quota: ["
        )?;
        for ((limit, _), days) in self.quotas.iter().zip(1..) {
            write!(text, "{limit}/{days}d fixed_window, ")?;
        }
        write!(text, "], on_missing_key: skip")?;
        if self.quotas[0].0 > self.quotas[0].1 {
            write!(text, ", priority: {{share: 50}}")?;
        }
        if self.overflows {
            write!(text, ", action: overflow")?;
        }
        if self.blocks {
            write!(text, ", block_for: 1h")?;
        }
        writeln!(text, "}}")
    }

    fn fits(&self, key: &str, cost: u64) -> bool {
        let used = self.states[key].0;
        self.quotas.iter().all(|(_, limit)| used + cost <= *limit)
    }

    fn is_blocked(&self, key: &str) -> bool {
        self.states[key].1
    }

    /// Whether a refusal starts a block: the cost fits an unused key, and it is not the class that is out of units.
    fn starts_block(&self, key: &str, cost: u64) -> bool {
        let used = self.states[key].0;
        let whole = self.quotas.iter().all(|(limit, _)| used + cost <= *limit);
        let possible = self.quotas.iter().all(|(_, limit)| cost <= *limit);
        self.blocks && possible && !whole && !self.is_blocked(key)
    }

    /// The units left for requests of the rule, or for all.
    fn left(&self, key: &str, of_rule: bool) -> Vec<Option<u64>> {
        let (used, blocked) = self.states[key];
        let left = self.quotas.iter().map(|(limit, share)| {
            let of = if of_rule { share } else { limit };
            Some(if blocked { 0 } else { of.saturating_sub(used) })
        });
        left.collect()
    }
}

/// Rules with their model.
struct Modelled {
    handle: RulesHandle,
    limits: Vec<Limit>,
    /// Whether each denial has the numbers of the store: no denial is kept on this node.
    is_exact: bool,
    /// The charges of each limit that were not refunded.
    receipts: Vec<(usize, &'static str, u64, Receipt)>,
}

/// Runs as many operations as `steps` on random rules.
pub(crate) async fn run(seed: u64, steps: usize, store: impl Into<RulesStore>, is_local: bool) {
    let mut random = Random(seed);
    let random = &mut random;
    let names = (0..1 + random.below(5)).map(|at| format!("r{seed}x{at}"));
    let limits = names.map(|name| Limit::random(name, is_local, &mut *random));
    let limits: Vec<_> = limits.collect();
    let mut text = "rules:\n".to_owned();
    for limit in &limits {
        limit.yaml(&mut text).expect("room");
    }
    let rules = Rules::builder().store(store).parse(&text, Format::Yaml);
    let layer = RulesLayer::new(rules.unwrap_or_else(|error| panic!("{text}\n{error}")));
    let mut modelled = Modelled {
        handle: layer.handle(),
        limits,
        is_exact: is_local,
        receipts: Vec::new(),
    };
    for step in 0..steps {
        let what = format!("step {step} of {seed}\n{text}");
        match random.below(20) {
            0 | 1 => modelled.refund(random, &what).await,
            2 => modelled.block_or_reset(random).await,
            _ => modelled.check(random, &what).await,
        }
        modelled.compare(&what).await;
    }
}

impl Modelled {
    fn limiter(&self, at: usize) -> AnyLimiter {
        let limiter = self.handle.rules().limiter_of(&self.limits[at].name);
        limiter.expect("a limit")
    }

    fn one_of(&self, random: &mut Random) -> (usize, &'static str) {
        let at = random.below(self.limits.len() as u64) as usize;
        (at, KEYS[random.below(2) as usize])
    }

    async fn refund(&mut self, random: &mut Random, what: &str) {
        if self.receipts.is_empty() {
            return;
        }
        let at = random.below(self.receipts.len() as u64) as usize;
        let (at, key, units, receipt) = self.receipts.swap_remove(at);
        let refund = self
            .limiter(at)
            .refund(&Key::from(key), units, Some(receipt));
        refund.await.expect(what);
        let (used, _) = self.limits[at].states.get_mut(key).expect("a key");
        *used = used.saturating_sub(units);
    }

    async fn block_or_reset(&mut self, random: &mut Random) {
        let (at, key) = self.one_of(random);
        let (limiter, id) = (self.limiter(at), Key::from(key));
        let state = self.limits[at].states.get_mut(key).expect("a key");
        if random.one_in(3) {
            limiter
                .block(&id, Duration::from_secs(3_600))
                .await
                .expect("an answer");
            state.1 = true;
        } else {
            limiter.reset(&id).await.expect("an answer");
            *state = (0, false);
            let others = self
                .receipts
                .iter()
                .filter(|(own, of, ..)| (*own, *of) != (at, key));
            self.receipts = others.cloned().collect();
        }
    }

    async fn check(&mut self, random: &mut Random, what: &str) {
        let mut charges = Vec::new();
        for at in 0..self.limits.len() {
            if !random.one_in(4) {
                charges.push((at, KEYS[random.below(2) as usize]));
            }
        }
        let cost = random.one_in(3).then(|| 1 + random.below(4));
        let dry_run = random.one_in(5);
        let parts = parts(
            charges
                .iter()
                .map(|(at, key)| (&*self.limits[*at].name, *key)),
        );
        let cost_of = |limit: &Limit| cost.unwrap_or(limit.cost);
        let (outcome, decision) = {
            let cost = cost.map(|cost| cost as u32);
            let check = self.handle.check(&parts, cost, dry_run);
            check
                .await
                .unwrap_or_else(|error| panic!("{error}: {what}"))
        };
        let Some(decision) = decision else {
            assert!(charges.is_empty(), "{what}");
            return;
        };
        let refuses = charges.iter().map(|(at, key)| {
            let limit = &self.limits[*at];
            limit.is_blocked(key) || !limit.fits(key, cost_of(limit))
        });
        let refuses: Vec<bool> = refuses.collect();
        let mut hard = false;
        for ((at, key), refuses) in charges.iter().zip(&refuses) {
            let limit = &mut self.limits[*at];
            let cost = cost.unwrap_or(limit.cost);
            if *refuses && !dry_run && limit.starts_block(key, cost) {
                limit.states.get_mut(key).expect("a key").1 = true;
            }
            hard |= *refuses && (!limit.overflows || limit.is_blocked(key));
        }
        let denied = hard || refuses.iter().all(|refuses| *refuses);
        let (mut charged, mut passed) = (Vec::new(), Vec::new());
        for ((at, key), refuses) in charges.iter().zip(&refuses) {
            let limit = &mut self.limits[*at];
            let units = if denied || *refuses || dry_run {
                0
            } else {
                cost_of(limit)
            };
            limit.states.get_mut(key).expect("a key").0 += units;
            charged.push(units);
            if *refuses && !hard {
                passed.push(limit.name.clone());
            }
        }
        assert_eq!(decision.is_denied(), denied, "{what}{decision:?}");
        assert!(
            decision.charged_by_each().eq(charged.iter().copied()),
            "{what}{decision:?}"
        );
        let least = charged
            .iter()
            .zip(&refuses)
            .filter(|(_, refuses)| !**refuses || denied);
        assert_eq!(
            Some(decision.charged()),
            least.map(|(units, _)| *units).min(),
            "{what}"
        );
        let expected = if passed.is_empty() {
            RulesOutcome::Limited
        } else {
            RulesOutcome::Overflowed(passed)
        };
        assert_eq!(outcome, expected, "{what}");
        self.compare_quotas(&charges, &refuses, hard, &decision, what);
        let receipt = decision.receipt();
        for ((at, key), units) in charges.iter().zip(charged) {
            if units > 0 {
                self.receipts.push((*at, *key, units, receipt.clone()));
            }
        }
    }

    /// The policies in the order of the limits, the units left, and the quotas that deny.
    fn compare_quotas(
        &self,
        charges: &[(usize, &'static str)],
        refuses: &[bool],
        hard: bool,
        decision: &Decision,
        what: &str,
    ) {
        let mut quotas = decision.quotas();
        for ((at, key), refuses) in charges.iter().zip(refuses) {
            let limit = &self.limits[*at];
            let rules = self.handle.rules();
            let policies = rules.limiter_of(&limit.name).expect("a limit");
            let is_pardoned = hard && limit.overflows && !limit.is_blocked(key);
            let mut denies = false;
            for (policy, left) in policies.policies().iter().zip(limit.left(key, true)) {
                let quota = quotas.next().expect("all quotas");
                assert_eq!(quota.name(), policy.name(), "{what}");
                denies |= quota.is_denied();
                if self.is_exact {
                    assert_eq!(quota.remaining(), left, "{what}{decision:?}");
                }
            }
            // A denial that is kept on this node has only the limits that this node has a denial of.
            if self.is_exact || !decision.is_denied() {
                assert_eq!(denies, *refuses && !is_pardoned, "{what}{decision:?}");
            }
        }
        assert!(quotas.next().is_none(), "{what}");
    }

    async fn compare(&self, what: &str) {
        for (at, limit) in self.limits.iter().enumerate() {
            for key in KEYS {
                let peeked = self.limiter(at).peek(&Key::from(key), 1).await;
                let peeked = peeked.expect("an answer");
                let left = peeked.quotas().map(|quota| quota.remaining());
                assert!(left.eq(limit.left(key, false)), "{what}{peeked:?}");
            }
        }
    }
}

fn parts<'a>(charges: impl Iterator<Item = (&'a str, &'a str)>) -> Parts {
    let peer = SocketAddr::from(([203, 0, 113, 7], 4_000));
    let request = charges.fold(Request::get("/").extension(peer), |request, (name, key)| {
        request.header(format!("x-{name}"), key)
    });
    request.body(()).expect("a request").into_parts().0
}

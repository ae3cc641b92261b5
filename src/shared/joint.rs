//! Limits of all nodes that are charged together: each is asked at once, those with leases after the
//! others, and what was taken of the others is given back where one denies.

use std::{
    future::{Future, IntoFuture as _},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{answer::RedisFuture, redis_limiter::RedisLimiter};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op},
    error::{ConfigError, ConfigErrorKind, LimiterError},
    key::{Key, KeyExtractor},
    limiter::{
        Limiter, Pending, Tier,
        erased_member::MemberCall,
        joint::{KeyedLimit, Member, sealed::Sealed},
        tier_set::TierSet,
    },
    quota::{Algorithm, OwnedQuota, Quota},
    store::home::Home,
};

impl Sealed for RedisLimiter {}

#[allow(
    private_bounds,
    private_interfaces,
    reason = "nobody else implements it"
)]
impl Member for RedisLimiter {
    fn check(limiters: &[&Self]) -> Result<(), ConfigError> {
        for limiter in limiters {
            if let Some(fault) = limiter.with_limits(irrevocable) {
                return Err(refused(limiter.policies()[0].name(), fault));
            }
        }
        for limiter in limiters {
            limiter.0.client().join();
        }
        Ok(())
    }

    fn knows(&self, tier: &Tier) -> bool {
        self.with_limits(|limits| limits.knows(tier))
    }

    fn replace_quota(&self, name: &str, quota: OwnedQuota) -> Result<(), ConfigError> {
        self.set_quota(name, quota)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.with_limits(|limits| limits.quota(name))
    }

    #[cfg(feature = "rules")]
    fn hand_over_to(&self, next: &Self) {
        self.make_way_for(next);
    }

    fn apply_together<'a>(
        calls: impl Iterator<Item = MemberCall<'a, Self>> + Clone,
    ) -> Pending<RedisFuture> {
        let asked: Vec<_> = calls.map(|call| AskedMember::new(&call)).collect();
        if let Some(denied) = remembered(&asked) {
            return Pending::Ready(Ok(denied));
        }
        let home = asked.first().map(AskedMember::home).cloned();
        let home = home.unwrap_or(Home::of_callers());
        let deadlines = asked.iter().map(|asked| asked.limiter.store().deadline());
        let until = {
            // By the clock of its timers.
            let runtime = home.runtime();
            let _entered = runtime.as_ref().map(Handle::enter);
            Instant::now() + deadlines.max().unwrap_or_default()
        };
        let ask_now = |asked: &AskedMember| (!asked.spends_leases()).then(|| asked.ask());
        let answers: Vec<_> = asked.iter().map(ask_now).collect();
        let decision = decide(asked, answers, until);
        Pending::Later(RedisFuture::new(Unabandoned::new(&home, decision)))
    }
}

fn refused(name: &str, fault: &str) -> ConfigError {
    ConfigError::new(
        ConfigErrorKind::Joint,
        format!(
            "the limit {name:?} has {fault}, which cannot be taken back in Redis when another limit \
             denies: give it a layer of its own, inside this one"
        ),
    )
}

const LEAKY_BUCKET: &str = "a leaky bucket";

const fn is_leaky(quota: &Quota) -> bool {
    matches!(quota.algorithm(), Algorithm::LeakyBucket { .. })
}

/// A part of a limit that leaves more behind than a refund takes back.
fn irrevocable(limits: &TierSet) -> Option<&'static str> {
    let mut quotas = limits.tiers().flat_map(|(_, quotas)| &quotas.quotas);
    if quotas.any(is_leaky) {
        return Some(LEAKY_BUCKET);
    }
    limits.block_for.map(|_| "block_for")
}

impl RedisLimiter {
    /// Whether the quota may become one of this limiter's, which others may be charged with.
    pub(super) fn accepts(&self, quota: &OwnedQuota) -> Result<(), ConfigError> {
        let quota = quota.quota();
        if self.0.client().is_joint() && is_leaky(&quota) {
            Err(refused(self.policies()[0].name(), LEAKY_BUCKET))
        } else {
            Ok(())
        }
    }

    /// This limiter, by the key that `extractor` finds, for a list of limits that are [charged
    /// together](crate::RateLimitLayer::all).
    pub fn by(self, extractor: impl KeyExtractor) -> KeyedLimit<Self> {
        KeyedLimit::new(self, extractor)
    }
}

/// A limit that was charged, kept for a refund.
struct AskedMember {
    limiter: RedisLimiter,
    key: Key,
    tier: Tier,
    op: Op,
}

impl AskedMember {
    fn new(call: &MemberCall<'_, RedisLimiter>) -> Self {
        Self {
            limiter: call.limiter.clone(),
            key: Key::from_bytes(call.key),
            tier: call.tier.clone(),
            op: call.op.clone(),
        }
    }

    fn ask(&self) -> Pending<RedisFuture> {
        self.limiter
            .apply_in(&self.tier, &self.key, self.op.clone())
    }

    fn home(&self) -> &Home {
        self.limiter.store().home()
    }

    /// Whether it takes units that this node holds already. What was spent of a lease cannot always be
    /// given back: the lease may have ended.
    fn spends_leases(&self) -> bool {
        self.takes() && self.limiter.has_leases()
    }

    /// Asks within what is left of the time for all answers.
    fn ask_until(&self, until: Instant) -> Pending<RedisFuture> {
        let left = until.saturating_duration_since(Instant::now());
        self.limiter
            .apply_within(left, &self.tier, &self.key, self.op.clone())
    }

    /// The decision of a limit that was not asked, because another one denies.
    fn unasked(&self, now: Timestamp) -> Decision {
        Decision::unmeasured(now, self.limiter.policies())
    }

    /// Whether it takes units, all or none.
    const fn takes(&self) -> bool {
        matches!(
            self.op,
            Op::Acquire(_) | Op::Reserve(_) | Op::AcquireUpTo(_)
        )
    }

    /// Gives back all but `kept` of the units that were charged.
    fn give_back(&self, charged: &Decision, kept: u64) -> Option<Pending<RedisFuture>> {
        let units = charged
            .charged()
            .checked_sub(kept)
            .filter(|units| *units > 0)?;
        let refund = Op::Refund(units, Some(charged.receipt()));
        Some(self.limiter.apply_in(&self.tier, &self.key, refund))
    }
}

/// The denial that is remembered of any of the limits: then none of them is asked.
fn remembered(asked: &[AskedMember]) -> Option<Decision> {
    let denial = |asked: &AskedMember| {
        let takes = asked.takes();
        takes.then(|| asked.limiter.denial(&asked.tier, &asked.key, &asked.op))?
    };
    let denials: Vec<_> = asked.iter().map(denial).collect();
    let now = denials.iter().flatten().next()?.decided_at();
    let all = denials
        .into_iter()
        .zip(asked)
        .map(|(denial, asked)| denial.unwrap_or_else(|| asked.unasked(now)));
    Some(Decision::merge(all.collect()))
}

/// The decision of all limits together. What is given back is waited for until the time by which all
/// answers had to come, and given back all the same.
async fn decide(
    asked: Vec<AskedMember>,
    pending: Vec<Option<Pending<RedisFuture>>>,
    until: Instant,
) -> Result<Decision, LimiterError> {
    let mut answers = answers_of(&asked, pending, until).await;
    let takes = asked.iter().all(AskedMember::takes);
    if takes && !answers.iter().all(passes) {
        give_back(&asked, &mut answers, 0, until).await;
    } else if takes {
        let charged = answers.iter().flatten().map(Decision::charged);
        let kept = charged.filter(|charged| *charged > 0).min().unwrap_or(0);
        give_back(&asked, &mut answers, kept, until).await;
    }
    let decisions: Result<Vec<_>, _> = answers.into_iter().collect();
    let limits = asked.iter().map(|asked| asked.limiter.0.limit_identity());
    Ok(Decision::merge(decisions?).by_limits(limits))
}

fn passes(answer: &Result<Decision, LimiterError>) -> bool {
    answer.as_ref().is_ok_and(Decision::is_allowed)
}

/// The answers of all limits: of those that are under way, and then of each that is not, as long as
/// none denies.
async fn answers_of(
    asked: &[AskedMember],
    pending: Vec<Option<Pending<RedisFuture>>>,
    until: Instant,
) -> Vec<Result<Decision, LimiterError>> {
    // To wait for one that is under way does not hold up another.
    let mut answers = Vec::with_capacity(pending.len());
    for answer in pending {
        answers.push(match answer {
            Some(answer) => Some(answer.await),
            None => None,
        });
    }
    let mut go_on = answers.iter().flatten().all(passes);
    let first = answers.iter().flatten().flatten().next();
    let mut now = first.map_or_else(Timestamp::default, Decision::decided_at);
    for (answer, asked) in answers.iter_mut().zip(asked) {
        if answer.is_none() {
            let own = if go_on {
                asked.ask_until(until).await
            } else {
                Ok(asked.unasked(now))
            };
            go_on = go_on && passes(&own);
            now = own.as_ref().map_or(now, Decision::decided_at);
            *answer = Some(own);
        }
    }
    answers.into_iter().flatten().collect()
}

/// Leaves no limit charged more than `kept`, and takes its word for how it stands then.
async fn give_back(
    asked: &[AskedMember],
    answers: &mut [Result<Decision, LimiterError>],
    kept: u64,
    until: Instant,
) {
    let refund = |(asked, answer): (&AskedMember, &Result<Decision, _>)| {
        let refund = asked.give_back(answer.as_ref().ok()?, kept)?;
        Some(timeout_at(
            until,
            Unabandoned::new(asked.home(), refund.into_future()),
        ))
    };
    let refunds: Vec<_> = asked.iter().zip(&*answers).map(refund).collect();
    for (answer, refund) in answers.iter_mut().zip(refunds) {
        let Some(refund) = refund else { continue };
        match (refund.await, &mut *answer) {
            // What is kept has the receipt of its charge.
            (Ok(Ok(_)), Ok(decision)) if kept > 0 => decision.keep_charged(kept),
            (Ok(Ok(refunded)), answer) => *answer = Ok(refunded),
            // It is on its way, and must not be given back a second time.
            (Err(_), Ok(decision)) => decision.keep_charged(kept),
            // It stays charged: that is no reason to let the request pass.
            (_, _) => {}
        }
    }
}

/// A future with the timers of a store's home, which finishes it when nobody waits for it any more:
/// a client that hangs up must not leave limits charged for a request that another one denies.
struct Unabandoned {
    work: Option<Work>,
    home: Home,
}

type Work = Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>;

impl Unabandoned {
    fn new(
        home: &Home,
        work: impl Future<Output = Result<Decision, LimiterError>> + Send + 'static,
    ) -> Self {
        let own = home.clone();
        Self {
            work: Some(Box::pin(async move { own.within(work).await })),
            home: home.clone(),
        }
    }
}

impl Future for Unabandoned {
    type Output = Result<Decision, LimiterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("polled after it was ready");
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl Drop for Unabandoned {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.home.spawn(async move { drop(work.await) });
        }
    }
}

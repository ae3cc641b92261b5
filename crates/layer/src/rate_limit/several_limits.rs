//! Layers of several limits, each with a key of its own.

use super::{layer::RateLimitLayer, settings::UnitLimit};
use crate::key::Global;
use tower_ratelimit_core::{
    error::ConfigError,
    limiter::{
        joint::{IntoMembers, JointLimiter, KeyedLimit},
        limiter::Limiter,
    },
};

impl RateLimitLayer {
    /// A layer of several limits, each with a key of its own, that charges all of them or none: a
    /// request that one denies takes nothing from the others.
    ///
    /// ```
    /// use tower_ratelimit::{Global, Header, PeerIp, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::all([
    ///     Quota::per_second(5).named("address").by(PeerIp),
    ///     Quota::per_minute(1_000).named("tenant").by(Header::new("x-tenant")),
    ///     Quota::per_second(500).named("everybody").by(Global),
    /// ]);
    /// # let _ = layer;
    /// ```
    ///
    /// Quotas are counted in a [`LocalStore`](tower_ratelimit_core::LocalStore) of their own. Limiters of one type
    /// are listed in the same way: a [`LocalLimiter`](tower_ratelimit_core::LocalLimiter) with tiers or blocks that was [built in a
    /// store](tower_ratelimit_core::limiter::LocalLimiterBuilder::build_in), or a `RedisLimiter`. In this process
    /// all limits are charged in one step. In Redis all are charged at the same time, and if one denies,
    /// the others are refunded. Until then another request may be denied that would have passed, but
    /// none passes that should not. A `RedisLimiter` that holds [leases](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/shared/struct.Mode.html) is charged
    /// after the others have allowed the request, because a lease that has expired takes no refund. With
    /// two of them, the first keeps its charge in about one of 1,000 denials by the second: list the one
    /// that denies more first.
    ///
    /// - [`on_missing_key`](Self::on_missing_key) applies to each limit whose key is missing: the limit
    ///   counts under the shared key, is left out, or the request is rejected.
    /// - [`cost`](Self::cost) and [`count_if`](Self::count_if) apply to all limits.
    /// - A [`tier`](Self::tier) applies to the limits that have it. A request's own
    ///   [`quota`](Self::quota) is not supported.
    /// - [`skip_key`](Self::skip_key) and then [`deny_key`](Self::deny_key) check each key that exists,
    ///   before a missing one matters: one listed key is enough. Observers and handlers see the key of the limit that
    ///   binds, and all [keys](crate::observe::Decided::keys).
    /// - A limit that [`spends`](KeyedLimit::spends) is charged by the response, if the layer is made
    ///   [`spending`](Self::spending).
    /// - Requests that [`wait`](Self::wait) join the queue of the limit that denies them, for its key: of
    ///   several the one with the longest wait.
    ///
    /// # Panics
    ///
    /// When [`try_all`](Self::try_all) fails.
    #[track_caller]
    pub fn all<I: IntoMembers>(
        limits: impl IntoIterator<Item = KeyedLimit<I>>,
    ) -> RateLimitLayer<JointLimiter<I::Limiter>> {
        match Self::try_all(limits) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// A layer of several limits, each with a key of its own, that charges all of them or none. See
    /// [`all`](Self::all).
    ///
    /// # Errors
    ///
    /// When a quota makes no sense, see [`Quota::check`](tower_ratelimit_core::Quota::check), or the limits cannot
    /// be charged together, see [`JointLimiter::new`].
    pub fn try_all<I: IntoMembers>(
        limits: impl IntoIterator<Item = KeyedLimit<I>>,
    ) -> Result<RateLimitLayer<JointLimiter<I::Limiter>>, ConfigError> {
        let (mut members, mut extractors) = (Vec::new(), Vec::new());
        let (mut priorities, mut units) = (Vec::new(), Vec::new());
        for limit in limits {
            members.push(limit.limit);
            extractors.push(limit.extractor);
            priorities.push(limit.priority);
            units.push(limit.units);
        }
        let limiter = JointLimiter::new(I::into_members(members)?)?;
        for (limit, priority) in limiter.limiters().iter().zip(&priorities) {
            if priority.is_some() {
                limit.facts().classes?;
            }
        }
        if priorities.iter().all(Option::is_none) {
            priorities.clear();
        }
        let spends = limiter.limiters().iter().zip(units);
        let spends = spends.map(|(limit, units)| Some(UnitLimit::new(limit, units?)));
        let spends: Box<[_]> = spends.collect();
        // Replaced by those of the limits.
        let layer = Self::try_new(limiter, Global)?;
        Ok(layer.with(|settings| {
            settings.common.key_rules.set_extractors(extractors);
            settings.own_priorities = priorities.into();
            if spends.iter().any(Option::is_some) {
                settings.spends = spends.into();
            }
            settings.has_several_limits = true;
        }))
    }
}

//! The store of the rules' counts, the limiter of each rule, and all of them together.

use std::{fmt, ops::Range, path::Path, sync::Arc};

use tower_ratelimit_rulefile::{Problem, ProblemCode, RulesError};

use super::{
    compile::StoreSettings,
    in_flight::InFlightRule,
    reload_changes::CounterIdentity,
    rule::Rule,
    rule_quotas::{CountedUnits, QuotaSet},
    rule_selection::ChargeOfRule,
};
use tower_ratelimit_concurrency::PermitSource;
use tower_ratelimit_core::{
    clock::SharedClock,
    decision::Policy,
    error::ConfigError,
    limiter::{
        AnyLimiter, BoxedFuture, Call, Charge, Facts, Limiter, LocalLimiterBuilder, LocalStore,
        Member, OpRef, Pending, Tier, joint,
        limits_in_force::{LimitTerms, TierSet},
    },
    quota::{Algorithm, OwnedQuota},
};

/// The store of the rules' counts: a [`LocalStore`], or a `RedisStore` that all nodes share.
#[derive(Debug, Clone)]
pub struct RulesStore(Place);

#[derive(Debug, Clone)]
enum Place {
    Local(LocalStore),
    #[allow(dead_code, reason = "without the feature `redis` there is none")]
    Redis(Arc<dyn SharedStore>),
}

/// A store that all nodes share.
trait SharedStore: fmt::Debug + Send + Sync {
    fn limiter(
        &self,
        terms: LimitTerms,
        settings: &StoreSettings,
    ) -> Result<AnyLimiter, ConfigError>;

    /// The place of the permits of a rule; a key may have `most` of them. All tiers of a rule count together.
    fn permit_source(
        &self,
        rule: (&Rule, &InFlightRule),
        most: u64,
        settings: &StoreSettings,
    ) -> Result<PermitSource, ConfigError>;
}

impl From<LocalStore> for RulesStore {
    fn from(store: LocalStore) -> Self {
        Self(Place::Local(store))
    }
}

#[cfg(feature = "redis")]
impl From<tower_ratelimit_store::redis::RedisStore> for RulesStore {
    fn from(store: tower_ratelimit_store::redis::RedisStore) -> Self {
        Self(Place::Redis(Arc::new(store)))
    }
}

impl RulesStore {
    pub(super) fn own(
        settings: &StoreSettings,
        clock: &SharedClock,
        state: Option<&Path>,
    ) -> Result<Self, RulesError> {
        let mut builder = LocalStore::builder().shared_clock(clock.clone());
        if let Some(max_keys) = settings.max_keys {
            builder = builder.max_keys(max_keys);
        }
        let refused = |error: ConfigError| {
            let problem = Problem::without_place(ProblemCode::R01, error.to_string());
            RulesError::new(vec![problem])
        };
        let built = match state {
            Some(state) => builder.restore_or_new(state),
            None => builder.build(),
        };
        built.map(Self::from).map_err(refused)
    }

    /// The table of this process, if the rules count in one.
    pub(super) const fn local(&self) -> Option<&LocalStore> {
        match &self.0 {
            Place::Local(store) => Some(store),
            Place::Redis(_) => None,
        }
    }

    pub(super) const fn counter_identity(&self) -> CounterIdentity {
        match self.0 {
            Place::Local(_) => CounterIdentity::Names,
            Place::Redis(_) => CounterIdentity::Positions,
        }
    }

    /// The clock of the counts, if it is one of this process.
    pub(super) fn clock(&self) -> Option<&SharedClock> {
        match &self.0 {
            Place::Local(store) => Some(store.clock()),
            Place::Redis(_) => None,
        }
    }

    /// The limits of all rules, by position: one for each kind of units that the rule counts; and those of their sets.
    ///
    /// # Errors
    ///
    /// When the store cannot count by a rule.
    pub(super) fn limits(
        &self,
        rules: &[Rule],
        settings: &StoreSettings,
    ) -> Result<(RuleLimits, Arc<[LimitsOfSets]>), RulesError> {
        if let Place::Redis(_) = &self.0 {
            check_refunds(rules)?;
        }
        let (mut limits, mut limits_of_sets) = (Vec::new(), Vec::new());
        for rule in rules {
            let sets = rule.allowance.sets.iter();
            let mut of_sets: LimitsOfSets = sets.map(|_| Vec::with_capacity(1)).collect();
            for units in rule.allowance.kinds() {
                let sets = rule.allowance.indexed_sets().into_iter();
                let of_kind = |(at, set): (_, &QuotaSet)| Some((at, set.of_kind(units.as_ref())?));
                let sets: Vec<_> = sets.filter_map(of_kind).collect();
                let limiter = self.limiter(rule, units.as_ref(), &sets, settings);
                for (place, (at, set)) in sets.iter().enumerate() {
                    let tier = if place == 0 {
                        Tier::DEFAULT
                    } else {
                        Tier::named_owned(at.to_string())
                    };
                    of_sets[*at].push(LimitOfSet::new(limits.len(), tier, set, units.is_some()));
                }
                limits.push(RuleLimit {
                    limiter: limiter.map_err(refused(rule))?,
                    rule: rule.position,
                    units,
                });
            }
            limits_of_sets.push(of_sets);
        }
        let rule_of = |limit: &RuleLimit| &rules[usize::from(limit.rule)];
        let hard: Vec<_> = limits.iter().filter(|of| !rule_of(of).shadow).collect();
        // A batch of MCP charges such a rule several times in one call.
        let has_tools = hard.iter().any(|limit| rule_of(limit).key.names_tool());
        if let (Place::Redis(_), Some(first)) = (&self.0, hard.first())
            && (hard.len() > 1 || has_tools)
        {
            let limiters: Vec<_> = hard.iter().map(|limit| limit.limiter.clone()).collect();
            joint::check(&limiters).map_err(refused(rule_of(first)))?;
        }
        Ok((RuleLimits(limits.into()), limits_of_sets.into()))
    }

    /// The places where the permits of all rules are counted, by position: one for each tier with a limit of its own. Empty
    /// if no rule has `in_flight`.
    ///
    /// # Errors
    ///
    /// When the store cannot count by a rule.
    pub(super) fn permit_sources(
        &self,
        rules: &[Rule],
        settings: &StoreSettings,
    ) -> Result<Box<[SourcesOfRule]>, RulesError> {
        let of_rule = |rule: &Rule| {
            let Some(limit) = rule.in_flight.as_deref() else {
                return Ok(SourcesOfRule::default());
            };
            let sources = limit.most_of_tiers().map(|most| match &self.0 {
                Place::Local(_) => Ok(PermitSource::Process),
                Place::Redis(store) => store.permit_source((rule, limit), most, settings),
            });
            sources.collect::<Result<_, _>>().map_err(refused(rule))
        };
        if rules.iter().all(|rule| rule.in_flight.is_none()) {
            return Ok(Box::default());
        }
        rules.iter().map(of_rule).collect()
    }

    fn limiter(
        &self,
        rule: &Rule,
        units: Option<&CountedUnits>,
        sets: &[(usize, QuotaSet)],
        settings: &StoreSettings,
    ) -> Result<AnyLimiter, ConfigError> {
        let mut terms = LimitTerms {
            block_for: rule.block_for,
            on_change: rule.on_change,
            ..LimitTerms::of(sets[0].1.to_owned_quotas())
        };
        for (index, set) in &sets[1..] {
            terms.add_tier(index.to_string().into(), set.to_owned_quotas());
        }
        // The part of the units cannot be a part of a rule's name.
        let of_units = units.map(|units| format!("\n{}", units.label()));
        let of_units = of_units.unwrap_or_default();
        let name = |prefix| Some(format!("{prefix}{}{of_units}", rule.name));
        Ok(match &self.0 {
            Place::Local(store) => {
                terms.name = name("rule:");
                // They stay the same across reloads.
                let names = |(_, set): &(usize, QuotaSet)| {
                    let quotas = set.0.iter();
                    quotas.map(|quota| quota.counter.to_string()).collect()
                };
                terms.counter_names = Some(sets.iter().map(names).collect());
                AnyLimiter::new(LocalLimiterBuilder::of(terms).build_in(store)?)
            }
            Place::Redis(store) => {
                terms.name = name("rule.");
                store.limiter(terms, settings)?
            }
        })
    }
}

/// The places where the permits of a rule are counted, one for each tier with a limit of its own.
pub(super) type SourcesOfRule = Box<[PermitSource]>;

/// The fault of a rule by which the store cannot count.
fn refused(rule: &Rule) -> impl FnOnce(ConfigError) -> RulesError {
    |error| {
        let problem = Problem::new(ProblemCode::R04, &rule.span, error.to_string());
        RulesError::new(vec![problem])
    }
}

/// Refuses rules that a refund in Redis does not take back, if another charge may be denied: of another rule, or of another
/// call of a batch of MCP.
fn check_refunds(rules: &[Rule]) -> Result<(), RulesError> {
    let hard = rules.iter().filter(|rule| !rule.shadow);
    let hard = hard.filter(|rule| !rule.allowance.sets().is_empty());
    let is_alone = hard.clone().count() < 2;
    let other = if is_alone { "call of a batch" } else { "rule" };
    let refunded = hard.filter(|rule| !is_alone || rule.key.names_tool());
    let faults = refunded.filter_map(|rule| {
        let fault = irrevocable(rule)?;
        let message = format!(
            "in Redis {fault} cannot be taken back when another {other} denies; limit this in a \
             layer of its own, or in this process"
        );
        Some(Problem::new(ProblemCode::R04, &rule.span, message))
    });
    match faults.collect::<Vec<_>>() {
        faults if faults.is_empty() => Ok(()),
        faults => Err(RulesError::new(faults)),
    }
}

fn irrevocable(rule: &Rule) -> Option<&'static str> {
    let sets = rule.allowance.sets();
    let mut quotas = sets.iter().flat_map(|set| set.quotas());
    let is_leaky = |quota: &OwnedQuota| {
        let algorithm = quota.quota().algorithm();
        matches!(algorithm, Algorithm::LeakyBucket { .. })
    };
    if quotas.any(is_leaky) {
        return Some("a leaky bucket");
    }
    rule.block_for.map(|_| "`block_for`")
}

/// All limits of a set of rules: those of a call are charged together or not at all, except that limits of rules with the
/// action `overflow` do not hold the others back. The index of a charge is that of its limit, which may have charges of
/// several keys.
#[derive(Debug, Clone)]
pub struct RuleLimits(pub(super) Arc<[RuleLimit]>);

/// A rule's limit of requests, or of units of one kind.
#[derive(Debug)]
pub(super) struct RuleLimit {
    /// The rule's position.
    pub(super) rule: u16,
    /// `None` for requests.
    pub(super) units: Option<CountedUnits>,
    pub(super) limiter: AnyLimiter,
}

/// The quotas of a set that count alike, which are those of a tier of one limit.
#[derive(Debug)]
pub(super) struct LimitOfSet {
    /// The index of the limit.
    pub(super) limit: usize,
    pub(super) tier: Tier,
    pub(super) policies: Box<[Policy]>,
    /// Whether they count units of responses instead of requests.
    pub(super) counts_units: bool,
    /// The most units that all of them have.
    pub(super) capacity: u64,
}

/// The limits of each set of quotas of a rule, in the order of decisions.
pub(super) type LimitsOfSets = Box<[Vec<LimitOfSet>]>;

impl RuleLimits {
    /// The indexes of a rule's limits.
    pub(super) fn of_rule(&self, rule: &Rule) -> Range<usize> {
        let first = self.0.partition_point(|own| own.rule < rule.position);
        let own = self.0[first..].partition_point(|own| own.rule == rule.position);
        first..first + own
    }

    /// The index of a rule's limit of requests or of these units.
    pub(super) fn index_of(&self, rule: &Rule, units: Option<&CountedUnits>) -> Option<usize> {
        let label = units.map(CountedUnits::label);
        let is_own = |own: &RuleLimit| own.units.as_ref().map(CountedUnits::label) == label;
        self.of_rule(rule).find(|at| is_own(&self.0[*at]))
    }

    #[inline(never)]
    fn call_several(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        AnyLimiter::call_list(|limit| Some(&self.0.get(limit)?.limiter), call)
    }
}

impl LimitOfSet {
    fn new(limit: usize, tier: Tier, set: &QuotaSet, counts_units: bool) -> Self {
        let capacities = set.quotas().map(|quota| quota.quota().capacity());
        // The compilation has checked them.
        let limits = TierSet::new(LimitTerms::of(set.to_owned_quotas()));
        let policies = limits.map(|limits| limits.default_tier().policies.to_vec());
        Self {
            limit,
            tier,
            policies: policies.unwrap_or_default().into(),
            counts_units,
            capacity: capacities.min().unwrap_or(u64::MAX),
        }
    }

    /// The charge of a request: a denial starts a block at once unless another operation may follow, which `reserves`.
    #[inline]
    pub(super) fn charge<'a>(&'a self, charge: &'a ChargeOfRule<'_>, reserves: bool) -> Charge<'a> {
        let cost = u64::from(charge.cost);
        let op = if reserves {
            OpRef::Reserve(cost)
        } else {
            OpRef::Acquire(cost)
        };
        let own = Charge::new(&charge.key, op).limit(self.limit);
        let own = own.tier(&self.tier).class(charge.class);
        own.overflows(charge.rule.overflows())
    }
}

impl Limiter for RuleLimits {
    type Future = BoxedFuture;

    #[inline]
    fn call(&self, call: &Call<'_>) -> Pending<BoxedFuture> {
        if let [only] = call.charges
            && let Some(limit) = self.0.get(only.index())
        {
            return limit.limiter.call(call);
        }
        self.call_several(call)
    }

    /// None: which policies a request meets depends on its charges.
    fn policies(&self) -> &[Policy] {
        &[]
    }

    /// All limiters are in this process or in Redis, and alike.
    fn facts(&self) -> Facts {
        Facts::new().identified_by(&self.0)
    }

    fn boxed(future: BoxedFuture) -> BoxedFuture {
        future
    }
}

/// Rules that count in Redis: their limiters, and the rules that it cannot refund.
#[cfg(feature = "redis")]
mod redis {
    use std::time::Duration;

    use super::SharedStore;
    use crate::{
        compile::{OnStoreFailure, StoreSettings},
        in_flight::InFlightRule,
        rule::Rule,
    };
    use tower_ratelimit_concurrency::{
        PermitSource, SharedConcurrency, concurrency_limit::Concurrency,
    };
    use tower_ratelimit_core::{
        error::ConfigError,
        limiter::{AnyLimiter, limits_in_force::LimitTerms},
    };
    use tower_ratelimit_shared::{RedisLimiterBuilder, fallback::OnFailure};
    use tower_ratelimit_store::{key_name::accepted_name, redis::RedisStore};

    /// The longest time that a denial by Redis stays cached on a node: a reset by an operator takes effect after it.
    const LONGEST_DENIAL: Duration = Duration::from_secs(1);

    impl SharedStore for RedisStore {
        fn limiter(
            &self,
            mut terms: LimitTerms,
            settings: &StoreSettings,
        ) -> Result<AnyLimiter, ConfigError> {
            terms.name = terms.name.map(accepted_name);
            let builder = RedisLimiterBuilder::of(terms)
                .on_failure(on_failure(settings))
                .remember_denials_for(LONGEST_DENIAL);
            Ok(AnyLimiter::new(builder.build(self)?))
        }

        fn permit_source(
            &self,
            (rule, limit): (&Rule, &InFlightRule),
            most: u64,
            settings: &StoreSettings,
        ) -> Result<PermitSource, ConfigError> {
            let concurrency = Concurrency::max(most).named_owned(&*limit.name);
            let shared = SharedConcurrency::new(self, concurrency)
                .name(accepted_name(format!("rule.{}", rule.name)))
                .on_failure(on_failure(settings));
            let leased = limit
                .lease
                .into_iter()
                .fold(shared, SharedConcurrency::lease);
            leased.source()
        }
    }

    const fn on_failure(settings: &StoreSettings) -> OnFailure {
        match settings.on_failure {
            Some(OnStoreFailure::Allow) => OnFailure::allow(),
            Some(OnStoreFailure::Deny) => OnFailure::deny(),
            Some(OnStoreFailure::Local) | None => OnFailure::local(),
        }
    }
}

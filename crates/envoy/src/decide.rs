//! Decisions about a request by the rules and the counters: the modes of the service, the verdict, and the answer.

mod charges;
mod lookup;
mod reservation;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use clap::{Args, ValueEnum};
use metrics::counter;
use tokio::{task::JoinError, time::Instant};
use tower_ratelimit::{Decision, Key, decision::Op, observe::TopKeys, reject::quota_exceeded};

pub use self::lookup::DecideError;
pub(crate) use self::lookup::invalid;
use self::lookup::{Lookup, Overrides, look_up, look_up_entries};
pub(crate) use self::{charges::Charged, reservation::ReservedUnits};
use crate::{
    limiters_by_period::{Charge, Counters, Measure},
    lyft::{NameAndValues, Rules, TooManyOrders, merge_metadata},
    protobuf_messages::{
        Code, DescriptorStatus, Duration, Entry, HeaderValue, RateLimitDescriptor,
        RateLimitRequest, RateLimitResponse, Struct, Value,
    },
    reference_statistics::Statistics,
    response_headers::{HeaderSet, fields, header_names},
};
use tower_ratelimit_service::{
    options::defaults,
    otel_spans::{Outcome, Span},
    rules_source::Count,
};

/// The limits of a service: replaceable rules, the counters, and the modes. Clones share all of them.
#[derive(Debug, Clone)]
pub struct RateLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    counters: Counters,
    modes: Modes,
    rules: RwLock<Option<Arc<Rules>>>,
    overrides: RwLock<Arc<Overrides>>,
    top: Arc<TopKeys>,
    statistics: Statistics,
}

impl RateLimits {
    /// Limits without rules: until [`set_rules`](Self::set_rules) every decision fails as unavailable.
    pub fn new(counters: Counters, modes: Modes) -> Self {
        Self(Arc::new(Inner {
            counters,
            modes,
            rules: RwLock::new(None),
            overrides: RwLock::default(),
            top: Arc::default(),
            statistics: Statistics::default(),
        }))
    }

    /// Replaces the rules. Counts stay.
    pub fn set_rules(&self, rules: Rules) {
        let rules = Arc::new(rules);
        let mut current = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&rules));
        drop(current);
        self.0.statistics.forget(&rules);
    }

    /// The rules in force.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        let current = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// The overrides in force.
    pub(crate) fn overrides(&self) -> Arc<Overrides> {
        let current = self.0.overrides.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the overrides.
    pub(crate) fn override_by(&self, change: impl FnOnce(&mut Overrides)) {
        let current = self.0.overrides.write();
        change(Arc::make_mut(
            &mut *current.unwrap_or_else(PoisonError::into_inner),
        ));
    }

    /// The statistics of each limit that has been used.
    pub fn statistics(&self) -> &Statistics {
        &self.0.statistics
    }

    /// Decides about a request, and counts it.
    ///
    /// # Errors
    ///
    /// When the request is invalid, there are no rules, or the counters do not respond. A request with more than 256
    /// descriptors, or more than 64 entries in one of them, is invalid.
    pub async fn decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        self.decide_until(None, request).await
    }

    /// [`decide`](Self::decide) with a deadline: if Redis has not responded by then, the fallback decides.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub(crate) async fn decide_until(
        &self,
        until: Option<Instant>,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        let span = Span::begin();
        let answer = match self.0.modes.charge {
            ChargedRequests::Always => self.charge(request, until).await,
            ChargedRequests::Admitted => {
                let (limits, request) = (self.clone(), request.clone());
                to_its_end(async move { limits.charge(&request, until).await }).await
            }
        };
        let backend = self.0.counters.backend();
        span.end(backend, || outcome(&request.domain, &answer));
        answer
    }

    async fn charge(
        &self,
        request: &RateLimitRequest,
        until: Option<Instant>,
    ) -> Result<RateLimitResponse, DecideError> {
        let rules = self.rules_for(request)?;
        let lookups = look_up(&rules, &self.overrides(), request)?;
        let decisions = self.round(&lookups, until).charge().await?;
        self.observe(&rules, request, &lookups, &decisions);
        Ok(self.answer(request, &lookups, &decisions))
    }

    /// The response that [`decide`](Self::decide) would give. Nothing is counted.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn dry_run(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        let rules = self.rules_for(request)?;
        let lookups = look_up(&rules, &self.overrides(), request)?;
        let decisions = self.round(&lookups, None).peek().await?;
        Ok(self.answer(request, &lookups, &decisions))
    }

    /// The rules for a request.
    ///
    /// # Errors
    ///
    /// When the request is invalid, or there are no rules.
    pub(crate) fn rules_for(&self, request: &RateLimitRequest) -> Result<Arc<Rules>, DecideError> {
        lookup::check(request)?;
        self.rules().ok_or_else(|| {
            DecideError::Unavailable("no rate limit configuration loaded".to_owned())
        })
    }

    fn answer(
        &self,
        request: &RateLimitRequest,
        lookups: &[Lookup<'_>],
        decisions: &[Option<Decision>],
    ) -> RateLimitResponse {
        let modes = &self.0.modes;
        let statuses = statuses(lookups, decisions);
        let Verdict { passes, over } = Verdict::of(modes, lookups, &statuses);
        let code = if passes { Code::Ok } else { Code::OverLimit };
        let over = over.and_then(|at| statuses.get(at));
        let least = || least(&statuses).filter(|status| status.limit_remaining < u32::MAX);
        let reported = over.or_else(least);
        let headers =
            reported.map(|status| fields(&modes.rls_headers, &modes.header_names, status, !passes));
        let mut response = RateLimitResponse {
            overall_code: code.into(),
            response_headers_to_add: headers.unwrap_or_default(),
            dynamic_metadata: modes
                .metadata
                .then(|| metadata(request, passed(lookups, &statuses))),
            ..RateLimitResponse::default()
        };
        if !passes && modes.rls_body == DeniedBody::Problem {
            let (kind, body) = problem(lookups, &statuses);
            response.response_headers_to_add.push(kind);
            response.raw_body = body;
        }
        response.statuses = statuses;
        response
    }
}

/// The outcome of a response to descriptors of this domain, for its span: the limit's name, or its domain. Names in
/// statistics are not used, since they may contain values of requests.
fn outcome(
    domain: &str,
    answer: &Result<RateLimitResponse, DecideError>,
) -> Result<Outcome, &'static str> {
    let answer = answer.as_ref().map_err(|error| match error {
        DecideError::Invalid(_) => "invalid",
        DecideError::Unavailable(_) => "unavailable",
    })?;
    let status = deciding(&answer.statuses);
    let limit = status.and_then(|status| status.current_limit.as_ref());
    Ok(Outcome {
        is_denied: answer.overall_code() == Code::OverLimit,
        policy: limit.map(|limit| match limit.name.as_str() {
            "" => domain.to_owned(),
            name => name.to_owned(),
        }),
        remaining: status.map(|status| status.limit_remaining),
    })
}

/// The status that the span reports: the last one over its limit, else the one with the least remaining.
fn deciding(statuses: &[DescriptorStatus]) -> Option<&DescriptorStatus> {
    let mut limited = statuses
        .iter()
        .filter(|status| status.current_limit.is_some());
    let over = limited.rfind(|status| status.code() == Code::OverLimit);
    over.or_else(|| least(statuses))
}

/// Runs a decision in a task of its own, so that it makes its refunds even if the caller drops the future.
async fn to_its_end<T: Send + 'static>(
    decision: impl Future<Output = Result<T, DecideError>> + Send + 'static,
) -> Result<T, DecideError> {
    let lost = |error: JoinError| DecideError::Unavailable(error.to_string());
    tokio::spawn(decision).await.map_err(lost).flatten()
}

/// The problem document about the limits that deny, and its content type field.
fn problem(lookups: &[Lookup<'_>], statuses: &[DescriptorStatus]) -> (HeaderValue, Vec<u8>) {
    let over = lookups
        .iter()
        .zip(statuses)
        .filter(|(_, status)| status.code() == Code::OverLimit);
    let names: Vec<String> = over
        .filter_map(|(lookup, _)| match lookup {
            Lookup::Limited(limited) if limited.limit.name.is_empty() => {
                Some(limited.stats.0.to_string())
            }
            Lookup::Limited(limited) => Some(limited.limit.name.clone()),
            _ => None,
        })
        .collect();
    let kind = HeaderValue {
        key: "content-type".to_owned(),
        value: "application/problem+json".to_owned(),
    };
    let body = quota_exceeded(&names.iter().map(String::as_str));
    (kind, body.to_vec())
}

/// The metadata of the descriptors that passed; the first of two values counts.
fn passed(lookups: &[Lookup<'_>], statuses: &[DescriptorStatus]) -> Struct {
    let mut passed = Struct::default();
    for (lookup, status) in lookups.iter().zip(statuses) {
        let of_limit = match lookup {
            Lookup::Limited(limited) if status.code() != Code::OverLimit => limited.metadata,
            _ => None,
        };
        if let Some(metadata) = of_limit {
            merge_metadata(&mut passed, metadata);
        }
    }
    passed
}

/// The first status with the least remaining, unless none has a limit.
fn least(statuses: &[DescriptorStatus]) -> Option<&DescriptorStatus> {
    let limited = statuses
        .iter()
        .filter(|status| status.current_limit.is_some());
    limited.min_by_key(|status| status.limit_remaining)
}

/// A status for each descriptor.
fn statuses(lookups: &[Lookup<'_>], decisions: &[Option<Decision>]) -> Vec<DescriptorStatus> {
    let statuses = lookups
        .iter()
        .zip(decisions)
        .map(|(lookup, decision)| status(lookup, decision.as_ref()));
    statuses.collect()
}

fn status(lookup: &Lookup<'_>, decision: Option<&Decision>) -> DescriptorStatus {
    let mut status = DescriptorStatus::default();
    status.set_code(Code::Ok);
    let (limited, decision) = match (lookup, decision) {
        (Lookup::Limited(limited), Some(decision)) => (limited, decision),
        (Lookup::Unlimited, _) => {
            status.limit_remaining = u32::MAX;
            return status;
        }
        _ => return status,
    };
    let is_over = decision.is_denied() && !limited.charge.is_refund;
    if is_over && !limited.shadow {
        status.set_code(Code::OverLimit);
    }
    status.limit_remaining = if is_over {
        0
    } else {
        left(&limited.charge, decision)
    };
    status.duration_until_reset = Some(Duration {
        seconds: seconds_until_reset(limited.charge.measure, decision).cast_signed(),
        nanos: 0,
    });
    status.current_limit = Some(limited.limit.clone());
    status
}

/// The units that remain. Unknown, and 0 or the limit, if the store is down and the fallback decides.
fn left(charge: &Charge, decision: &Decision) -> u32 {
    let requests = u64::from(charge.requests);
    let left = match charge.measure {
        Measure::Window(_) => requests.saturating_sub(decision.binding().used().unwrap_or(0)),
        Measure::Quota(_) => decision.remaining().unwrap_or(requests),
    };
    u32::try_from(left).unwrap_or(u32::MAX)
}

/// The seconds to the end of the window. For other quotas, the seconds until a denied request may retry, or until the
/// state is fresh.
fn seconds_until_reset(measure: Measure, decision: &Decision) -> u64 {
    match measure {
        Measure::Window(period) => {
            let now = decision.decided_at().as_micros() / 1_000_000;
            period - now % period
        }
        Measure::Quota(_) => {
            let status = decision.binding();
            let until = status
                .retry_after()
                .or_else(|| status.reset_after())
                .unwrap_or_default();
            (until.as_secs() + u64::from(until.subsec_nanos() > 0)).max(1)
        }
    }
}

/// How requests are charged and answered, for all rules.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Answers to Envoy")]
#[non_exhaustive]
pub struct Modes {
    /// Header fields that Envoy adds to its responses: retry-after, draft11, legacy, envoy.
    /// Default: none.
    #[arg(long, value_name = "SETS", value_delimiter = ',')]
    #[arg(hide_possible_values = true)]
    pub rls_headers: Vec<HeaderSet>,
    /// The body of Envoy's response to a denied client.
    #[arg(long, value_name = "BODY", default_value = "empty")]
    pub rls_body: DeniedBody,
    /// Lets all requests pass; their statuses still report exceeded limits.
    #[arg(long)]
    pub shadow: bool,
    /// Denies a request only when all of its limits are exceeded, as if each had `quota_mode`.
    #[arg(long)]
    pub quota: bool,
    /// The requests that are charged.
    #[arg(long, value_name = "WHICH", default_value = "always")]
    pub charge: ChargedRequests,
    /// Adds dynamic metadata to responses: the request, and the `metadata` of the descriptors that
    /// passed.
    #[arg(long)]
    pub metadata: bool,
    /// The share of a limit, from 0 to 1, above which statistics count units as near the limit. Defaults to 0.8.
    #[arg(skip = 0.8_f32)]
    pub near_limit: f32,
    /// The names, in lower case, of the three fields of [`HeaderSet::Envoy`]: the limit, the units that remain, and the
    /// seconds to its end.
    #[arg(skip = header_names("ratelimit"))]
    pub header_names: [String; 3],
}

impl Default for Modes {
    fn default() -> Self {
        defaults(&[])
    }
}

/// The body of a response to a denied client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum DeniedBody {
    /// An empty body, as from Envoy's reference service.
    Empty,
    /// A problem document. Envoy sends it to gRPC clients as their message.
    Problem,
}

/// The requests that are charged.
///
/// With `Admitted`, each request is decided in a tokio task of its own. If one descriptor denies, the charges of the
/// others are refunded at once. Until then concurrent requests may find less remaining, never more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum ChargedRequests {
    /// All: each descriptor counts independently of the others, as in Envoy's reference service.
    Always,
    /// Only those that pass.
    Admitted,
}

/// Whether a request passes, and the reason.
struct Verdict {
    passes: bool,
    /// The last descriptor that is over its limit and is no quota.
    over: Option<usize>,
}

impl Verdict {
    fn of(modes: &Modes, lookups: &[Lookup<'_>], statuses: &[DescriptorStatus]) -> Self {
        let (mut quotas, mut quotas_over, mut over) = (0, 0, None);
        for (at, (lookup, status)) in lookups.iter().zip(statuses).enumerate() {
            let is_quota = match lookup {
                Lookup::Unlimited => continue,
                Lookup::Nothing => modes.quota,
                Lookup::Limited(limited) => modes.quota || limited.quota,
            };
            quotas += u32::from(is_quota);
            match status.code() {
                Code::OverLimit if is_quota => quotas_over += 1,
                Code::OverLimit => over = Some(at),
                _ => {}
            }
        }
        let is_over = over.is_some() || quotas > 0 && quotas == quotas_over;
        Self {
            passes: !is_over || modes.shadow,
            over,
        }
    }
}

/// The request, and the metadata of the descriptors that passed.
fn metadata(request: &RateLimitRequest, passed: Struct) -> Struct {
    let descriptors = request.descriptors.iter().map(descriptor_metadata);
    let mut fields = BTreeMap::from([
        ("domain".to_owned(), request.domain.as_str().into()),
        (
            "descriptors".to_owned(),
            descriptors.collect::<Vec<_>>().into(),
        ),
    ]);
    if request.hits_addend > 0 {
        fields.insert(
            "hitsAddend".to_owned(),
            f64::from(request.hits_addend).into(),
        );
    }
    if !passed.fields.is_empty() {
        fields.insert("metadata".to_owned(), passed.fields.into());
    }
    Struct { fields }
}

fn descriptor_metadata(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries: Vec<Value> = entries
        .map(|Entry { key, value }| format!("{key}={value}").into())
        .collect();
    let mut fields = BTreeMap::from([("entries".to_owned(), entries.into())]);
    if let Some(limit) = &descriptor.limit {
        let (requests, unit) = (limit.requests_per_unit, limit.unit().name());
        let text = format!("requests_per_unit:{requests} unit:{unit}");
        fields.insert("limit".to_owned(), text.into());
    }
    if let Some(hits) = descriptor.hits_addend {
        fields.insert("hitsAddend".to_owned(), (hits as f64).into());
    }
    fields.into()
}

impl RateLimits {
    /// The descriptors that are denied most often, as texts such as `user=eve,path=/`, by the names of their limits.
    /// Other limits may use the same observer.
    pub fn top(&self) -> &Arc<TopKeys> {
        &self.0.top
    }

    fn observe(
        &self,
        rules: &Rules,
        request: &RateLimitRequest,
        lookups: &[Lookup<'_>],
        decisions: &[Option<Decision>],
    ) {
        let RateLimitRequest {
            domain,
            descriptors,
            ..
        } = request;
        for ((descriptor, lookup), decision) in descriptors.iter().zip(lookups).zip(decisions) {
            let (Lookup::Limited(limited), Some(decision)) = (lookup, decision) else {
                continue;
            };
            if let Some(reason) = decision.degraded_by() {
                counter!("ratelimit_degraded_total", "policy" => "rls", "reason" => reason.as_str())
                    .increment(1);
            }
            if decision.is_denied() && !limited.charge.is_refund {
                let RateLimitDescriptor { entries, limit, .. } = descriptor;
                let found = rules.find(domain, entries).filter(|_| limit.is_none());
                let name =
                    found.map_or_else(|| domain.clone(), |found| found.name(domain, entries));
                // In the format of the admin service.
                let entries: Vec<_> = entries.iter().map(Entry::to_string).collect();
                let key = Key::from(entries.join(","));
                if limited.shadow || self.0.modes.shadow {
                    self.0.top.denied_and_passed(&key, name);
                } else {
                    self.0.top.denied(&key, name);
                }
            }
        }
    }
}

impl RateLimits {
    /// Applies an operation to the count of these entries, under the limit or the domain of this name; `None` if no
    /// limit matches. A limit that is switched off keeps its count.
    ///
    /// # Errors
    ///
    /// When the counters do not respond.
    pub(crate) async fn operate(
        &self,
        name: &str,
        entries: Vec<Entry>,
        operation: Op,
    ) -> Result<Option<Count>, DecideError> {
        let Some(rules) = self.rules() else {
            return Ok(None);
        };
        let Some((domain, found)) = rules.named(name, &entries) else {
            return Ok(None);
        };
        let name = found.name(domain, &entries);
        let overrides = self.overrides().switched_on();
        let Some(limited) = look_up_entries(&rules, &overrides, domain, entries) else {
            return Ok(None);
        };
        let with_units = |units, is_refund| Charge {
            units,
            is_refund,
            ..limited.charge
        };
        let op = match operation {
            Op::Peek(_) => with_units(0, false).count(),
            Op::Hit(units) => with_units(units, false).count(),
            Op::Refund(units, _) => with_units(units, true).count(),
            Op::Reset => Op::Reset,
            other => return Err(invalid(format!("{other:?} is no operation of an operator"))),
        };
        let charge = with_units(0, false);
        let answer = self
            .0
            .counters
            .start(&limited.key, charge, op.as_ref(), None);
        let decision = answer.map_err(|error| invalid(error.to_string()))?.await?;
        Ok(Some(Count {
            name,
            limit: charge.requests,
            decision,
        }))
    }
}

/// The limit of a bucket.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each report"
)]
pub(crate) enum BucketLimit {
    /// No limit, or an unlimited one.
    Nothing,
    Limited(LimitOfBucket),
    /// A limit that counts and denies nothing.
    Shadow(LimitOfBucket),
    /// The id fits the rules in too many orders.
    Ambiguous,
}

/// A counter: a key, and how it counts.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyCounter {
    pub(crate) key: Key,
    pub(crate) measure: Measure,
}

/// A limit and its counter, which many parts of the quota service keep.
#[derive(Debug, Clone)]
pub(crate) struct CountedLimit {
    pub(crate) counter: Arc<KeyCounter>,
    pub(crate) requests: u32,
}

/// A limit, and its name in statistics.
#[derive(Debug, Clone)]
pub(crate) struct LimitOfBucket {
    pub(crate) counted: CountedLimit,
    stats: NameAndValues,
    /// Whether the rule, and not the service, is in shadow mode.
    is_shadow: bool,
}

impl RateLimits {
    /// The limit of a bucket with these pairs; `None` without rules.
    pub(crate) fn bucket_limit(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Option<BucketLimit> {
        let rules = self.rules()?;
        Some(match rules.in_order(domain, pairs) {
            Ok(Some(entries)) => self.limit_of(&rules, domain, entries),
            Ok(None) => BucketLimit::Nothing,
            Err(TooManyOrders) => BucketLimit::Ambiguous,
        })
    }

    fn limit_of(&self, rules: &Rules, domain: &str, entries: Vec<Entry>) -> BucketLimit {
        let Some(limited) = look_up_entries(rules, &self.overrides(), domain, entries) else {
            return BucketLimit::Nothing;
        };
        let limit = LimitOfBucket {
            counted: CountedLimit {
                counter: Arc::new(KeyCounter {
                    key: limited.key,
                    measure: limited.charge.measure,
                }),
                requests: limited.charge.requests,
            },
            stats: limited.stats,
            is_shadow: limited.shadow,
        };
        if limit.is_shadow || self.0.modes.shadow {
            BucketLimit::Shadow(limit)
        } else {
            BucketLimit::Limited(limit)
        }
    }
}

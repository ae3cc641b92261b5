//! Decisions about a request by the rules and the counters.

mod bucket_limit;
mod charges;
mod dynamic_metadata;
mod lent_units;
mod lookup;
mod observe;
mod operation;
mod overrides;
mod reservation;
mod service_modes;
mod verdict;

use std::sync::{Arc, PoisonError, RwLock};

use tokio::{task::JoinError, time::Instant};
use tower_ratelimit::{Decision, observe::TopKeys, reject::quota_exceeded};

pub(crate) use self::bucket_limit::{BucketLimit, CountedLimit, KeyCounter, LimitOfBucket};
pub(crate) use self::lent_units::{Charged, UnitOp};
pub(crate) use self::operation::{Count, Operation};
pub(crate) use self::reservation::ReservedUnits;
pub use self::service_modes::Modes;
use self::{
    dynamic_metadata::metadata,
    lookup::{Lookup, look_up},
    overrides::Overrides,
    verdict::Verdict,
};
pub use crate::decide_and_serve_errors::DecideError;
use crate::{
    limiters_by_period::{Charge, Counters, Measure},
    lyft::{Rules, merge_metadata},
    protobuf_messages::{
        Code, DescriptorStatus, Duration, HeaderValue, RateLimitRequest, RateLimitResponse, Struct,
    },
    reference_statistics::Statistics,
    response_headers::fields,
    telemetry::Span,
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

/// Whether a request is charged, and the caller's deadline.
#[derive(Clone, Copy)]
enum Charges {
    Yes { until: Option<Instant> },
    No,
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
        let answer = self.charged_answer_to(request, until).await;
        span.end(self.0.counters.backend(), &request.domain, &answer);
        answer
    }

    async fn charged_answer_to(
        &self,
        request: &RateLimitRequest,
        until: Option<Instant>,
    ) -> Result<RateLimitResponse, DecideError> {
        if !self.0.modes.charge_admitted {
            return self.answer_to(request, Charges::Yes { until }).await;
        }
        let (limits, request) = (self.clone(), request.clone());
        to_its_end(async move {
            let charges = Charges::Yes { until };
            limits.answer_to(&request, charges).await
        })
        .await
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
        self.answer_to(request, Charges::No).await
    }

    async fn answer_to(
        &self,
        request: &RateLimitRequest,
        charges: Charges,
    ) -> Result<RateLimitResponse, DecideError> {
        let rules = self.rules_for(request)?;
        let lookups = look_up(&rules, &self.overrides(), request)?;
        let decisions = match charges {
            Charges::Yes { until } => {
                let decisions = self.charge(&lookups, until).await?;
                self.observe(&rules, request, &lookups, &decisions);
                decisions
            }
            Charges::No => self.peek(&lookups).await?,
        };
        let statuses = statuses(&lookups, &decisions);
        Ok(self.answer(request, &lookups, statuses))
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
        statuses: Vec<DescriptorStatus>,
    ) -> RateLimitResponse {
        let modes = &self.0.modes;
        let Verdict { passes, over } = Verdict::of(modes, lookups, &statuses);
        let code = if passes { Code::Ok } else { Code::OverLimit };
        let reported = over
            .or_else(|| least(&statuses))
            .and_then(|at| statuses.get(at));
        let headers =
            reported.map(|status| fields(&modes.headers, &modes.header_names, status, !passes));
        let mut response = RateLimitResponse {
            overall_code: code.into(),
            response_headers_to_add: headers.unwrap_or_default(),
            dynamic_metadata: modes
                .metadata
                .then(|| metadata(request, passed(lookups, &statuses))),
            ..RateLimitResponse::default()
        };
        if !passes && modes.problem_body {
            let (kind, body) = problem(lookups, &statuses);
            response.response_headers_to_add.push(kind);
            response.raw_body = body;
        }
        response.statuses = statuses;
        response
    }
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
                Some(limited.stats.to_string())
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

/// The first descriptor with the least remaining, unless none has a limit.
fn least(statuses: &[DescriptorStatus]) -> Option<usize> {
    let limited = statuses
        .iter()
        .enumerate()
        .filter(|(_, status)| status.current_limit.is_some() && status.limit_remaining < u32::MAX);
    let least = limited.min_by_key(|(_, status)| status.limit_remaining);
    least.map(|(at, _)| at)
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

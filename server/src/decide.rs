//! Decisions: what the rules and the counters say of a request together.

mod ask;
mod metadata;

use std::{
    error::Error,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use tower_ratelimit::{ConfigError, Decision, LimiterError};

use self::{
    ask::{Asked, Limited, ask},
    metadata::metadata,
};
use crate::{
    counters::{Charge, Counters},
    headers::{HeaderSet, fields},
    lyft::{Rules, merge_metadata},
    messages::{Code, DescriptorStatus, Duration, RateLimitRequest, RateLimitResponse, Struct},
    metrics,
};

/// Limits by rules that can be exchanged: what the service decides by. A clone is a handle to the same limits.
#[derive(Debug, Clone)]
pub struct RateLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    counters: Counters,
    modes: Modes,
    rules: RwLock<Option<Arc<Rules>>>,
}

/// What is the same for all rules.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Modes {
    shadow: bool,
    quota: bool,
    metadata: bool,
    headers: Vec<HeaderSet>,
}

impl Modes {
    /// Whether all requests pass; the statuses go on to say what is over its limit. Defaults to false.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Whether every descriptor but unlimited ones is a quota, so that a request is over its limit only when all
    /// of them are. Defaults to false.
    pub const fn quota(mut self, quota: bool) -> Self {
        self.quota = quota;
        self
    }

    /// Whether answers have dynamic metadata: the request, and the `metadata` of the descriptors that passed.
    /// Defaults to false.
    pub const fn metadata(mut self, metadata: bool) -> Self {
        self.metadata = metadata;
        self
    }

    /// The header fields for the response to the client. Defaults to none.
    pub fn headers(mut self, headers: impl IntoIterator<Item = HeaderSet>) -> Self {
        self.headers = headers.into_iter().collect();
        self
    }
}

/// Why there is no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecideError {
    /// The request makes no sense; the text says why.
    Invalid(String),
    /// There are no rules, or the store that counts does not answer.
    Unavailable(String),
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid(text) | Self::Unavailable(text)) = self;
        f.write_str(text)
    }
}

impl Error for DecideError {}

impl From<LimiterError> for DecideError {
    fn from(error: LimiterError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

fn invalid(text: impl Into<String>) -> DecideError {
    DecideError::Invalid(text.into())
}

impl RateLimits {
    /// Limits without rules: until [`set_rules`](Self::set_rules) every answer is that they are unavailable.
    #[must_use]
    pub fn new(counters: Counters, modes: Modes) -> Self {
        Self(Arc::new(Inner {
            counters,
            modes,
            rules: RwLock::new(None),
        }))
    }

    /// Puts rules into force. Counts stay.
    pub fn set_rules(&self, rules: Rules) {
        let mut current = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(rules));
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Option<Arc<Rules>> {
        let current = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Decides about a request, and counts it.
    ///
    /// # Errors
    ///
    /// When the request makes no sense, there are no rules, or the counters do not answer.
    pub async fn decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        if request.domain.is_empty() {
            return Err(invalid("rate limit domain must not be empty"));
        }
        if request.descriptors.is_empty() {
            return Err(invalid("rate limit descriptor list must not be empty"));
        }
        let rules = self.rules();
        let rules = rules.ok_or_else(|| {
            DecideError::Unavailable("no rate limit configuration loaded".to_owned())
        })?;
        let asked = ask(&rules, request)?;
        let decisions = self.charge(&asked).await?;
        let degraded = decisions.iter().flatten().filter_map(Decision::degraded_by);
        degraded.for_each(|reason| metrics::rls_degraded(reason.as_str()));
        let statuses = asked.iter().zip(&decisions);
        let statuses = statuses.map(|(asked, decision)| status(asked, decision.as_ref()));
        Ok(self.answer(request, &asked, statuses.collect()))
    }

    /// Counts each descriptor on its own, whatever becomes of the others. Equal ones count one after another, all
    /// others at once.
    async fn charge(&self, asked: &[Asked<'_>]) -> Result<Vec<Option<Decision>>, DecideError> {
        let mut decisions: Vec<Option<Decision>> = asked.iter().map(|_| None).collect();
        let mut under_way = Vec::new();
        for (at, asked) in asked.iter().enumerate() {
            let Asked::Limited(Limited { key, charge, .. }) = asked else {
                continue;
            };
            let counter = (key, charge.period);
            if under_way.iter().any(|(_, other, _)| *other == counter) {
                for (at, _, answer) in under_way.drain(..) {
                    decisions[at] = Some(answer.await?);
                }
            }
            let answer = self.0.counters.count(key, *charge);
            let answer = answer.map_err(|error: ConfigError| invalid(error.to_string()))?;
            under_way.push((at, counter, answer));
        }
        for (at, _, answer) in under_way {
            decisions[at] = Some(answer.await?);
        }
        Ok(decisions)
    }

    fn answer(
        &self,
        request: &RateLimitRequest,
        asked: &[Asked<'_>],
        statuses: Vec<DescriptorStatus>,
    ) -> RateLimitResponse {
        let modes = &self.0.modes;
        let (mut quotas, mut quotas_over, mut over) = (0, 0, None);
        for (at, (asked, status)) in asked.iter().zip(&statuses).enumerate() {
            let is_quota = match asked {
                Asked::Unlimited => continue,
                Asked::Nothing => modes.quota,
                Asked::Limited(limited) => modes.quota || limited.quota,
            };
            quotas += u32::from(is_quota);
            match status.code() {
                Code::OverLimit if is_quota => quotas_over += 1,
                Code::OverLimit => over = Some(at),
                _ => {}
            }
        }
        let is_over = over.is_some() || quotas > 0 && quotas == quotas_over;
        let code = match is_over && !modes.shadow {
            true => Code::OverLimit,
            false => Code::Ok,
        };
        let told = over
            .or_else(|| least(&statuses))
            .and_then(|at| statuses.get(at));
        let headers = told.map(|status| fields(&modes.headers, status, code == Code::OverLimit));
        RateLimitResponse {
            overall_code: code.into(),
            response_headers_to_add: headers.unwrap_or_default(),
            dynamic_metadata: modes
                .metadata
                .then(|| metadata(request, passed(asked, &statuses))),
            statuses,
            ..RateLimitResponse::default()
        }
    }
}

/// What the descriptors say that passed: the first word counts.
fn passed(asked: &[Asked<'_>], statuses: &[DescriptorStatus]) -> Struct {
    let mut passed = Struct::default();
    for (asked, status) in asked.iter().zip(statuses) {
        let of_asked = match asked {
            Asked::Limited(limited) if status.code() != Code::OverLimit => limited.metadata,
            _ => None,
        };
        if let Some(metadata) = of_asked {
            merge_metadata(&mut passed, metadata);
        }
    }
    passed
}

/// The first of the descriptors with the least remaining, unless that is all that can be told.
fn least(statuses: &[DescriptorStatus]) -> Option<usize> {
    let limited = statuses.iter().enumerate();
    let limited = limited
        .filter(|(_, status)| status.current_limit.is_some() && status.limit_remaining < u32::MAX);
    let least = limited.min_by_key(|(_, status)| status.limit_remaining);
    least.map(|(at, _)| at)
}

fn status(asked: &Asked<'_>, decision: Option<&Decision>) -> DescriptorStatus {
    let mut status = DescriptorStatus::default();
    status.set_code(Code::Ok);
    let (limited, decision) = match (asked, decision) {
        (Asked::Limited(limited), Some(decision)) => (limited, decision),
        (Asked::Unlimited, _) => {
            status.limit_remaining = u32::MAX;
            return status;
        }
        _ => return status,
    };
    let Charge {
        period,
        requests,
        is_refund,
        ..
    } = limited.charge;
    let is_over = decision.is_denied() && !is_refund;
    if is_over && !limited.shadow {
        status.set_code(Code::OverLimit);
    }
    // Nothing is known of the count where the store is down and all requests pass.
    let used = decision.binding().used().unwrap_or(0);
    let left = u64::from(requests).saturating_sub(used);
    status.limit_remaining = if is_over { 0 } else { left as u32 };
    let now = decision.decided_at().as_micros() / 1_000_000;
    status.duration_until_reset = Some(Duration {
        seconds: (period - now % period).cast_signed(),
        nanos: 0,
    });
    status.current_limit = Some(limited.limit.clone());
    status
}

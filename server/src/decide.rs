//! Decisions: what the rules and the counters say of a request together.

use std::{
    collections::HashSet,
    error::Error,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use tower_ratelimit::{ConfigError, Decision, Key, LimiterError};

use crate::{
    counters::{Charge, Counters},
    headers::{HeaderSet, fields},
    lyft::{Limit, Rules, merge_metadata},
    messages::{
        Code, DescriptorStatus, Duration, RateLimit, RateLimitDescriptor, RateLimitOverride,
        RateLimitRequest, RateLimitResponse, Struct, Unit, Value, ValueKind,
    },
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

/// A descriptor, and what it is asked.
enum Asked<'r> {
    /// No limit.
    Nothing,
    Unlimited,
    Limited(Limited<'r>),
}

/// A descriptor that is counted.
struct Limited<'r> {
    key: Key,
    charge: Charge,
    limit: RateLimit,
    shadow: bool,
    quota: bool,
    metadata: Option<&'r Struct>,
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
        let mut passed = Struct::default();
        for (at, (asked, status)) in asked.iter().zip(&statuses).enumerate() {
            let is_quota = match asked {
                Asked::Unlimited => continue,
                Asked::Nothing => modes.quota,
                Asked::Limited(limited) => modes.quota || limited.quota,
            };
            quotas += u32::from(is_quota);
            if status.code() != Code::OverLimit {
                if let Asked::Limited(Limited {
                    metadata: Some(metadata),
                    ..
                }) = asked
                {
                    merge_metadata(&mut passed, metadata);
                }
            } else if is_quota {
                quotas_over += 1;
            } else {
                over = Some(at);
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
            dynamic_metadata: modes.metadata.then(|| metadata(request, passed)),
            statuses,
            ..RateLimitResponse::default()
        }
    }
}

/// The first of the descriptors with the least remaining, unless that is all that can be told.
fn least(statuses: &[DescriptorStatus]) -> Option<usize> {
    let limited = statuses.iter().enumerate();
    let limited = limited
        .filter(|(_, status)| status.current_limit.is_some() && status.limit_remaining < u32::MAX);
    let least = limited.min_by_key(|(_, status)| status.limit_remaining);
    least.map(|(at, _)| at)
}

/// What each descriptor is asked, without what others replace.
fn ask<'r>(rules: &'r Rules, request: &RateLimitRequest) -> Result<Vec<Asked<'r>>, DecideError> {
    let descriptors = request.descriptors.iter();
    let found = descriptors.map(|descriptor| ask_one(rules, request, descriptor));
    let (mut asked, mut replaced) = (Vec::new(), HashSet::new());
    for found in found {
        let (one, names) = found?;
        replaced.extend(names.iter().map(String::as_str));
        asked.push(one);
    }
    for one in &mut asked {
        if let Asked::Limited(limited) = one
            && replaced.contains(limited.limit.name.as_str())
        {
            *one = Asked::Nothing;
        }
    }
    Ok(asked)
}

/// What a descriptor is asked, and the names that it replaces.
fn ask_one<'r>(
    rules: &'r Rules,
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
) -> Result<(Asked<'r>, &'r [String]), DecideError> {
    let RateLimitRequest {
        domain,
        hits_addend,
        ..
    } = request;
    let RateLimitDescriptor { entries, limit, .. } = descriptor;
    if !rules.knows(domain) {
        return Ok((Asked::Nothing, &[]));
    }
    let charge = |requests, period| Charge {
        period,
        requests,
        units: descriptor
            .hits_addend
            .unwrap_or_else(|| u64::from(*hits_addend).max(1)),
        is_refund: descriptor.is_negative_hits,
    };
    if let Some(limit) = limit {
        let (limit, period) = overriding(limit)?;
        let entries = entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.as_str()));
        let limited = Limited {
            key: counter(domain, entries),
            charge: charge(limit.requests_per_unit, period),
            limit,
            shadow: false,
            quota: false,
            metadata: None,
        };
        return Ok((Asked::Limited(limited), &[]));
    }
    let Some(found) = rules.find(domain, entries) else {
        return Ok((Asked::Nothing, &[]));
    };
    let Limit {
        requests,
        unit,
        name,
        replaces,
        shadow,
        quota,
        ..
    } = found.limit;
    let Some(unit) = unit else {
        return Ok((Asked::Unlimited, replaces));
    };
    let limited = Limited {
        key: counter(domain, found.counted(entries)),
        charge: charge(*requests, unit.seconds()),
        limit: RateLimit {
            requests_per_unit: *requests,
            unit: (*unit).into(),
            name: name.clone(),
            unit_multiplier: None,
        },
        shadow: *shadow,
        quota: *quota,
        metadata: found.metadata(),
    };
    Ok((Asked::Limited(limited), replaces))
}

/// The limit that came with a descriptor, and its seconds.
fn overriding(limit: &RateLimitOverride) -> Result<(RateLimit, u64), DecideError> {
    let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
    if unit == Unit::Unknown {
        return Err(invalid("the unit of the rate limit override is not one"));
    }
    let times = limit.unit_multiplier.unwrap_or(1);
    if times == 0 {
        return Err(invalid(
            "the unit multiplier of the rate limit override is 0",
        ));
    }
    let told = RateLimit {
        requests_per_unit: limit.requests_per_unit,
        unit: unit.into(),
        name: String::new(),
        unit_multiplier: limit.unit_multiplier,
    };
    Ok((told, unit.seconds() * u64::from(times)))
}

/// The counter of a domain's entries: no two lists have one.
fn counter<'e>(domain: &str, entries: impl Iterator<Item = (&'e str, &'e str)>) -> Key {
    let parts = entries.flat_map(|(key, value)| [key, value]);
    Key::tuple([domain].into_iter().chain(parts).map(Key::from))
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

/// The request, and what those of its descriptors say that passed.
fn metadata(request: &RateLimitRequest, passed: Struct) -> Struct {
    let mut metadata = Struct::default();
    let mut put = |name: &str, value: Value| drop(metadata.fields.insert(name.to_owned(), value));
    put("domain", Value::text(&request.domain));
    let descriptors = request.descriptors.iter().map(descriptor_metadata);
    put("descriptors", Value::list(descriptors));
    if request.hits_addend > 0 {
        let hits = f64::from(request.hits_addend);
        put("hitsAddend", ValueKind::Number(hits).into());
    }
    if !passed.fields.is_empty() {
        put("metadata", ValueKind::Struct(passed).into());
    }
    metadata
}

fn descriptor_metadata(descriptor: &RateLimitDescriptor) -> Value {
    let mut told = Struct::default();
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| Value::text(format!("{}={}", entry.key, entry.value)));
    told.fields
        .insert("entries".to_owned(), Value::list(entries));
    if let Some(limit) = &descriptor.limit {
        let text = format!(
            "requests_per_unit:{} unit:{}",
            limit.requests_per_unit,
            limit.unit().name()
        );
        told.fields.insert("limit".to_owned(), Value::text(text));
    }
    if let Some(hits) = descriptor.hits_addend {
        let hits = ValueKind::Number(hits as f64);
        told.fields.insert("hitsAddend".to_owned(), hits.into());
    }
    ValueKind::Struct(told).into()
}

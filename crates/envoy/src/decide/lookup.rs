//! Look-up of the limit of each descriptor: from the rules, or from the descriptor itself.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    fmt,
};

use tower_ratelimit::{Key, LimiterError};

use crate::{
    limiters_by_period::{Charge, Measure},
    lyft::{Limit, NameAndValues, Rules, StatsName},
    protobuf_messages::{
        Entry, MAX_DESCRIPTORS, MAX_ENTRIES, RateLimit, RateLimitDescriptor, RateLimitOverride,
        RateLimitRequest, Struct, Unit,
    },
};

/// A decision that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecideError {
    /// The request is invalid; the text has the reason.
    Invalid(String),
    /// There are no rules, or the store does not respond.
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

pub(crate) fn invalid(text: impl Into<String>) -> DecideError {
    DecideError::Invalid(text.into())
}

/// The result of a look-up.
#[allow(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each request"
)]
pub(super) enum Lookup<'r> {
    /// No limit.
    Nothing,
    Unlimited,
    Limited(Limited<'r>),
}

/// A descriptor with a limit.
pub(super) struct Limited<'r> {
    pub(super) key: Key,
    pub(super) charge: Charge,
    pub(super) limit: RateLimit,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) metadata: Option<&'r Struct>,
    pub(super) stats: NameAndValues,
}

impl<'r> Lookup<'r> {
    /// The descriptor, if it has a limit.
    pub(super) const fn limited_mut(&mut self) -> Option<&mut Limited<'r>> {
        match self {
            Self::Limited(limited) => Some(limited),
            Self::Nothing | Self::Unlimited => None,
        }
    }
}

/// Rejects invalid requests.
pub(super) fn check(request: &RateLimitRequest) -> Result<(), DecideError> {
    if request.domain.is_empty() {
        return Err(invalid("rate limit domain must not be empty"));
    }
    if request.descriptors.is_empty() {
        return Err(invalid("rate limit descriptor list must not be empty"));
    }
    if request.descriptors.len() > MAX_DESCRIPTORS {
        let text = format!("a request has at most {MAX_DESCRIPTORS} descriptors");
        return Err(invalid(text));
    }
    let mut descriptors = request.descriptors.iter();
    if descriptors.any(|descriptor| descriptor.entries.len() > MAX_ENTRIES) {
        let text = format!("a descriptor has at most {MAX_ENTRIES} entries");
        return Err(invalid(text));
    }
    Ok(())
}

/// Looks up a descriptor with these entries, alone in its request.
pub(super) fn look_up_entries<'r>(
    rules: &'r Rules,
    overrides: &Overrides,
    domain: &str,
    entries: Vec<Entry>,
) -> Option<Limited<'r>> {
    let request = RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries,
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    // A descriptor without a limit of its own is never invalid.
    let lookups = look_up(rules, overrides, &request).unwrap_or_default();
    match lookups.into_iter().next()? {
        Lookup::Limited(limited) => Some(limited),
        Lookup::Nothing | Lookup::Unlimited => None,
    }
}

/// Looks up each descriptor. A limit that another one replaces is dropped.
pub(super) fn look_up<'r>(
    rules: &'r Rules,
    overrides: &Overrides,
    request: &RateLimitRequest,
) -> Result<Vec<Lookup<'r>>, DecideError> {
    let descriptors = request.descriptors.iter();
    let found = descriptors.map(|descriptor| look_up_one(rules, overrides, request, descriptor));
    let (mut lookups, mut replaced) = (Vec::new(), HashSet::new());
    for found in found {
        let (one, names) = found?;
        replaced.extend(names.iter().map(String::as_str));
        lookups.push(one);
    }
    for one in &mut lookups {
        if let Lookup::Limited(limited) = one
            && replaced.contains(limited.limit.name.as_str())
        {
            *one = Lookup::Nothing;
        }
    }
    Ok(lookups)
}

/// Looks up one descriptor. Also returns the names of the limits that it replaces.
fn look_up_one<'r>(
    rules: &'r Rules,
    overrides: &Overrides,
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
) -> Result<(Lookup<'r>, &'r [String]), DecideError> {
    if overrides.all_off || !rules.knows(&request.domain) {
        return Ok((Lookup::Nothing, &[]));
    }
    match &descriptor.limit {
        Some(limit) => {
            let limited = by_itself(request, descriptor, limit)?;
            Ok((Lookup::Limited(limited), &[]))
        }
        None => Ok(by_rules(rules, overrides, request, descriptor)),
    }
}

/// A descriptor that brings its own limit.
fn by_itself<'r>(
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
    limit: &RateLimitOverride,
) -> Result<Limited<'r>, DecideError> {
    let (limit, period) = overriding(limit)?;
    let entries = descriptor
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_str()));
    let measure = Measure::Window(period);
    Ok(Limited {
        key: counter(&request.domain, entries),
        charge: charge(request, descriptor, limit.requests_per_unit, measure),
        limit,
        shadow: false,
        quota: false,
        metadata: None,
        stats: StatsName::of_override(&request.domain, descriptor),
    })
}

/// A descriptor limited by the rules.
fn by_rules<'r>(
    rules: &'r Rules,
    overrides: &Overrides,
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
) -> (Lookup<'r>, &'r [String]) {
    let RateLimitRequest { domain, .. } = request;
    let RateLimitDescriptor { entries, .. } = descriptor;
    let Some(found) = rules.find(domain, entries) else {
        return (Lookup::Nothing, &[]);
    };
    let limit = found.limit;
    let Some(unit) = limit.unit else {
        return (Lookup::Unlimited, &limit.replaces);
    };
    let Some(requests) = overrides.requests(limit, || found.name(domain, entries)) else {
        return (Lookup::Nothing, &[]);
    };
    let limited = Limited {
        key: counter(domain, found.counted(entries)),
        charge: charge(request, descriptor, requests, measure(limit, unit)),
        limit: reported(limit, requests, unit),
        shadow: limit.shadow,
        quota: limit.quota,
        metadata: found.metadata(),
        stats: found.stats_name(domain, entries),
    };
    (Lookup::Limited(limited), &limit.replaces)
}

/// The descriptor's units if it has any, else the request's, at least one.
fn charge(
    request: &RateLimitRequest,
    descriptor: &RateLimitDescriptor,
    requests: u32,
    measure: Measure,
) -> Charge {
    let of_request = || u64::from(request.hits_addend).max(1);
    Charge {
        measure,
        requests,
        units: descriptor.hits_addend.unwrap_or_else(of_request),
        is_refund: descriptor.is_negative_hits,
    }
}

/// How a limit of the rules counts.
pub(super) fn measure(limit: &Limit, unit: Unit) -> Measure {
    let times = u64::from(limit.unit_multiplier.unwrap_or(1));
    let window = Measure::Window(unit.seconds() * times);
    limit.quota_of_its_own.map_or(window, Measure::Quota)
}

/// The limit as responses report it.
fn reported(limit: &Limit, requests: u32, unit: Unit) -> RateLimit {
    RateLimit {
        requests_per_unit: requests,
        unit: unit.into(),
        name: limit.name.clone(),
        unit_multiplier: limit.unit_multiplier,
    }
}

/// The limit that a descriptor brings, and its period in seconds.
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
    let reported = RateLimit {
        requests_per_unit: limit.requests_per_unit,
        unit: unit.into(),
        name: String::new(),
        unit_multiplier: limit.unit_multiplier,
    };
    Ok((reported, unit.seconds() * u64::from(times)))
}

/// The counter's key. Different lists of entries have different keys.
fn counter<'e>(domain: &str, entries: impl Iterator<Item = (&'e str, &'e str)>) -> Key {
    let parts = entries.flat_map(|(key, value)| [key, value]);
    Key::tuple([domain].into_iter().chain(parts).map(Key::from))
}

/// The overrides in force, by the names of limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// Whether all limits are off.
    pub(crate) all_off: bool,
    /// Limits that are ignored.
    pub(crate) off: HashSet<String>,
    /// Units that replace those of the files.
    pub(crate) requests: HashMap<String, u32>,
}

impl Overrides {
    /// These overrides with no limit switched off.
    pub(super) fn switched_on(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            ..Self::default()
        }
    }

    /// The units of a limit; `None` if it is off.
    pub(super) fn requests(&self, limit: &Limit, name: impl FnOnce() -> String) -> Option<u32> {
        if self.off.is_empty() && self.requests.is_empty() {
            return Some(limit.requests);
        }
        let name = name();
        let requests = self.requests.get(&name).copied();
        (!self.off.contains(&name)).then(|| requests.unwrap_or(limit.requests))
    }
}

//! `RateLimit` and `RateLimit-Policy`, of the drafts 07 to 11 and of the text that is pending.

use std::{borrow::Cow, num::NonZeroU32, time::Duration};

use http::{HeaderMap, HeaderName};

use super::{
    Refill, ToldQuota, ToldQuotas, joined,
    list::{Bare, FieldItems, ListMember, NoNumber, Parameter},
    whole,
};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// An item of `RateLimit`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Available<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) remaining: u64,
    pub(super) window: Option<u64>,
}

/// An item of `RateLimit-Policy`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Declared<'a> {
    /// None in the drafts 04 to 07.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) quota: u64,
    pub(super) window: Option<u64>,
    pub(super) unit: Cow<'a, str>,
}

/// The quotas that both fields tell together.
pub(super) fn quotas(headers: &HeaderMap) -> ToldQuotas {
    let Some(text) = joined(headers, &RATE_LIMIT) else {
        return ToldQuotas::default();
    };
    let policies = joined(headers, &POLICY);
    let policies = declared(policies.as_deref().unwrap_or_default());
    let items = available(&text);
    let told = items.iter().filter_map(|item| told(item, &policies));
    let told: ToldQuotas = told.collect();
    match told.is_empty() {
        true => {
            let told = dictionary(&text, lone_refill(&policies));
            told.into_iter().collect()
        }
        false => told,
    }
}

/// The refill of the only policy, for fields that name none.
pub(super) fn refill(headers: &HeaderMap) -> Option<Refill> {
    lone_refill(&declared(&joined(headers, &POLICY)?))
}

fn lone_refill(policies: &FieldItems<Declared<'_>>) -> Option<Refill> {
    policies.lone().and_then(Declared::refill)
}

fn told(item: &Available<'_>, policies: &FieldItems<Declared<'_>>) -> Option<ToldQuota> {
    let policy = policies
        .iter()
        .find(|policy| policy.name.as_ref() == Some(&item.name));
    // Bytes, or requests at the same time, are not what a rate counts.
    if policy.is_some_and(|policy| !policy.counts_requests()) {
        return None;
    }
    Some(ToldQuota {
        remaining: item.remaining,
        window: item.window.map(Duration::from_secs),
        refill: policy.and_then(Declared::refill),
    })
}

impl Declared<'_> {
    /// The draft's text says `requests`, its registry `request`.
    fn counts_requests(&self) -> bool {
        matches!(&*self.unit, "requests" | "request")
    }

    fn refill(&self) -> Option<Refill> {
        let window = Duration::from_secs(self.window?);
        let units = NonZeroU32::new(u32::try_from(self.quota).unwrap_or(u32::MAX))?;
        Some(Refill { window, units })
    }
}

/// The items of a `RateLimit` field that make sense.
pub(super) fn available(text: &str) -> FieldItems<Available<'_>> {
    FieldItems::of(text, |member| item(member).unwrap_or(None))
}

fn item<'a>(member: &ListMember<'a>) -> Result<Option<Available<'a>>, NoNumber> {
    let (r, t) = (member.number(Parameter::R)?, member.number(Parameter::T)?);
    // The pending text has new names, which only count where the old one is not there.
    let (remaining, window) = match r {
        Some(_) => (r, t),
        None => (member.number(Parameter::A)?, member.number(Parameter::W)?),
    };
    if !matches!(member.parameter(Parameter::Pk), None | Some(Bare::Bytes(_))) {
        return Ok(None);
    }
    Ok(name(&member.value)
        .zip(remaining)
        .map(|(name, remaining)| Available {
            name,
            remaining,
            window,
        }))
}

/// The items of a `RateLimit-Policy` field that make sense.
pub(super) fn declared(text: &str) -> FieldItems<Declared<'_>> {
    FieldItems::of(text, |member| policy(member).unwrap_or(None))
}

fn policy<'a>(member: &ListMember<'a>) -> Result<Option<Declared<'a>>, NoNumber> {
    let (quota, window) = (member.number(Parameter::Q)?, member.number(Parameter::W)?);
    let unit = match member.parameter(Parameter::Qu) {
        None => Cow::Borrowed("requests"),
        Some(Bare::String(unit)) => unit.clone(),
        Some(_) => return Ok(None),
    };
    let (name, quota) = match &member.value {
        Bare::Integer(quota) => (None, u64::try_from(*quota).ok()),
        value => (name(value), quota.filter(|_| window != Some(0))),
    };
    Ok(quota.map(|quota| Declared {
        name,
        quota,
        window: window.filter(|window| *window > 0),
        unit,
    }))
}

/// The drafts 08 to 10 print Tokens in their examples.
fn name<'a>(value: &Bare<'a>) -> Option<Cow<'a, str>> {
    match value {
        Bare::String(name) => Some(name.clone()),
        Bare::Token(name) => Some(Cow::Borrowed(name)),
        _ => None,
    }
}

/// `limit=100, remaining=50, reset=5`, of draft 07.
fn dictionary(text: &str, refill: Option<Refill>) -> Option<ToldQuota> {
    let value = |name: &str| {
        let mut pairs = text
            .split(',')
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    Some(ToldQuota {
        remaining: whole(value("remaining")?)?,
        window: Some(Duration::from_secs(whole(value("reset")?)?)),
        refill,
    })
}

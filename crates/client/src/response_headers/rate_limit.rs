//! `RateLimit` and `RateLimit-Policy`, of the drafts 07 to 11 and of the text for the next one.

use std::{borrow::Cow, num::NonZeroU32, time::Duration};

use http::{HeaderMap, HeaderName};

use super::{
    Refill, ReportedQuota,
    field_values::{joined, least, parse_digits},
    structured_list::{BareItem, ListMember, items},
};
use crate::request_cost::{REQUESTS, Unit};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// An item of `RateLimit`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitItem<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) remaining: u64,
    pub(super) window: Option<u64>,
}

/// An item of `RateLimit-Policy`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PolicyItem<'a> {
    /// `None` in the drafts 04 to 07.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) quota: u64,
    pub(super) window: Option<u64>,
    pub(super) unit: Cow<'a, str>,
}

/// The quotas of a unit in both fields.
pub(super) fn quotas(headers: &HeaderMap, unit: Unit) -> Vec<ReportedQuota> {
    let Some(text) = joined(headers, &RATE_LIMIT) else {
        return Vec::new();
    };
    let policies = joined(headers, &POLICY);
    let policies = policy_items(policies.as_deref().unwrap_or_default());
    let items = limit_items(&text).into_iter();
    let mut quotas: Vec<_> = items
        .filter_map(|item| reported_quota(&item, &policies, unit))
        .collect();
    if quotas.is_empty() && unit == REQUESTS {
        quotas.extend(dictionary(&text, lone_refill(&policies)));
    }
    quotas
}

/// The refill of the only policy, for fields that name none.
pub(super) fn refill(headers: &HeaderMap) -> Option<Refill> {
    lone_refill(&policy_items(&joined(headers, &POLICY)?))
}

fn lone_refill(policies: &[PolicyItem<'_>]) -> Option<Refill> {
    match policies {
        [lone] => lone.refill(),
        _ => None,
    }
}

fn reported_quota(
    item: &LimitItem<'_>,
    policies: &[PolicyItem<'_>],
    unit: Unit,
) -> Option<ReportedQuota> {
    let policy = policies
        .iter()
        .find(|policy| policy.name.as_ref() == Some(&item.name));
    // A policy without a unit is one of requests. A rate of requests counts neither bytes nor tokens.
    if !policy.map_or(unit == REQUESTS, |policy| policy.counts(unit)) {
        return None;
    }
    Some(ReportedQuota {
        remaining: item.remaining,
        window: item.window.map(Duration::from_secs),
        refill: policy.and_then(PolicyItem::refill),
        bucket: None,
    })
}

impl PolicyItem<'_> {
    /// The draft's text has `requests`, its registry `request`.
    fn counts(&self, unit: Unit) -> bool {
        self.unit == unit || (unit == REQUESTS && self.unit == "request")
    }

    fn refill(&self) -> Option<Refill> {
        let window = Duration::from_secs(self.window?);
        let units = NonZeroU32::new(u32::try_from(self.quota).unwrap_or(u32::MAX))?;
        Some(Refill { window, units })
    }
}

/// The valid items of a `RateLimit` field.
pub(super) fn limit_items(text: &str) -> Vec<LimitItem<'_>> {
    items(text, limit)
}

fn limit<'a>(member: &ListMember<'a>) -> Option<LimitItem<'a>> {
    let (r, t) = (member.number("r")?, member.number("t")?);
    // The text for the next draft has new names. They count only where the old ones are missing.
    let (remaining, window) = match r {
        Some(_) => (r, t),
        None => (member.number("a")?, member.number("w")?),
    };
    if !matches!(member.parameter("pk"), None | Some(BareItem::Bytes(_))) {
        return None;
    }
    Some(LimitItem {
        name: name(&member.value)?,
        remaining: remaining?,
        window,
    })
}

/// The valid items of a `RateLimit-Policy` field.
pub(super) fn policy_items(text: &str) -> Vec<PolicyItem<'_>> {
    items(text, policy)
}

fn policy<'a>(member: &ListMember<'a>) -> Option<PolicyItem<'a>> {
    let (quota, window) = (member.number("q")?, member.number("w")?);
    let unit = match member.parameter("qu") {
        None => Cow::Borrowed("requests"),
        Some(BareItem::String(unit)) => unit.clone(),
        Some(_) => return None,
    };
    let (name, quota) = match &member.value {
        BareItem::Integer(quota) => (None, u64::try_from(*quota).ok()),
        value => (name(value), quota.filter(|_| window != Some(0))),
    };
    Some(PolicyItem {
        name,
        quota: quota?,
        window: window.filter(|window| *window > 0),
        unit,
    })
}

/// The examples of the drafts 08 to 10 have Tokens.
fn name<'a>(value: &BareItem<'a>) -> Option<Cow<'a, str>> {
    match value {
        BareItem::String(name) => Some(name.clone()),
        BareItem::Token(name) => Some(Cow::Borrowed(name)),
        _ => None,
    }
}

/// `limit=100, remaining=50, reset=5`, of draft 07.
fn dictionary(text: &str, refill: Option<Refill>) -> Option<ReportedQuota> {
    let pairs = text
        .split(',')
        .filter_map(|pair| pair.trim_ascii().split_once('='));
    let values = |name: &'static str| {
        let named = pairs.clone().filter(move |(key, _)| *key == name);
        named.map(|(_, value)| value)
    };
    let windows = values("reset").map(|reset| parse_digits(reset).map(Duration::from_secs));
    let least = least(values("remaining"), windows)?;
    Some(ReportedQuota {
        remaining: least.units,
        window: Some(least.reset),
        refill,
        bucket: None,
    })
}

//! Parts of fields that are ready before any decision.

use std::ptr;

use http::HeaderValue;

use super::{IetfDraft, ietf, number};
use crate::decision::{Decision, Policy, Status};

/// What is ready of some policies before any decision.
#[derive(Debug)]
pub(super) struct Prepared {
    policies: Box<[Policy]>,
    texts: Box<[PolicyText]>,
    /// The value of `RateLimit-Policy`, if it is sent.
    list: Option<HeaderValue>,
}

/// What is ready of one.
#[derive(Debug)]
pub(super) struct PolicyText {
    /// Its part of `RateLimit` up to the first number.
    pub(super) opening: Box<[u8]>,
    pub(super) limit: HeaderValue,
}

impl Prepared {
    pub(super) fn new(draft: Option<IetfDraft>, policies: &[Policy]) -> Self {
        Self {
            policies: policies.into(),
            texts: policies.iter().map(PolicyText::new).collect(),
            list: draft.and_then(|draft| ietf::policy_list(draft, policies)),
        }
    }

    /// Whether `decision` is about these policies.
    #[inline]
    pub(super) fn fit(&self, decision: &Decision) -> bool {
        decision.is_about(&self.policies)
    }

    pub(super) const fn list(&self) -> Option<&HeaderValue> {
        self.list.as_ref()
    }

    /// The names of these policies that are also in `line`, a value of `RateLimit-Policy`.
    pub(super) fn named_in(&self, line: &HeaderValue) -> impl Iterator<Item = &str> {
        let items: Vec<_> = line.as_bytes().split(|byte| *byte == b',').collect();
        let is_in = move |policy: &&Policy| {
            let name = quoted(policy.name());
            let mut items = items.iter().map(|item| item.trim_ascii_start());
            items.any(|item| {
                let rest = item.strip_prefix(name.as_slice());
                matches!(rest, Some([] | [b';' | b' ', ..]))
            })
        };
        self.policies.iter().filter(is_in).map(Policy::name)
    }

    /// How each quota stands, with its text; `decision` is about these policies.
    #[inline]
    pub(super) fn with_statuses<'a>(
        &'a self,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a Status, &'a PolicyText)> {
        decision.statuses().iter().zip(&self.texts)
    }

    /// The text of the policy that one of the decision's statuses is about.
    #[inline]
    pub(super) fn of(&self, status: &Status, decision: &Decision) -> &PolicyText {
        let place = decision.statuses().iter().position(|s| ptr::eq(s, status));
        &self.texts[place.unwrap_or_default()]
    }
}

impl PolicyText {
    fn new(policy: &Policy) -> Self {
        let opening = [&quoted(policy.name()), b";r=".as_slice()].concat();
        Self {
            opening: opening.into_boxed_slice(),
            limit: number::header_value(policy.limit()),
        }
    }
}

/// A String of RFC 9651.
///
/// A checked quota's name is printable ASCII. A policy from a limiter of the user's own may have
/// any name, and one odd character would cost clients the whole field: it becomes a `?`.
pub(super) fn quoted(name: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 2);
    text.push(b'"');
    for character in name.chars() {
        match character {
            '"' | '\\' => text.extend([b'\\', character as u8]),
            ' '..='~' => text.push(character as u8),
            _ => text.push(b'?'),
        }
    }
    text.push(b'"');
    text
}

//! Parts of fields that are ready before any decision.

use http::HeaderValue;

use super::{IetfDraft, number, text::FieldText};
use crate::decision::{Decision, Policy, Status, Unit, whole_seconds};

/// Between two items of a list.
pub(super) const COMMA: &[u8] = b", ";

/// Parts of some policies' fields, ready before any decision.
#[derive(Debug)]
pub(super) struct Prepared {
    policies: Box<[Policy]>,
    texts: Box<[PolicyText]>,
    /// The value of `RateLimit-Policy`, if it is sent.
    list: Option<HeaderValue>,
}

/// The parts of one policy.
#[derive(Debug)]
pub(super) struct PolicyText {
    /// The policy's part of `RateLimit` up to the first number.
    pub(super) opening: Box<[u8]>,
    pub(super) limit: HeaderValue,
}

impl Prepared {
    pub(super) fn new(draft: Option<IetfDraft>, policies: &[Policy]) -> Self {
        Self {
            policies: policies.into(),
            texts: policies.iter().map(PolicyText::new).collect(),
            list: draft.and_then(|draft| policy_list(draft, policies)),
        }
    }

    /// Whether `decision` is about these policies.
    #[inline]
    pub(super) fn fit(&self, decision: &Decision) -> bool {
        decision.is_about(&self.policies)
    }

    /// The status of the one policy, if `decision` is about that one.
    #[inline]
    pub(super) fn status_alone<'a>(&self, decision: &'a Decision) -> Option<&'a Status> {
        decision.status_alone_of(&self.policies)
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

    /// The texts of the policies, in their order.
    #[inline]
    pub(super) fn texts(&self) -> &[PolicyText] {
        &self.texts
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

/// The value of `RateLimit-Policy`. An RFC 9651 list must not be empty: without policies there is
/// none.
fn policy_list(IetfDraft::Draft11: IetfDraft, policies: &[Policy]) -> Option<HeaderValue> {
    if policies.is_empty() {
        return None;
    }
    let mut text = FieldText::new();
    write_policies(policies, &mut text);
    let whole = text.field_since(0);
    Some(text.finish().value(whole))
}

fn write_policies(policies: &[Policy], to: &mut FieldText) {
    for (position, policy) in policies.iter().enumerate() {
        if position > 0 {
            to.push(COMMA);
        }
        to.push(&quoted(policy.name()));
        to.push(b";q=");
        to.push_number(policy.limit());
        match (policy.unit(), policy.window()) {
            (Unit::ConcurrentRequests, _) => to.push(b";qu=\"concurrent-requests\""),
            (Unit::Requests, None) => {}
            (Unit::Requests, Some(window)) => {
                to.push(b";w=");
                to.push_number(whole_seconds(window).max(1));
            }
        }
    }
}

/// A String of RFC 9651.
///
/// A checked quota's name is printable ASCII. A policy from a limiter of the user's own may have
/// any name, and one odd character would cost clients the whole field: it becomes a `?`.
fn quoted(name: &str) -> Vec<u8> {
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

//! The constant parts of a limiter's fields: names, limits and the list of policies.

use http::HeaderValue;

use super::{IetfDraft, number, text_buffer::TextBuffer};
use crate::decision::{Decision, Policy, Status, Unit, whole_seconds};

/// The separator of a list's items.
pub(super) const COMMA: &[u8] = b", ";

/// The constant parts of the fields of some policies.
#[derive(Debug)]
pub(super) struct ConstantParts {
    policies: Box<[Policy]>,
    texts: Box<[PolicyText]>,
    /// The value of `RateLimit-Policy`; `None` if the response does not have it.
    policy_list: Option<HeaderValue>,
}

/// The constant parts of one policy.
#[derive(Debug)]
pub(super) struct PolicyText {
    /// The item of `RateLimit` up to its first number.
    pub(super) opening: Box<[u8]>,
    pub(super) limit: HeaderValue,
}

impl ConstantParts {
    pub(super) fn new(draft: Option<IetfDraft>, policies: &[Policy]) -> Self {
        Self {
            policies: policies.iter().map(Policy::constant).collect(),
            texts: policies.iter().map(PolicyText::new).collect(),
            policy_list: draft.and_then(|draft| policy_list(draft, policies)),
        }
    }

    /// Whether `decision` is about these policies.
    #[inline]
    pub(super) fn fit(&self, decision: &Decision) -> bool {
        decision.is_about(&self.policies)
    }

    /// The status of the policy, if there is one policy and `decision` is about it.
    #[inline]
    pub(super) fn status_alone<'a>(&self, decision: &'a Decision) -> Option<&'a Status> {
        decision.status_alone_of(&self.policies)
    }

    pub(super) const fn policy_list(&self) -> Option<&HeaderValue> {
        self.policy_list.as_ref()
    }

    /// The names of these policies that `line`, a value of `RateLimit-Policy`, lists as well.
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

/// The value of `RateLimit-Policy`; `None` without policies, since RFC 9651 has no empty list.
fn policy_list(IetfDraft::Draft11: IetfDraft, policies: &[Policy]) -> Option<HeaderValue> {
    if policies.is_empty() {
        return None;
    }
    let mut text = TextBuffer::new();
    write_policies(policies, &mut text);
    let whole = text.field_since(0);
    Some(text.finish().value(whole))
}

fn write_policies(policies: &[Policy], to: &mut TextBuffer) {
    for (position, policy) in policies.iter().enumerate() {
        if position > 0 {
            to.push(COMMA);
        }
        to.push(&quoted(policy.name()));
        to.push(b";q=");
        to.push_number(policy.limit());
        if let (Some(window), false) = (policy.window(), policy.unit() == Unit::ConcurrentRequests)
        {
            to.push(b";w=");
            to.push_number(whole_seconds(window).max(1));
        }
        match policy.unit() {
            Unit::Requests => {}
            Unit::ConcurrentRequests => to.push(b";qu=\"concurrent-requests\""),
            Unit::Named(unit) => {
                to.push(b";qu=");
                to.push(&quoted(unit.as_str()));
            }
        }
    }
}

/// A String of RFC 9651, with a `?` for each character that is not printable ASCII.
///
/// The name of a checked quota has no such character. A policy of a user's own limiter may have one,
/// and clients would discard the whole field.
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

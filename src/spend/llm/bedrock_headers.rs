//! The tokens that Bedrock reports in the head of a response, whichever model responds.

use http::HeaderMap;

use super::{
    json_scanner::FoundValues as _,
    path_trie::{Number, Target},
    usage::{Document, DocumentUsage, Found},
};
use crate::spend::Tokens;

/// The fields. As in the bodies of Bedrock, the input does not contain the cache.
const FIELDS: [(&str, Number); 4] = [
    ("x-amzn-bedrock-input-token-count", Number::Input),
    (
        "x-amzn-bedrock-cache-read-input-token-count",
        Number::CacheRead,
    ),
    (
        "x-amzn-bedrock-cache-write-input-token-count",
        Number::CacheWrite,
    ),
    ("x-amzn-bedrock-output-token-count", Number::Output),
];

/// Reports the numbers of the fields. Returns whether there are any.
pub(super) fn read(headers: &HeaderMap, tokens: &mut Tokens) -> Found {
    let (mut usage, mut found) = (DocumentUsage::default(), Found::Nothing);
    let mut document = Document {
        usage: &mut usage,
        tokens,
        found: &mut found,
    };
    for (name, number) in FIELDS {
        let text = headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(value) = text.and_then(|text| text.trim().parse().ok()) {
            document.number(Target::Number(number), value);
        }
    }
    document.end();
    match found {
        Found::Nothing => Found::Nothing,
        _ => Found::UsageInHead,
    }
}

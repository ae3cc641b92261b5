//! Splits a text into documents.

/// The ranges of the documents of a text. A line of dashes, or a further unindented `domain:`, begins the next.
pub(super) fn parts(text: &str) -> Vec<(usize, usize)> {
    let (mut parts, mut start, mut at, mut has_domain) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let dashes = line.strip_prefix("---");
        let is_end =
            dashes.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        let is_domain = line.starts_with("domain:");
        if is_end || is_domain && has_domain {
            parts.push((start, at));
            (start, has_domain) = (at, false);
        }
        has_domain |= is_domain;
        at += line.len();
    }
    parts.push((start, at));
    let is_empty = |line: &str| {
        let line = line.strip_prefix("---").unwrap_or(line).trim_start();
        line.is_empty() || line.starts_with('#')
    };
    parts.retain(|(start, end)| !text[*start..*end].lines().all(is_empty));
    if parts.is_empty() {
        vec![(0, text.len())]
    } else {
        parts
    }
}

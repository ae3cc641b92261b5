//! Documents: the parts of a text that are read apart.

/// Where the documents of a text begin and end: a line of dashes, or a second `domain:` without anything before it
/// in its line, begins the next.
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
    match parts.is_empty() {
        true => vec![(0, text.len())],
        false => parts,
    }
}

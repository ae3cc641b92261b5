//! Regular expressions, which these patterns are not.

/// Parts that regular expressions have and hardly any path or value.
const PARTS: [&str; 11] = [
    "[^", "[0-9", "[a-z", "[A-Z", "(?", "(.*", "(.+", "\\d", "\\w", "\\.", "\\/",
];

/// A warning of a path's pattern that is meant as a regular expression, as by the segment `.*` or a `$` at the end.
pub fn expression_in_path(pattern: &str) -> Option<String> {
    let remedy = "`*` is any part of a segment, and `**` as the last one any further segments";
    part_of_path(pattern).map(|part| warning(part, remedy))
}

/// A warning of a text's pattern that is meant as a regular expression, as by a `^` at the beginning.
pub fn expression_in_text(pattern: &str) -> Option<String> {
    let remedy = "the pattern is the whole value, and `*` any part of it";
    part_of_text(pattern).map(|part| warning(part, remedy))
}

fn warning(part: &str, remedy: &str) -> String {
    format!("{part:?} is compared as it stands, and is no regular expression: {remedy}")
}

fn part_of_path(pattern: &str) -> Option<&str> {
    let whole = |segment: &&str| matches!(*segment, ".*" | ".+" | "(.*)" | "(.+)");
    pattern
        .split('/')
        .find(whole)
        .or_else(|| expression_at_the_ends(pattern))
}

fn part_of_text(pattern: &str) -> Option<&str> {
    if pattern.starts_with(".*") || pattern.starts_with(".+") {
        return Some(&pattern[..2]);
    }
    expression_at_the_ends(pattern)
}

fn expression_at_the_ends(pattern: &str) -> Option<&str> {
    if pattern.len() > 1 && pattern.ends_with('$') {
        return Some("$");
    }
    if pattern.starts_with('^') {
        return Some("^");
    }
    PARTS.into_iter().find(|part| pattern.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_are_told_from_patterns() {
        for (path, part) in [
            ("/api/.*", ".*"),
            ("/.+", ".+"),
            ("/login$", "$"),
            ("/users/[0-9]+", "[0-9"),
            ("/a(?:b|c)", "(?"),
        ] {
            assert_eq!(part_of_path(path), Some(part), "{path}");
        }
        for path in [
            "/",
            "/$metadata",
            "/a+b",
            "/login.*",
            "/Users('x')",
            "/.well-known/*",
        ] {
            assert_eq!(part_of_path(path), None, "{path}");
        }
        for (text, part) in [("^curl", "^"), (".*bot.*", ".*"), ("bot$", "$")] {
            assert_eq!(part_of_text(text), Some(part), "{text}");
        }
        for text in ["$", "curl/7.*", "*bot*", "a^b", "*${jndi:*", "$2a", "1+1"] {
            assert_eq!(part_of_text(text), None, "{text}");
        }
    }
}

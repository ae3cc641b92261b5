//! Patterns of texts with `*`, which matches anything; and regular expressions, which no pattern here is.

/// A pattern of texts in which `*` matches any text. Matching is one pass from the left without backtracking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// The texts between the asterisks, in lower case if `ignore_case`.
    pieces: Box<[Box<[u8]>]>,
    ignore_case: bool,
}

impl Glob {
    /// Reads a pattern. With `ignore_case` letters of ASCII match in either case.
    pub fn new(pattern: &str, ignore_case: bool) -> Self {
        let piece = |piece: &str| -> Box<[u8]> {
            if ignore_case {
                piece.to_ascii_lowercase().into_bytes().into()
            } else {
                piece.as_bytes().into()
            }
        };
        Self {
            pieces: pattern.split('*').map(piece).collect(),
            ignore_case,
        }
    }

    /// This pattern with letters of ASCII in either case.
    #[must_use]
    pub fn in_any_case(&self) -> Self {
        Self {
            ignore_case: true,
            ..self.clone()
        }
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let [first, rest @ ..] = &*self.pieces else {
            return false;
        };
        let [middle @ .., last] = rest else {
            return text.len() == first.len() && self.same(text, first);
        };
        let least = first.len() + last.len();
        if text.len() < least
            || !self.same(&text[..first.len()], first)
            || !self.same(&text[text.len() - last.len()..], last)
        {
            return false;
        }
        let mut between = &text[first.len()..text.len() - last.len()];
        for piece in middle {
            match self.find(between, piece) {
                Some(end) => between = &between[end..],
                None => return false,
            }
        }
        true
    }

    fn same(&self, text: &[u8], piece: &[u8]) -> bool {
        if self.ignore_case {
            text.eq_ignore_ascii_case(piece)
        } else {
            text == piece
        }
    }

    /// The end of the first occurrence of the piece.
    fn find(&self, text: &[u8], piece: &[u8]) -> Option<usize> {
        if piece.is_empty() {
            return Some(0);
        }
        let at = text
            .windows(piece.len())
            .position(|window| self.same(window, piece));
        at.map(|at| at + piece.len())
    }
}

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

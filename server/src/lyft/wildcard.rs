//! Patterns with `*`.

/// A text in which each `*` matches any characters, or none. A `*` cannot be escaped.
#[derive(Debug, Clone)]
pub(super) struct Wildcard {
    pattern: String,
}

impl Wildcard {
    /// The pattern, if the text has a `*`.
    pub(super) fn new(text: &str) -> Option<Self> {
        let pattern = text.to_owned();
        text.contains('*').then_some(Self { pattern })
    }

    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether it matches the text: the pieces occur in order, the first at the beginning, the last at the end, each
    /// of the others as early as possible.
    pub(super) fn covers(&self, text: &str) -> bool {
        let Some((first, rest)) = self.pattern.split_once('*') else {
            return false;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let within = text.strip_prefix(first);
        let Some(mut left) = within.and_then(|within| within.strip_suffix(last)) else {
            return false;
        };
        middle.split('*').all(|piece| match left.find(piece) {
            Some(at) => {
                left = &left[at + piece.len()..];
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_do_not_overlap() {
        let covers = |pattern: &str, text| Wildcard::new(pattern).expect("a pattern").covers(text);
        let cases = [
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*bc", "abc", false),
            ("foo*bar*baz", "foobarbaz", true),
            ("foo*bar*baz", "foo1bar2baz", true),
            ("foo*bar*baz", "foobaz", false),
            ("foo*bar*baz", "foobazbar", false),
            ("*x*", "axb", true),
            ("*x*", "ab", false),
            ("a**b", "ab", true),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("a*b*c*d", "a-b-b-c-d", true),
            // As early as possible, so that the next piece can match.
            ("*b*c*", "bcb", true),
            ("ä*ö", "äüö", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(covers(pattern, text), expected, "{pattern} {text}");
        }
        assert!(Wildcard::new("plain").is_none());
    }
}

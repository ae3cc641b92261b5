//! Patterns of texts with `*`, which matches anything.

/// A pattern of texts in which `*` matches any text. Matching is one pass from the left without backtracking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// The texts between the asterisks, in lower case if `ignore_case`.
    pieces: Box<[Box<[u8]>]>,
    ignore_case: bool,
}

impl Glob {
    /// Reads a pattern. With `ignore_case` letters of ASCII match in either case.
    #[must_use]
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

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_in_case(text, self.ignore_case)
    }

    /// Whether the whole text matches when letters of ASCII match in either case.
    #[must_use]
    pub fn matches_in_any_case(&self, text: &[u8]) -> bool {
        self.matches_in_case(text, true)
    }

    fn matches_in_case(&self, text: &[u8], ignore_case: bool) -> bool {
        let same = |text: &[u8], piece: &[u8]| {
            if ignore_case {
                text.eq_ignore_ascii_case(piece)
            } else {
                text == piece
            }
        };
        let [first, rest @ ..] = &*self.pieces else {
            return false;
        };
        let [middle @ .., last] = rest else {
            return text.len() == first.len() && same(text, first);
        };
        let least = first.len() + last.len();
        if text.len() < least
            || !same(&text[..first.len()], first)
            || !same(&text[text.len() - last.len()..], last)
        {
            return false;
        }
        let mut between = &text[first.len()..text.len() - last.len()];
        for piece in middle {
            match end_of(piece, between, same) {
                Some(end) => between = &between[end..],
                None => return false,
            }
        }
        true
    }
}

/// The end of the first occurrence of a piece.
fn end_of(piece: &[u8], text: &[u8], same: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
    if piece.is_empty() {
        return Some(0);
    }
    let at = text
        .windows(piece.len())
        .position(|window| same(window, piece));
    at.map(|at| at + piece.len())
}

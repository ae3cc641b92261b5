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

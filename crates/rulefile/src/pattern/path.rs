//! Patterns of paths.

use std::iter;

use super::{
    path_normalization::{RequestPath, has_one_meaning, needlessly_encoded, normalized},
    wildcards::Glob,
};

/// The result of a match when the application may read the request in another way than the rules: another spelling of
/// the path, or another one of several values.
#[allow(clippy::exhaustive_enums, reason = "a match has these two results")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDoubt {
    /// The match fits. Used where a match makes a limit apply.
    Fits,
    /// The match does not fit. Used where a match exempts a request from a limit.
    Differs,
}

impl InDoubt {
    /// The other result, for a negated match.
    #[inline]
    #[must_use]
    pub const fn negated(self) -> Self {
        match self {
            Self::Fits => Self::Differs,
            Self::Differs => Self::Fits,
        }
    }

    /// Whether a request with two readings fits: one is enough for a limit, and an exemption needs both.
    #[inline]
    pub fn of_two(self, one: bool, other: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Fits => one || other(),
            Self::Differs => one && other(),
        }
    }
}

/// A pattern of paths, such as `/api/{id}/v*/**`. It compares segment by segment with the normal form of a path.
#[derive(Debug, Clone)]
pub struct PathPattern {
    /// The whole path, if the pattern matches no other one.
    literal: Option<Box<str>>,
    segments: Box<[SegmentPattern]>,
    /// Whether the pattern ends with `**`: any further segments, or none.
    open: bool,
    ignore_case: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SegmentPattern {
    Literal(Box<str>),
    /// `{name}`: any segment.
    Parameter(Box<str>),
    Glob(Glob),
}

impl PathPattern {
    /// Parses a pattern. With `ignore_case` letters of ASCII match in either case.
    ///
    /// # Errors
    ///
    /// A message for a pattern that matches no path, or misses spellings of its path.
    pub fn new(text: &str, ignore_case: bool) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("the path {text:?} does not begin with a slash"));
        };
        check_spelling(text)?;
        let mut pattern = Self {
            literal: None,
            segments: Box::default(),
            open: false,
            ignore_case,
        };
        let mut segments = Vec::new();
        for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
            if pattern.open {
                return Err(format!("`**` in {text:?} is not the last segment"));
            }
            if segment == "**" {
                pattern.open = true;
                continue;
            }
            segments.push(SegmentPattern::new(segment, ignore_case)?);
        }
        let is_literal = |segment: &SegmentPattern| matches!(segment, SegmentPattern::Literal(_));
        if !pattern.open && !ignore_case && segments.iter().all(is_literal) {
            pattern.literal = Some(text.into());
        }
        pattern.segments = segments.into();
        pattern.check_names(text)?;
        Ok(pattern)
    }

    fn check_names(&self, text: &str) -> Result<(), String> {
        let names: Vec<&str> = self.parameters().collect();
        if let Some((at, name)) = names
            .iter()
            .enumerate()
            .find(|(at, name)| names[..*at].contains(name))
        {
            return Err(format!(
                "{:?} has the parameter {name:?} twice, as number {}",
                text,
                at + 1
            ));
        }
        Ok(())
    }

    /// Whether a path matches.
    #[inline]
    pub fn fits(&self, path: &RequestPath<'_>, in_doubt: InDoubt) -> bool {
        match (&self.literal, path.is_plain()) {
            (Some(literal), true) => **literal == *path.normal(),
            (None, true) => self.matches(path.normal(), |_| true),
            (_, false) => self.fits_ambiguous(path, in_doubt),
        }
    }

    #[cold]
    fn fits_ambiguous(&self, path: &RequestPath<'_>, in_doubt: InDoubt) -> bool {
        match in_doubt {
            InDoubt::Fits => self.reading_of(path).is_some(),
            InDoubt::Differs => path.is_normal() && self.matches(path.normal(), has_one_meaning),
        }
    }

    /// The reading of the path that matches. Of several it is the one that decodes and removes most, since that is the
    /// same for most spellings.
    pub fn reading_of<'p>(&self, path: &'p RequestPath<'_>) -> Option<&'p str> {
        let others = path.others().iter().map(String::as_str);
        let mut readings = iter::once(path.normal()).chain(others).rev();
        readings.find(|path| self.matches(path, |_| true))
    }

    /// Whether a normal form matches, and `wild` accepts each segment that no literal matches.
    #[inline]
    fn matches(&self, path: &str, wild: impl Fn(&str) -> bool) -> bool {
        if !path.starts_with('/') {
            return false;
        }
        let mut segments = Segments(path);
        for pattern in &self.segments {
            let Some(segment) = segments.next() else {
                return false;
            };
            let is_literal = matches!(pattern, SegmentPattern::Literal(_));
            if !pattern.matches(segment, self.ignore_case) || !(is_literal || wild(segment)) {
                return false;
            }
        }
        if self.open {
            wild(segments.0)
        } else {
            segments.next().is_none()
        }
    }

    /// The segment of `{name}` in a reading that matches.
    pub fn parameter<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let named = |pattern: &SegmentPattern| matches!(pattern, SegmentPattern::Parameter(own) if **own == *name);
        let at = self.segments.iter().position(named)?;
        Segments(path).nth(at)
    }

    /// The names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            SegmentPattern::Parameter(name) => Some(&**name),
            _ => None,
        })
    }

    /// Whether letters of ASCII match in either case.
    pub const fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    /// The first segment, if it is the same in all paths that match; empty for the root.
    pub fn first_literal(&self) -> Option<&str> {
        match self.segments.first() {
            Some(SegmentPattern::Literal(first)) if !self.ignore_case => Some(first),
            None if !self.open => Some(""),
            _ => None,
        }
    }

    /// Whether every path that matches `other` also matches this pattern. `false` may be wrong, `true` is not.
    pub fn covers(&self, other: &Self) -> bool {
        let (own, others) = (&self.segments, &other.segments);
        let long_enough = own.len() == others.len() || (self.open && own.len() < others.len());
        let as_open = self.open || !other.open;
        let as_lax = self.ignore_case || !other.ignore_case;
        let covered = own
            .iter()
            .zip(others.iter())
            .all(|(own, other)| match (own, other) {
                (SegmentPattern::Parameter(_), _) => true,
                (own, SegmentPattern::Literal(other)) => own.matches(other, self.ignore_case),
                (own, other) => own == other,
            });
        long_enough && as_open && as_lax && covered
    }
}

/// Refuses a pattern that matches no path, or misses spellings of its path.
fn check_spelling(text: &str) -> Result<(), String> {
    let is_invalid = |c: &char| matches!(c, '?' | '#') || c.is_whitespace() || c.is_control();
    if let Some(invalid) = text.chars().find(is_invalid) {
        return Err(format!(
            "the path {text:?} would never match: no path has {invalid:?}; a query is matched by \
             `query`"
        ));
    }
    let normal = normalized(text);
    if normal != text {
        return Err(format!(
            "the path {text:?} would never match: paths are compared in their normal form, and this \
             one's is {normal:?}"
        ));
    }
    if let Some(plain) = needlessly_encoded(text) {
        return Err(format!(
            "the path {text:?} would miss requests: write {plain:?}, which matches both spellings"
        ));
    }
    Ok(())
}

impl SegmentPattern {
    fn new(text: &str, ignore_case: bool) -> Result<Self, String> {
        if let Some(name) = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(letters) {
                return Err(format!(
                    "{text:?} is no parameter; its name has letters, digits and underscores"
                ));
            }
            return Ok(Self::Parameter(name.into()));
        }
        if text.contains(['{', '}']) {
            return Err(format!(
                "{text:?} is a parameter in a part of a segment; `{{name}}` is a whole one, and `*` \
                 any part"
            ));
        }
        if text.contains("**") {
            return Err(format!(
                "{text:?}: `**` is a segment of its own, the last one"
            ));
        }
        Ok(if text.contains('*') {
            Self::Glob(Glob::new(text, ignore_case))
        } else {
            Self::Literal(text.into())
        })
    }

    #[inline]
    fn matches(&self, segment: &str, ignore_case: bool) -> bool {
        match self {
            Self::Literal(literal) if ignore_case => literal.eq_ignore_ascii_case(segment),
            Self::Literal(literal) => **literal == *segment,
            // An empty segment is no parameter for routers either.
            Self::Parameter(_) => !segment.is_empty(),
            Self::Glob(glob) => glob.matches(segment.as_bytes()),
        }
    }
}

/// The segments of a path in its normal form; none for `*`.
///
/// Written by hand, since `str::split` is slower for short texts and every request passes here.
#[derive(Debug, Clone)]
struct Segments<'p>(&'p str);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    #[inline]
    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0.strip_prefix('/').filter(|rest| !rest.is_empty())?;
        let end = rest
            .bytes()
            .position(|byte| byte == b'/')
            .unwrap_or(rest.len());
        let (segment, after) = rest.split_at(end);
        self.0 = after;
        Some(segment)
    }
}

/// The first segment of a path in its normal form; empty for the root.
#[inline]
pub fn first_segment(path: &str) -> Option<&str> {
    if path == "/" {
        return Some("");
    }
    Segments(path).next()
}

//! The filter of requests: a method and a path.

use std::str::FromStr;

use super::entry::Entry;

/// `POST /login`, `* /api/**`, `/search`.
#[derive(Debug, Clone)]
pub(super) struct RequestPattern {
    method: Option<String>,
    segments: Vec<String>,
    /// Whether the path may continue after the segments.
    open: bool,
}

impl FromStr for RequestPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, path) = match text.trim().split_once(' ') {
            Some((method, path)) => (Some(method).filter(|method| *method != "*"), path.trim()),
            None => (None, text.trim()),
        };
        let Some(path) = path.strip_prefix('/') else {
            return Err(format!(
                "{text:?} matches no request; accepted are, for example, 'POST /login' and \
                 '/api/**'"
            ));
        };
        let mut segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let open = segments.last().is_some_and(|last| last == "**");
        if open {
            segments.pop();
        }
        Ok(Self {
            method: method.map(str::to_ascii_uppercase),
            segments,
            open,
        })
    }
}

impl RequestPattern {
    pub(super) fn fits(&self, entry: &Entry<'_>) -> bool {
        let method = |known: &String| entry.method.as_deref() == Some(known.as_str());
        self.method.as_ref().is_none_or(method)
            && entry.path().is_some_and(|path| self.fits_path(path))
    }

    fn fits_path(&self, path: &str) -> bool {
        let mut parts = path.strip_prefix('/').unwrap_or(path).split('/');
        let fits = |segment: &String| {
            let part = parts.next();
            part.is_some_and(|part| segment == "*" || segment == part)
        };
        self.segments.iter().all(fits) && (self.open || parts.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::RequestPattern;

    #[test]
    fn paths_fit_by_segments() {
        for (pattern, path, fits) in [
            ("/login", "/login", true),
            ("/login", "/login/", false),
            ("/login", "/", false),
            ("/", "/", true),
            ("/api/*", "/api/a", true),
            ("/api/*", "/api/a/b", false),
            ("/api/**", "/api/a/b", true),
            ("/api/**", "/api", true),
            ("/api/**", "/apis", false),
            ("/**", "/", true),
        ] {
            let read: RequestPattern = pattern.parse().expect("a pattern");
            assert_eq!(read.fits_path(path), fits, "{pattern} {path}");
        }
    }
}

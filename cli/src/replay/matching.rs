//! The filter of requests: a method and a path, compared as rules compare them.

use std::str::FromStr;

use http::Uri;
use tower_ratelimit_rulefile::pattern::{InDoubt, PathPattern, RequestPath, expression_in_path};

use super::entry::Entry;

/// `POST /login`, `* /api/**`, `/search`.
#[derive(Debug, Clone)]
pub(super) struct RequestPattern {
    method: Option<String>,
    path: PathPattern,
    /// The warning that a rule file gets for such a path.
    warning: Option<String>,
}

impl FromStr for RequestPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, path) = match text.trim().split_once(' ') {
            Some((method, path)) => (Some(method).filter(|method| *method != "*"), path.trim()),
            None => (None, text.trim()),
        };
        let warning = expression_in_path(path);
        let path = PathPattern::new(path, false).map_err(|reason| {
            format!(
                "{text:?} matches no request: {reason}; accepted are, for example, 'POST /login' \
                 and '/api/**'"
            )
        })?;
        Ok(Self {
            method: method.map(|method| counted(method).to_owned()),
            path,
            warning,
        })
    }
}

/// The method as rules count it: HEAD is GET.
fn counted(method: &str) -> &str {
    if method.eq_ignore_ascii_case("HEAD") {
        "GET"
    } else {
        method
    }
}

impl RequestPattern {
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    pub(super) fn fits(&self, entry: &Entry<'_>) -> bool {
        let sent = entry.method.as_deref().map(counted);
        let is_sent = |known: &String| sent.is_some_and(|sent| sent.eq_ignore_ascii_case(known));
        self.method.as_ref().is_none_or(is_sent) && self.fits_path(entry)
    }

    fn fits_path(&self, entry: &Entry<'_>) -> bool {
        let uri = entry.uri.as_deref().unwrap_or_default().parse::<Uri>();
        let path = uri
            .as_ref()
            .map_or_else(|_| entry.path(), |uri| Some(uri.path()));
        path.is_some_and(|path| self.path.fits(&RequestPath::new(path), InDoubt::Fits))
    }
}

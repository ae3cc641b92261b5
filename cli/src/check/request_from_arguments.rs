//! The request described by the arguments of `check`.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Method, Request, Uri, request::Parts};

use super::arguments::Check;

/// The head of the described request, if there is one.
pub(super) fn request(check: &Check) -> Result<Option<Parts>, String> {
    let Some(line) = &check.request else {
        return Ok(None);
    };
    let Some((method, uri)) = line.trim().split_once(' ') else {
        return Err(format!(
            "{line:?} is no request; accepted is, for example, 'POST /api/login'"
        ));
    };
    let method: Method = method
        .parse()
        .map_err(|_| format!("{method:?} is no method"))?;
    let uri: Uri = uri
        .trim()
        .parse()
        .map_err(|_| format!("{uri:?} is no path"))?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = method;
    parts.uri = uri;
    for header in &check.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            format!("{header:?} is no header; accepted is, for example, 'x-plan: pro'")
        })?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| format!("{name:?} is no header's name"))?;
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| format!("{value:?} is no header's value"))?;
        parts.headers.append(name, value);
    }
    parts.extensions.insert(SocketAddr::new(check.peer, 0));
    Ok(Some(parts))
}

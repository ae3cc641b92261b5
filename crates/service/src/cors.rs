//! CORS fields of denials and of the gateway's own errors: browsers then show them to scripts of other origins.

use axum::response::Response;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN, RETRY_AFTER, VARY,
    },
};
use tower_ratelimit::rules::CorsOrigins;

/// The fields for the response to a request.
pub struct CorsFields {
    /// `None` if the request is from no origin of the list.
    allowed: Option<HeaderValue>,
}

impl CorsFields {
    /// The fields for a request with this header; `None` if the rules have no `cors_origins`.
    pub fn of(origins: &CorsOrigins, request: &HeaderMap) -> Option<Self> {
        let allowed = || origins.allow_origin(request);
        (!origins.is_empty()).then(|| Self { allowed: allowed() })
    }

    /// Adds the fields to an error.
    pub fn add(self, response: &mut Response) {
        let status = response.status();
        let is_error = status.is_client_error() || status.is_server_error();
        if !is_error {
            return;
        }
        let exposed = exposed(response.headers());
        let headers = response.headers_mut();
        if self.allowed.as_ref().is_none_or(|allowed| allowed != "*") {
            headers.append(VARY, HeaderValue::from(ORIGIN));
            if self.allowed.is_some() {
                // Browsers show a script that sends cookies no response without it.
                let yes = HeaderValue::from_static("true");
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
            }
        }
        if let Some(allowed) = self.allowed {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            if let Ok(exposed) = HeaderValue::from_str(&exposed) {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
            }
        }
    }
}

/// The names of the fields about limits.
fn exposed(headers: &HeaderMap) -> String {
    let is_of_limits = |name: &&HeaderName| {
        let text = name.as_str();
        *name == RETRY_AFTER || text.starts_with("ratelimit") || text.starts_with("x-ratelimit")
    };
    let names = headers.keys().filter(is_of_limits);
    names.map(HeaderName::as_str).collect::<Vec<_>>().join(", ")
}

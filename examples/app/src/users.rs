//! Users, and the middleware that authenticates them.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};

/// A user's row.
#[derive(Debug, Clone)]
#[allow(clippy::exhaustive_structs, reason = "nobody depends on an example")]
pub struct User {
    /// The key of the limits, since it never changes.
    pub id: u64,
    /// A display name, free to change.
    pub name: String,
    /// A limit of the user's own, in requests per minute.
    pub per_minute: Option<u64>,
}

/// Users by their tokens. A stand-in for a database, which would store digests of tokens.
pub type Users = Arc<HashMap<String, User>>;

/// Inserts the user as an extension, for the limit and the handlers, or responds 401.
pub(crate) async fn authenticate(
    State(users): State<Users>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = bearer(request.headers()).and_then(|token| users.get(token));
    let Some(user) = user.cloned() else {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

fn bearer(fields: &HeaderMap) -> Option<&str> {
    let (scheme, token) = fields.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

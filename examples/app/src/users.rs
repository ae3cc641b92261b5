//! Users, and the middleware that finds out who asks.

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
    /// The key of the limits, because it never changes.
    pub id: u64,
    /// Shown, and free to change.
    pub name: String,
    /// A limit of the user's own, in requests per minute.
    pub per_minute: Option<u64>,
}

/// Users by their tokens. Stands for a database, which would hold digests of tokens.
pub type Users = Arc<HashMap<String, User>>;

/// Inserts the user, where the limit and the handlers find them, or answers 401.
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

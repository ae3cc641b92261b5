//! Verified claims as keys, in axum: the right order of layers, forged claims, the wrong order.

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{Response, StatusCode, header},
    middleware::{self, Next},
    response::IntoResponse,
    routing::get,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use testkit::{Lines, limiter, now};
use tower::ServiceExt;
use tower_ratelimit::{
    Key, KeyErrorKind, KeyExtractor, LocalLimiter, MissingKey, Quota, RateLimitLayer,
    key::extension_fn, observe::Event,
};

/// Claims of a caller after the application has verified the token.
#[derive(Clone)]
enum Caller {
    User(String),
    Nobody,
}

fn signature(secret: &str, claims: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let code = mac.chain_update(claims).finalize().into_bytes();
    BASE64_URL_SAFE_NO_PAD.encode(code)
}

/// A token such as JWT's HS256, short of its header.
fn token(secret: &str, user: &str) -> String {
    let claims = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{user}"}}"#));
    let signature = signature(secret, &claims);
    format!("Bearer {claims}.{signature}")
}

fn verify(request: &Request) -> Option<String> {
    let field = request.headers().get(header::AUTHORIZATION)?;
    let (claims, signed) = field
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")?
        .split_once('.')?;
    if signature("the server's", claims) != signed {
        return None;
    }
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    claims["sub"].as_str().map(str::to_owned)
}

/// The application's own layer: who has no valid token continues as nobody.
async fn identify(mut request: Request, next: Next) -> Response<Body> {
    let caller = verify(&request).map_or(Caller::Nobody, Caller::User);
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// A stricter one: who has no valid token goes no further.
async fn authenticate(mut request: Request, next: Next) -> Response<Body> {
    let Some(user) = verify(&request) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(Caller::User(user));
    next.run(request).await
}

fn by_caller() -> impl KeyExtractor {
    extension_fn(|caller: &Caller| match caller {
        Caller::User(name) => Some(Key::from(name.as_str())),
        Caller::Nobody => None,
    })
}

fn twice_an_hour() -> (LocalLimiter, RateLimitLayer) {
    let (limiter, _) = limiter(Quota::per_hour(2));
    (limiter.clone(), RateLimitLayer::new(limiter, by_caller()))
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn status(app: &Router, token: &str) -> u16 {
    let request = Request::get("/").header(header::AUTHORIZATION, token);
    let request = request.body(Body::empty()).unwrap();
    now(app.clone().oneshot(request)).unwrap().status().as_u16()
}

fn left(limiter: &LocalLimiter, user: &str) -> Option<u64> {
    limiter.peek(&Key::from(user), 1).remaining()
}

#[test]
fn inside_authentication_every_verified_user_has_a_limit() {
    let (_, limit) = twice_an_hour();
    let app = hello().layer(limit).layer(middleware::from_fn(identify));
    let [alice, bob] = ["alice", "bob"].map(|user| token("the server's", user));
    assert_eq!([0; 3].map(|_| status(&app, &alice)), [200, 200, 429]);
    assert_eq!([0; 3].map(|_| status(&app, &bob)), [200, 200, 429]);
}

#[test]
fn a_forged_claim_is_never_a_key() {
    let (limiter, limit) = twice_an_hour();
    let app = hello().layer(limit).layer(middleware::from_fn(identify));
    // Whomever they name, forged tokens are nobody's, and nobody has one limit.
    let forged = ["alice", "bob", "carol", "dave"].map(|user| token("the attacker's", user));
    assert_eq!(
        forged.each_ref().map(|token| status(&app, token)),
        [200, 200, 429, 429]
    );
    assert_eq!(left(&limiter, "alice"), Some(2));
    assert_eq!(limiter.tracked_keys(), 1);

    let (strict_limiter, limit) = twice_an_hour();
    let strict = hello()
        .layer(limit)
        .layer(middleware::from_fn(authenticate));
    assert_eq!(
        forged.each_ref().map(|token| status(&strict, token)),
        [401; 4]
    );
    assert_eq!(strict_limiter.tracked_keys(), 0);
}

#[test]
fn outside_authentication_every_request_is_500_and_the_error_names_the_fix() {
    let errors = Lines::default();
    let received = errors.clone();
    let (limiter, limit) = twice_an_hour();
    let limit = limit.observer(move |event: &Event<'_>| {
        if let Event::KeyMissing { error, .. } = event {
            assert_eq!(error.kind(), KeyErrorKind::Unavailable);
            received.push(error.to_string());
        }
    });
    let app = hello().layer(middleware::from_fn(identify)).layer(limit);
    for user in ["alice", "bob", "carol"] {
        assert_eq!(status(&app, &token("the server's", user)), 500);
    }
    assert_eq!(limiter.tracked_keys(), 0, "nobody shares a bucket");
    let errors = errors.take();
    assert_eq!(errors.len(), 3);
    for error in errors {
        assert!(
            error.contains("authentication, outside this one"),
            "{error}"
        );
        assert!(error.contains("in axum: add it after"), "{error}");
    }
}

#[test]
fn callers_without_a_token_can_be_rejected() {
    let (limiter, limit) = twice_an_hour();
    let limit = limit.on_missing_key(KeyErrorKind::Absent, MissingKey::Reject);
    let app = hello().layer(limit).layer(middleware::from_fn(identify));
    assert_eq!(status(&app, "Bearer nonsense"), 400);
    assert_eq!(limiter.tracked_keys(), 0);
    assert_eq!(status(&app, &token("the server's", "alice")), 200);
    assert_eq!(left(&limiter, "alice"), Some(1));
}

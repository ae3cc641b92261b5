//! Users who are logged in have a limit each, also behind one address; everybody else counts for the address.

use axum::{Router, routing::get};
use tower_ratelimit::{Key, KeyExtractor, PeerIp, Quota, RateLimitLayer, key::key_fn};

fn app() -> Router {
    // `None` leads on to the address.
    let user = key_fn(|parts| {
        let user = parts.extensions.get::<User>();
        user.map(|user| Key::from(user.id))
    });
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Quota::per_hour(600), user.or(PeerIp)))
}

// The test, which is not on the page.

use axum::Extension;

use crate::test_requests::{Ask, remaining};

#[derive(Clone)]
struct User {
    id: u64,
}

#[tokio::test]
async fn users_of_one_address_count_apart_and_strangers_by_address() {
    let app = app();
    let as_user = |id| app.clone().layer(Extension(User { id }));
    let elsewhere = [192, 0, 2, 2];
    assert_eq!(remaining(&Ask::get("/").of(&as_user(1)).await), 599);
    assert_eq!(remaining(&Ask::get("/").of(&as_user(2)).await), 599);
    let moved = Ask::get("/").from(elsewhere);
    assert_eq!(remaining(&moved.of(&as_user(1)).await), 598);
    for left in [599, 598] {
        assert_eq!(remaining(&Ask::get("/").of(&app).await), left);
    }
    assert_eq!(remaining(&moved.of(&app).await), 599);
}
